use std::time::Instant;

use burn::optim::{GradientsAccumulator, GradientsParams};
use kiln_nn::{ForwardContext, Mode};

use crate::error::Result;
use crate::step::batch::DeviceBatch;
use crate::step::embedding::embeddings::TrainedRows;
use crate::step::embedding::row_gradients::RowGradients;
use crate::step::optimizer::clip::{Factor, scaled};
use crate::step::reports::StepReport;
use crate::step::task::metric_sums::{MetricSums, check_training_loss};
use crate::step::task::negatives::NegativeCounts;
use crate::step::task::{StepOutput, Task};
use crate::step::trainer::TaskTrainer;

/// The result of a rank's forward and backward pass.
pub(crate) struct Learned {
    pub(crate) outcome: Outcome,
    /// The weight of this rank's items in the loss.
    pub(crate) weight: f64,
    /// The negatives of this rank's batches.
    pub(crate) negatives: NegativeCounts,
    pub(crate) gradients: GradientsParams,
    /// The gradients of the rows of each embedding of the task.
    pub(crate) rows: Vec<RowGradients>,
}

/// The loss and the outputs of a step.
pub(crate) enum Outcome {
    /// The loss and the outputs have been read.
    Read(MetricSums),
    /// The loss and the outputs are still on the device.
    Unread(Box<dyn FnOnce() -> MetricSums>),
}

impl Outcome {
    /// Returns the outcome of two batches together.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Read(mut sums), Self::Read(others)) => {
                sums += others;
                Self::Read(sums)
            }
            (one, other) => Self::Unread(Box::new(move || {
                let mut sums = one.read();
                sums += other.read();
                sums
            })),
        }
    }

    /// Returns the sums, and waits for the device if they have not been read.
    pub(crate) fn read(self) -> MetricSums {
        match self {
            Self::Read(sums) => sums,
            Self::Unread(read) => read(),
        }
    }
}

/// The loss whose gradients a backward pass computes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LossScale {
    /// The mean over the items of the batch.
    Mean,
    /// The sum over the items of the batch.
    Sum,
}

impl<T: Task> TaskTrainer<T> {
    /// Returns the next batch, or `None` at the end. If it is an error, reads the losses of earlier steps first: an
    /// invalid loss of one of them is the error instead.
    pub(crate) fn next_batch(
        &mut self,
        batches: &mut impl Iterator<Item = kiln_loader::Result<DeviceBatch<T::Input>>>,
        observe: impl FnMut(&StepReport),
    ) -> Result<Option<DeviceBatch<T::Input>>> {
        let asked = Instant::now();
        self.comm.set_stage("wait");
        match batches.next() {
            None => Ok(None),
            Some(Ok(batch)) => {
                self.epoch.timings.wait += asked.elapsed();
                Ok(Some(batch))
            }
            Some(Err(error)) => {
                self.epoch.timings.wait += asked.elapsed();
                self.read_back(observe)?;
                Err(error.into())
            }
        }
    }

    /// Runs the forward and the backward pass on `first` and on the other batches of the step, one after the other, so
    /// that only one of them is in memory with its activations. The gradients are those of the mean loss over all
    /// items: sums of the batches' gradients, in order, divided by the weight of all items.
    pub(crate) fn learn_all(
        &mut self,
        first: DeviceBatch<T::Input>,
        batches: &mut impl Iterator<Item = kiln_loader::Result<DeviceBatch<T::Input>>>,
        mut observe: impl FnMut(&StepReport),
    ) -> Result<Learned> {
        let Learned { mut outcome, mut weight, mut negatives, gradients, mut rows } =
            self.learn(first, 0, LossScale::Sum)?;
        let mut sums = GradientsAccumulator::new();
        sums.accumulate(&self.model, gradients);
        for number in 1..self.accumulate {
            let Some(batch) = self.next_batch(batches, &mut observe)? else { break };
            let other = self.learn(batch, number, LossScale::Sum)?;
            let started = Instant::now();
            outcome = outcome.with(other.outcome);
            weight += other.weight;
            negatives += other.negatives;
            sums.accumulate(&self.model, other.gradients);
            let of_batches = rows.into_iter().zip(other.rows);
            rows = of_batches.map(|(sum, of_batch)| sum.and(of_batch)).collect::<Result<_>>()?;
            self.epoch.timings.backward += started.elapsed();
        }
        let gradients = match weight {
            0.0 => GradientsParams::new(),
            weight => scaled(&self.model, sums.grads(), Factor::Number(1.0 / weight)),
        };
        let factor = if weight == 0.0 { 0.0 } else { (1.0 / weight) as f32 };
        let rows = rows.into_iter().map(|of_table| of_table.scaled(factor)).collect();
        Ok(Learned { outcome, weight, negatives, gradients, rows })
    }

    /// Runs the forward and the backward pass on a batch of this rank, the one with this number in the step.
    pub(crate) fn learn(
        &mut self,
        batch: DeviceBatch<T::Input>,
        number: usize,
        scale: LossScale,
    ) -> Result<Learned> {
        self.learn_by(&batch, number, scale, |output, _| Ok(output))
    }

    /// Runs the passes of [`TaskTrainer::learn`] with the loss that `with_loss` returns instead of the task's.
    pub(crate) fn learn_by(
        &mut self,
        batch: &DeviceBatch<T::Input>,
        number: usize,
        scale: LossScale,
        with_loss: impl FnOnce(StepOutput, &T::Input) -> Result<StepOutput>,
    ) -> Result<Learned> {
        let started = Instant::now();
        self.comm.set_stage("upload");
        self.check_device(batch)?;
        self.epoch.timings.loader += batch.times;
        let uploaded = Instant::now();
        self.epoch.timings.upload += uploaded - started;
        if batch.n_items == 0 {
            let outcome = Outcome::Read(MetricSums::default());
            let gradients = GradientsParams::new();
            let negatives = NegativeCounts::default();
            let rows = self.no_rows();
            return Ok(Learned { outcome, weight: 0.0, negatives, gradients, rows });
        }
        self.comm.set_stage("forward");
        let ctx = ForwardContext { key: batch.key, mode: Mode::Train };
        let embedded = TrainedRows::new(&self.embeddings, T::embedded_nodes(&batch.input), &self.device)?;
        let forward = self.generator.train(batch.key, self.epoch.epoch, number, || {
            self.task.forward(&self.model, &batch.input, &embedded.rows, &ctx)
        })?;
        let forward = with_loss(forward, &batch.input)?;
        let negatives = T::negatives(&batch.input);
        let read = self.counts_of(&batch.input, &forward);
        let outcome = if self.reads_at_once() {
            let counts = read();
            check_training_loss(self.epoch.epoch, self.epoch.n_steps, &counts)?;
            Outcome::Read(counts)
        } else {
            Outcome::Unread(Box::new(read))
        };
        let forwarded = Instant::now();
        self.comm.set_stage("backward");
        self.epoch.timings.forward += forwarded - uploaded;
        self.epoch.memory.look();
        // If the weights of the items sum to 0, there is no mean loss.
        let (gradients, rows) = match forward.weight {
            0.0 => (GradientsParams::new(), self.no_rows()),
            weight => {
                let loss = match scale {
                    LossScale::Mean => forward.loss_sum.div_scalar(weight),
                    LossScale::Sum => forward.loss_sum,
                };
                let gradients = loss.backward();
                let rows = embedded.gradients(&gradients)?;
                (GradientsParams::from_grads(gradients, &self.model), rows)
            }
        };
        self.epoch.timings.backward += forwarded.elapsed();
        self.epoch.memory.look();
        Ok(Learned { outcome, weight: forward.weight, negatives, gradients, rows })
    }

    /// Returns gradients of no rows for each embedding.
    fn no_rows(&self) -> Vec<RowGradients> {
        vec![RowGradients::default(); self.embeddings.len()]
    }
}
