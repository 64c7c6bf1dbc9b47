use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use burn::optim::GradientsParams;
use kiln_kernels::ops::adam_together;
use kiln_loader::{Batcher, Loader};

use crate::error::{Error, Result, TrainerError};
use crate::run::data_hash::DataHash;
use crate::step::batch::DeviceBatch;
use crate::step::embedding::SparseAdamConfig;
use crate::step::embedding::row_gradients::RowGradients;
use crate::step::optimizer::clip::clip_by_norm;
use crate::step::optimizer::schedule::TrainingPosition;
use crate::step::reports::{EpochReport, EpochState, StepReport, Unread};
use crate::step::sync::share_buffers;
use crate::step::task::metric_sums::{LossWeight, MetricSums, check_training_loss};
use crate::step::task::negatives::NegativeCounts;
use crate::step::task::{StepOutput, Task};
use crate::step::trainer::TaskTrainer;
use crate::step::trainer::learn::{Learned, LossScale, Outcome};
use crate::step::weights::task_weights;

impl<T: Task> TaskTrainer<T> {
    /// Trains the next epoch on the loader's batches, or the rest of the current one. Calls `observe` with each step,
    /// in order, after its loss was read. At the end, the ranks compare their models, and mapped files are checked
    /// ([`TaskTrainer::check_files`]). Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`TrainerError::OtherLoader`] for a loader of another seed, another rank's share or another number of
    /// batches per step, the loader's error, [`TrainerError::LossNotFinite`], [`TrainerError::OtherDevice`],
    /// [`Error::Ranks`] if another rank fails, [`TrainerError::RanksDiffer`], [`TrainerError::UnknownEpochSteps`], and
    /// [`Error::Graph`] if a mapped file was changed. The parameters are then those after the last complete step (but
    /// see [`TaskTrainer::with_read_every`]).
    pub fn epoch<F>(&mut self, loader: &Loader<F>, observe: impl FnMut(&StepReport)) -> Result<EpochReport>
    where
        F: Batcher<Batch = DeviceBatch<T::Input>>,
    {
        self.check_items(loader.items())?;
        self.epoch_steps = Some(loader.n_steps(self.next_phase()));
        let batches = loader.epoch_from(self.next_phase(), self.epoch.n_steps);
        self.epoch_of(batches, observe)
    }

    /// Trains an epoch like [`TaskTrainer::epoch`], but on any batches. Every rank must have the same number of
    /// batches. Batches of a loader must be of the phase [`TaskTrainer::next_phase`].
    ///
    /// # Errors
    /// Returns the errors of [`TaskTrainer::epoch`].
    pub fn epoch_of(
        &mut self,
        batches: impl IntoIterator<Item = kiln_loader::Result<DeviceBatch<T::Input>>>,
        mut observe: impl FnMut(&StepReport),
    ) -> Result<EpochReport> {
        let mut batches = batches.into_iter();
        while self.step(&mut batches, &mut observe)? {}
        let report = self.end_epoch()?;
        self.check_files()?;
        Ok(report)
    }

    /// Runs one step on the next batch, or on the next [`TrainerConfig::accumulate`](crate::TrainerConfig::accumulate)
    /// batches: forward, backward, sync, update. Returns false if there is no batch left. Calls `observe` with each step
    /// whose loss was read. When this returns false, all losses have been read. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns the errors of [`TaskTrainer::epoch`].
    pub fn step(
        &mut self,
        batches: &mut impl Iterator<Item = kiln_loader::Result<DeviceBatch<T::Input>>>,
        mut observe: impl FnMut(&StepReport),
    ) -> Result<bool> {
        let asked = Instant::now();
        self.epoch.started.get_or_insert(asked);
        self.comm.set_step(self.epoch.n_steps as u64);
        let Some(batch) = self.next_batch(batches, &mut observe)? else {
            self.read_back(observe)?;
            return Ok(false);
        };
        let learning_rate = self.learning_rate()?;
        let learned = match self.accumulate {
            1 => self.learn(batch, 0, LossScale::Mean)?,
            _ => self.learn_all(batch, batches, &mut observe)?,
        };
        self.apply(learned, learning_rate, asked, observe)?;
        Ok(true)
    }

    /// Averages the gradients of a step that began at `asked` over the ranks, and updates the parameters.
    pub(crate) fn apply(
        &mut self,
        learned: Learned,
        learning_rate: f64,
        asked: Instant,
        observe: impl FnMut(&StepReport),
    ) -> Result<()> {
        let Learned { outcome, weight, negatives, gradients, rows } = learned;
        let learned = Instant::now();
        self.comm.set_stage("sync");
        let (outcome, all) = self.share(outcome, weight, negatives)?;
        let weight = LossWeight { own: weight, all };
        let gradients = self.average(gradients, weight)?;
        let rows: Vec<RowGradients> = rows
            .into_iter()
            .map(|of_rank: RowGradients| of_rank.sum_over_ranks(weight, &mut *self.comm))
            .collect::<Result<_>>()?;
        let synced = Instant::now();
        self.epoch.timings.sync += synced - learned;
        self.comm.set_stage("update");
        let gradients = self.clip(gradients);
        let model = self.model.clone();
        self.model = adam_together(|| self.optimizer.state.step(learning_rate, model, gradients));
        for (table, gradients) in self.embeddings.iter_mut().zip(&rows) {
            // Only a trained model shares its tables, so this copies nothing.
            Arc::make_mut(table).step(gradients, &SparseAdamConfig::default(), learning_rate)?;
        }
        self.epoch.timings.update += synced.elapsed();
        self.epoch.memory.look();
        let step = self.epoch.n_steps;
        let wall = asked.elapsed();
        self.epoch.n_steps += 1;
        let read = Box::new(move || outcome.read());
        self.epoch.unread.push(Unread { step, wall, read });
        // After the first step, so that it does not slow it down.
        self.awaited.iter().for_each(DataHash::start);
        if self.reads_at_once() || self.read_every <= self.epoch.unread.len() {
            self.read_back(observe)?;
        }
        Ok(())
    }

    /// Sums a step over all ranks: its outcome, its weight, its negatives, the requests to stop and the ranks that have
    /// not hashed their data. Returns the outcome and the weight.
    fn share(&mut self, own: Outcome, weight: f64, negatives: NegativeCounts) -> Result<(Outcome, f64)> {
        let is_asked = self.stop.load(Ordering::Relaxed);
        let lacks_hash = self.awaited.as_ref().is_some_and(|hash| !hash.is_ready());
        let Outcome::Read(own) = own else {
            // Losses stay unread only if the rank is alone.
            (self.is_stopping, self.has_awaited) = (is_asked, !lacks_hash);
            self.train_negatives += negatives;
            return Ok((own, weight));
        };
        let [n_negatives, n_rejected] = negatives.to_words();
        let numbers = [u64::from(is_asked), u64::from(lacks_hash), n_negatives, n_rejected];
        let (counts, [n_asked, n_lacking, n_negatives, n_rejected]) =
            own.sum_over_with(&mut *self.comm, numbers)?;
        (self.is_stopping, self.has_awaited) = (0 < n_asked, n_lacking == 0);
        self.train_negatives += NegativeCounts { n_negatives, n_rejected };
        Ok((Outcome::Read(counts), counts.weight))
    }

    /// Waits for the device and reads the losses of the steps since the last read. Call it before using the counts of
    /// an epoch that is stopped before its end.
    ///
    /// # Errors
    /// Returns [`TrainerError::LossNotFinite`] or [`TrainerError::FirstLossNotFinite`] if a loss is infinite or NaN.
    pub fn read_back(&mut self, mut observe: impl FnMut(&StepReport)) -> Result<()> {
        for Unread { step, wall, read } in std::mem::take(&mut self.epoch.unread) {
            let asked = Instant::now();
            let counts = read();
            let waited = asked.elapsed();
            // The time to read a loss immediately is added to the forward stage.
            self.epoch.timings.forward += waited;
            check_training_loss(self.epoch.epoch, step, &counts)?;
            self.epoch.counts += counts;
            observe(&StepReport { step, counts, wall: wall + waited });
        }
        Ok(())
    }

    /// Ends an epoch without batches left ([`TaskTrainer::step`] has returned false, or each batch was an
    /// [update](TaskTrainer::update)): the ranks compare their models, and the next step belongs to the next epoch. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`TrainerError::LossNotFinite`] for a step whose loss was not read before,
    /// [`TrainerError::RanksDiffer`] if the ranks have different parameters, [`crate::RunError::Weights`] if the parameters cannot be serialized, and [`Error::Ranks`] if another rank fails.
    pub fn end_epoch(&mut self) -> Result<EpochReport> {
        let epoch = self.epoch.epoch;
        // Steps of a loop of one's own may be unread; after `step` has returned false, none is.
        self.read_back(|_| ())?;
        // This collective comes first: it differs from that of a step, so a rank with more steps than the others is
        // detected.
        self.compare(epoch)?;
        let report = self.epoch.report();
        self.peak.merge(report.peak_memory);
        self.epoch = EpochState::start(epoch + 1);
        Ok(report)
    }

    /// Scales the averaged gradients if they are longer than the optimizer's limit.
    fn clip(&self, gradients: GradientsParams) -> GradientsParams {
        match self.optimizer.config.clip_grad_norm {
            Some(max_norm) => clip_by_norm(&self.model, gradients, max_norm, &self.device),
            None => gradients,
        }
    }

    /// Returns the learning rate of the current step.
    pub(crate) fn learning_rate(&self) -> Result<f64> {
        let epoch = self.epoch.epoch;
        let step = self.epoch.n_steps;
        let epoch_steps = self.epoch_steps;
        let position = TrainingPosition { epoch, step, epoch_steps };
        self.optimizer
            .config
            .learning_rate_at(position)
            .ok_or(Error::Trainer(TrainerError::UnknownEpochSteps))
    }

    /// Returns true if losses are read in every step. This is always the case with several ranks, because the ranks
    /// exchange their metric sums in each step.
    pub(crate) fn reads_at_once(&self) -> bool {
        self.read_every == 1 || 1 < self.comm.rank_info().world_size
    }

    /// Averages the gradients, weighted by the ranks' items, and copies the buffers of rank 0 to all ranks. Returns the
    /// gradients unchanged if there is only one rank or the step has no items.
    fn average(&mut self, gradients: GradientsParams, weight: LossWeight) -> Result<GradientsParams> {
        if self.comm.rank_info().world_size == 1 || weight.all == 0.0 {
            return Ok(gradients);
        }
        let gradients = self.sync.average(&mut *self.comm, &self.model, gradients, weight)?;
        self.model = share_buffers(&mut *self.comm, self.model.clone())?;
        Ok(gradients)
    }

    /// Checks that all ranks have the same parameters, by hash. Collective: every rank must call it.
    pub(crate) fn compare(&mut self, epoch: usize) -> Result<()> {
        if self.comm.rank_info().world_size == 1 {
            return Ok(());
        }
        self.comm.set_stage("comparing models");
        let own = task_weights::hash_of(&self.model, &self.embeddings)?.into_bytes();
        // A step does not start with a broadcast, so a rank with more steps than the others gets an error for
        // mismatched collectives.
        let mut first = own.clone();
        self.comm.broadcast(0, &mut first)?;
        let differs = self.comm.all_gather(&[u8::from(own != first)])?;
        match differs.iter().position(|differs| *differs != [0]) {
            Some(rank) => Err(Error::Trainer(TrainerError::RanksDiffer { rank, epoch: epoch + 1 })),
            None => Ok(()),
        }
    }

    /// Checks that a batch is on this trainer's device.
    pub(crate) fn check_device(&self, batch: &DeviceBatch<T::Input>) -> Result<()> {
        if batch.device == self.device {
            return Ok(());
        }
        let expected = format!("{:?}", self.device);
        let got = format!("{:?}", batch.device);
        Err(Error::Trainer(TrainerError::OtherDevice { expected, got }))
    }

    /// Returns a function that reads a step's loss and outputs. The function does not keep the step's input alive.
    pub(crate) fn counts_of(
        &self,
        input: &T::Input,
        forward: &StepOutput,
    ) -> impl FnOnce() -> MetricSums + 'static + use<T> {
        let targets = self.task.targets(input);
        let weight = forward.weight;
        // Detached tensors do not keep the graph of the forward pass alive.
        let loss_sum = forward.loss_sum.clone().detach();
        let outputs = forward.outputs.clone().detach();
        move || {
            let loss_sum = kiln_kernels::to_vec_f32(loss_sum).iter().map(|&sum| f64::from(sum)).sum();
            let mut counts = MetricSums { loss_sum, weight, ..MetricSums::default() };
            T::count(&targets, &outputs, &mut counts);
            counts
        }
    }
}
