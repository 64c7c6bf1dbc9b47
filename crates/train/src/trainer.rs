use std::time::Instant;

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use kiln_nn::{Ctx, Mode};

use crate::{
    Counts, DeviceBatch, EpochReport, Error, Forward, GradientSync, OptimizerConfig, PeakMemory, Result,
    StepReport, Task, Timings,
};

/// Trains a task's model, one epoch of batches at a time.
#[derive(Debug)]
pub struct Trainer<T: Task, S> {
    task: T,
    model: T::Model,
    optimizer: OptimizerState,
    sync: S,
    device: Device,
}

/// Burn's optimizer with its step size.
struct OptimizerState {
    state: ModuleOptimizer,
    learning_rate: f64,
}

impl std::fmt::Debug for OptimizerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Optimizer").field("learning_rate", &self.learning_rate).finish_non_exhaustive()
    }
}

impl<T: Task, S: GradientSync<T::Model>> Trainer<T, S> {
    /// A trainer for a model whose parameters are on `device` with autodiff: `device` is the plain one.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for an optimizer's number that no run can use.
    pub fn new(
        task: T,
        model: T::Model,
        optimizer: &OptimizerConfig,
        sync: S,
        device: Device,
    ) -> Result<Self> {
        let optimizer = OptimizerState { state: optimizer.init()?, learning_rate: optimizer.learning_rate };
        Ok(Self { task, model, optimizer, sync, device: device.inner() })
    }

    /// The model as it is now.
    pub fn model(&self) -> &T::Model {
        &self.model
    }

    /// The plain device that it evaluates on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Puts other parameters in the model's place; the optimizer's state stays.
    pub(crate) fn set_model(&mut self, model: T::Model) {
        self.model = model;
    }

    /// Trains on the batches and calls `observe` after each step.
    ///
    /// # Errors
    /// The loader's error, or a loss that is not finite; the model is then as the last whole step left it.
    pub fn epoch(
        &mut self,
        batches: impl IntoIterator<Item = kiln_loader::Result<T::Batch>>,
        mut observe: impl FnMut(&StepReport),
    ) -> Result<EpochReport> {
        let start = Instant::now();
        let mut counts = Counts::default();
        let mut timings = Timings::default();
        let mut memory = PeakMemory::default();
        let mut n_steps = 0;
        let mut batches = batches.into_iter();
        loop {
            let asked = Instant::now();
            let Some(batch) = batches.next() else { break };
            timings.wait += asked.elapsed();
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(self.withdraw(error.into())),
            };
            let of_step = self.step(n_steps, batch, &mut timings, &mut memory)?;
            observe(&StepReport { step: n_steps, counts: of_step, wall: asked.elapsed() });
            counts += of_step;
            n_steps += 1;
        }
        Ok(EpochReport { n_steps, counts, timings, wall: start.elapsed(), peak_memory: memory.get() })
    }

    /// One step: upload, forward, backward, sync, update.
    fn step(
        &mut self,
        step: usize,
        batch: T::Batch,
        timings: &mut Timings,
        memory: &mut PeakMemory,
    ) -> Result<Counts> {
        let started = Instant::now();
        let batch = self.task.upload(batch, &self.device.clone().autodiff());
        timings.loader += batch.times;
        let uploaded = Instant::now();
        timings.upload += uploaded - started;

        let mut counts = Counts::default();
        let gradients = if batch.n_items == 0 {
            GradientsParams::new()
        } else {
            let ctx = Ctx { key: batch.key, mode: Mode::Train };
            let forward = self.task.forward(&self.model, &batch.input, &ctx);
            counts = self.count(&batch, &forward);
            if let Err(error) = check_finite("training", step, &counts) {
                return Err(self.withdraw(error));
            }
            timings.forward += uploaded.elapsed();
            memory.look();
            let forwarded = Instant::now();
            let loss = forward.loss_sum.div_scalar(forward.weight);
            let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
            timings.backward += forwarded.elapsed();
            memory.look();
            gradients
        };

        let before_sync = Instant::now();
        let averaged = self.sync.average(&self.model, gradients, counts.weight);
        let gradients = averaged.map_err(|source| Error::Sync { step, source })?;
        let synced = Instant::now();
        timings.sync += synced - before_sync;

        let learning_rate = self.optimizer.learning_rate;
        self.model = self.optimizer.state.step(learning_rate, self.model.clone(), gradients);
        timings.update += synced.elapsed();
        memory.look();
        Ok(counts)
    }

    /// Tells the other ranks that this one cannot go on, so that none waits for it.
    fn withdraw(&mut self, error: Error) -> Error {
        // Whatever comes of it, the error that led here is the one to report.
        let _ = self.sync.average(&self.model, GradientsParams::new(), f64::NAN);
        error
    }

    /// Runs the model on the batches without training, and calls `visit` with each batch and its outputs.
    /// Dropout is off; whether neighbours are sampled is up to the loader that made the batches.
    ///
    /// # Errors
    /// The loader's error, or a loss that is not finite.
    pub fn evaluate(
        &self,
        batches: impl IntoIterator<Item = kiln_loader::Result<T::Batch>>,
        mut visit: impl FnMut(&T::Input, &Forward),
    ) -> Result<Counts> {
        let model = self.model.valid();
        let mut counts = Counts::default();
        for (step, batch) in batches.into_iter().enumerate() {
            let batch = self.task.upload(batch?, &self.device);
            if batch.n_items == 0 {
                continue;
            }
            let ctx = Ctx { key: batch.key, mode: Mode::Eval };
            let forward = self.task.forward(&model, &batch.input, &ctx);
            let of_step = self.count(&batch, &forward);
            check_finite("evaluation", step, &of_step)?;
            counts += of_step;
            visit(&batch.input, &forward);
        }
        Ok(counts)
    }

    fn count(&self, batch: &DeviceBatch<T::Input>, forward: &Forward) -> Counts {
        let loss_sum =
            kiln_kernels::read_f32(forward.loss_sum.clone()).iter().map(|&sum| f64::from(sum)).sum();
        let mut counts = Counts { loss_sum, weight: forward.weight, ..Counts::default() };
        self.task.count(&batch.input, &forward.outputs, &mut counts);
        counts
    }
}

fn check_finite(pass: &'static str, step: usize, counts: &Counts) -> Result<()> {
    let loss = counts.loss_sum;
    if loss.is_finite() { Ok(()) } else { Err(Error::LossNotFinite { pass, step, loss }) }
}
