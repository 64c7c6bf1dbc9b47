use std::fmt;
use std::time::Instant;

use burn::tensor::Device;
use kiln_feature::FeatureStore;
use kiln_graph::NodeId;
use kiln_kernels::{gather_features, run_on_load_stream};
use kiln_loader::{BatchError, Batcher, NodeBatcher, SeedBatch, StageTimes};
use kiln_sample::{FrontierSampler, Scratch};

use crate::step::batch::DeviceBatch;
use crate::step::node::{NodeInput, sampled_to_device};

/// A batcher for node tasks that samples on the host and gathers the feature rows of the host for a device. On CUDA, the
/// loader's worker gathers them directly into pinned memory, from which the device copies. The batches are equal to
/// those of a [`DeviceBatcher`](crate::DeviceBatcher) of the same [`NodeBatcher`], whose rows are copied once more.
pub struct HostNodeBatcher<S: ?Sized, F: ?Sized> {
    batcher: NodeBatcher<S, F>,
    device: Device,
}

impl<S: FrontierSampler + ?Sized, F: FeatureStore + ?Sized> HostNodeBatcher<S, F> {
    /// Wraps a batcher; its batches are copied to `device`.
    pub fn new(batcher: NodeBatcher<S, F>, device: &Device) -> Self {
        Self { batcher, device: device.clone().inner() }
    }
}

impl<S: ?Sized, F: ?Sized> fmt::Debug for HostNodeBatcher<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostNodeBatcher").field("batcher", &self.batcher).finish_non_exhaustive()
    }
}

impl<S, F> Batcher for HostNodeBatcher<S, F>
where
    S: FrontierSampler + ?Sized + 'static,
    F: FeatureStore + ?Sized + 'static,
{
    type Item = NodeId;
    type Batch = DeviceBatch<NodeInput>;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<DeviceBatch<NodeInput>, BatchError> {
        let sampled = self.batcher.sample(seeds, scratch, times)?;
        let start = Instant::now();
        let load = || {
            let nodes = sampled.input_nodes();
            let x = gather_features(&**self.batcher.features(), &nodes, &self.device)?;
            drop(nodes);
            Ok::<_, BatchError>(sampled_to_device(sampled, x, *times, &self.device))
        };
        let mut batch = run_on_load_stream(&self.device, load).map_err(BatchError::other)??;
        // The gather stage includes the wait until the device has copied the rows and the blocks.
        times.gather += start.elapsed();
        batch.times = *times;
        Ok(batch)
    }

    fn n_bytes(batch: &DeviceBatch<NodeInput>) -> usize {
        batch.n_bytes
    }
}
