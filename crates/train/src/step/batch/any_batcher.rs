use kiln_graph::NodeId;
use kiln_loader::{BatchError, Batcher, SeedBatch, StageTimes};
use kiln_nn::InputAggregation;
use kiln_sample::{FrontierSampler, Scratch};

use crate::step::batch::DeviceBatch;
use crate::step::batch::device_node_batcher::DeviceNodeBatcher;
use crate::step::batch::host_node_batcher::HostNodeBatcher;
use crate::step::task::node::NodeInput;

/// A batcher for node tasks that prepares batches on the host and copies them to a device, or prepares them on the
/// device. It is for programs that choose at run time.
#[derive(Debug)]
pub enum HostOrDeviceBatcher {
    /// Samples on the host and gathers rows of the host.
    Host(Box<HostNodeBatcher<dyn FrontierSampler>>),
    /// Samples and gathers on the device.
    Device(DeviceNodeBatcher),
}

impl HostOrDeviceBatcher {
    /// Sets the aggregation by which the model reads its input rows: see [`HostNodeBatcher::input_aggregation`]. Batches that
    /// are prepared on the device do not use it.
    #[must_use]
    pub fn input_aggregation(self, aggregation: Option<InputAggregation>) -> Self {
        match self {
            Self::Host(batcher) => Self::Host(Box::new(batcher.input_aggregation(aggregation))),
            Self::Device(batcher) => Self::Device(batcher),
        }
    }
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
