mod batcher;
mod check;
mod of_links;

use std::fmt;

use kiln_data::Dataset;
use kiln_feature::TargetKind;
use kiln_kernels::{CacheStats, GraphMode};
use kiln_loader::{ItemSampler, Loader, Phase};
use kiln_nn::BlockModel;
use kiln_sample::{EdgeWeights, Fanout, Rule, SamplerConfig};
use kiln_train::{
    BatchConfig, DataHash, EvaluationInfo, Evaluator, HostOrDeviceBatcher, ModelInputs, NodeTask, Objective,
    SplitTargets, TaskTrainer,
};

use crate::batches::{
    batch_settings, first_items, items_of, items_of_all_ranks, objective_of, objective_setting,
};
use crate::data_loader::evaluate_by_evaluator;
use crate::device_copy::DeviceCopies;
#[cfg(feature = "grpc")]
use crate::partitioned::{JoinedGraph, PartitionedGraph};
use crate::source::{GraphStep, Source};
use crate::{BatchRequirements, CachedNodes, DataLoader, DeviceCopy, EvalMode, RankHandle, Result};

pub(crate) use of_links::nodes_of_links;

/// A description of minibatches of a dataset's nodes with sampled neighbourhoods.
///
/// It is cheap to clone. The trainer provides the seed, the epoch, the device and the rank. One loader serves training,
/// validation and test.
///
/// ```
/// use kiln::prelude::*;
/// let data = kiln::data::synthetic::ring(100)?;
/// let loader = NeighborLoader::new(&data, [10, 10]).batch_size(16).workers(2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
#[must_use = "pass it to Trainer::fit"]
pub struct NeighborLoader {
    source: Source,
    sampling: SamplerConfig,
    /// True if [`NeighborLoader::edge_features`] was called.
    edge_features: bool,
    /// True if [`NeighborLoader::rule`] was called.
    has_rule: bool,
    batches: BatchConfig,
    workers: Option<usize>,
    queue_bytes: Option<usize>,
    graph_mode: GraphMode,
    feature_cache: Option<(u64, CachedNodes)>,
    evaluation: EvalMode,
    objective: Option<Objective>,
    /// The device copies, which clones of this loader in other ranks of the process share.
    copies: DeviceCopies,
}

impl NeighborLoader {
    /// Returns a loader of batches of 1,024 nodes. In layer `i`, input layer first (DGL's order), each node has at most
    /// `fanouts[i]` in-neighbours, sampled uniformly without replacement. Integers convert to [`Fanout`];
    /// [`Fanout::All`] takes all neighbours.
    pub fn new(data: &Dataset, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self::of(
            Source::Whole { data: Box::new(data.clone()), graph: data.graph.clone(), step: GraphStep::None },
            fanouts,
        )
    }

    /// Joins a partitioned graph, and returns a loader on it with the defaults of [`NeighborLoader::new`]. In worker
    /// mode this rank serves its local partition until the body of [`launch`](crate::launch) has returned on all ranks.
    /// Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns the errors of [`Partitions::join`](kiln_remote::Partitions::join).
    #[cfg(feature = "grpc")]
    pub fn partitioned(
        graph: &PartitionedGraph,
        rank: &RankHandle,
        fanouts: impl IntoIterator<Item = impl Into<Fanout>>,
    ) -> Result<Self> {
        Ok(Self::of(Source::Partitioned(graph.join(rank)?), fanouts))
    }

    fn of(source: Source, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self {
            source,
            sampling: SamplerConfig::new(fanouts),
            edge_features: false,
            has_rule: false,
            batches: BatchConfig::default(),
            workers: None,
            queue_bytes: None,
            graph_mode: GraphMode::default(),
            feature_cache: None,
            evaluation: EvalMode::default(),
            objective: None,
            copies: DeviceCopies::default(),
        }
    }

    /// Sets the number of nodes in a batch of one rank.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batches.batch_size = batch_size;
        self
    }

    /// Enables or disables shuffling: a random order for each training epoch. Enabled by default.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.batches.shuffle = shuffle;
        self
    }

    /// Drops the last training step of an epoch if it is smaller than the others.
    pub fn drop_last(mut self) -> Self {
        self.batches.drop_last = true;
        self
    }

    /// Sets the batch settings: size, order, and the treatment of a short last step.
    pub fn batches(self, batches: BatchConfig) -> Self {
        Self { batches, ..self }
    }

    /// Sets the number of threads that prefetch batches. The default is 1 if the rank is alone or has more than one
    /// thread, else 0. With 0, each batch is prepared when it is needed. The batches do not depend on this number.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Sets the limit in bytes for prefetched batches, finished or in preparation.
    pub fn queue_bytes(self, n_bytes: usize) -> Self {
        Self { queue_bytes: Some(n_bytes), ..self }
    }

    /// Sets the sampling rule: a built-in one, or a custom one, such as a closure with the signature of
    /// [`SamplingRule::pick`](kiln_sample::SamplingRule::pick). A resumed run identifies a custom rule by its name
    /// ([`Rule::named`]); all rules without a name are considered equal.
    pub fn rule(mut self, rule: impl Into<Rule>) -> Self {
        self.sampling.rule = rule.into();
        self.has_rule = true;
        self.unshared()
    }

    /// Sets the kind of edge weights that blocks carry. By default, blocks carry no edge weights.
    pub fn edge_weights(mut self, weights: EdgeWeights) -> Self {
        self.sampling.weights = weights;
        self.unshared()
    }

    /// Makes blocks carry the type of each edge ([`DeviceBlock::edge_types`](kiln_kernels::DeviceBlock::edge_types)). The
    /// graph must have edge types.
    pub fn edge_types(mut self) -> Self {
        self.sampling.edge_types = true;
        self.unshared()
    }

    /// Makes blocks carry the features of each edge
    /// ([`DeviceBlock::edge_features`](kiln_kernels::DeviceBlock::edge_features)). The data must have
    /// [`Dataset::edge_features`], also before it is partitioned, and the loader must not add self loops. With
    /// [`GraphMode::Device`] all rows of a whole graph are in device memory, like the graph; otherwise they stay on the
    /// host.
    pub fn edge_features(self) -> Self {
        Self { edge_features: true, ..self }.unshared()
    }

    /// Configures sampling for a GCN. It reads a copy of the graph with self-loops and symmetric normalisation, samples
    /// by [`Rule::UniformKeepSelfLoops`] unless [`NeighborLoader::rule`] sets another rule, before or after, and
    /// weights edges by [`EdgeWeights::Unbiased`], so that weighted sums are unbiased estimates of the sums over all
    /// neighbours. Clone the loader to share the copy among ranks.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if edge weights are not finite, and
    /// [`Error::NeedsWholeGraph`](crate::Error::NeedsWholeGraph) on a partitioned graph.
    pub fn gcn_norm(mut self) -> Result<Self> {
        match &mut self.source {
            Source::Whole { data, graph, step } => {
                *step = GraphStep::GcnNorm;
                *graph = step.apply(&data.graph)?;
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) => return Err(crate::Error::NeedsWholeGraph { what: "gcn_norm" }),
        }
        Ok(self.keep_self_loops().edge_weights(EdgeWeights::Unbiased))
    }

    /// Configures sampling for a model with attention, such as a GAT. It reads a copy of the graph with a self loop on
    /// each node ([`kiln_graph::add_self_loops`]), and samples by [`Rule::UniformKeepSelfLoops`] unless
    /// [`NeighborLoader::rule`] sets another rule, before or after. Another rule may drop loops; a node then does not
    /// attend to itself. Clone the loader to share the copy among ranks. The loops of a partitioned graph must be part of
    /// its data ([`Dataset::add_self_loops`]). After [`NeighborLoader::gcn_norm`], the graph has self loops already.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if loops are missing and an edge has type 255, and
    /// [`Error::PartitionsWithoutSelfLoops`](crate::Error::PartitionsWithoutSelfLoops).
    pub fn add_self_loops(mut self) -> Result<Self> {
        match &mut self.source {
            Source::Whole { step: GraphStep::GcnNorm, .. } => {}
            Source::Whole { data, graph, step } => {
                *step = GraphStep::SelfLoops;
                *graph = step.apply(&data.graph)?;
            }
            #[cfg(feature = "grpc")]
            source @ Source::Partitioned(_) if !source.has_self_loops() => {
                return Err(crate::Error::PartitionsWithoutSelfLoops);
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) => {}
        }
        Ok(self.keep_self_loops().unshared())
    }

    fn keep_self_loops(mut self) -> Self {
        if !self.has_rule {
            self.sampling.rule = Rule::UniformKeepSelfLoops;
        }
        self
    }

    /// Sets the place where neighbours are sampled and features are gathered. The batches do not depend on it.
    pub fn graph_mode(self, graph_mode: GraphMode) -> Self {
        Self { graph_mode, ..self }.unshared()
    }

    /// Limits the features of nodes in the memory of each device to `n_bytes`. The nodes with the most out-edges are
    /// cached; the host sends the other rows with each batch. The limit does not apply to
    /// [`NeighborLoader::edge_features`].
    pub fn feature_cache(self, n_bytes: u64) -> Self {
        self.feature_cache_of(n_bytes, CachedNodes::ByDegree)
    }

    /// Limits the features in device memory like [`NeighborLoader::feature_cache`], and selects the cached nodes.
    pub fn feature_cache_of(self, n_bytes: u64, nodes: CachedNodes) -> Self {
        Self { feature_cache: Some((n_bytes, nodes)), ..self }.unshared()
    }

    /// Sets the neighbours that evaluation reads, and the ranks that evaluate.
    pub fn evaluation(self, evaluation: EvalMode) -> Self {
        Self { evaluation, ..self }
    }

    /// Sets the loss. The default suits the data's targets: the cross entropy for classes, the binary cross entropy for
    /// several labels per node, and the squared error for regression. A
    /// [`LinkNeighborLoader`](crate::LinkNeighborLoader) rejects a loader with an objective, because it has a loss of its
    /// own.
    pub fn objective(self, objective: Objective) -> Self {
        Self { objective: Some(objective), ..self }
    }

    /// Returns the settings of sampling that a run's result depends on.
    pub(crate) fn sampling_settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        let SamplerConfig { fanouts, rule, weights, edge_types } = &self.sampling;
        let settings = [
            ("fanouts", format!("{fanouts:?}")),
            ("rule", format!("{rule:?}")),
            ("edge weights", format!("{weights:?}")),
        ];
        // Checkpoints of runs without these settings do not have them.
        let types = edge_types.then(|| ("edge types", "true".to_owned()));
        let loops = self.source.adds_self_loops().then(|| ("self loops", "added".to_owned()));
        let features = self.edge_features.then(|| ("edge features", "true".to_owned()));
        settings.into_iter().chain(types).chain(features).chain(loops)
    }

    /// Returns the loader without its device copies, which a changed configuration makes invalid.
    fn unshared(self) -> Self {
        Self { copies: DeviceCopies::default(), ..self }
    }

    /// Returns the copies of graph and features in device memory that this loader shares with its clones.
    pub fn device_copies(&self) -> Vec<DeviceCopy> {
        self.copies.all()
    }

    /// Returns the statistics of the feature caches, summed over all devices.
    pub fn cache_stats(&self) -> CacheStats {
        self.copies
            .all()
            .iter()
            .map(|copy| copy.features.cache_stats())
            .fold(CacheStats::default(), CacheStats::and)
    }

    /// Returns the partitioned graph, which reports network traffic and memory use, or `None` if the loader reads a
    /// dataset in this process.
    #[cfg(feature = "grpc")]
    pub fn partition(&self) -> Option<&JoinedGraph> {
        match &self.source {
            Source::Whole { .. } => None,
            Source::Partitioned(joined) => Some(joined),
        }
    }
}

impl<M: BlockModel + Sync> DataLoader<M> for NeighborLoader {
    type Task = NodeTask<M>;
    type Batcher = HostOrDeviceBatcher;

    fn task(&self) -> Self::Task {
        NodeTask::with_objective(objective_of(self.objective.as_ref(), &self.source.targets()))
    }

    fn target_kind(&self) -> TargetKind {
        self.source.targets().kind()
    }

    fn names(&self) -> (&str, &[String]) {
        self.source.names()
    }

    fn data_hash(&self) -> Result<DataHash> {
        Ok(self.source.data_hash(None))
    }

    fn data_sample(&self) -> Result<String> {
        self.source.data_sample()
    }

    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        self.sampling_settings()
            .chain([self.evaluation_setting()])
            .chain(batch_settings(self.batches, &self.source.split(), n_ranks))
            .chain(objective_setting(&objective_of(self.objective.as_ref(), &self.source.targets())))
            .collect()
    }

    fn model_inputs(&self, seed: u64, n_ranks: usize) -> Option<(ModelInputs, EvaluationInfo)> {
        Some(self.describe(seed, n_ranks))
    }

    fn split_targets(&self, phase: Phase, n_batches: usize) -> Result<Option<SplitTargets>> {
        let split = self.source.split();
        let nodes = first_items(&split, phase, n_batches, self.batches.batch_size);
        Ok(Some(SplitTargets::of(&self.source.targets(), nodes)?))
    }

    fn check(&self, model: &BatchRequirements) -> Result<()> {
        let targets = self.source.targets();
        objective_of(self.objective.as_ref(), &targets).check(targets.kind(), targets.n_outputs())?;
        self.check_sampling(model)
    }

    fn evaluator(&self, rank: &RankHandle) -> Result<Evaluator> {
        self.evaluator_of(rank)
    }

    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        evaluator: &Evaluator,
    ) -> Result<Loader<HostOrDeviceBatcher>> {
        let split = self.source.split();
        let nodes = items_of(&split, phase);
        let items = match phase {
            Phase::Train { .. } => trainer.items(&nodes[..], self.batches)?,
            Phase::Validation | Phase::Test => evaluator.items(trainer, &nodes[..], self.batches)?,
        };
        let batcher = self.batcher(trainer.device(), Some(self.source.targets()), || {
            let config = items_of_all_ranks(items.config());
            Ok(ItemSampler::new(&split.train[..], config).map_err(kiln_train::Error::from)?)
        })?;
        let batcher = batcher.input_aggregation(self.input_aggregation(&items, trainer.model()));
        let items = self.source.shard_by_owner(items, |node| node)?;
        self.start(items, batcher)
    }

    evaluate_by_evaluator!();
}

impl fmt::Debug for NeighborLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sampling, batches, graph_mode, .. } = self;
        f.debug_struct("NeighborLoader")
            .field("sampling", sampling)
            .field("batches", batches)
            .field("graph_mode", graph_mode)
            .finish_non_exhaustive()
    }
}
