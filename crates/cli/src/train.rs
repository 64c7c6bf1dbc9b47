//! `kiln train`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use kiln::comm::{EXIT_RETRY, LaunchEnv};
use kiln::data::{GraphDataset, Split};
use kiln::feature::{FeatureStore, TargetKind};
use kiln::graph::GraphId;
use kiln::loader::Phase;
use kiln::nn::ModelConfig;
use kiln::sample::{Fanout, RelationFanouts};
use kiln::train::{
    CrossValidation, DataHash, FoldResult, OptimizerConfig, RunIdentity, TensorBoard, TrainCallback,
};
use kiln::{DataLoader, Error, GraphLoader, NeighborLoader, RankHandle, Trainer, launch};
use serde_json::json;

use crate::data_id::DataId;
use crate::device::DeviceArgs;
use crate::fingerprint::fingerprint;
use crate::fit::FitArgs;
use crate::flags::GivenFlags;
use crate::link::LinkArgs;
use crate::model::ModelArgs;
use crate::node_model::{NodeModel, NodeTraining};
use crate::objective::LossArgs;
use crate::optimizer::OptimizerArgs;
use crate::output::{be_quiet, is_json, print_event, print_rank_zero, set_format};
use crate::partitions::PartitionArgs;
use crate::progress::Progress;
use crate::ranks::RankArgs;
use crate::sampling::{SamplingArgs, default_fanouts, of_homogeneous};
use crate::source::DataArgs;
use crate::task_flags::flags_of_other_tasks;

/// The learning task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Task {
    /// Node classification.
    Node,
    /// Graph classification.
    Graph,
    /// Link prediction.
    Link,
}

/// The flags of `kiln train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Learning task. Default: graph for sets of graphs, otherwise node.
    #[arg(long, value_enum)]
    task: Option<Task>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    #[command(flatten)]
    pub(crate) loss: LossArgs,
    #[command(flatten)]
    fit: FitArgs,
    #[command(flatten)]
    optimizer: OptimizerArgs,
    #[command(flatten)]
    pub(crate) ranks: RankArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) parts: PartitionArgs,
}

impl TrainArgs {
    /// Returns the fanouts of all relations, one per layer.
    pub(crate) fn relation_fanouts(&self) -> anyhow::Result<RelationFanouts> {
        self.sampling.fanouts(self.model.layers)
    }

    /// Returns the fanouts of a homogeneous graph, one per layer.
    pub(crate) fn fanouts(&self) -> anyhow::Result<Vec<Fanout>> {
        Ok(of_homogeneous(&self.relation_fanouts()?)?.to_vec())
    }
}

/// The configuration of a run.
pub(crate) struct TrainRun<'a> {
    pub(crate) args: &'a TrainArgs,
    optimizer: OptimizerConfig,
    pub(crate) launch: Option<LaunchEnv>,
    started: Instant,
    /// The value of each flag, including defaults.
    flags: BTreeMap<String, String>,
    task: Task,
}

/// The outcome of a rank's training.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// A signal stopped the rank, and the checkpoint is written.
    Interrupted,
}

/// Runs `kiln train`.
pub(crate) fn run(args: &TrainArgs, flags: GivenFlags) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    set_format(args.fit.log_format);
    let launch = args.ranks.job.launch()?;
    if launch.as_ref().is_some_and(|launch| launch.rank != 0) {
        be_quiet();
    }
    let precision = args.device.set_precision(&args.ranks.job.device)?;
    let task = match args.task {
        Some(task) => task,
        None if !args.parts.are_given() && args.data.data.has_graphs()? => Task::Graph,
        None => Task::Node,
    };
    let is_of_graphs = task == Task::Graph;
    let is_partitioned = !is_of_graphs && args.parts.are_given();
    let is_typed = !is_of_graphs && (!is_partitioned || task == Task::Link) && args.data.data.is_typed()?;
    let others = flags_of_other_tasks(task, is_partitioned, args.sampling.folds.is_some());
    if let Some(flag) = others.split_whitespace().find(|flag| flags.on_command_line.contains(*flag)) {
        let what = match (task, is_partitioned) {
            (Task::Graph, _) => "graphs",
            (Task::Node, true) => "nodes of a partitioned graph",
            (Task::Node, false) => "nodes of a whole graph",
            (Task::Link, true) => "links of a partitioned graph",
            (Task::Link, false) => "links of a whole graph",
        };
        bail!("--{flag} does not apply to training on {what}: remove it");
    }
    if flags.on_command_line.contains("rule") {
        args.model.check_rule()?;
    }
    ensure!(
        !(task == Task::Link && is_partitioned) || flags.on_command_line.contains("data"),
        "--task link on a partitioned graph needs --data, the data that was partitioned, for its links: add it"
    );
    let optimizer = args.optimizer.config(is_of_graphs, args.fit.epochs)?;
    let mut flags = flags.all;
    let name = task.to_possible_value().map(|task| task.get_name().to_owned());
    flags.insert("task".to_owned(), name.unwrap_or_default());
    flags.insert("precision".to_owned(), precision.to_owned());
    flags.entry("fanouts".to_owned()).or_insert_with(|| {
        // The layers of models of graphs read no fanouts.
        default_fanouts(args.model.layers.filter(|_| !is_of_graphs))
    });
    let defaults = args.model.defaults(is_of_graphs).into_iter();
    let defaults = defaults.chain(args.optimizer.defaults(is_of_graphs, args.fit.epochs));
    let of_links = if task == Task::Link { args.link.defaults(&args.model) } else { Vec::new() };
    flags.extend(defaults.chain(of_links).map(|(name, text)| (name.to_owned(), text)));
    let run = TrainRun { args, optimizer, launch, started, flags, task };
    let outcomes = match (task, args.sampling.folds) {
        (Task::Node, _) if is_partitioned => run.partitioned_nodes()?,
        (Task::Node, _) if is_typed => run.typed_nodes()?,
        (Task::Node, _) => run.nodes()?,
        (Task::Link, _) if is_partitioned && is_typed => run.partitioned_typed_links()?,
        (Task::Link, _) if is_partitioned => run.partitioned_links()?,
        (Task::Link, _) if is_typed => run.typed_links()?,
        (Task::Link, _) => run.links()?,
        (Task::Graph, None) => run.graphs()?,
        (Task::Graph, Some(n_folds)) => run.cross_validate(n_folds)?,
    };
    Ok(if outcomes.contains(&Outcome::Interrupted) { ExitCode::from(EXIT_RETRY) } else { ExitCode::SUCCESS })
}

impl TrainRun<'_> {
    fn nodes(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { data, model, sampling, ranks, device, .. } = self.args;
        let (data, id) = data.open(ranks.seed, model.reads_edge_features())?;
        let Some(targets) = &data.targets else { bail!("{} has no targets to train on", data.name) };
        let fanouts = self.args.fanouts()?;
        let mut loader = NeighborLoader::new(&data, &fanouts)
            .objective(self.args.loss.objective(targets.values.kind())?)
            .batches(ranks.batches(false))
            .evaluation(sampling.evaluation()?);
        if let Some(workers) = ranks.workers {
            loader = loader.workers(workers);
        }
        let model = model.of_nodes(&data, None, fanouts.len())?;
        let loader = device.place(model.configure(loader, &sampling.rule)?)?;
        let outcomes = self.launch(&id, |rank| self.fit_nodes(&model, &loader, &rank, &id.hash, ()))?;
        device.report(&loader);
        Ok(outcomes)
    }

    pub(crate) fn fit_nodes(
        &self,
        model: &NodeModel,
        loader: &NeighborLoader,
        rank: &RankHandle,
        hash: &DataHash,
        callback: impl TrainCallback + 'static,
    ) -> kiln::Result<Outcome> {
        model.fit(NodeTraining { run: self, loader, rank, hash, callback })
    }

    fn graphs(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { data, model, ranks, .. } = self.args;
        let (graphs, split) = data.data.load_graphs()?;
        let features = graphs.node_features(data.node_features)?;
        let id = DataId::of_graphs(&graphs, &features, split.as_ref());
        let model = model.of_graphs((features.dim(), graphs.targets().n_outputs()))?;
        let split = match split {
            Some(split) => split,
            None => Split::random(graphs.n_graphs(), [0.8, 0.1], ranks.seed)?,
        };
        let loader = self.graph_loader(&graphs, features, &split)?;
        self.launch(&id, |rank| self.fit(&model, &loader, &rank, &id.hash, ()))
    }

    fn graph_loader(
        &self,
        graphs: &GraphDataset,
        features: Arc<dyn FeatureStore>,
        split: &Split<GraphId>,
    ) -> anyhow::Result<GraphLoader> {
        let TrainArgs { ranks, loss, .. } = self.args;
        let loader = GraphLoader::new(graphs, features, split)
            .node_features(self.args.data.node_features)
            .batches(ranks.batches(true));
        let loader = loader.objective(loss.objective(graphs.targets().kind())?);
        Ok(match ranks.workers {
            Some(workers) => loader.workers(workers),
            None => loader,
        })
    }

    fn cross_validate(&self, n_folds: usize) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { data, model, ranks, .. } = self.args;
        ensure!(self.launch.is_none(), "--folds needs a single process: start one, with --ranks for threads");
        let (graphs, _) = data.data.load_graphs()?;
        let features = graphs.node_features(data.node_features)?;
        let model = model.of_graphs((features.dim(), graphs.labels().n_classes()))?;
        ensure!(
            graphs.targets().kind() == TargetKind::Classes,
            "--folds needs class labels: remove it to train on {}",
            graphs.targets().kind()
        );
        let folds = Split::folds(graphs.labels(), n_folds, ranks.seed)?;
        let results = launch(ranks.job.config(None)?, |rank| {
            let own = (0..n_folds).filter(|fold| fold % rank.world_size() == rank.index());
            let judge = |fold| {
                let trainer = Trainer::new(model.clone(), self.optimizer)
                    .seed(ranks.seed)
                    .accumulate(self.args.optimizer.accumulate)
                    .device_of(&rank, &ranks.job.device);
                let result = FoldResult::of(fold, n_folds, |left_out| {
                    let split = Split::leave_out(&folds, left_out);
                    let loader = self
                        .graph_loader(&graphs, features.clone(), &split)
                        .map_err(|error| Error::Other(error.into()))?;
                    let phases = &[Phase::Test, Phase::Validation][..left_out.len()];
                    trainer.learning_curves(&loader, self.args.fit.epochs, phases)
                })?;
                let (best, inner) = (result.best_accuracy(), result.by_inner_validation);
                let fold = fold + 1;
                print_rank_zero(format_args!(
                    "fold {fold:2}  best epoch {best:.4}  by inner validation {inner:.4}"
                ));
                Ok(result)
            };
            own.map(judge).collect::<kiln::Result<Vec<_>>>()
        })?;
        let mut results: Vec<FoldResult> = results.into_iter().flatten().collect();
        results.sort_by_key(|result| result.fold);
        print_rank_zero(CrossValidation::new(&results));
        Ok(Vec::new())
    }

    /// Runs `body` on each rank of this process. If ranks are processes, all must have the same fingerprinted flags and
    /// the same data.
    pub(crate) fn launch(
        &self,
        id: &DataId,
        body: impl Fn(RankHandle) -> kiln::Result<Outcome> + Sync,
    ) -> anyhow::Result<Vec<Outcome>> {
        let mut config = self.args.ranks.job.config(self.launch.as_ref())?;
        if self.launch.is_some() {
            for (name, value) in self.fingerprint(&id.hash).settings {
                config = config.agree_on(name, value);
            }
            let (name, hash) = id.at_join()?;
            config = config.agree_on(name, hash).agree_on("place of the partitions", self.args.parts.place());
        }
        Ok(launch(config, |rank| {
            if self.launch.is_some() && rank.is_zero() {
                print_rank_zero(rank.description());
            }
            body(rank)
        })?)
    }

    /// Trains on one rank, keeps the weights of the best epoch and evaluates them on the test split.
    pub(crate) fn fit<C: ModelConfig, L: DataLoader<C::Model>>(
        &self,
        model: &C,
        loader: &L,
        rank: &RankHandle,
        hash: &DataHash,
        callback: impl TrainCallback + 'static,
    ) -> kiln::Result<Outcome> {
        let TrainArgs { fit, optimizer, ranks, .. } = self.args;
        let progress = || Progress::new(fit.epochs, rank.world_size(), fit.loss_every);
        let warn = |text: String| eprintln!("warning: {text}");
        let tensorboard = (fit.tensorboard && rank.is_zero()).then(|| TensorBoard::new(warn));
        let config = fit
            .config()
            .fingerprint(self.fingerprint(hash))
            .settings(self.flags.clone())
            .title(format!("kiln train on {}", loader.names().0))
            .started(self.started)
            .stop_flag(kiln::stop_on_signals()?)
            .callback(((rank.is_zero().then(progress), callback), tensorboard));
        let mut trainer = Trainer::new(model.clone(), self.optimizer)
            .seed(ranks.seed)
            .accumulate(optimizer.accumulate)
            .devices(ranks.job.device.clone())
            .rank(rank);
        match trainer.fit(loader, config) {
            Ok(best) => {
                let summary = best.write_report(loader)?;
                if let (Some(summary), Some(folder)) = (summary, best.folder()) {
                    if is_json() {
                        let fields = json!({ "folder": folder.display().to_string(), "summary": summary });
                        print_event("summary", fields);
                        return Ok(Outcome::Done);
                    }
                    print_rank_zero(format_args!("{summary}\nfiles           {}", folder.display()));
                }
                Ok(Outcome::Done)
            }
            Err(Error::Interrupted { n_epochs, n_steps, folder }) => {
                if let (true, Some(folder)) = (rank.is_zero(), folder) {
                    let path = folder.display();
                    print_rank_zero(format_args!(
                        "stopped after {n_epochs} epochs and {n_steps} steps: continue with --resume {path}"
                    ));
                }
                Ok(Outcome::Interrupted)
            }
            Err(Error::Train(kiln::train::Error::TooFewEpochs { n_epochs, n_done })) => {
                let text = format!("--epochs {n_epochs}: expected at least the {n_done} epochs already done");
                Err(Error::Other(text.into()))
            }
            Err(error) => Err(error),
        }
    }

    fn fingerprint(&self, hash: &DataHash) -> RunIdentity {
        let (launch, is_of_graphs) = (self.launch.as_ref(), self.task == Task::Graph);
        fingerprint(&self.flags, &self.args.ranks, launch, is_of_graphs, hash.clone())
    }
}
