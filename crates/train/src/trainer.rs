use std::time::{Duration, Instant};

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use kiln_dist::Communicator;
use kiln_nn::{Ctx, Mode};

use crate::sync::share_buffers;
use crate::weights::{hash, load_weights, weights_to_bytes};
use crate::{
    BucketSync, Counts, DeviceBatch, EpochReport, EpochSoFar, Error, Forward, GradientSync, OptimizerConfig,
    Result, StepReport, Task, Timings, Weight,
};

/// How long ranks wait for the one that works for all of them: a day. One that fails is noticed at once.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Trains a task's model, together with the trainers of the other ranks: each takes its share of a step's
/// items, gradients are averaged, and all models stay the same to the bit.
///
/// Methods that say so are meetings: every rank calls them, in the same order.
#[derive(Debug)]
pub struct Trainer<T: Task> {
    pub(crate) task: T,
    pub(crate) model: T::Model,
    pub(crate) optimizer: OptimizerState,
    comm: Box<dyn Communicator>,
    sync: Box<dyn GradientSync<T::Model>>,
    device: Device,
}

/// Burn's optimizer with its numbers.
pub(crate) struct OptimizerState {
    pub(crate) state: ModuleOptimizer,
    config: OptimizerConfig,
}

impl std::fmt::Debug for OptimizerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Optimizer").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<T: Task> Trainer<T> {
    /// A trainer for a model whose parameters are on `device` with autodiff: `device` is the plain one. A
    /// meeting, in which every rank gets the first one's parameters.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for an optimizer's number that no run can use, [`Error::Ranks`], and
    /// [`Error::Weights`] where another rank's model has another shape.
    pub fn new(
        task: T,
        mut model: T::Model,
        optimizer: &OptimizerConfig,
        mut comm: Box<dyn Communicator>,
        device: Device,
    ) -> Result<Self> {
        let optimizer = OptimizerState { state: optimizer.init()?, config: *optimizer };
        if 1 < comm.topology().world_size {
            let mut bytes = weights_to_bytes(&model)?;
            comm.broadcast(0, &mut bytes)?;
            load_weights(&mut model, bytes)?;
        }
        let sync = Box::new(BucketSync::default());
        Ok(Self { task, model, optimizer, comm, sync, device: device.inner() })
    }

    /// The same, with gradients averaged in another way than through host memory.
    pub fn with_sync(self, sync: impl GradientSync<T::Model> + 'static) -> Self {
        Self { sync: Box::new(sync), ..self }
    }

    /// The model as it is now.
    pub fn model(&self) -> &T::Model {
        &self.model
    }

    /// The plain device that it evaluates on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The way to the other ranks.
    pub fn comm(&mut self) -> &mut dyn Communicator {
        &mut *self.comm
    }

    /// Whether this is the first rank, which prints and writes files for all.
    pub fn is_first(&self) -> bool {
        self.comm.topology().rank == 0
    }

    /// Trains on the batches and calls `observe` after each step. A meeting, of as many batches on each rank;
    /// at its end the ranks compare their models.
    ///
    /// # Errors
    /// The loader's error, a loss that is not finite, [`Error::Ranks`] and [`Error::RanksDiffer`]; the
    /// parameters are then as the last whole step left them.
    pub fn epoch(
        &mut self,
        epoch: usize,
        batches: impl IntoIterator<Item = kiln_loader::Result<T::Batch>>,
        mut observe: impl FnMut(&StepReport),
    ) -> Result<EpochReport> {
        let mut so_far = EpochSoFar::start(epoch);
        let mut batches = batches.into_iter();
        while let Some(report) = self.step(&mut batches, &mut so_far)? {
            observe(&report);
        }
        self.compare(epoch)?;
        Ok(so_far.report())
    }

    /// One step on the next batch: upload, forward, backward, sync, update. `None` at the end. A meeting.
    ///
    /// # Errors
    /// As [`Trainer::epoch`].
    pub fn step(
        &mut self,
        batches: &mut impl Iterator<Item = kiln_loader::Result<T::Batch>>,
        so_far: &mut EpochSoFar,
    ) -> Result<Option<StepReport>> {
        let asked = Instant::now();
        self.comm.at_step(so_far.n_steps as u64);
        let Some(batch) = batches.next() else { return Ok(None) };
        so_far.timings.wait += asked.elapsed();
        let (own, gradients) = self.learn(batch?, so_far)?;
        let learned = Instant::now();
        let counts = own.sum_over(&mut *self.comm)?;
        let gradients = self.average(gradients, Weight { own: own.weight, all: counts.weight })?;
        let synced = Instant::now();
        so_far.timings.sync += synced - learned;
        let learning_rate = self.optimizer.config.learning_rate_in(so_far.epoch);
        self.model = self.optimizer.state.step(learning_rate, self.model.clone(), gradients);
        so_far.timings.update += synced.elapsed();
        so_far.memory.look();
        let report = StepReport { step: so_far.n_steps, counts, wall: asked.elapsed() };
        so_far.counts += counts;
        so_far.n_steps += 1;
        Ok(Some(report))
    }

    /// Forward and backward: this rank's counts, and the gradients of its mean loss.
    fn learn(&self, batch: T::Batch, so_far: &mut EpochSoFar) -> Result<(Counts, GradientsParams)> {
        let Timings { upload, forward: forwards, backward, loader, .. } = &mut so_far.timings;
        let started = Instant::now();
        let batch = self.task.upload(batch, &self.device.clone().autodiff());
        *loader += batch.times;
        let uploaded = Instant::now();
        *upload += uploaded - started;
        if batch.n_items == 0 {
            return Ok((Counts::default(), GradientsParams::new()));
        }
        let ctx = Ctx { key: batch.key, mode: Mode::Train };
        let forward = self.task.forward(&self.model, &batch.input, &ctx);
        let counts = self.count(&batch, &forward);
        check_finite("training", so_far.n_steps, &counts)?;
        let forwarded = Instant::now();
        *forwards += forwarded - uploaded;
        so_far.memory.look();
        // Items that all weigh nothing have no mean loss.
        let gradients = match forward.weight {
            0.0 => GradientsParams::new(),
            weight => {
                let loss = forward.loss_sum.div_scalar(weight);
                GradientsParams::from_grads(loss.backward(), &self.model)
            }
        };
        *backward += forwarded.elapsed();
        so_far.memory.look();
        Ok((counts, gradients))
    }

    /// The gradients of the mean loss over all ranks' items; buffers become those of the first rank.
    fn average(&mut self, gradients: GradientsParams, weight: Weight) -> Result<GradientsParams> {
        if self.comm.topology().world_size == 1 || weight.all == 0.0 {
            return Ok(gradients);
        }
        let gradients = self.sync.average(&mut *self.comm, &self.model, gradients, weight)?;
        self.model = share_buffers(&mut *self.comm, self.model.clone())?;
        Ok(gradients)
    }

    /// Makes sure that all ranks have the same parameters, by their hashes. A meeting.
    pub(crate) fn compare(&mut self, epoch: usize) -> Result<()> {
        if self.comm.topology().world_size == 1 {
            return Ok(());
        }
        let own = hash(&weights_to_bytes(&self.model)?).into_bytes();
        // Not the collective that a step begins with: a rank that has more steps than the others is told so.
        let mut first = own.clone();
        self.comm.broadcast(0, &mut first)?;
        let differs = self.comm.all_gather(&[u8::from(own != first)])?;
        match differs.iter().position(|differs| *differs != [0]) {
            Some(rank) => Err(Error::RanksDiffer { rank, epoch: epoch + 1 }),
            None => Ok(()),
        }
    }

    /// Runs the model on the batches without training, and calls `visit` with each batch of this rank and its
    /// outputs. Dropout is off; whether neighbours are sampled is up to the loader that made the batches. The
    /// counts are those of all ranks. A meeting.
    ///
    /// # Errors
    /// The loader's error, a loss that is not finite, [`Error::Ranks`].
    pub fn evaluate(
        &mut self,
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
        counts.sum_over(&mut *self.comm)
    }

    /// Has the first rank alone work, while the others wait for as long as it lives; they get the default. A
    /// meeting.
    ///
    /// # Errors
    /// What `work` says, and [`Error::Ranks`].
    pub fn on_first<V: Default>(&mut self, work: impl FnOnce(&Self) -> Result<V>) -> Result<V> {
        let value = if self.is_first() { work(self)? } else { V::default() };
        self.comm.barrier(PATIENCE)?;
        Ok(value)
    }

    /// The counts of all ranks. A meeting.
    ///
    /// # Errors
    /// [`Error::Ranks`].
    pub fn sum(&mut self, counts: Counts) -> Result<Counts> {
        counts.sum_over(&mut *self.comm)
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
