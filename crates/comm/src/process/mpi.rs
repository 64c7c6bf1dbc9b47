use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use mpi::Count;
use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Group, Root};

use crate::process::engine::{Engine, Engines, Outcome, Parts, PartsMut};
use crate::{EngineError, JobError};

/// The maximum number of bytes of one call, because MPI counts bytes in 32 bits.
const MAX_BYTES: usize = 1 << 30;

/// The number of tags used to create groups. Every MPI library supports at least this number.
const N_TAGS: u64 = 1 << 15;

/// The processes of `MPI_COMM_WORLD`. MPI calls return no errors here: by default, an error in MPI aborts the job.
///
/// `MPI_Finalize` waits for all other processes. Only [`Engines::finish`] calls it, so a process that ends before its
/// job does not block.
pub(crate) struct MpiWorld(Mutex<Option<Universe>>);

impl MpiWorld {
    /// Initialises MPI for use by several threads.
    ///
    /// # Errors
    /// Returns an error if MPI was initialised before in this process, or does not support `MPI_THREAD_MULTIPLE`.
    pub(crate) fn start() -> Result<Self, JobError> {
        let failed = |reason: &str| JobError::Engine(EngineError::Mpi { reason: reason.to_owned() });
        let started = mpi::initialize_with_threading(Threading::Multiple);
        let (universe, threading) =
            started.ok_or_else(|| failed("it is already initialised in this process"))?;
        if threading < Threading::Multiple {
            std::mem::forget(universe);
            return Err(failed(
                "the library was built without MPI_THREAD_MULTIPLE: use one that supports it",
            ));
        }
        Ok(Self(Mutex::new(Some(universe))))
    }

    pub(crate) fn rank(&self) -> usize {
        SimpleCommunicator::world().rank() as usize
    }

    pub(crate) fn world_size(&self) -> usize {
        SimpleCommunicator::world().size() as usize
    }

    /// Returns, on all ranks, the text that rank 0 passes. A collective: every rank must call it.
    pub(crate) fn text_of_first(&self, text: String) -> Result<String, JobError> {
        let mut engine = MpiEngine { comm: SimpleCommunicator::world() };
        let failed = |reason| JobError::Engine(EngineError::Mpi { reason });
        let mut n_bytes = text.len() as u64;
        engine.broadcast(0, bytemuck::bytes_of_mut(&mut n_bytes)).map_err(failed)?;
        let mut bytes = text.into_bytes();
        bytes.resize(n_bytes as usize, 0);
        engine.broadcast(0, &mut bytes).map_err(failed)?;
        String::from_utf8(bytes).map_err(|_| failed("the text received from rank 0 is not UTF-8".to_owned()))
    }

    /// Returns true if all processes pass the same text, compared by hash. A collective: every rank must call it.
    pub(crate) fn all_same(&self, text: &str) -> Result<bool, JobError> {
        let mut engine = MpiEngine { comm: SimpleCommunicator::world() };
        let own = hash(text).to_ne_bytes();
        let n_ranks = self.world_size();
        let mut all = vec![0; own.len() * self.world_size()];
        engine
            .all_gather(&own, &vec![own.len(); n_ranks], &mut all)
            .map_err(|reason| JobError::Engine(EngineError::Mpi { reason }))?;
        Ok(all.chunks(own.len()).all(|other| other == own))
    }
}

impl Engines for MpiWorld {
    fn open(&self, ranks: &[usize], name: &str) -> Result<Box<dyn Engine>, String> {
        let world = SimpleCommunicator::world();
        let ranks: Vec<i32> = ranks.iter().map(|rank| *rank as i32).collect();
        let group = world.group().include(&ranks);
        // The tag distinguishes groups that threads create at the same time.
        let tag = (hash(name) % N_TAGS) as i32;
        let comm =
            world.split_by_subgroup_with_tag(&group, tag).ok_or("MPI created no group for this rank")?;
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
    // The keys of this hasher are fixed, so every process of the same program gets the same hash.
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

struct MpiEngine {
    comm: SimpleCommunicator,
}

// SAFETY: a communicator is a handle that any thread may use, because MPI was initialised with `MPI_THREAD_MULTIPLE`.
// `&mut self` ensures that no two threads use it at the same time.
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
        let (send_counts, send_displs) = layout(send.counts);
        let (counts, displs) = layout(recv.counts);
        // Open MPI takes the address of an empty vector for `MPI_IN_PLACE`, so an empty receive buffer gets another
        // address.
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

/// Returns the bytes. Empty bytes get the address of a constant, because the address of an empty vector is 1, which
/// Open MPI takes for `MPI_IN_PLACE`.
fn addressed(bytes: &[u8]) -> &[u8] {
    if bytes.is_empty() { &[0][..0] } else { bytes }
}

/// Returns the counts, and the displacement of each part from the start of a buffer in which the parts are contiguous.
fn layout(counts: &[usize]) -> (Vec<Count>, Vec<Count>) {
    let mut start = 0;
    let displs = counts
        .iter()
        .map(|count: &usize| {
            let own = start;
            start += *count as Count;
            own
        })
        .collect();
    (counts.iter().map(|count| *count as Count).collect(), displs)
}
