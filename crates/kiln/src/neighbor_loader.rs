use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Device;
use kiln_data::Dataset;
use kiln_feature::FeatureStore;
use kiln_graph::{Csc, gcn_norm};
use kiln_kernels::{DeviceFeatures, DeviceGraph, DeviceSampler};
use kiln_loader::{BatchError, Batcher, Loader, LoaderConfig, NodeBatcher, Phase, SeedBatch, StageTimes};
use kiln_nn::LayerWiseModel;
use kiln_sample::{EdgeWeights, Fanout, NeighborSampler, Rule, SamplerConfig, Scratch};
use kiln_train::{
    BatchConfig, DeviceBatch, DeviceBatcher, DeviceNodeBatcher, NodeClassification, NodeInput, Trainer,
};

use crate::{Error, Result};

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
    pub(crate) data: Dataset,
    /// The graph that is sampled: the dataset's, or a normalized copy.
    graph: Arc<Csc>,
    pub(crate) sampling: SamplerConfig,
    batches: BatchConfig,
    workers: Option<usize>,
    graph_mode: GraphMode,
    feature_cache: Option<u64>,
    /// Shared by the ranks of this process that have clones of this loader.
    on_devices: Arc<Mutex<Vec<OnDevice>>>,
}

/// Where neighbours are sampled and features are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GraphMode {
    /// On the host, from the graph as it is.
    #[default]
    Host,
    /// On the device that computes, from a copy in its memory.
    Device,
    /// On the device that computes, to which the host sends the neighbour lists of each hop.
    ZeroCopy,
}

impl NeighborLoader {
    /// Batches of 1,024 nodes, each with at most `fanouts[i]` in-neighbours in layer `i`, input layer first (DGL's order),
    /// picked uniformly and without replacement. An integer is a [`Fanout`]; [`Fanout::All`] takes all neighbours.
    pub fn new(data: &Dataset, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self {
            data: data.clone(),
            graph: data.graph.clone(),
            sampling: SamplerConfig::new(fanouts),
            batches: BatchConfig::default(),
            workers: None,
            graph_mode: GraphMode::default(),
            feature_cache: None,
            on_devices: Arc::default(),
        }
    }

    /// Sets the number of nodes in a batch of one rank.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batches.batch_size = batch_size;
        self
    }

    /// Sets the number of threads that prepare batches ahead of their use; by default 1 where the rank has a second
    /// thread. With 0, a batch is prepared when it is needed. The batches do not depend on it.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
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

    /// Sets the rule that picks neighbours: a built-in one, or the program's own, such as a closure of the shape of
    /// [`SamplingRule::pick`](kiln_sample::SamplingRule::pick).
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
    /// [`Error::Graph`] for edge weights that are not finite.
    pub fn gcn_norm(mut self) -> Result<Self> {
        self.graph = Arc::new(gcn_norm(&self.data.graph)?);
        Ok(self.rule(Rule::UniformKeepSelfLoops).edge_weights(EdgeWeights::Unbiased))
    }

    /// Sets where neighbours are sampled and features are gathered. The batches do not depend on it.
    pub fn graph_mode(self, graph_mode: GraphMode) -> Self {
        Self { graph_mode, ..self }.unshared()
    }

    /// Limits the features in device memory to so many bytes, those of the nodes with the most out-edges; the others are
    /// sent batch by batch.
    pub fn feature_cache(self, n_bytes: u64) -> Self {
        Self { feature_cache: Some(n_bytes), ..self }.unshared()
    }

    /// A loader that shares nothing in device memory with its clones, as it is configured otherwise.
    fn unshared(self) -> Self {
        Self { on_devices: Arc::default(), ..self }
    }

    /// The batches of a pass over its split, for the trainer's rank, seed and device.
    pub(crate) fn build<M: LayerWiseModel + Sync>(
        &self,
        phase: Phase,
        trainer: &Trainer<NodeClassification<M>>,
    ) -> Result<Loader<HostOrDeviceBatcher>> {
        let split = &self.data.split;
        let nodes = match phase {
            Phase::Train { .. } => &split.train,
            Phase::Validation => &split.val,
            Phase::Test => &split.test,
        };
        let items = trainer.items(&nodes[..], self.batches)?;
        let has_second_thread = items.config().shard.world_size == 1 || 1 < rayon::current_num_threads();
        let workers = self.workers.unwrap_or(usize::from(has_second_thread));
        let batcher = match self.graph_mode {
            GraphMode::Host => self.host_batcher(trainer.device())?,
            GraphMode::Device | GraphMode::ZeroCopy => self.device_batcher(trainer.device())?,
        };
        let config = LoaderConfig { workers, ..LoaderConfig::default() };
        Ok(Loader::new(items, batcher, config).map_err(kiln_train::Error::from)?)
    }

    fn host_batcher(&self, device: &Device) -> Result<HostOrDeviceBatcher> {
        if self.feature_cache.is_some() {
            return Err(Error::CacheNeedsDevice);
        }
        let sampler = NeighborSampler::with_config(self.graph.clone(), self.sampling.clone())?;
        let (features, labels) = (self.data.features.clone(), self.data.labels.clone());
        let batcher = NodeBatcher::new(Arc::new(sampler), features, labels);
        Ok(HostOrDeviceBatcher::Host(DeviceBatcher::new(batcher, device)))
    }

    fn device_batcher(&self, device: &Device) -> Result<HostOrDeviceBatcher> {
        if matches!(self.sampling.rule, Rule::Custom { .. }) {
            return Err(Error::RuleNeedsHost);
        }
        let mut on_devices = self.on_devices.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match on_devices.iter().position(|on_device| on_device.device == *device) {
            Some(place) => place,
            None => {
                on_devices.push(self.bring(device)?);
                on_devices.len() - 1
            }
        };
        let OnDevice { sampler, features, .. } = on_devices[place].clone();
        Ok(HostOrDeviceBatcher::Device(DeviceNodeBatcher::new(sampler, features, self.data.labels.clone())))
    }

    /// Copies to a device what it samples and gathers from.
    fn bring(&self, device: &Device) -> Result<OnDevice> {
        let graph = match self.graph_mode {
            GraphMode::ZeroCopy => DeviceGraph::host_staged(self.graph.clone(), device)?,
            GraphMode::Host | GraphMode::Device => DeviceGraph::new(self.graph.clone(), device)?,
        };
        let sampler = Arc::new(DeviceSampler::with_config(graph, self.sampling.clone())?);
        let source = self.data.features.clone();
        let features = match self.feature_cache {
            None => DeviceFeatures::new(source, device)?,
            Some(n_bytes) => DeviceFeatures::hottest(source, &self.graph.out_degrees(), n_bytes, device)?,
        };
        Ok(OnDevice { device: device.clone(), sampler, features: Arc::new(features) })
    }

    /// The settings that a run's result depends on, by name: of ranks only the batch of all.
    pub(crate) fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        let SamplerConfig { fanouts, rule, weights } = &self.sampling;
        let BatchConfig { batch_size, shuffle, drop_last, .. } = self.batches;
        vec![
            ("fanouts", format!("{fanouts:?}")),
            ("rule", format!("{rule:?}")),
            ("edge weights", format!("{weights:?}")),
            ("batch size x ranks", batch_size.saturating_mul(n_ranks).to_string()),
            ("shuffle", shuffle.to_string()),
            ("drop last", drop_last.to_string()),
        ]
    }
}

impl fmt::Debug for NeighborLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NeighborLoader");
        shown
            .field("data", &self.data.name)
            .field("sampling", &self.sampling)
            .field("batches", &self.batches);
        shown.field("graph_mode", &self.graph_mode).finish_non_exhaustive()
    }
}

/// A graph and features that one device reads.
#[derive(Clone)]
struct OnDevice {
    device: Device,
    sampler: Arc<DeviceSampler>,
    features: Arc<DeviceFeatures>,
}

/// Prepares batches on the host and copies them to a device, or prepares them there.
pub(crate) enum HostOrDeviceBatcher {
    Host(DeviceBatcher<NodeBatcher<NeighborSampler, dyn FeatureStore>>),
    Device(DeviceNodeBatcher),
}

impl Batcher for HostOrDeviceBatcher {
    type Batch = DeviceBatch<NodeInput>;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<Self::Batch, BatchError> {
        match self {
            Self::Host(batcher) => batcher.batch(seeds, scratch, times),
            Self::Device(batcher) => batcher.batch(seeds, scratch, times),
        }
    }

    fn n_bytes(batch: &Self::Batch) -> usize {
        batch.n_bytes
    }
}
