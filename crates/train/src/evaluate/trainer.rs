use std::time::{Duration, Instant};

use burn::module::Module;
use kiln_nn::{ForwardContext, Mode};

use crate::error::Result;
use crate::step::batch::DeviceBatch;
use crate::step::embedding::embeddings::learned_rows;
use crate::step::task::metric_sums::{MetricSums, check_finite};
use crate::step::task::negatives::NegativeCounts;
use crate::step::task::{StepOutput, Task};
use crate::step::trainer::TaskTrainer;

/// The timeout of the ranks that wait while rank 0 works. It may be long, because a failure of rank 0 ends the wait at
/// once.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

impl<T: Task> TaskTrainer<T> {
    /// Runs the model on the batches without training, and calls `visit` with each batch of this rank and its outputs.
    /// Dropout is off; the loader decides whether neighbours are sampled. Returns the metric sums of all ranks. Items whose
    /// outputs are not finite are left out and counted in [`MetricSums::n_not_finite`]. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns the loader's error, [`crate::TrainerError::LossNotFinite`] if the outputs of no
    /// item are finite, for an infinite loss and for a task without [`Task::count_finite`],
    /// [`crate::TrainerError::OtherDevice`] for a batch on another device, and
    /// [`Error::Ranks`](crate::Error::Ranks) if another rank fails.
    pub fn evaluate(
        &mut self,
        batches: impl IntoIterator<Item = kiln_loader::Result<DeviceBatch<T::Input>>>,
        mut visit: impl FnMut(&T::Input, &StepOutput),
    ) -> Result<MetricSums> {
        let counts = self.evaluate_own(batches, &mut visit)?;
        let own = self.eval_negatives.to_words();
        let (counts, negatives) = counts.sum_over_with(&mut *self.comm, own)?;
        self.eval_negatives = NegativeCounts::from_words(negatives);
        counts.checked()
    }

    /// Evaluates like [`TaskTrainer::evaluate`], but on this rank alone: returns the rank's own metric sums, and is not
    /// collective.
    ///
    /// # Errors
    /// Returns the errors of [`TaskTrainer::evaluate`] except [`Error::Ranks`](crate::Error::Ranks).
    pub fn evaluate_own(
        &mut self,
        batches: impl IntoIterator<Item = kiln_loader::Result<DeviceBatch<T::Input>>>,
        mut visit: impl FnMut(&T::Input, &StepOutput),
    ) -> Result<MetricSums> {
        self.comm.set_stage("evaluation");
        let model = self.model.valid();
        let mut counts = MetricSums::default();
        self.eval_negatives = NegativeCounts::default();
        self.eval_batch_times.clear();
        for (step, batch) in batches.into_iter().enumerate() {
            let batch = batch?;
            self.check_device(&batch)?;
            if batch.n_items == 0 {
                continue;
            }
            let start = Instant::now();
            let ctx = ForwardContext { key: batch.key, mode: Mode::Eval };
            let embedded = learned_rows(&self.embeddings, T::embedded_nodes(&batch.input), &self.device)?;
            let forward = self
                .generator
                .evaluate(batch.key, step, || self.task.forward(&model, &batch.input, &embedded, &ctx))?;
            let of_finite = self.task.count_finite(&batch.input, &forward.outputs);
            let of_step = of_finite.unwrap_or_else(|| self.counts_of(&batch.input, &forward)());
            check_finite("evaluation", step, &of_step)?;
            counts += of_step;
            self.eval_negatives += T::negatives(&batch.input);
            visit(&batch.input, &forward);
            // The metric sums were read, so the device has finished the batch.
            self.eval_batch_times.push(start.elapsed());
        }
        Ok(counts)
    }

    /// Calls `work` on rank 0 and returns its value; the other ranks wait and return the default. Collective: every
    /// rank must call it.
    ///
    /// # Errors
    /// Returns the error of `work` on rank 0, and [`Error::Ranks`](crate::Error::Ranks) on the others.
    pub fn on_rank_zero<V: Default>(&mut self, work: impl FnOnce(&mut Self) -> Result<V>) -> Result<V> {
        self.comm.set_stage("evaluation on rank 0");
        let value = if self.is_rank_zero() { work(self)? } else { V::default() };
        self.comm.barrier(PATIENCE)?;
        Ok(value)
    }

    /// Sums the metric sums of an evaluation over all ranks. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`](crate::Error::Ranks) if a rank fails, and
    /// [`crate::TrainerError::LossNotFinite`] if the outputs of no item are finite.
    pub fn sum(&mut self, counts: MetricSums) -> Result<MetricSums> {
        counts.sum_over(&mut *self.comm)?.checked()
    }
}
