/// The transport of bytes between the ranks of one group. Every rank must make the same calls in the same order, with
/// matching counts. A call returns when this rank has sent and received its data. All ranks are numbered within the
/// group.
pub(crate) trait Engine: Send {
    /// Returns the maximum number of bytes that one call may transfer to a rank.
    fn max_bytes(&self) -> usize;

    /// Gathers the bytes of all ranks into `recv`, in rank order. Rank `r` sends `counts[r]` bytes.
    fn all_gather(&mut self, send: &[u8], counts: &[usize], recv: &mut [u8]) -> Outcome;

    /// Sends each rank its slice of `send`, and receives a slice from each rank into `recv`, both in rank order.
    fn all_to_all(&mut self, send: Parts<'_>, recv: PartsMut<'_>) -> Outcome;

    /// Replaces the bytes by those of the rank `root`. The length must be the same on all ranks.
    fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Outcome;
}

/// The outcome of a transfer; the error is the engine's message.
pub(crate) type Outcome = Result<(), String>;

/// Bytes to send to each rank, concatenated in rank order.
pub(crate) struct Parts<'a> {
    pub(crate) bytes: &'a [u8],
    /// The number of bytes for each rank; their sum is the length of `bytes`.
    pub(crate) counts: &'a [usize],
}

/// A buffer for bytes from each rank, concatenated in rank order.
pub(crate) struct PartsMut<'a> {
    pub(crate) bytes: &'a mut [u8],
    /// The number of bytes from each rank; their sum is the length of `bytes`.
    pub(crate) counts: &'a [usize],
}

/// A factory of engines for the groups of a job.
pub(crate) trait Engines: Send + Sync {
    /// Opens the engine of these ranks of the job, in this order. Every member must call it, and it may wait for the
    /// other members. `name` is unique among the groups of the job.
    fn open(&self, ranks: &[usize], name: &str) -> Result<Box<dyn Engine>, String>;

    /// Shuts the transport down. Called when the job has ended on all ranks.
    fn finish(&self) {}
}
