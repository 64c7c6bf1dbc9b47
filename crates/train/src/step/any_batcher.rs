use kiln_feature::FeatureSource;
use kiln_loader::{Fetch, FetchError, NodeFetch, SeedBatch, StageTimes};
use kiln_sample::{FrontierSampler, Scratch};

use crate::step::batch::{DeviceBatch, DeviceBatcher};
use crate::step::device_fetch::DeviceNodeFetch;
use crate::step::node::NodeInput;

/// Batches for node tasks, prepared on the host and copied to a device, or prepared there: for programs that choose at run
/// time.
#[derive(Debug)]
pub enum HostOrDeviceBatcher {
    /// Sampled and gathered on the host.
    Host(DeviceBatcher<NodeFetch<dyn FrontierSampler, dyn FeatureSource>>),
    /// Sampled and gathered on the device.
    Device(DeviceNodeFetch),
}

impl Fetch for HostOrDeviceBatcher {
    type Batch = DeviceBatch<NodeInput>;
    type Scratch = Scratch;

    fn fetch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<Self::Batch, FetchError> {
        match self {
            Self::Host(fetch) => fetch.fetch(seeds, scratch, times),
            Self::Device(fetch) => fetch.fetch(seeds, scratch, times),
        }
    }

    fn n_bytes(batch: &Self::Batch) -> usize {
        batch.n_bytes
    }
}
