//! Groups of flags that the examples share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, ValueEnum};
use kiln_comm::ThreadRanks;
use kiln_data::{Dataset, DatasetFormat, synthetic};
use kiln_graph::Csc;
use kiln_nn::{Aggregate, GcnConfig, SageConfig};
use kiln_sample::Fanout;
use kiln_train::{
    Evaluator, ExactEvaluator, LayerWiseConfig, LayerWiseInference, Optimizer, OptimizerConfig, Spill,
    StepDecay,
};

use crate::{LaunchArgs, flags, say};

/// What a run was asked for, and when it began.
#[derive(Debug)]
pub struct Settings {
    /// What the program is called.
    pub program: &'static str,
    /// What each flag was set to, defaults included, as text.
    pub flags: BTreeMap<String, String>,
    /// When the command line was read.
    pub started: Instant,
}

/// Reads the command line of a program, and handles lost files from then on ([`kiln_graph::handle_bus_errors`]); ends the
/// process with a message where something is wrong.
pub fn parse<A: CommandFactory + FromArgMatches>(program: &'static str) -> (A, Settings) {
    let started = Instant::now();
    let command = A::command();
    let matches = command.clone().get_matches();
    let args = A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let launch = LaunchArgs::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Err(error) = kiln_graph::handle_bus_errors() {
        A::command().error(ErrorKind::Io, format!("handling SIGBUS: {error}")).exit();
    }
    if let Err(error) = launch.read() {
        A::command().error(ErrorKind::ValueValidation, error).exit();
    }
    let text = |id: &str| {
        let values = matches.get_raw(id).into_iter().flatten();
        values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",")
    };
    let given = command.get_arguments().filter(|flag| matches.contains_id(flag.get_id().as_str()));
    let flags = given.filter_map(|flag| Some((flag.get_long()?.to_owned(), text(flag.get_id().as_str()))));
    let flags = flags.collect();
    (args, Settings { program, flags, started })
}

/// Where a data set for nodes comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSource {
    /// The packages of Debian bookworm, built in: 63,437 nodes, real.
    DebianPackages,
    /// A stochastic block model of 10,000 nodes, made on the spot.
    Sbm,
    /// Random edges, labels and features, as PyG's `FakeDataset`, of about so many nodes.
    Fake(usize),
    /// A folder of a kind that is recognised.
    Path(PathBuf),
}

/// Which data, and what is done to it.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// Data set: `debian-packages` (built in), `sbm`, `fake:NODES`, or the path of a folder: kiln's own, `.npy` arrays, an edge list, GraphBolt's, OGB's.
    #[arg(long, value_parser = flags::data, default_value = "debian-packages")]
    data: DataSource,
    /// Whether feature columns are scaled to mean 0 and standard deviation 1 (in memory); if not given, those of built-in sets are.
    #[arg(long)]
    standardize: Option<bool>,
    /// Divides each feature row by its sum (in memory).
    #[arg(long, conflicts_with = "standardize")]
    row_normalize: bool,
    /// Adds the reverse of each edge (in memory).
    #[arg(long)]
    symmetrize: bool,
    /// Copies graph and features into memory, in huge pages where the system has them; if not given, files of arrays are read where they are, page by page.
    #[arg(long)]
    in_memory: bool,
    /// Reads all data once before the run and checks it.
    #[arg(long)]
    verify: bool,
}

impl DataArgs {
    /// Opens or makes the set, does with it what was asked for, and says what it took and noticed.
    ///
    /// # Errors
    /// What the data crate says.
    pub fn open(&self, seed: u64) -> anyhow::Result<Dataset> {
        let mut data = self.load(seed)?;
        for (part, nodes) in data.split.parts() {
            ensure!(!nodes.is_empty(), "the {part} split of {} has no nodes: give it some", data.name);
        }
        if self.verify {
            for note in data.validate().context("verifying the data")? {
                if !data.notes.contains(&note) {
                    data.notes.push(note);
                }
            }
        }
        if self.symmetrize {
            data = data.symmetrize()?;
        }
        if self.row_normalize {
            data = data.row_normalize()?;
        } else if self.standardize.unwrap_or(self.data == DataSource::DebianPackages) {
            data = data.standardize()?;
        }
        // Last: what was made anew above is in memory already.
        if self.in_memory {
            data = data.in_memory();
        }
        say(&data);
        for note in &data.notes {
            say(format_args!("note: {note}"));
        }
        Ok(data)
    }

    /// The hash of what the set is made of, to tell whether a run goes on with the same data. Of a set in kiln's
    /// own form it is the one that stands there; any other set is read once.
    ///
    /// # Errors
    /// What the data crate says.
    pub fn hash(&self, data: &Dataset) -> anyhow::Result<String> {
        match &self.data {
            DataSource::Path(path) if kiln_data::detect_format(path)? == DatasetFormat::Kiln => {
                Ok(kiln_data::format::hash(path)?)
            }
            _ => Ok(data.hash()?),
        }
    }

    fn load(&self, seed: u64) -> anyhow::Result<Dataset> {
        Ok(match &self.data {
            DataSource::DebianPackages => kiln_data::debian_packages().context("loading debian-packages")?,
            DataSource::Sbm => synthetic::sbm(synthetic::SbmConfig {
                n_nodes: 10_000,
                n_classes: 8,
                degree: 10,
                homophily: 0.8,
                dim: 32,
                noise: 2.0,
                seed,
            })?,
            DataSource::Fake(avg_num_nodes) => {
                let avg_num_nodes = *avg_num_nodes;
                synthetic::fake(synthetic::FakeConfig { avg_num_nodes, seed, ..Default::default() })?
            }
            DataSource::Path(path) => {
                let started = Instant::now();
                let kind = kiln_data::detect_format(path)?;
                let mut data = kiln_data::open(path)?;
                let ms = started.elapsed().as_secs_f64() * 1e3;
                say(format_args!("{} is {kind}, opened in {ms:.0} ms", path.display()));
                // The other kinds' readers have read the split; kiln's own form opens in constant time.
                if kind == DatasetFormat::Kiln {
                    data.notes = data.check_split().context("checking the split")?;
                }
                data
            }
        })
    }
}

/// The shape of a node classifier.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Number of layers; as many as fanouts, if not given.
    #[arg(long, value_parser = flags::layers)]
    layers: Option<usize>,
    /// Width of the hidden layers.
    #[arg(long, value_parser = flags::size, default_value = "256")]
    hidden: usize,
    /// Fraction of the hidden values that is dropped in training.
    #[arg(long, value_parser = flags::rate, default_value = "0.5")]
    dropout: f64,
    /// Fraction of the input features that is dropped in training.
    #[arg(long, value_parser = flags::rate, default_value = "0")]
    input_dropout: f64,
}

impl ModelArgs {
    /// A fanout for each layer: those given, or the only one given for every layer.
    ///
    /// # Errors
    /// When there are several, and another number of layers was asked for.
    pub fn fanouts(&self, given: &[Fanout]) -> anyhow::Result<Vec<Fanout>> {
        match (self.layers, given) {
            (Some(n_layers), [fanout]) => Ok(vec![*fanout; n_layers]),
            (Some(n_layers), fanouts) if fanouts.len() != n_layers => {
                bail!("{} fanouts for --layers {n_layers}: give one a layer, or one for all", fanouts.len())
            }
            _ => Ok(given.to_vec()),
        }
    }

    /// A GraphSAGE model of this width.
    pub fn sage(&self, d_in: usize, n_classes: usize, n_layers: usize) -> SageConfig {
        let &Self { hidden, dropout, input_dropout, .. } = self;
        SageConfig { d_in, hidden, n_classes, n_layers, aggregate: Aggregate::Mean, input_dropout, dropout }
    }

    /// A GCN of this width.
    pub fn gcn(&self, d_in: usize, n_classes: usize, n_layers: usize) -> GcnConfig {
        let &Self { hidden, dropout, input_dropout, .. } = self;
        GcnConfig { d_in, hidden, n_classes, n_layers, input_dropout, dropout }
    }
}

/// Which neighbours evaluation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Eval {
    /// As many as in training.
    Sampled,
    /// All of them, layer by layer over the whole graph.
    Exact,
}

/// How a model is evaluated.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Neighbours that evaluation reads.
    #[arg(long = "eval", id = "eval", value_enum, default_value = "sampled")]
    kind: Eval,
    /// Bytes that `--eval exact` may hold of layers' outputs, as in 512MiB; more goes to files in the system's folder for temporary ones (TMPDIR). The test nodes' scores come on top. No limit, if not given.
    #[arg(long, value_parser = kiln_data::convert::parse_bytes)]
    memory: Option<u64>,
}

impl EvalArgs {
    /// What evaluates models that read this graph of the data, or reads it with its weights. Exact evaluation takes an
    /// eighth of the memory for one range of nodes, 256 MiB at most.
    ///
    /// # Errors
    /// For a memory that is too small, or that sampled evaluation would not heed.
    pub fn evaluator(
        &self,
        data: &Dataset,
        graph: &Arc<Csc>,
        weights: EdgeWeights,
        ranks: &ThreadRanks,
    ) -> anyhow::Result<Evaluator> {
        if self.kind == Eval::Sampled {
            ensure!(self.memory.is_none(), "--memory is for --eval exact: give both or neither");
            return Ok(Evaluator::Sampled);
        }
        let mut config = LayerWiseConfig::default();
        if let Some(memory_bytes) = self.memory {
            config.range_bytes = config.range_bytes.min(memory_bytes / 8);
            config.spill = Some(Spill { memory_bytes, folder: std::env::temp_dir() });
        }
        let inference = LayerWiseInference::new(graph.clone(), config)?;
        let inference = match weights {
            EdgeWeights::Unused => inference,
            EdgeWeights::Used => inference.carry_weights()?,
        };
        let (features, labels, threads) = (data.features.clone(), data.labels.clone(), ranks.machine_pool()?);
        Ok(Evaluator::Exact(ExactEvaluator { inference, features, labels, threads }))
    }
}

/// Whether a model uses the weights of edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeWeights {
    /// It does not.
    Unused,
    /// It does.
    Used,
}

/// Which update rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rule {
    /// Adam; weight decay is added to the gradients.
    Adam,
    /// AdamW; weight decay is applied to the weights.
    Adamw,
}

/// How the model learns, and for how long.
#[derive(Debug, Args)]
pub struct FitArgs {
    /// Passes over the training items.
    #[arg(long, value_parser = flags::size, default_value = "20")]
    pub epochs: usize,
    /// Step size of the optimizer.
    #[arg(long, value_parser = flags::positive, default_value = "0.003")]
    lr: f64,
    /// Epochs after which the step size is multiplied by --lr-decay, over and over; never, if not given.
    #[arg(long, value_parser = flags::size)]
    lr_decay_every: Option<usize>,
    /// What the step size is multiplied by; 0.5 if not given.
    #[arg(long, value_parser = flags::share)]
    lr_decay: Option<f64>,
    /// Update rule.
    #[arg(long, value_enum, default_value = "adam")]
    optimizer: Rule,
    /// Weight decay.
    #[arg(long, value_parser = flags::non_negative, default_value = "0")]
    weight_decay: f64,
}

impl FitArgs {
    /// The update rule with its numbers.
    ///
    /// # Errors
    /// For a decay without its epochs.
    pub fn optimizer(&self) -> anyhow::Result<OptimizerConfig> {
        let &Self { lr, lr_decay, lr_decay_every, weight_decay, .. } = self;
        ensure!(
            lr_decay.is_none() || lr_decay_every.is_some(),
            "--lr-decay is for --lr-decay-every: give both"
        );
        let kind = match self.optimizer {
            Rule::Adam => Optimizer::Adam,
            Rule::Adamw => Optimizer::AdamW,
        };
        let factor = lr_decay.unwrap_or(0.5);
        let decay = lr_decay_every.map(|every_epochs| StepDecay { every_epochs, factor });
        Ok(OptimizerConfig { kind, learning_rate: lr, weight_decay, decay })
    }
}
