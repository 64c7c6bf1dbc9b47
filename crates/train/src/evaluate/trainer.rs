use std::time::Duration;

use burn::module::Module;
use kiln_nn::{ForwardContext, Mode};

use crate::error::Result;
use crate::step::batch::DeviceBatch;
use crate::step::metric_sums::MetricSums;
use crate::step::steps::check_finite;
use crate::step::task::{StepOutput, Task};
use crate::step::trainer::TaskTrainer;

/// How long ranks wait for the one that works for all of them: a day. One that fails is noticed at once.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

impl<T: Task> TaskTrainer<T> {
    /// Runs the model on the batches without training, and calls `visit` with each batch of this rank and its
    /// outputs. Dropout is off; whether neighbours are sampled is up to the loader that made the batches. The
    /// counts are those of all ranks. A meeting.
    ///
    /// # Errors
    /// The loader's error, a loss that is not finite, [`Error::Ranks`](crate::Error::Ranks).
    pub fn evaluate(
        &mut self,
        batches: impl IntoIterator<Item = kiln_loader::Result<DeviceBatch<T::Input>>>,
        mut visit: impl FnMut(&T::Input, &StepOutput),
    ) -> Result<MetricSums> {
        let counts = self.evaluate_own(batches, &mut visit)?;
        counts.sum_over(&mut *self.comm)
    }

    /// The same for this rank alone: its counts are its own, and it meets nobody.
    ///
    /// # Errors
    /// The loader's error, a loss that is not finite.
    pub fn evaluate_own(
        &mut self,
        batches: impl IntoIterator<Item = kiln_loader::Result<DeviceBatch<T::Input>>>,
        mut visit: impl FnMut(&T::Input, &StepOutput),
    ) -> Result<MetricSums> {
        self.comm.set_stage("evaluation");
        let model = self.model.valid();
        let mut counts = MetricSums::default();
        for (step, batch) in batches.into_iter().enumerate() {
            let batch = batch?;
            self.check_device(&batch)?;
            if batch.n_items == 0 {
                continue;
            }
            let ctx = ForwardContext { key: batch.key, mode: Mode::Eval };
            let forward = self.task.forward(&model, &batch.input, &ctx);
            let of_step = self.counts_of(&batch.input, &forward)();
            check_finite("evaluation", step, &of_step)?;
            counts += of_step;
            visit(&batch.input, &forward);
        }
        Ok(counts)
    }

    /// Has rank 0 alone work, while the others wait for as long as it lives; they get the default. A
    /// meeting.
    ///
    /// # Errors
    /// What `work` says, and [`Error::Ranks`](crate::Error::Ranks).
    pub fn on_rank_zero<V: Default>(&mut self, work: impl FnOnce(&mut Self) -> Result<V>) -> Result<V> {
        self.comm.set_stage("evaluation on the first rank");
        let value = if self.is_rank_zero() { work(self)? } else { V::default() };
        self.comm.barrier(PATIENCE)?;
        Ok(value)
    }

    /// The counts of all ranks. A meeting.
    ///
    /// # Errors
    /// [`Error::Ranks`](crate::Error::Ranks).
    pub fn sum(&mut self, counts: MetricSums) -> Result<MetricSums> {
        counts.sum_over(&mut *self.comm)
    }
}
