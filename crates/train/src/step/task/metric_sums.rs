use std::ops::AddAssign;

use kiln_comm::Communicator;

use crate::error::{Error, Result, TrainerError};

/// The error for an evaluation whose loss has no meaning.
const NO_FINITE_LOSS: Error =
    Error::Trainer(TrainerError::LossNotFinite { pass: "evaluation", step: 0, loss: f64::NAN });

/// Sums from which metrics are computed. The sums of batches and ranks can be added, so means weight every item
/// equally, regardless of the sizes of the batches.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MetricSums {
    /// The sum of the items' losses.
    pub loss_sum: f64,
    /// The sum of the items' weights in the loss; the number of items if all have the same weight.
    pub weight: f64,
    /// The number of correct predictions; for link prediction, the number of links that score above all their negatives.
    pub hits: u64,
    /// The number of predictions.
    pub total: u64,
    /// The number of items of an evaluation that count in no other sum, because their outputs are not finite: a node with
    /// a feature that is not finite in its neighbourhood, for example.
    pub n_not_finite: u64,
}

impl MetricSums {
    /// Returns true if no item was evaluated. Items whose outputs are not finite count.
    pub fn is_empty(&self) -> bool {
        self.total == 0 && self.weight == 0.0 && self.n_not_finite == 0
    }

    /// Returns the mean loss; NaN without items.
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.weight
    }

    /// Returns the fraction of correct predictions; NaN without items.
    pub fn accuracy(&self) -> f64 {
        self.hits as f64 / self.total as f64
    }

    /// Returns the sums of a whole evaluation, over all ranks, if they have a meaning.
    ///
    /// # Errors
    /// Returns [`TrainerError::LossNotFinite`] if items were evaluated and the outputs of none are finite, as those of
    /// a model whose weights are not finite.
    pub fn checked(self) -> Result<Self> {
        match self.weight == 0.0 && self.total == 0 && 0 < self.n_not_finite {
            true => Err(NO_FINITE_LOSS),
            false => Ok(self),
        }
    }

    /// Returns the sums of an evaluation that are compared with those of others, over the same items.
    ///
    /// # Errors
    /// Returns [`TrainerError::LossNotFinite`] if an item was left out because its outputs are not finite.
    pub fn complete(self) -> Result<Self> {
        if self.n_not_finite == 0 { Ok(self) } else { Err(NO_FINITE_LOSS) }
    }

    /// Adds the sums of all ranks, in the order of the ranks. Collective: every rank must call it.
    pub(crate) fn sum_over(self, comm: &mut dyn Communicator) -> Result<Self> {
        Ok(self.sum_over_with(comm, [])?.0)
    }

    /// Sums the metric sums like [`MetricSums::sum_over`], and also sums each of `numbers` over all ranks.
    pub(crate) fn sum_over_with<const N: usize>(
        self,
        comm: &mut dyn Communicator,
        numbers: [u64; N],
    ) -> Result<(Self, [u64; N])> {
        if comm.rank_info().world_size == 1 {
            return Ok((self, numbers));
        }
        let words: Vec<u64> = self.to_bits().into_iter().chain([self.n_not_finite]).chain(numbers).collect();
        let mut all = (Self::default(), [0; N]);
        for bytes in comm.all_gather(bytemuck::cast_slice(&words))? {
            let (sums, numbers) = bytes.split_at(size_of::<[u64; 4]>());
            let numbers: Vec<u64> = bytemuck::pod_collect_to_vec(numbers);
            let of_rank = Self::from_bits(bytemuck::pod_read_unaligned(sums));
            all.0 += Self { n_not_finite: numbers[0], ..of_rank };
            for (sum, number) in all.1.iter_mut().zip(&numbers[1..]) {
                *sum += number;
            }
        }
        Ok(all)
    }

    /// Encodes the sums as four 64-bit words, without rounding and without the number of items that are not finite.
    pub(crate) fn to_bits(self) -> [u64; 4] {
        [self.loss_sum.to_bits(), self.weight.to_bits(), self.hits, self.total]
    }

    /// Decodes the words of [`MetricSums::to_bits`].
    pub(crate) fn from_bits([loss_sum, weight, hits, total]: [u64; 4]) -> Self {
        Self {
            loss_sum: f64::from_bits(loss_sum),
            weight: f64::from_bits(weight),
            hits,
            total,
            n_not_finite: 0,
        }
    }
}

/// The total weights of a step's items in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossWeight {
    /// The weight of this rank's items; 0 if the rank has no items.
    pub own: f64,
    /// The weight of all ranks' items, above 0.
    pub all: f64,
}

impl AddAssign for MetricSums {
    fn add_assign(&mut self, other: Self) {
        self.loss_sum += other.loss_sum;
        self.weight += other.weight;
        self.hits += other.hits;
        self.total += other.total;
        self.n_not_finite += other.n_not_finite;
    }
}

/// Returns an error if the loss of a training step, with these numbers of epochs and steps before it, is not finite.
pub(crate) fn check_training_loss(epoch: usize, step: usize, counts: &MetricSums) -> Result<()> {
    let loss = counts.loss_sum;
    match (epoch, step) {
        (0, 0) if !loss.is_finite() => Err(Error::Trainer(TrainerError::FirstLossNotFinite { loss })),
        _ => check_finite("training", step, counts),
    }
}

/// Returns an error if the loss of a pass, `training` or `evaluation`, is not finite.
pub(crate) fn check_finite(pass: &'static str, step: usize, counts: &MetricSums) -> Result<()> {
    let loss = counts.loss_sum;
    if loss.is_finite() {
        Ok(())
    } else {
        Err(Error::Trainer(TrainerError::LossNotFinite { pass, step, loss }))
    }
}
