pub(crate) mod any_batcher;
pub(crate) mod device_node_batcher;
pub(crate) mod host_node_batcher;
pub(crate) mod input_rows;
pub(crate) mod loaders;

use std::time::Instant;

use burn::tensor::{Device, Tensor};
use kiln_kernels::run_on_load_stream;
use kiln_loader::{BatchError, Batcher, SeedBatch, StageTimes};
use kiln_nn::{ForwardContext, Mode};
use kiln_sample::RngKey;

/// A batch on a device, with its metadata: the input of a trainer's step.
#[derive(Debug, Clone)]
pub struct DeviceBatch<I> {
    /// The random key of the step, for dropout.
    pub key: RngKey,
    /// The number of items. It may be 0, when a rank has no share of a step.
    pub n_items: usize,
    /// The bytes that the input occupies on the device, by which a loader bounds its queue.
    pub n_bytes: usize,
    /// The time that the loader spent in each of its stages.
    pub times: StageTimes,
    /// The device of the input, without autodiff.
    pub device: Device,
    /// The input of the model.
    pub input: I,
}

/// A batch in host memory that can be copied to a device.
pub trait ToDevice {
    /// The model's input.
    type Input;

    /// Copies the batch to a device without autodiff.
    fn to_device(self, device: &Device) -> DeviceBatch<Self::Input>;
}

impl<I> ToDevice for DeviceBatch<I> {
    type Input = I;

    /// Returns the batch, which must be on the device already.
    fn to_device(self, _: &Device) -> Self {
        self
    }
}

/// A [`Batcher`] that copies the batches of another batcher to a device. It runs in the loader's workers, so copies
/// overlap with steps. [`TaskTrainer::loader`](crate::TaskTrainer::loader) creates one for the trainer's device.
#[derive(Debug)]
pub struct DeviceBatcher<F> {
    batcher: F,
    device: Device,
}

impl<F: Batcher> DeviceBatcher<F> {
    /// Wraps a batcher; its batches are copied to `device`.
    pub fn new(batcher: F, device: &Device) -> Self {
        Self { batcher, device: device.clone().inner() }
    }
}

impl<F, I> Batcher for DeviceBatcher<F>
where
    F: Batcher<Batch: ToDevice<Input = I>>,
    I: Send + 'static,
{
    type Item = F::Item;
    type Batch = DeviceBatch<I>;
    type Scratch = F::Scratch;

    fn batch(
        &self,
        seeds: SeedBatch<F::Item>,
        scratch: &mut F::Scratch,
        times: &mut StageTimes,
    ) -> Result<DeviceBatch<I>, BatchError> {
        let batch = self.batcher.batch(seeds, scratch, times)?;
        let start = Instant::now();
        let mut batch =
            run_on_load_stream(&self.device, || batch.to_device(&self.device)).map_err(BatchError::other)?;
        // The copy counts as the last part of the gather stage.
        batch.times.gather += start.elapsed();
        Ok(batch)
    }

    fn n_bytes(batch: &DeviceBatch<I>) -> usize {
        batch.n_bytes
    }
}

/// Returns the features for the model: in training, they track gradients.
pub(crate) fn tracked(x: &Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
    match ctx.mode {
        Mode::Train => x.clone().autodiff(),
        Mode::Eval => x.clone(),
    }
}
