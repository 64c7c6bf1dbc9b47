use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Result};

/// The position of a rank in its group and on its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankInfo {
    /// The number of this rank, below `world_size`.
    pub rank: usize,
    /// The number of ranks in the group, at least 1.
    pub world_size: usize,
    /// The position of this rank among the ranks of its machine, from 0. By default, it determines which GPU of the
    /// machine this rank uses.
    pub local_rank: usize,
}

impl RankInfo {
    /// Returns the position of this rank in a subgroup of the listed ranks.
    ///
    /// # Errors
    /// Returns [`Error::BadSubgroup`] if the list contains a rank twice or a rank that does not exist, or lacks this
    /// rank.
    pub fn rank_in(&self, ranks: &[usize]) -> Result<usize> {
        let &Self { rank, world_size, .. } = self;
        let distinct: BTreeSet<usize> = ranks.iter().copied().filter(|rank| *rank < world_size).collect();
        let position = ranks.iter().position(|other| *other == rank);
        let position = position.filter(|_| distinct.len() == ranks.len());
        position.ok_or_else(|| Error::BadSubgroup { ranks: ranks.to_vec(), rank, world_size })
    }
}

/// The values that a sum over the ranks replaces in place.
#[derive(Debug)]
pub enum Reduce<'a> {
    /// Floats. They are added in the order of the ranks, so each sum is bit-identical on every rank, in every run and
    /// with every engine.
    F32(&'a mut [f32]),
    /// Counts. Sums wrap modulo 2^64.
    U64(&'a mut [u64]),
}

/// A rank's handle to the other ranks of its group: collectives over host memory.
///
/// Every rank of the group must call the same collectives in the same order. A collective returns after all ranks have
/// called it, and succeeds on all ranks or on none. It takes `&mut self`, so a communicator is used by one thread at a
/// time; each further thread needs its own [`Communicator::duplicate`].
///
/// # Errors
/// Every collective returns an error if another rank failed, panicked, left or missed the deadline, or if ranks called
/// different collectives, lengths, element types or roots. The error contains the rank, the collective and the step. It
/// ends the group: every later collective of any rank, in any channel or subgroup, returns an error too. Buffers are
/// left unchanged.
pub trait Communicator: Debug + Send {
    /// Returns the position of this rank in the group.
    fn rank_info(&self) -> RankInfo;

    /// Sets the training step of this rank, which messages on other ranks show. It applies to all channels and
    /// subgroups of this rank.
    fn set_step(&mut self, step: u64);

    /// Sets the stage of the step, such as `backward`, which messages on other ranks show next to the step. Ranks that
    /// are threads of one process ignore the stage.
    fn set_stage(&mut self, _: &'static str) {}

    /// Replaces each value by its sum over the ranks. All ranks must pass the same number of values of the same type.
    ///
    /// # Errors
    /// See [`Communicator`].
    fn all_reduce_sum(&mut self, buf: Reduce<'_>) -> Result<()>;

    /// Calls `sum`, which replaces `n_values` floats in device memory by their sums over the ranks, for example with
    /// NCCL. The group counts it as a collective with a deadline: all ranks must call it with the same `n_values`.
    /// For ranks that are threads of one process, it only calls `sum`, without a deadline.
    ///
    /// # Errors
    /// See [`Communicator`]. `sum` returns no errors, so the closure must store its own.
    fn device_sum(&mut self, _n_values: usize, sum: &mut dyn FnMut()) -> Result<()> {
        sum();
        Ok(())
    }

    /// Returns the bytes that each rank passed, in the order of the ranks. The lengths may differ.
    ///
    /// # Errors
    /// See [`Communicator`].
    fn all_gather(&mut self, send: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Sends `send[r]` to rank `r`, and returns the messages that this rank received, in the order of their senders.
    /// Messages may be empty and may differ in length.
    ///
    /// # Errors
    /// See [`Communicator`]. Returns [`Error::SendCount`] if `send` does not contain one message per rank.
    fn all_to_all(&mut self, send: &[Vec<u8>]) -> Result<Vec<Vec<u8>>>;

    /// Replaces `bytes` by those of the rank `root`, which may have another length.
    ///
    /// # Errors
    /// See [`Communicator`]. Returns [`Error::NoSuchRank`] if `root` is not a rank of the group.
    fn broadcast(&mut self, root: usize, bytes: &mut Vec<u8>) -> Result<()>;

    /// Waits until all ranks have called `barrier`, at most for `deadline`, which replaces the deadline of the group.
    /// If ranks pass different deadlines, the shortest deadline of the waiting ranks applies to all ranks.
    ///
    /// # Errors
    /// See [`Communicator`].
    fn barrier(&mut self, deadline: Duration) -> Result<()>;

    /// Creates a group of the listed ranks of this group; the first one becomes its rank 0. Each listed rank must call
    /// this with the same list; other ranks need not call it. It does not wait for the other ranks: if a rank never
    /// calls it, the first collective of the subgroup fails. A repeated call with the same list creates another group.
    ///
    /// # Errors
    /// Returns [`Error::BadSubgroup`] if the list contains a rank twice or a rank that does not exist, or lacks this
    /// rank.
    fn subgroup(&mut self, ranks: &[usize]) -> Result<Box<dyn Communicator>>;

    /// Creates a channel: a duplicate of the group with its own sequence of collectives, for another thread of each
    /// rank. Ranks are matched by the name; a repeated call with the same name creates another channel. It does not
    /// wait for the other ranks: if a rank never calls it, the first collective of the channel fails.
    ///
    /// # Errors
    /// See [`Communicator`].
    fn duplicate(&mut self, name: &str) -> Result<Box<dyn Communicator>>;

    /// Returns a watch of the group, for waits outside of collectives. `None`, the default, for a single rank and for ranks that
    /// are processes, which the end of the group ends.
    fn watch(&self) -> Option<GroupWatch> {
        None
    }
}

/// Tells whether a group of ranks has ended, without waiting.
#[derive(Clone)]
pub struct GroupWatch(Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl GroupWatch {
    /// Creates a watch from a function that returns why the group has ended, if it has.
    pub fn new(cause: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(cause))
    }

    /// Returns why the group has ended, such as the error of a rank; `None` while it has not.
    pub fn cause(&self) -> Option<String> {
        (self.0)()
    }
}

impl Debug for GroupWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GroupWatch").field(&self.cause()).finish()
    }
}
