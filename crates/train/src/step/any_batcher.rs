use kiln_feature::FeatureStore;
use kiln_graph::NodeId;
use kiln_loader::{BatchError, Batcher, NodeBatcher, SeedBatch, StageTimes};
use kiln_sample::{FrontierSampler, Scratch};

use crate::step::batch::{DeviceBatch, DeviceBatcher};
use crate::step::device_node_batcher::DeviceNodeBatcher;
use crate::step::node::NodeInput;

/// Batches for node tasks, prepared on the host and copied to a device, or prepared there: for programs that choose at run
/// time.
#[derive(Debug)]
pub enum HostOrDeviceBatcher {
    /// Sampled and gathered on the host.
    Host(DeviceBatcher<NodeBatcher<dyn FrontierSampler, dyn FeatureStore>>),
    /// Sampled and gathered on the device.
    Device(DeviceNodeBatcher),
}

impl Batcher for HostOrDeviceBatcher {
    type Item = NodeId;
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
