use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use kiln_dist::Communicator;
use kiln_kernels::is_processor;
use kiln_nn::{Ctx, Mode};

use crate::error::{Error, Result};
use crate::step::counts::{Counts, Weight};
use crate::step::optimizer::OptimizerConfig;
use crate::step::reports::Unread;
use crate::step::reports::{EpochReport, EpochSoFar, StepReport, Timings};
use crate::step::sync::share_buffers;
use crate::step::sync::{BucketSync, GradientSync};
use crate::step::task::{Forward, Task};
use crate::step::weights::{hash, load_weights, weights_to_bytes};

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
    read_every: usize,
    stop: Arc<AtomicBool>,
    /// Whether some rank was asked to stop in the last step.
    is_stopping: bool,
}

/// Steps of a device after which their losses are read.
const READ_EVERY: usize = 10;

/// What a rank learned from a batch.
struct Learned {
    outcome: Outcome,
    /// Of this rank's items in the loss.
    weight: f64,
    gradients: GradientsParams,
}

/// Loss and outputs of a step.
enum Outcome {
    /// They have been looked at.
    Read(Counts),
    /// They are still on the device.
    Unread(Box<dyn FnOnce() -> Counts>),
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
        let read_every = if is_processor(&device) { 1 } else { READ_EVERY };
        let (device, stop) = (device.inner(), Arc::default());
        Ok(Self { task, model, optimizer, comm, sync, device, read_every, stop, is_stopping: false })
    }

    /// The same, which reads losses and outputs of so many steps at a time, at least 1: the host waits for the device
    /// only then. At 1, which is so on the processor and with several ranks, a loss that is not finite ends the epoch before
    /// its step has changed anything; otherwise (10 by default) the steps since the last time have.
    #[must_use]
    pub fn with_read_every(self, n_steps: usize) -> Self {
        Self { read_every: n_steps.max(1), ..self }
    }

    /// The same, whose ranks all know after a step whether the flag of any of them is up
    /// ([`Trainer::is_stopping`]): [`fit`](crate::fit) then writes a checkpoint and ends.
    #[must_use]
    pub fn with_stop(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
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

    /// Whether the flag of [`Trainer::with_stop`] was up on some rank in the last step; the same on all.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Trains on the batches and calls `observe` with each step, in their order, once its loss has been read. A meeting,
    /// of as many batches on each rank; at its end mapped files are checked ([`Trainer::check_files`]), and the ranks
    /// compare their models.
    ///
    /// # Errors
    /// The loader's error, a loss that is not finite, [`Error::Ranks`], [`Error::RanksDiffer`] and [`Error::Graph`]; the
    /// parameters are then as the last whole step left them (but see [`Trainer::with_read_every`]).
    pub fn epoch(
        &mut self,
        epoch: usize,
        batches: impl IntoIterator<Item = kiln_loader::Result<T::Batch>>,
        mut observe: impl FnMut(&StepReport),
    ) -> Result<EpochReport> {
        let mut so_far = EpochSoFar::start(epoch);
        let mut batches = batches.into_iter();
        while self.step(&mut batches, &mut so_far, &mut observe)? {}
        // First what differs where a rank has more steps than the others.
        self.compare(epoch)?;
        self.check_files()?;
        Ok(so_far.report())
    }

    /// One step on the next batch: upload, forward, backward, sync, update. False at the end. `observe` is called with the
    /// steps whose losses have been read, which at the end are all. A meeting.
    ///
    /// # Errors
    /// As [`Trainer::epoch`].
    pub fn step(
        &mut self,
        batches: &mut impl Iterator<Item = kiln_loader::Result<T::Batch>>,
        so_far: &mut EpochSoFar,
        observe: impl FnMut(&StepReport),
    ) -> Result<bool> {
        let asked = Instant::now();
        self.comm.at_step(so_far.n_steps as u64);
        self.comm.at_phase("wait");
        let Some(batch) = batches.next() else {
            self.read_back(so_far, observe)?;
            return Ok(false);
        };
        so_far.timings.wait += asked.elapsed();
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                // What the steps before it have to say is not lost.
                self.read_back(so_far, observe)?;
                return Err(error.into());
            }
        };
        let Learned { outcome, weight, gradients } = self.learn(batch, so_far)?;
        let learned = Instant::now();
        self.comm.at_phase("sync");
        let (outcome, all) = match outcome {
            Outcome::Read(own) => {
                let is_asked = u64::from(self.stop.load(Ordering::Relaxed));
                let (counts, n_asked) = own.sum_over_with(&mut *self.comm, is_asked)?;
                self.is_stopping = 0 < n_asked;
                (Outcome::Read(counts), counts.weight)
            }
            unread => {
                self.is_stopping = self.stop.load(Ordering::Relaxed);
                (unread, weight)
            }
        };
        let gradients = self.average(gradients, Weight { own: weight, all })?;
        let synced = Instant::now();
        so_far.timings.sync += synced - learned;
        self.comm.at_phase("update");
        let learning_rate = self.optimizer.config.learning_rate_in(so_far.epoch);
        self.model = self.optimizer.state.step(learning_rate, self.model.clone(), gradients);
        so_far.timings.update += synced.elapsed();
        so_far.memory.look();
        let (step, wall) = (so_far.n_steps, asked.elapsed());
        so_far.n_steps += 1;
        match outcome {
            Outcome::Read(counts) => {
                so_far.unread.push(Unread { step, wall, read: Box::new(move || counts) })
            }
            Outcome::Unread(read) => so_far.unread.push(Unread { step, wall, read }),
        }
        if self.reads_at_once() || self.read_every <= so_far.unread.len() {
            self.read_back(so_far, observe)?;
        }
        Ok(true)
    }

    /// Waits for the device and reads the losses of the steps since the last time: of an epoch that is left before its
    /// end, before its counts are looked at.
    ///
    /// # Errors
    /// [`Error::LossNotFinite`].
    pub fn read_back(&self, so_far: &mut EpochSoFar, mut observe: impl FnMut(&StepReport)) -> Result<()> {
        for Unread { step, wall, read } in std::mem::take(&mut so_far.unread) {
            let asked = Instant::now();
            let counts = read();
            let waited = asked.elapsed();
            // Where a loss is read at once, this is part of the forward stage, too.
            so_far.timings.forward += waited;
            check_finite("training", step, &counts)?;
            so_far.counts += counts;
            observe(&StepReport { step, counts, wall: wall + waited });
        }
        Ok(())
    }

    /// Forward and backward: what became of this rank's batch, and the gradients of its mean loss.
    fn learn(&mut self, batch: T::Batch, so_far: &mut EpochSoFar) -> Result<Learned> {
        let Timings { upload, forward: forwards, backward, loader, .. } = &mut so_far.timings;
        let started = Instant::now();
        self.comm.at_phase("upload");
        let batch = self.task.upload(batch, &self.device.clone().autodiff());
        *loader += batch.times;
        let uploaded = Instant::now();
        *upload += uploaded - started;
        if batch.n_items == 0 {
            let (outcome, gradients) = (Outcome::Read(Counts::default()), GradientsParams::new());
            return Ok(Learned { outcome, weight: 0.0, gradients });
        }
        self.comm.at_phase("forward");
        let ctx = Ctx { key: batch.key, mode: Mode::Train };
        let forward = self.task.forward(&self.model, &batch.input, &ctx);
        let read = self.counts_of(&batch.input, &forward);
        let outcome = if self.reads_at_once() {
            let counts = read();
            check_finite("training", so_far.n_steps, &counts)?;
            Outcome::Read(counts)
        } else {
            Outcome::Unread(Box::new(read))
        };
        let forwarded = Instant::now();
        self.comm.at_phase("backward");
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
        Ok(Learned { outcome, weight: forward.weight, gradients })
    }

    /// Ranks tell each other their counts in each step, and their gradients go by the host.
    fn reads_at_once(&self) -> bool {
        self.read_every == 1 || 1 < self.comm.topology().world_size
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
        self.comm.at_phase("comparing models");
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
        let counts = self.evaluate_own(batches, &mut visit)?;
        counts.sum_over(&mut *self.comm)
    }

    /// The same for this rank alone: its counts are its own, and it meets nobody.
    ///
    /// # Errors
    /// The loader's error, a loss that is not finite.
    pub fn evaluate_own(
        &mut self,
        batches: impl IntoIterator<Item = kiln_loader::Result<T::Batch>>,
        mut visit: impl FnMut(&T::Input, &Forward),
    ) -> Result<Counts> {
        self.comm.at_phase("evaluation");
        let model = self.model.valid();
        let mut counts = Counts::default();
        for (step, batch) in batches.into_iter().enumerate() {
            let batch = self.task.upload(batch?, &self.device);
            if batch.n_items == 0 {
                continue;
            }
            let ctx = Ctx { key: batch.key, mode: Mode::Eval };
            let forward = self.task.forward(&model, &batch.input, &ctx);
            let of_step = self.counts_of(&batch.input, &forward)();
            check_finite("evaluation", step, &of_step)?;
            counts += of_step;
            visit(&batch.input, &forward);
        }
        Ok(counts)
    }

    /// Has the first rank alone work, while the others wait for as long as it lives; they get the default. A
    /// meeting.
    ///
    /// # Errors
    /// What `work` says, and [`Error::Ranks`].
    pub fn on_first<V: Default>(&mut self, work: impl FnOnce(&mut Self) -> Result<V>) -> Result<V> {
        self.comm.at_phase("evaluation on the first rank");
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

    /// What reads a step's loss and outputs; the input may be gone by then.
    fn counts_of(&self, input: &T::Input, forward: &Forward) -> impl FnOnce() -> Counts + 'static + use<T> {
        let (truth, weight) = (self.task.truth(input), forward.weight);
        // What they were computed from is not held.
        let (loss_sum, outputs) = (forward.loss_sum.clone().detach(), forward.outputs.clone().detach());
        move || {
            let loss_sum = kiln_kernels::read_f32(loss_sum).iter().map(|&sum| f64::from(sum)).sum();
            let mut counts = Counts { loss_sum, weight, ..Counts::default() };
            T::count(&truth, &outputs, &mut counts);
            counts
        }
    }
}

fn check_finite(pass: &'static str, step: usize, counts: &Counts) -> Result<()> {
    let loss = counts.loss_sum;
    if loss.is_finite() { Ok(()) } else { Err(Error::LossNotFinite { pass, step, loss }) }
}
