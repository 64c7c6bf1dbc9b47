use std::ops::AddAssign;
use std::time::Duration;

/// How long the stages of one batch took in the thread that made it. Sums over batches are made with
/// `+=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageTimes {
    /// Picking the seeds; the epoch's shuffle counts in its first batch.
    pub seeds: Duration,
    /// Sampling the blocks, and listing their edges by source where they are for training.
    pub sample: Duration,
    /// Gathering features and labels.
    pub gather: Duration,
}

impl AddAssign for StageTimes {
    fn add_assign(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.sample += other.sample;
        self.gather += other.gather;
    }
}
