use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use kiln_comm::{BoxError, Communicator, RankConfig, RankInfo, SingleRank, TransientError};

use crate::{Error, Result};

/// Runs the body on each rank, and returns the results of this process's ranks in their order: of all ranks that are
/// threads, or of the one that this process is. A process whose job fails exits, with a status that tells its launcher
/// whether to start it again ([`kiln_comm::launch`]).
///
/// # Errors
/// The error of the rank that failed first, or of joining the ranks.
pub fn launch<R: Send>(config: RankConfig, body: impl Fn(RankHandle) -> Result<R> + Sync) -> Result<Vec<R>> {
    let results = kiln_comm::launch(config, |rank| {
        let rank = RankHandle::new(rank.comm);
        let result = body(rank.clone());
        rank.end();
        result.map_err(|error| -> BoxError {
            if error.is_transient() { TransientError(error.into()).into() } else { error.into() }
        })
    });
    Ok(results?)
}

/// One of the ranks that train together. A clone is the same rank.
#[derive(Clone)]
pub struct RankHandle {
    info: RankInfo,
    /// `None` once the ranks have ended: nothing that the body returns holds a communicator.
    comm: Arc<Mutex<Option<Box<dyn Communicator>>>>,
}

impl RankHandle {
    /// The only rank.
    pub(crate) fn single() -> Self {
        Self::new(Box::new(SingleRank::new()))
    }

    fn new(comm: Box<dyn Communicator>) -> Self {
        Self { info: comm.rank_info(), comm: Arc::new(Mutex::new(Some(comm))) }
    }

    /// The number of this rank, from 0.
    pub fn index(&self) -> usize {
        self.info.rank
    }

    /// The number of this rank among those of its machine, from 0.
    pub fn local_index(&self) -> usize {
        self.info.local_rank
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.info.world_size
    }

    /// Whether this is rank 0, which prints and writes files for all.
    pub fn is_zero(&self) -> bool {
        self.info.rank == 0
    }

    /// Returns a communicator of all ranks, each of which calls this with the same names in the same order.
    ///
    /// # Errors
    /// [`Error::RanksEnded`] after the body of [`launch`], and those of the connection.
    pub fn communicator(&self, name: &str) -> Result<Box<dyn Communicator>> {
        let mut comm = self.comm.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(comm.as_mut().ok_or(Error::RanksEnded)?.duplicate(name)?)
    }

    fn end(&self) {
        self.comm.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl fmt::Debug for RankHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankHandle").field("info", &self.info).finish_non_exhaustive()
    }
}
