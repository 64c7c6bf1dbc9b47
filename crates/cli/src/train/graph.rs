//! The graphs of nodes and edges that `kiln train` reads, whole or partitioned, and the loaders of their nodes.

use kiln::graph::GraphSchema;
use kiln::nn::TimedParts;
use kiln::sample::RelationFanouts;
use kiln::{EvalMode, GraphSource, JoinedGraph, NeighborLoader, PartitionedGraph, RankHandle};
use kiln_usage::ensure;

use super::flag_rules::Task;
use super::run::{Outcome, TrainArgs, TrainRun};
use super::traffic::{TrafficLines, print_memory};
use crate::dataset::OpenedDataset;
use crate::flags::model::ModelGraph;
use crate::flags::node_model::NodeModel;
use crate::flags::ranks::convert_error;

/// The graph of a run, before its ranks start.
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub(super) enum TrainingGraph {
    Whole(OpenedDataset),
    Partitioned(PartitionedGraph),
}

/// The model of the nodes of a graph, or the encoder of its links, with its fanouts.
pub(super) struct NodeConfig {
    pub(super) model: NodeModel,
    fanouts: RelationFanouts,
}

/// The training on one rank, by a loader of nodes or links.
pub(super) struct RankTraining<'a, L> {
    pub(super) run: &'a TrainRun<'a>,
    pub(super) loader: &'a L,
    pub(super) rank: &'a RankHandle,
    pub(super) traffic: Option<TrafficLines>,
}

impl TrainingGraph {
    fn model_graph(&self) -> ModelGraph<'_> {
        match self {
            Self::Whole(opened) => opened.model_graph(),
            Self::Partitioned(graph) if graph.info().is_heterogeneous => ModelGraph::SeveralTypes {
                edge_widths: Some(graph.info().edge_widths.clone()),
                metagraph: graph.info().schema.metagraph(),
                dims: graph.info().dims.clone(),
            },
            Self::Partitioned(graph) => ModelGraph::OneType(graph),
        }
    }

    /// Returns the names of the columns of the edges of each relation.
    fn edge_columns(&self) -> Vec<Vec<String>> {
        match self {
            Self::Whole(opened) => opened.data.graph.edge_columns(),
            Self::Partitioned(graph) => graph.info().edge_columns.clone(),
        }
    }

    /// Returns the parts of the graph with times. --time-encoding is not for partitions.
    fn timed_parts(&self) -> TimedParts {
        match self {
            Self::Whole(opened) => opened.source().timed_parts(),
            Self::Partitioned(_) => TimedParts::default(),
        }
    }

    fn schema(&self) -> &GraphSchema {
        match self {
            Self::Whole(opened) => opened.data.graph.schema(),
            Self::Partitioned(graph) => &graph.info().schema,
        }
    }
}

impl TrainRun<'_> {
    /// Opens the graph of the flags and prints a summary.
    pub(super) fn open_graph(&self) -> anyhow::Result<TrainingGraph> {
        match self.args.parts.are_given() {
            true => self.open_partitions(),
            false => Ok(TrainingGraph::Whole(self.open_dataset()?)),
        }
    }

    /// Opens the dataset of the flags and prints a summary.
    pub(super) fn open_dataset(&self) -> anyhow::Result<OpenedDataset> {
        let TrainArgs { data, ranks, model, .. } = self.args;
        let opened = data.open(ranks.seed, matches!(self.task, Task::Link | Task::Edge), model)?;
        self.check_cache(opened.data.is_heterogeneous())?;
        Ok(opened)
    }

    /// Opens the partitions of the flags and prints a summary.
    pub(super) fn open_partitions(&self) -> anyhow::Result<TrainingGraph> {
        let TrainArgs { ranks, device, parts, .. } = self.args;
        let graph = parts.open(ranks.job.partitions_config()?, device.graph_mode)?;
        self.check_cache(graph.info().is_heterogeneous)?;
        Ok(TrainingGraph::Partitioned(graph))
    }

    /// Checks that no flag of a feature cache on a device was given for a graph with several types of nodes.
    fn check_cache(&self, has_several_types: bool) -> anyhow::Result<()> {
        ensure!(
            !has_several_types || !self.args.device.has_cache_flags(),
            "--feature-cache and --hot-by need a graph with one type of nodes: remove them"
        );
        Ok(())
    }

    /// Returns the model of the flags, whose output rows have the width `d_out`, after a check that it suits the graph.
    pub(super) fn configure_nodes(
        &self,
        graph: &TrainingGraph,
        d_out: usize,
        is_encoder: bool,
    ) -> anyhow::Result<NodeConfig> {
        let TrainArgs { model, sampling, ranks, .. } = self.args;
        let model_graph = graph.model_graph();
        let fanouts = sampling.fanouts(model.layers, &model_graph, graph.schema())?;
        sampling.note_unused_rule(&fanouts);
        let ages = sampling.time_encoding().map(|times| (times, graph.timed_parts()));
        let model = model.build_node_model(&model_graph, d_out, is_encoder, fanouts.of_all.len(), ages)?;
        model.check_weights(&graph.edge_columns())?;
        if let TrainingGraph::Partitioned(graph) = graph {
            model.check_partitioned()?;
            ranks.job.share_partitions(graph, self.launch.as_ref())?;
            ensure!(
                sampling.evaluation()? == EvalMode::Sampled,
                "--eval exact needs the whole graph: use --data instead of --parts or --servers"
            );
        }
        Ok(NodeConfig { model, fanouts })
    }

    /// Returns the loader of the nodes of a graph.
    pub(super) fn node_loader(
        &self,
        source: &GraphSource,
        config: &NodeConfig,
    ) -> anyhow::Result<NeighborLoader> {
        let TrainArgs { sampling, ranks, device, parts, .. } = self.args;
        let loader = NeighborLoader::new(source, &config.fanouts.of_all);
        let loader = match &sampling.task_table {
            Some(name) => loader.task_table(name)?,
            None => loader,
        };
        let mut loader = loader
            .batches(ranks.batches(false))
            .messages(sampling.messages(source.time_kind())?)
            .evaluation(sampling.evaluation()?);
        for (name, fanouts) in &config.fanouts.of_relations {
            loader = loader.relation_fanouts(name, fanouts)?;
        }
        if parts.are_given() {
            loader = loader
                .workers(ranks.remote_workers(parts.worker_concurrency))
                .queue_bytes(parts.queue_bytes());
        } else if let Some(workers) = ranks.workers {
            loader = loader.workers(workers);
        }
        loader = sampling.configure_relations(loader, source.time_kind())?;
        device.configure(config.model.configure(loader, &sampling.rule.of_all.clone().unwrap_or_default())?)
    }

    /// Calls `train` on each rank of this process: with one loader of a whole graph, which is returned, or with a loader of each
    /// rank that has joined a partitioned graph.
    pub(super) fn train_on<L: Sync>(
        &self,
        graph: &TrainingGraph,
        make_loader: impl Fn(&GraphSource) -> anyhow::Result<L> + Sync,
        train: impl Fn(RankTraining<'_, L>) -> kiln::Result<Outcome> + Sync,
    ) -> anyhow::Result<(Vec<Outcome>, Option<L>)> {
        match graph {
            TrainingGraph::Whole(opened) => {
                let loader = make_loader(&opened.source())?;
                let outcomes = self.launch(|rank| {
                    train(RankTraining { run: self, loader: &loader, rank: &rank, traffic: None })
                })?;
                Ok((outcomes, Some(loader)))
            }
            TrainingGraph::Partitioned(partitions) => {
                let outcomes = self.launch(|rank| {
                    let joined = partitions.join(&rank)?;
                    let traffic = Some(self.print_joined(&rank, &joined));
                    let loader = make_loader(&joined.into()).map_err(convert_error)?;
                    train(RankTraining { run: self, loader: &loader, rank: &rank, traffic })
                })?;
                Ok((outcomes, None))
            }
        }
    }

    /// Prints the memory limits of a partitioned graph on rank 0. Returns the callback that prints the traffic of a rank.
    fn print_joined(&self, rank: &RankHandle, joined: &JoinedGraph) -> TrafficLines {
        let TrainArgs { ranks, device, parts, .. } = self.args;
        if rank.is_zero() {
            let workers = ranks.remote_workers(parts.worker_concurrency);
            let feature_bytes = joined.cache_memory_bytes();
            print_memory(&joined.graph, feature_bytes, workers, parts.queue_bytes(), device.graph_mode);
        }
        TrafficLines::new(rank, joined.graph.clone())
    }
}
