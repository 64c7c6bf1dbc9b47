use std::ops::AddAssign;

/// What metrics are made from. Counts of batches and of ranks add up, so that a mean over them weighs
/// every item the same, whatever the batches' sizes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Sum of the items' losses.
    pub loss_sum: f64,
    /// Sum of the items' weights in the loss; the number of items where all weigh the same.
    pub weight: f64,
    /// Items that were predicted right. For link prediction: positives among the first k.
    pub hits: u64,
    /// Items that were predicted.
    pub total: u64,
}

impl Counts {
    /// Mean loss; NaN without items.
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.weight
    }

    /// Fraction predicted right; NaN without items.
    pub fn accuracy(&self) -> f64 {
        self.hits as f64 / self.total as f64
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.loss_sum += other.loss_sum;
        self.weight += other.weight;
        self.hits += other.hits;
        self.total += other.total;
    }
}
