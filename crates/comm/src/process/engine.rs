/// What carries bytes between the ranks of one group. Every rank calls the same in the same order, with counts
/// that agree; a call returns when this rank's part is done. Ranks are counted as in the group.
pub(crate) trait Engine: Send {
    /// The most bytes that one call may give a rank.
    fn max_bytes(&self) -> usize;

    /// Puts the bytes of all ranks into `recv`, by rank, `counts[r]` from the rank `r`.
    fn all_gather(&mut self, send: &[u8], counts: &[usize], recv: &mut [u8]) -> Outcome;

    /// Gives each rank its part of `send`, by rank, and puts what each rank had for this one into `recv`.
    fn all_to_all(&mut self, send: Parts<'_>, recv: PartsMut<'_>) -> Outcome;

    /// Replaces the bytes by those of the rank `root`; equally many on all.
    fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Outcome;
}

/// An engine says what is wrong in its own words.
pub(crate) type Outcome = Result<(), String>;

/// Bytes for each rank, one after the other.
pub(crate) struct Parts<'a> {
    pub(crate) bytes: &'a [u8],
    /// By rank; their sum is the length of `bytes`.
    pub(crate) counts: &'a [usize],
}

/// Room for bytes of each rank, one after the other.
pub(crate) struct PartsMut<'a> {
    pub(crate) bytes: &'a mut [u8],
    /// By rank; their sum is the length of `bytes`.
    pub(crate) counts: &'a [usize],
}

/// Makes engines for groups of a job.
pub(crate) trait Engines: Send + Sync {
    /// The engine of these ranks of the job, in this order. Every one of them asks for it, and may wait for the
    /// others. `name` is that of no other group of the job.
    fn open(&self, ranks: &[usize], name: &str) -> Result<Box<dyn Engine>, String>;

    /// The job has come to its end, on all ranks.
    fn finish(&self) {}
}
