use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use crate::{Error, Result};

/// The number of a rank, of all ranks and of those of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankInfo {
    /// This rank, below `world_size`.
    pub rank: usize,
    /// Number of ranks, at least 1.
    pub world_size: usize,
    /// This rank among those of its machine, from 0: which of the machine's devices is its own.
    pub local_rank: usize,
}

impl RankInfo {
    /// This rank's own rank in the subgroup of these ranks.
    ///
    /// # Errors
    /// [`Error::BadSubgroup`] when a rank stands twice or does not exist, or this one is not in the list.
    pub fn rank_in(&self, ranks: &[usize]) -> Result<usize> {
        let &Self { rank, world_size, .. } = self;
        let distinct: BTreeSet<usize> = ranks.iter().copied().filter(|rank| *rank < world_size).collect();
        let position = ranks.iter().position(|other| *other == rank);
        let position = position.filter(|_| distinct.len() == ranks.len());
        position.ok_or_else(|| Error::BadSubgroup { ranks: ranks.to_vec(), rank, world_size })
    }
}

/// What is summed over the ranks, in place.
#[derive(Debug)]
pub enum Reduce<'a> {
    /// Floats. Each sum is made in the order of the ranks, so that it has the same bits on every rank, in
    /// every run, and whatever carries the values from rank to rank.
    F32(&'a mut [f32]),
    /// Counts. They wrap where they pass 2^64.
    U64(&'a mut [u64]),
}

/// One rank's way to the others of its group: collectives over host memory.
///
/// A collective is a meeting: every rank of the group calls it, each the same ones in the same order, and
/// none returns before all have come (which is all that [`Communicator::barrier`] is). It succeeds on all
/// ranks or on none. `&mut self` keeps the order: one thread at a time, by type. Threads that need
/// collectives of their own take a [`Communicator::duplicate`] each.
///
/// # Errors
/// Of every collective: another rank failed, panicked, left or did not come within the deadline; ranks met
/// in different collectives, or in one with different lengths, element types or roots. The error names the
/// rank, the collective and the step. It is the end of the group: every later collective of any rank, in any
/// channel or subgroup, gives an error too. Buffers are left as they were.
pub trait Communicator: Debug + Send {
    /// The number of this rank in the group.
    fn rank_info(&self) -> RankInfo;

    /// Sets the training step that this rank is in, for messages about it on other ranks; for all its channels
    /// and subgroups at once.
    fn set_step(&mut self, step: u64);

    /// Sets the stage of the step that this rank is in (`backward`), as [`Communicator::set_step`] does. Ranks that are
    /// threads of one process end together and do not ask.
    fn set_stage(&mut self, _: &'static str) {}

    /// Replaces each value by its sum over the ranks. All ranks give equally many, of one type.
    ///
    /// # Errors
    /// See [`Communicator`].
    fn all_reduce_sum(&mut self, buf: Reduce<'_>) -> Result<()>;

    /// Has `sum` replace so many floats, which lie on a device, by their sums over the ranks, with means of its own
    /// (NCCL). This rank's group counts and watches it as a collective: its ranks come to it with equally many values.
    /// Ranks that are threads of one process just call `sum`.
    ///
    /// # Errors
    /// See [`Communicator`]; what `sum` says of its own failure, its caller keeps.
    fn device_sum(&mut self, _n_values: usize, sum: &mut dyn FnMut()) -> Result<()> {
        sum();
        Ok(())
    }

    /// Gives every rank the bytes of all, by rank. They may differ in length.
    ///
    /// # Errors
    /// See [`Communicator`].
    fn all_gather(&mut self, send: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Gives the rank `r` what this one has at `send[r]`, and returns what each rank had for this one, by
    /// rank. Lengths may differ, and be 0.
    ///
    /// # Errors
    /// See [`Communicator`]; also when `send` has not one entry a rank.
    fn all_to_all(&mut self, send: &[Vec<u8>]) -> Result<Vec<Vec<u8>>>;

    /// Replaces the bytes, whatever their number, by those of the rank `root`.
    ///
    /// # Errors
    /// See [`Communicator`]; also when there is no such rank.
    fn broadcast(&mut self, root: usize, bytes: &mut Vec<u8>) -> Result<()>;

    /// Waits for all ranks, at most for `deadline`, which takes the place of the group's own. Of ranks that
    /// wait with different deadlines the shortest counts for all.
    ///
    /// # Errors
    /// See [`Communicator`].
    fn barrier(&mut self, deadline: Duration) -> Result<()>;

    /// The group of these ranks of this group, in this order: the first is its rank 0. The listed ranks
    /// meet in it, each with the same list; the others need not call. It waits for nobody: a rank that
    /// never calls is missed in the first collective. The same list again gives another group.
    ///
    /// # Errors
    /// When a rank stands twice or does not exist, or this one is not in the list.
    fn subgroup(&mut self, ranks: &[usize]) -> Result<Box<dyn Communicator>>;

    /// Duplicates the group, for another thread of each rank: its collectives are counted apart. Ranks
    /// find each other by the name; a name taken again gives another channel. It waits for nobody: a rank
    /// that never takes the name is missed in the first collective.
    ///
    /// # Errors
    /// See [`Communicator`].
    fn duplicate(&mut self, name: &str) -> Result<Box<dyn Communicator>>;
}
