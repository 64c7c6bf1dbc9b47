//! The flags of `kiln predict`.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use kiln::data::{NodeFeatures, NodeNames};
use kiln::graph::{Links, NodeId};
use kiln::predictions::{ItemSelection, SelectableItems, read_named_nodes};
use kiln::prelude::{PredictMode, SavedModel};
use kiln::sample::RelationFanouts;
use kiln::train::{EvaluatedNeighbors, LayerWiseConfig, ModelTask};
use kiln::{LinkNodes, PredictionFormat};
use kiln_usage::ensure;

use crate::flags::parse;
use crate::flags::partitions::PartitionSource;
use crate::flags::ranks::JobArgs;
use crate::flags::source::DataSource;
use crate::output::print_notes;

/// The flags of `kiln predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Folder of the run, with `model.json` and `best.safetensors`.
    #[arg(long)]
    pub(super) run: PathBuf,
    /// Dataset, as for `kiln train`, without preprocessing: the model repeats that of its training data. It may contain
    /// nodes that training did not have. Default: the data of the run, or its partitions; debian-packages if the run's folder does
    /// not record them.
    #[arg(long, value_parser = DataSource::parser(), default_value = "debian-packages", hide_default_value = true, conflicts_with_all = ["parts", "servers"])]
    pub(super) data: DataSource,
    /// Copies graph and features into memory.
    #[arg(long, conflicts_with_all = ["parts", "servers"])]
    pub(super) in_memory: bool,
    /// Node features, for graph classification. Default: those of training.
    #[arg(long, value_parser = parse::node_features())]
    pub(super) node_features: Option<NodeFeatures>,
    /// Reads only the edges and nodes that were known before this time: a date such as 2026-06-01, or an integer in data of integers.
    /// Default: for the test nodes of data with a split by time, the time of the test; else all edges.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) at: Option<String>,
    /// Nodes (or graphs, or edges) to predict, or the sources of --top-k: `test` (the test split of the data; of graphs, that of the
    /// run's seed; of links, the sources of the test links), `all`, `new` (those that `kiln data import --append` added),
    /// `unlabelled` (those without a target), or a file of ids, `.npy` or text with one id per line. Default: test, or for
    /// --top-k in data without test links all.
    #[arg(long, value_name = "test|all|new|unlabelled|FILE", value_parser = PathBufValueParser::new().map(ItemSelection::new))]
    pub(super) nodes: Option<ItemSelection>,
    /// Nodes to predict, or the sources of --top-k, by their names: a text file with one name per line, such as the keys of imported tables.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "parts", "servers"])]
    pub(super) keys: Option<PathBuf>,
    #[command(flatten)]
    pub(super) links: LinkPredictionArgs,
    /// New or empty folder for the results. It appears when all its files are complete.
    #[arg(long)]
    pub(super) out: PathBuf,
    /// Writes a folder per rank, such as `part-00000-of-00004`, with a consecutive range of the nodes or graphs, and
    /// `index.json` with their ranges, instead of one result on rank 0: for many nodes, or if the ranks share no folder.
    #[arg(long)]
    pub(super) per_rank: bool,
    /// Also writes the embeddings of nodes: the inputs of the model's last layer.
    #[arg(long)]
    pub(super) embeddings: bool,
    /// Format of scores and embeddings.
    #[arg(long, value_enum, default_value = "csv")]
    pub(super) format: Format,
    /// Neighbours that predictions read.
    #[arg(long, value_enum, default_value = "as-evaluated")]
    pub(super) mode: Mode,
    /// Neighbours per node of `--mode sampled`, as for `kiln train`: a number per layer, input layer first, or one for all layers,
    /// also for relations by name, such as `10,10;depends=5,5`; `all` or -1 is all neighbours. Default: those of training.
    #[arg(long, allow_hyphen_values = true)]
    pub(super) fanouts: Option<RelationFanouts>,
    /// Seed of `--mode sampled`. Default: 0.
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Memory limit of `--mode exact` for layer outputs, and of the rows that --pairs and --top-k read, such as 512MiB;
    /// the rest is written to temporary files (TMPDIR). Scores and embeddings are written batch by batch. Default: no
    /// limit.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes)]
    pub(super) memory: Option<u64>,
    #[command(flatten)]
    pub(super) job: JobArgs,
    #[command(flatten)]
    pub(super) parts: PartitionSource,
}

/// The neighbours that predictions read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// The neighbours that the run's evaluation read: for the run's data, the predictions of the run.
    AsEvaluated,
    /// All neighbours, layer by layer over the whole graph.
    Exact,
    /// Sampled neighbours, which depend on --seed and the node.
    Sampled,
}

/// The format of scores and embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text, one line per node or graph, which begins with its id and its name.
    Csv,
    /// NumPy arrays of f32, with the ids in `items.npy`.
    Npy,
    /// Parquet files, with the id and the name of each node; scores also with label, class and probability.
    #[cfg(feature = "tables")]
    Parquet,
}

/// The flags for a model of links.
#[derive(Debug, Args)]
#[command(next_help_heading = "Links")]
pub(super) struct LinkPredictionArgs {
    /// Scores pairs of nodes, or predicts the edges between them: a text file with a source and a destination per line, separated by a comma, or a `.npy`
    /// array [n, 2].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["top_k", "nodes", "keys"])]
    pub(super) pairs: Option<PathBuf>,
    /// Scores pairs of nodes, or predicts the edges between them, by their names: a text file with the names of a source and a destination per line, separated by a
    /// tab.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pairs", "top_k", "nodes", "keys", "parts", "servers"])]
    pub(super) pair_keys: Option<PathBuf>,
    /// Finds the K destinations with the largest scores of each source that --nodes or --keys selects, at most 10,000, by an
    /// exact search over all nodes; for a relation of a heterogeneous dataset, over those of the destinations' type.
    #[arg(long, value_name = "K", value_parser = parse::whole(1, 10_000))]
    pub(super) top_k: Option<usize>,
    /// Leaves out destinations to which the source already has an edge in --data, prepared as for the model.
    #[arg(long, requires = "top_k", conflicts_with_all = ["pairs", "pair_keys"])]
    pub(super) exclude_edges: bool,
}

impl PredictArgs {
    /// Returns true for predictions of the test split, the default.
    pub(super) fn selects_test(&self) -> bool {
        *self.selection() == ItemSelection::Test
            && self.keys.is_none()
            && self.links.pairs.is_none()
            && self.links.pair_keys.is_none()
    }

    /// Returns the items that `--nodes` selects.
    pub(super) fn selection(&self) -> &ItemSelection {
        self.nodes.as_ref().unwrap_or(&ItemSelection::Test)
    }

    /// Returns the nodes of a selection, or those of `--keys`.
    pub(super) fn select_nodes(
        &self,
        nodes: &SelectableItems<'_, NodeId>,
        selection: &ItemSelection,
        names: Option<&NodeNames>,
    ) -> kiln::predictions::Result<Vec<NodeId>> {
        match &self.keys {
            Some(path) => read_named_nodes(path, nodes.n_items, names),
            None => nodes.select(selection),
        }
    }

    pub(super) fn mode(&self, model: &SavedModel) -> anyhow::Result<PredictMode> {
        let of_sampling = self.fanouts.is_some() || self.seed.is_some();
        ensure!(
            !of_sampling || self.mode == Mode::Sampled,
            "--fanouts and --seed require --mode sampled: add it, or remove them"
        );
        let is_of_links = matches!(model.info().inputs.task, ModelTask::Links | ModelTask::Edges);
        ensure!(
            self.memory.is_none() || self.mode == Mode::Exact || is_of_links,
            "--memory requires --mode exact: add it, or remove --memory"
        );
        // The rows of the nodes of links have the other half of the limit.
        let memory = if is_of_links { self.memory.map(|bytes| bytes / 2) } else { self.memory };
        let was_exact = matches!(model.info().evaluation.neighbors, EvaluatedNeighbors::Exact { .. });
        Ok(match self.mode {
            // Otherwise the limit of the job replaces that of the run.
            Mode::AsEvaluated if self.memory.is_none() || !was_exact => PredictMode::AsEvaluated,
            Mode::AsEvaluated | Mode::Exact => PredictMode::Exact(LayerWiseConfig::within(memory)),
            Mode::Sampled => {
                let seed = self.seed.unwrap_or(0);
                let n_layers = model.info().inputs.sampling.as_ref().map_or(1, |of_run| of_run.fanouts.len());
                match self.fanouts.clone().map(|fanouts| fanouts.repeated(n_layers)) {
                    Some(fanouts) if !fanouts.of_relations.is_empty() => {
                        PredictMode::SampledByRelation { fanouts, seed }
                    }
                    fanouts => PredictMode::Sampled { fanouts: fanouts.unwrap_or_default().of_all, seed },
                }
            }
        })
    }
}

impl From<Format> for PredictionFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Csv => Self::Csv,
            Format::Npy => Self::Npy,
            #[cfg(feature = "tables")]
            Format::Parquet => Self::Parquet,
        }
    }
}

impl LinkPredictionArgs {
    /// Returns the pairs of `--pairs` or `--pair-keys` with node ids of the graph; `None` without these flags.
    pub(super) fn read_pairs(&self, nodes: &LinkNodes) -> anyhow::Result<Option<Links>> {
        let mut notes = Vec::new();
        let links = match (&self.pairs, &self.pair_keys) {
            (Some(path), _) => Some(nodes.read_pairs(path, &mut notes)?),
            (None, Some(path)) => Some(nodes.read_named_pairs(path)?),
            (None, None) => None,
        };
        print_notes(&notes);
        Ok(links)
    }

    /// Checks that the flags suit the model's task.
    pub(super) fn check(&self, args: &PredictArgs, task: ModelTask) -> anyhow::Result<()> {
        let is_given = self.pairs.is_some() || self.pair_keys.is_some() || self.top_k.is_some();
        if task == ModelTask::Edges {
            ensure!(
                self.top_k.is_none(),
                "--top-k needs a model of links, and this is a model of edges: remove it"
            );
            ensure!(
                args.keys.is_none(),
                "--keys does not apply to a model of edges: use --pair-keys, or --nodes"
            );
        }
        if !matches!(task, ModelTask::Links | ModelTask::Edges) {
            ensure!(
                !is_given,
                "--pairs, --pair-keys and --top-k need a model of links, and this is a model of {task}: remove them"
            );
            return Ok(());
        }
        let is_known = is_given || task == ModelTask::Edges;
        ensure!(is_known, "the model scores links: add --pairs FILE, --pair-keys FILE or --top-k K");
        ensure!(!args.embeddings, "--embeddings does not apply to a model of {task}: remove it");
        ensure!(!args.per_rank, "--per-rank does not apply to a model of {task}: remove it");
        ensure!(
            !(self.exclude_edges && args.parts.is_given()),
            "--exclude-edges needs the whole graph: use --data instead of partitions"
        );
        Ok(())
    }
}
