use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use mpi::Count;
use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Group, Root};

use crate::JobError;
use crate::process::engine::{Engine, Engines, Outcome, Parts, PartsMut};

/// Bytes that one call moves at most: MPI counts them in 32 bits.
const MAX_BYTES: usize = 1 << 30;

/// Tags of groups that are made; MPI allows at least as many.
const N_TAGS: u64 = 1 << 15;

/// The processes as MPI sees them. Its errors end the job, which is its default: its calls return none.
///
/// `MPI_Finalize` waits for all other processes: it is called by [`Engines::finish`] and by nothing else, so that a
/// process that ends before its job does is not held up by it.
pub(crate) struct MpiWorld(Mutex<Option<Universe>>);

impl MpiWorld {
    /// # Errors
    /// When MPI was started before, or does not let several threads call it.
    pub(crate) fn start() -> Result<Self, JobError> {
        let failed = |reason: &str| JobError::Mpi { reason: reason.to_owned() };
        let started = mpi::initialize_with_threading(Threading::Multiple);
        let (universe, threading) = started.ok_or_else(|| failed("it was started before in this process"))?;
        if threading < Threading::Multiple {
            std::mem::forget(universe);
            return Err(failed("this library was built without MPI_THREAD_MULTIPLE: take one that has it"));
        }
        Ok(Self(Mutex::new(Some(universe))))
    }

    pub(crate) fn rank(&self) -> usize {
        SimpleCommunicator::world().rank() as usize
    }

    pub(crate) fn world_size(&self) -> usize {
        SimpleCommunicator::world().size() as usize
    }

    /// Gives every process the text of the first one. A meeting of all.
    pub(crate) fn text_of_first(&self, text: String) -> Result<String, JobError> {
        let mut engine = MpiEngine { comm: SimpleCommunicator::world() };
        let failed = |reason| JobError::Mpi { reason };
        let mut n_bytes = text.len() as u64;
        engine.broadcast(0, bytemuck::bytes_of_mut(&mut n_bytes)).map_err(failed)?;
        let mut bytes = text.into_bytes();
        bytes.resize(n_bytes as usize, 0);
        engine.broadcast(0, &mut bytes).map_err(failed)?;
        String::from_utf8(bytes).map_err(|_| failed("rank 0's text did not arrive whole".to_owned()))
    }

    /// Whether all processes give the same text. A meeting of all.
    pub(crate) fn all_same(&self, text: &str) -> Result<bool, JobError> {
        let mut engine = MpiEngine { comm: SimpleCommunicator::world() };
        let own = hash(text).to_ne_bytes();
        let (n_ranks, mut all) = (self.world_size(), vec![0; own.len() * self.world_size()]);
        let failed = |reason| JobError::Mpi { reason };
        engine.all_gather(&own, &vec![own.len(); n_ranks], &mut all).map_err(failed)?;
        Ok(all.chunks(own.len()).all(|other| other == own))
    }
}

impl Engines for MpiWorld {
    fn open(&self, ranks: &[usize], name: &str) -> Result<Box<dyn Engine>, String> {
        let world = SimpleCommunicator::world();
        let ranks: Vec<i32> = ranks.iter().map(|rank| *rank as i32).collect();
        let group = world.group().include(&ranks);
        // Groups that threads make at the same time are told apart by the tag.
        let tag = (hash(name) % N_TAGS) as i32;
        let comm = world.split_by_subgroup_with_tag(&group, tag).ok_or("MPI made no group with this rank")?;
        Ok(Box::new(MpiEngine { comm }))
    }

    fn finish(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for MpiWorld {
    fn drop(&mut self) {
        std::mem::forget(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn hash(text: &str) -> u64 {
    // Its keys are fixed: the same in every process of the same program.
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

struct MpiEngine {
    comm: SimpleCommunicator,
}

// SAFETY: a communicator is a handle that any thread may use, since MPI was started with `MPI_THREAD_MULTIPLE`; that
// no two threads use it at the same time is what `&mut self` sees to.
unsafe impl Send for MpiEngine {}

impl Engine for MpiEngine {
    fn max_bytes(&self) -> usize {
        MAX_BYTES
    }

    fn all_gather(&mut self, send: &[u8], counts: &[usize], recv: &mut [u8]) -> Outcome {
        if recv.is_empty() {
            return Ok(());
        }
        let send = addressed(send);
        if counts.iter().all(|count| *count == send.len()) {
            self.comm.all_gather_into(send, recv);
        } else {
            let (counts, displs) = layout(counts);
            self.comm.all_gather_varcount_into(send, &mut PartitionMut::new(recv, counts, displs));
        }
        Ok(())
    }

    fn all_to_all(&mut self, send: Parts<'_>, recv: PartsMut<'_>) -> Outcome {
        let ((send_counts, send_displs), (counts, displs)) = (layout(send.counts), layout(recv.counts));
        // As in `addressed`.
        let mut nowhere = [0; 1];
        let room = if recv.bytes.is_empty() { &mut nowhere[..0] } else { recv.bytes };
        self.comm.all_to_all_varcount_into(
            &Partition::new(addressed(send.bytes), send_counts, send_displs),
            &mut PartitionMut::new(room, counts, displs),
        );
        Ok(())
    }

    fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Outcome {
        self.comm.process_at_rank(root as i32).broadcast_into(bytes);
        Ok(())
    }
}

/// The bytes, at an address that means nothing else: an empty vector's is 1, which is what Open MPI calls `MPI_IN_PLACE`.
fn addressed(bytes: &[u8]) -> &[u8] {
    if bytes.is_empty() { &[0][..0] } else { bytes }
}

/// Counts and places of parts that stand one after the other.
fn layout(counts: &[usize]) -> (Vec<Count>, Vec<Count>) {
    let mut start = 0;
    let place = |count: &usize| {
        let own = start;
        start += *count as Count;
        own
    };
    let displs = counts.iter().map(place).collect();
    (counts.iter().map(|count| *count as Count).collect(), displs)
}
