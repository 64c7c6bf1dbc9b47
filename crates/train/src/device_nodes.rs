use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use kiln_feature::Labels;
use kiln_graph::LocalId;
use kiln_kernels::{DeviceBlock, DeviceFeatures, DeviceSampler};
use kiln_loader::{Fetch, FetchError, MiniBatch, SeedBatch, StageTimes};
use kiln_sample::{RngKey, Scratch, Seeds};

/// A [`MiniBatch`] whose blocks and features are on a device, without gradients.
#[derive(Debug, Clone)]
pub struct DeviceMiniBatch {
    /// The step within the pass, from 0.
    pub step: usize,
    /// The key that the blocks were sampled with.
    pub key: RngKey,
    /// The seeds as given, duplicates included.
    pub seeds: Seeds,
    /// One block a layer, input layer first.
    pub blocks: Vec<DeviceBlock>,
    /// For each seed its row of the model's output.
    pub seed_rows: Vec<LocalId>,
    /// Features of the input nodes, `[n_src, dim]`, f32.
    pub x: Tensor<2>,
    /// Each seed's class.
    pub labels: Vec<i32>,
    /// How long the stages took on the host; what a device was asked to do may not have been done by then.
    pub times: StageTimes,
}

impl DeviceMiniBatch {
    /// Brings a batch to a device.
    pub fn new(batch: MiniBatch, device: &Device) -> Self {
        let device = device.clone().inner();
        let n_inputs = batch.x.n_values() / batch.x_dim;
        let x = TensorData::new(batch.x.into_f32(), [n_inputs, batch.x_dim]);
        Self {
            step: batch.step,
            key: batch.key,
            seeds: batch.seeds,
            blocks: batch.blocks.into_iter().map(|block| DeviceBlock::new(block, &device)).collect(),
            seed_rows: batch.seed_rows,
            x: Tensor::from_data(x, &device),
            labels: batch.labels,
            times: batch.times,
        }
    }

    /// Bytes of the batch's arrays on the device.
    pub fn n_bytes(&self) -> usize {
        let [n_inputs, dim] = self.x.dims();
        self.blocks.iter().map(DeviceBlock::n_bytes).sum::<usize>() + 4 * n_inputs * dim
    }
}

/// Batches of another fetch, brought to a device by the loader's workers, so that their copies overlap with the steps.
#[derive(Debug)]
pub struct ToDevice<F> {
    fetch: F,
    device: Device,
}

impl<F: Fetch<Batch = MiniBatch>> ToDevice<F> {
    /// The same batches on a device.
    pub fn new(fetch: F, device: &Device) -> Self {
        Self { fetch, device: device.clone().inner() }
    }
}

impl<F: Fetch<Batch = MiniBatch>> Fetch for ToDevice<F> {
    type Batch = DeviceMiniBatch;
    type Scratch = F::Scratch;

    fn fetch(
        &self,
        seeds: SeedBatch,
        scratch: &mut F::Scratch,
        times: &mut StageTimes,
    ) -> Result<DeviceMiniBatch, FetchError> {
        Ok(DeviceMiniBatch::new(self.fetch.fetch(seeds, scratch, times)?, &self.device))
    }

    fn n_bytes(batch: &DeviceMiniBatch) -> usize {
        batch.n_bytes()
    }
}

/// Batches for node tasks that are made on a device: it samples the blocks and gathers the input features. The seeds and
/// their labels come from the host. For the same seeds and keys the batches are those of
/// [`NodeFetch`](kiln_loader::NodeFetch).
pub struct DeviceNodeFetch {
    sampler: Arc<DeviceSampler>,
    features: Arc<DeviceFeatures>,
    labels: Arc<Labels>,
}

impl DeviceNodeFetch {
    /// Batches from these parts, which are shared with the caller and on the same device.
    pub fn new(sampler: Arc<DeviceSampler>, features: Arc<DeviceFeatures>, labels: Arc<Labels>) -> Self {
        Self { sampler, features, labels }
    }
}

impl fmt::Debug for DeviceNodeFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceNodeFetch").field("labels", &self.labels.len()).finish_non_exhaustive()
    }
}

impl Fetch for DeviceNodeFetch {
    type Batch = DeviceMiniBatch;
    type Scratch = Scratch;

    fn fetch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<DeviceMiniBatch, FetchError> {
        let SeedBatch { step, key, seeds } = seeds;
        let start = Instant::now();
        let sampled = self.sampler.sample_blocks(&seeds, key, scratch)?;
        let sampled_at = Instant::now();
        let x = self.features.gather(&sampled.input_nodes)?;
        let mut labels = Vec::new();
        self.labels.gather(seeds.as_nodes(), &mut labels)?;
        times.sample += sampled_at - start;
        times.gather += sampled_at.elapsed();
        let (blocks, seed_rows, times) = (sampled.blocks, sampled.seed_rows, *times);
        Ok(DeviceMiniBatch { step, key, seeds, blocks, seed_rows, x, labels, times })
    }

    fn n_bytes(batch: &DeviceMiniBatch) -> usize {
        batch.n_bytes()
    }
}
