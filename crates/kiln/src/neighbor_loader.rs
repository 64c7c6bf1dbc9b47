use std::fmt;
use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::{Dataset, Split};
use kiln_feature::{FeatureStore, Labels};
use kiln_graph::{Csc, gcn_norm};
use kiln_kernels::{CacheStats, GraphMode};
use kiln_loader::{ItemSampler, Loader, LoaderConfig, NodeBatcher, Phase};
use kiln_nn::LayerWiseModel;
use kiln_sample::{EdgeWeights, Fanout, FrontierSampler, NeighborSampler, Rule, SamplerConfig};
use kiln_train::{
    BatchConfig, DeviceBatcher, DeviceNodeBatcher, Evaluation, Evaluator, HostOrDeviceBatcher, MetricSums,
    NodeClassification, TaskTrainer,
};

use crate::batches::{batch_settings, items_of_all_ranks, n_workers};
use crate::device_copy::DeviceCopies;
#[cfg(feature = "grpc")]
use crate::partitioned::{JoinedGraph, PartitionedGraph};
use crate::{CachedNodes, DataLoader, DeviceCopy, Error, EvalMode, RankHandle, Result};

/// Minibatches of a dataset's nodes with sampled neighbourhoods.
///
/// It is a description that is cheap to clone; the trainer hands down the seed, the epoch, the device and the rank. One
/// loader serves training, validation and test.
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
    batches: BatchConfig,
    workers: Option<usize>,
    queue_bytes: Option<usize>,
    graph_mode: GraphMode,
    feature_cache: Option<(u64, CachedNodes)>,
    evaluation: EvalMode,
    /// Shared by the ranks of this process that have clones of this loader.
    copies: DeviceCopies,
}

/// Where graph, features and labels are.
#[derive(Clone)]
enum Source {
    /// In this process. The graph that is sampled is the dataset's, or a normalized copy.
    Whole { data: Dataset, graph: Arc<Csc> },
    /// With the ranks, or with servers.
    #[cfg(feature = "grpc")]
    Partitioned(JoinedGraph),
}

impl NeighborLoader {
    /// Batches of 1,024 nodes, each with at most `fanouts[i]` in-neighbours in layer `i`, input layer first (DGL's order),
    /// picked uniformly and without replacement. An integer is a [`Fanout`]; [`Fanout::All`] takes all neighbours.
    pub fn new(data: &Dataset, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self::of(Source::Whole { data: data.clone(), graph: data.graph.clone() }, fanouts)
    }

    /// The same of a partitioned graph, which this rank joins: in worker mode it serves its part until the body of
    /// [`launch`](crate::launch) ends on all ranks. A collective.
    ///
    /// # Errors
    /// Those of [`Partitions::join`](kiln_remote::Partitions::join).
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
            batches: BatchConfig::default(),
            workers: None,
            queue_bytes: None,
            graph_mode: GraphMode::default(),
            feature_cache: None,
            evaluation: EvalMode::default(),
            copies: DeviceCopies::default(),
        }
    }

    /// Sets the number of nodes in a batch of one rank.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batches.batch_size = batch_size;
        self
    }

    /// Sets whether each training epoch has its own random order; true by default.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.batches.shuffle = shuffle;
        self
    }

    /// Drops the last training step of an epoch where it is smaller than the others.
    pub fn drop_last(mut self) -> Self {
        self.batches.drop_last = true;
        self
    }

    /// Sets how nodes become batches: size, order, and what becomes of a short last step.
    pub fn batches(self, batches: BatchConfig) -> Self {
        Self { batches, ..self }
    }

    /// Sets the number of threads that prepare batches ahead of their use; by default 1 where the rank has a second
    /// thread. With 0, a batch is prepared when it is needed. The batches do not depend on it.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Sets the bytes of batches that may be finished ahead of their use, or in preparation.
    pub fn queue_bytes(self, n_bytes: usize) -> Self {
        Self { queue_bytes: Some(n_bytes), ..self }
    }

    /// Sets the rule that picks neighbours: a built-in one, or the program's own, such as a closure of the shape of
    /// [`SamplingRule::pick`](kiln_sample::SamplingRule::pick). A resumed run recognizes a rule of the program's own by its
    /// name ([`Rule::named`]); rules without one are taken to be the same.
    pub fn rule(mut self, rule: impl Into<Rule>) -> Self {
        self.sampling.rule = rule.into();
        self.unshared()
    }

    /// Sets the edge weights that blocks carry; none by default.
    pub fn edge_weights(mut self, weights: EdgeWeights) -> Self {
        self.sampling.weights = weights;
        self.unshared()
    }

    /// Samples for a GCN: from a copy of the graph with self-loops and the symmetric normalisation, keeping each node's
    /// loop, with weights that estimate the sum over all neighbours. Clone the loader to share the copy among ranks.
    ///
    /// # Errors
    /// [`Error::Graph`] for edge weights that are not finite, [`Error::NeedsWholeGraph`].
    pub fn gcn_norm(mut self) -> Result<Self> {
        match &mut self.source {
            Source::Whole { data, graph } => *graph = Arc::new(gcn_norm(&data.graph)?),
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) => return Err(Error::NeedsWholeGraph { what: "gcn_norm" }),
        }
        Ok(self.rule(Rule::UniformKeepSelfLoops).edge_weights(EdgeWeights::Unbiased))
    }

    /// Sets where neighbours are sampled and features are gathered. The batches do not depend on it.
    pub fn graph_mode(self, graph_mode: GraphMode) -> Self {
        Self { graph_mode, ..self }.unshared()
    }

    /// Limits the features in device memory to so many bytes, those of the nodes with the most out-edges; the others are
    /// sent batch by batch.
    pub fn feature_cache(self, n_bytes: u64) -> Self {
        self.feature_cache_of(n_bytes, CachedNodes::ByDegree)
    }

    /// As [`NeighborLoader::feature_cache`], of other nodes.
    pub fn feature_cache_of(self, n_bytes: u64, nodes: CachedNodes) -> Self {
        Self { feature_cache: Some((n_bytes, nodes)), ..self }.unshared()
    }

    /// Sets which neighbours evaluation reads, and who evaluates.
    pub fn evaluation(self, evaluation: EvalMode) -> Self {
        Self { evaluation, ..self }
    }

    /// A loader that shares nothing in device memory with its clones, as it is configured otherwise.
    fn unshared(self) -> Self {
        Self { copies: DeviceCopies::default(), ..self }
    }

    /// The copies in the memory of devices, of this loader and its clones.
    pub fn device_copies(&self) -> Vec<DeviceCopy> {
        self.copies.all()
    }

    /// How often devices had the features that were asked for.
    pub fn cache_stats(&self) -> CacheStats {
        self.copies
            .all()
            .iter()
            .map(|copy| copy.features.cache_stats())
            .fold(CacheStats::default(), CacheStats::and)
    }

    /// The partitioned graph, for its traffic and the memory that it takes.
    #[cfg(feature = "grpc")]
    pub fn partition(&self) -> Option<&JoinedGraph> {
        match &self.source {
            Source::Whole { .. } => None,
            Source::Partitioned(joined) => Some(joined),
        }
    }

    fn split(&self) -> Split {
        match &self.source {
            Source::Whole { data, .. } => data.split.clone(),
            #[cfg(feature = "grpc")]
            Source::Partitioned(joined) => joined.split(),
        }
    }

    fn labels(&self) -> &Arc<Labels> {
        match &self.source {
            Source::Whole { data, .. } => &data.labels,
            #[cfg(feature = "grpc")]
            Source::Partitioned(joined) => joined.graph.labels(),
        }
    }

    fn host_batcher(
        &self,
        sampler: Arc<dyn FrontierSampler>,
        features: Arc<dyn FeatureStore>,
        device: &Device,
    ) -> Result<HostOrDeviceBatcher> {
        if self.feature_cache.is_some() {
            return Err(Error::CacheNeedsDevice);
        }
        let batcher = NodeBatcher::new(sampler, features, self.labels().clone());
        Ok(HostOrDeviceBatcher::Host(DeviceBatcher::new(batcher, device)))
    }
}

impl<M: LayerWiseModel + Sync> DataLoader<M> for NeighborLoader {
    type Task = NodeClassification<M>;
    type Batcher = HostOrDeviceBatcher;

    fn task(&self) -> Self::Task {
        NodeClassification::new()
    }

    fn names(&self) -> (&str, &[String]) {
        match &self.source {
            Source::Whole { data, .. } => (&data.name, &data.class_names),
            #[cfg(feature = "grpc")]
            Source::Partitioned(joined) => (joined.graph.name(), joined.graph.class_names()),
        }
    }

    fn data_hash(&self) -> Result<String> {
        match &self.source {
            Source::Whole { data, .. } => Ok(data.hash()?),
            #[cfg(feature = "grpc")]
            Source::Partitioned(joined) => Ok(joined.graph.hash().to_owned()),
        }
    }

    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        let SamplerConfig { fanouts, rule, weights } = &self.sampling;
        let sampling = [
            ("fanouts", format!("{fanouts:?}")),
            ("rule", format!("{rule:?}")),
            ("edge weights", format!("{weights:?}")),
            ("evaluation", self.evaluation.setting()),
        ];
        sampling.into_iter().chain(batch_settings(self.batches, &self.split(), n_ranks)).collect()
    }

    fn check(&self, n_layers: usize, needs_edge_weights: bool) -> Result<()> {
        let n_fanouts = self.sampling.fanouts.len();
        if n_fanouts != n_layers {
            return Err(Error::FanoutsMismatch { n_fanouts, n_layers });
        }
        match needs_edge_weights && self.sampling.weights == EdgeWeights::None {
            true => Err(Error::NoEdgeWeights),
            false => Ok(()),
        }
    }

    fn evaluator(&self, rank: &RankHandle) -> Result<Evaluator> {
        match &self.source {
            Source::Whole { data, graph } => {
                self.evaluation.evaluator(data, graph, self.sampling.weights, rank)
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) => self.evaluation.sampled(),
        }
    }

    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        evaluator: &Evaluator,
    ) -> Result<Loader<HostOrDeviceBatcher>> {
        let Split { train, val, test } = self.split();
        let nodes = match phase {
            Phase::Train { .. } => &train,
            Phase::Validation => &val,
            Phase::Test => &test,
        };
        let items = match phase {
            Phase::Train { .. } => trainer.items(&nodes[..], self.batches)?,
            Phase::Validation | Phase::Test => evaluator.items(trainer, &nodes[..], self.batches)?,
        };
        let device = trainer.device();
        let (items, batcher) = match &self.source {
            Source::Whole { data, graph } if self.graph_mode == GraphMode::Host => {
                let sampler = NeighborSampler::with_config(graph.clone(), self.sampling.clone())?;
                (items, self.host_batcher(Arc::new(sampler), data.features.clone(), device)?)
            }
            Source::Whole { .. } if matches!(self.sampling.rule, Rule::Custom { .. }) => {
                return Err(Error::RuleNeedsHost);
            }
            Source::Whole { data, graph } => {
                let of_all_ranks = || {
                    let config = items_of_all_ranks(items.config());
                    Ok(ItemSampler::new(&train[..], config).map_err(kiln_train::Error::from)?)
                };
                let copy = self.copies.get_or_make(device, |hotness| {
                    let (mode, sampling) = (self.graph_mode, &self.sampling);
                    let hottest = match self.feature_cache {
                        None => None,
                        Some((n_bytes, nodes)) => {
                            let counted = match hotness.take() {
                                Some(counted) => counted,
                                None => Arc::new(nodes.hotness(graph, sampling, of_all_ranks)?),
                            };
                            Some((n_bytes, Arc::clone(hotness.insert(counted))))
                        }
                    };
                    DeviceCopy::new(device, mode, data, graph, sampling, hottest)
                })?;
                let batcher = DeviceNodeBatcher::new(copy.sampler, copy.features, data.labels.clone());
                (items, HostOrDeviceBatcher::Device(batcher))
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(joined) => {
                let sampler = joined.sampler(&self.sampling, self.graph_mode, device)?;
                let items = joined.shard_by_owner(items)?;
                (items, self.host_batcher(sampler, joined.features.clone(), device)?)
            }
        };
        let workers = n_workers(self.workers, &items);
        let queue_bytes = self.queue_bytes.unwrap_or(LoaderConfig::default().queue_bytes);
        Ok(Loader::new(items, batcher, LoaderConfig { workers, queue_bytes })
            .map_err(kiln_train::Error::from)?)
    }

    fn count(
        evaluator: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
    ) -> kiln_train::Result<MetricSums> {
        evaluator.count(trainer, loader, phase)
    }

    fn evaluate(
        evaluator: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
    ) -> kiln_train::Result<Evaluation> {
        evaluator.evaluate(trainer, loader, phase)
    }
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
