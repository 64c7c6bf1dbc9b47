use std::ops::AddAssign;

use kiln_comm::Communicator;

use crate::error::Result;

/// Sums from which metrics are made. Those of batches and of ranks add up, so that a mean over them weighs
/// every item the same, whatever the batches' sizes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MetricSums {
    /// Sum of the items' losses.
    pub loss_sum: f64,
    /// Sum of the items' weights in the loss; the number of items where all weigh the same.
    pub weight: f64,
    /// Items that were predicted right. For link prediction: positives among the first k.
    pub hits: u64,
    /// Items that were predicted.
    pub total: u64,
}

impl MetricSums {
    /// Mean loss; NaN without items.
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.weight
    }

    /// Fraction predicted right; NaN without items.
    pub fn accuracy(&self) -> f64 {
        self.hits as f64 / self.total as f64
    }

    /// The counts of all ranks, added in their order. A meeting of the ranks.
    pub(crate) fn sum_over(self, comm: &mut dyn Communicator) -> Result<Self> {
        Ok(self.sum_over_with(comm, 0)?.0)
    }

    /// The same, and the sum of one more number.
    pub(crate) fn sum_over_with(self, comm: &mut dyn Communicator, number: u64) -> Result<(Self, u64)> {
        if comm.rank_info().world_size == 1 {
            return Ok((self, number));
        }
        let [loss_sum, weight, hits, total] = self.to_bits();
        let words = [loss_sum, weight, hits, total, number];
        let mut all = (Self::default(), 0);
        for bytes in comm.all_gather(bytemuck::bytes_of(&words))? {
            let [loss_sum, weight, hits, total, number]: [u64; 5] = bytemuck::pod_read_unaligned(&bytes);
            all.0 += Self::from_bits([loss_sum, weight, hits, total]);
            all.1 += number;
        }
        Ok(all)
    }

    /// Four words that hold the counts exactly.
    pub(crate) fn to_bits(self) -> [u64; 4] {
        [self.loss_sum.to_bits(), self.weight.to_bits(), self.hits, self.total]
    }

    /// The counts that [`MetricSums::to_bits`] gave these words of.
    pub(crate) fn from_bits([loss_sum, weight, hits, total]: [u64; 4]) -> Self {
        Self { loss_sum: f64::from_bits(loss_sum), weight: f64::from_bits(weight), hits, total }
    }
}

/// The weights of a step's items in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossWeight {
    /// Of this rank's items; 0 where it has none.
    pub own: f64,
    /// Of all ranks' items, above 0.
    pub all: f64,
}

impl AddAssign for MetricSums {
    fn add_assign(&mut self, other: Self) {
        self.loss_sum += other.loss_sum;
        self.weight += other.weight;
        self.hits += other.hits;
        self.total += other.total;
    }
}
