use std::time::Instant;

use burn::tensor::{Device, Tensor};
use kiln_kernels::run_on_load_stream;
use kiln_loader::{BatchError, Batcher, SeedBatch, StageTimes};
use kiln_nn::{ForwardContext, Mode};
use kiln_sample::RngKey;

/// A batch on a device, with what travels beside it: what a trainer takes.
#[derive(Debug, Clone)]
pub struct DeviceBatch<I> {
    /// The key of the step, for dropout.
    pub key: RngKey,
    /// The number of items; a rank may get none in a step.
    pub n_items: usize,
    /// The bytes that the input holds on the device, for the bound on a loader's queue.
    pub n_bytes: usize,
    /// How long the loader's stages took.
    pub times: StageTimes,
    /// The device that the input is on, without autodiff.
    pub device: Device,
    /// What the model reads.
    pub input: I,
}

/// A batch in host memory that can be copied to a device.
pub trait ToDevice {
    /// What a model reads of the batch.
    type Input;

    /// Copies the batch to a device without autodiff.
    fn to_device(self, device: &Device) -> DeviceBatch<Self::Input>;
}

/// A [`Batcher`] that copies the batches of another one to a device. The loader's workers do so, and their copies
/// overlap with the steps. [`TaskTrainer::loader`](crate::TaskTrainer::loader) makes one for the trainer's device.
#[derive(Debug)]
pub struct DeviceBatcher<F> {
    batcher: F,
    device: Device,
}

impl<F: Batcher> DeviceBatcher<F> {
    /// The same batches on a device.
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
        // Bringing rows is the end of gathering them.
        batch.times.gather += start.elapsed();
        Ok(batch)
    }

    fn n_bytes(batch: &DeviceBatch<I>) -> usize {
        batch.n_bytes
    }
}

/// The features as the model reads them: they track gradients where it is trained.
pub(crate) fn tracked(x: &Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
    match ctx.mode {
        Mode::Train => x.clone().autodiff(),
        Mode::Eval => x.clone(),
    }
}
