//! The parts of a training step, for a loop of one's own.

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use crate::error::{Error, Result, TrainerError};
use crate::step::batch::DeviceBatch;
use crate::step::task::custom_loss::LossValue;
use crate::step::task::{StepOutput, Task};
use crate::step::trainer::TaskTrainer;
use crate::step::trainer::learn::{Learned, LossScale};

/// The gradients of a batch of this rank, which [`TaskTrainer::update`] averages over the ranks and applies.
pub struct StepGradients {
    /// The gradients of the model's parameters, of the mean loss of the batch. Those of trainable rows are not among them.
    pub model: GradientsParams,
    /// The rest of the pass; its gradients are in `model`.
    learned: Learned,
    started: Instant,
}

impl<T: Task> TaskTrainer<T> {
    /// Runs the model on a batch of this rank, in training mode, and computes the gradients of a loss of one's own: a function of the
    /// outputs, `[n_items, n_outputs]`, and the batch's input, which has the targets. It returns the loss of each item, `[n_items]`, or a
    /// [`LossSum`](kiln_nn::LossSum) with weights. The loss of the task is computed, too, but not used.
    ///
    /// The function is not called for a batch without items, which a rank may get at the end of an epoch. [`TaskTrainer::update`] must
    /// follow, also then: it is collective.
    ///
    /// The outputs of a regression are on the scale of the loss ([`TargetScale`](crate::TargetScale)), and the targets of the
    /// input in their units.
    ///
    /// ```no_run
    /// # use kiln_loader::{Batcher, Loader};
    /// # use kiln_nn::BlockModel;
    /// # use kiln_train::{DeviceBatch, NodeClassification, NodeInput, Result, TaskTrainer};
    /// # fn example<M: BlockModel, F: Batcher<Batch = DeviceBatch<NodeInput>>>(
    /// #     mut trainer: TaskTrainer<NodeClassification<M>>,
    /// #     train: Loader<F>,
    /// # ) -> Result<()> {
    /// use kiln_nn::ClassLoss;
    /// let loss = ClassLoss { label_smoothing: 0.1, ..ClassLoss::default() };
    /// for batch in train.epoch(trainer.next_phase()) {
    ///     let gradients = trainer.gradients(&batch?, |outputs, input| loss.sum(outputs, &input.labels))?;
    ///     trainer.update(gradients)?;
    /// }
    /// println!("loss {:.4}", trainer.end_epoch()?.counts.loss());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`CustomLossError::Shape`](crate::CustomLossError::Shape) unless there is one loss per item,
    /// [`TrainerError::LossNotFinite`], [`TrainerError::OtherDevice`] for a batch on another device, and
    /// [`TrainerError::BadSetting`] if the trainer accumulates several batches per step.
    pub fn gradients<R: Into<LossValue>>(
        &mut self,
        batch: &DeviceBatch<T::Input>,
        loss: impl FnOnce(Tensor<2>, &T::Input) -> R,
    ) -> Result<StepGradients> {
        let started = Instant::now();
        if self.accumulate != 1 {
            return Err(Error::Trainer(TrainerError::BadSetting {
                what: "the number of batches to accumulate in a step of a loop of one's own",
                expected: "1",
                got: self.accumulate as f64,
            }));
        }
        self.epoch.started.get_or_insert(started);
        self.comm.set_step(self.epoch.n_steps as u64);
        let mut learned = self.learn_by(batch, 0, LossScale::Mean, |output, input| {
            let value: LossValue = loss(output.outputs.clone(), input).into();
            let sum = value.into_sum("of the loop", batch.n_items)?;
            Ok(StepOutput { loss_sum: sum.sum, weight: sum.weight, ..output })
        })?;
        let model = std::mem::take(&mut learned.gradients);
        Ok(StepGradients { model, learned, started })
    }

    /// Averages gradients over the ranks, scales them if they are longer than the optimizer's limit, and updates the parameters, as
    /// [`TaskTrainer::step`] does. Each batch is a step of the epoch, which [`TaskTrainer::end_epoch`] ends. Collective: every rank must
    /// call it.
    ///
    /// # Errors
    /// Returns [`TrainerError::UnknownEpochSteps`] if the learning rate depends on the number of steps
    /// ([`TaskTrainer::with_epoch_steps`]), [`TrainerError::LossNotFinite`], and [`Error::Ranks`] if another rank fails.
    pub fn update(&mut self, gradients: StepGradients) -> Result<()> {
        let StepGradients { model, learned, started } = gradients;
        let learning_rate = self.learning_rate()?;
        self.apply(Learned { gradients: model, ..learned }, learning_rate, started, |_| ())
    }
}

impl std::fmt::Debug for StepGradients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepGradients").field("weight", &self.learned.weight).finish_non_exhaustive()
    }
}
