use std::ops::AddAssign;
use std::time::Duration;

/// The durations of the stages of one batch, in the thread that made it. Use `+=` to sum them over batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageTimes {
    /// The time to select the seeds; the first batch of a phase includes the shuffle.
    pub seeds: Duration,
    /// The time to sample blocks or copy graphs, and in training to transpose the blocks.
    pub sample: Duration,
    /// The time to gather features and labels.
    pub gather: Duration,
}

impl AddAssign for StageTimes {
    fn add_assign(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.sample += other.sample;
        self.gather += other.gather;
    }
}
