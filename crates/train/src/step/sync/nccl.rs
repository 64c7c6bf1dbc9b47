use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kiln_comm::{Communicator, RankInfo};
use kiln_kernels::{DeviceError, NcclSum};

use crate::error::{Error, Result, TrainerError};
use crate::step::sync::device_all_reduce::DeviceAllReduce;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;

/// The NCCL communicators of the ranks of one process. Ranks that are threads share one value.
pub struct NcclGroup {
    is_required: bool,
    deadline: Duration,
    /// The communicators of all threads, created by the first thread that needs one; `None` for those already taken by
    /// their ranks.
    threads: OnceLock<std::result::Result<Mutex<Vec<Option<NcclSum>>>, DeviceError>>,
}

/// The CUDA devices of the ranks that run in this process.
#[derive(Debug, Clone, Copy)]
pub enum CudaDevices<'a> {
    /// The ranks are threads of this process. Contains the device index of each rank, or `None` if a rank has another
    /// kind of device.
    OfThreads(Option<&'a [usize]>),
    /// The ranks are processes. Contains the device index of this one, or `None` if it has another kind of device.
    OfProcess(Option<usize>),
}

impl NcclGroup {
    /// Creates a group whose sums wait at most `deadline` for the other ranks. If NCCL is missing or two ranks share a
    /// device, the host sums the gradients; with `is_required`, joining fails instead.
    pub fn new(is_required: bool, deadline: Duration) -> Self {
        Self { is_required, deadline, threads: OnceLock::new() }
    }

    /// Returns a trainer whose gradients are summed by NCCL if every rank has its own CUDA device, otherwise the
    /// unchanged trainer. The second value is the reason why NCCL is not used, on rank 0 only; it is `None` if NCCL is
    /// used, if ranks that are threads do not have one CUDA device each, or if no rank that is a process can use NCCL.
    /// Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`TrainerError::NoNccl`] if NCCL is required but cannot be used, [`TrainerError::Device`] if it fails, and
    /// [`Error::Ranks`] if another rank fails.
    pub fn join<T: Task>(
        &self,
        mut trainer: TaskTrainer<T>,
        devices: CudaDevices<'_>,
    ) -> Result<(TaskTrainer<T>, Option<String>)> {
        let rank_info = trainer.comm().rank_info();
        let (nccl, reason) = match devices {
            CudaDevices::OfThreads(indices) => self.of_thread(rank_info, indices)?,
            CudaDevices::OfProcess(index) => self.of_process(trainer.comm(), index)?,
        };
        if let Some(mut nccl) = nccl {
            trainer = trainer.with_sync(DeviceAllReduce::new(move |bucket| Ok(nccl.sum(bucket)?)));
        }
        Ok((trainer, reason.filter(|_| rank_info.rank == 0)))
    }

    /// Takes the communicator of a rank that is a thread, if there are several ranks and each has its own device.
    fn of_thread(&self, rank_info: RankInfo, indices: Option<&[usize]>) -> Result<Joined> {
        let Some(indices) = indices
            .filter(|indices: &&[usize]| indices.iter().collect::<BTreeSet<_>>().len() == indices.len())
            .filter(|indices| 1 < indices.len())
        else {
            let is_missed = self.is_required && 1 < rank_info.world_size;
            return if is_missed {
                Err(no_nccl("every rank needs its own CUDA device"))
            } else {
                Ok((None, None))
            };
        };
        // The first rank initializes the communicators of all ranks as one group; the others wait here.
        let made = self.threads.get_or_init(|| {
            let all = NcclSum::for_devices(indices, self.deadline)?;
            Ok(Mutex::new(all.into_iter().map(Some).collect()))
        });
        match made {
            Ok(all) => {
                let taken = all.lock().unwrap_or_else(PoisonError::into_inner)[rank_info.rank].take();
                match (taken, self.is_required) {
                    (Some(nccl), _) => Ok((Some(nccl), None)),
                    (None, true) => Err(no_nccl("an earlier trainer of these ranks uses it")),
                    (None, false) => {
                        let reason =
                            "gradients are summed on the host: an earlier trainer of these ranks uses NCCL";
                        Ok((None, Some(reason.to_owned())))
                    }
                }
            }
            Err(error) if self.is_required => Err(no_nccl(error)),
            Err(error) => Ok((None, Some(format!("gradients are summed on the host: {error}")))),
        }
    }

    /// Creates the communicator of this process, if every process has its own device and NCCL. The processes agree on
    /// that first, because NCCL rejects two ranks on one device and blocks if a rank does not take part.
    fn of_process(&self, comm: &mut dyn Communicator, index: Option<usize>) -> Result<Joined> {
        let uuid = index.map(NcclSum::device_uuid);
        let own = match &uuid {
            Some(Ok(uuid)) => uuid.clone().into_bytes(),
            _ => Vec::new(),
        };
        let uuids = comm.all_gather(&own)?;
        let distinct: BTreeSet<&Vec<u8>> = uuids.iter().filter(|uuid| !uuid.is_empty()).collect();
        let Some(index) = index.filter(|_| distinct.len() == uuids.len()) else {
            if let (true, Some(Err(error))) = (self.is_required, uuid) {
                return Err(no_nccl(error));
            }
            let reason =
                "gradients are summed on the host: NCCL needs a CUDA device and libnccl for every rank";
            return Ok((None, (!distinct.is_empty()).then(|| reason.to_owned())));
        };
        let RankInfo { rank, world_size, .. } = comm.rank_info();
        let mut id = if rank == 0 { NcclSum::new_id()? } else { Vec::new() };
        comm.broadcast(0, &mut id)?;
        // NCCL waits for all ranks, so this runs as a collective, which the watchdog of the process group covers.
        let mut nccl = None;
        let mut join = || nccl = Some(NcclSum::join(index, rank, world_size, &id, self.deadline));
        comm.device_sum(0, &mut join)?;
        Ok((nccl.transpose()?, None))
    }
}

/// The NCCL communicator, or the reason why NCCL is not used.
type Joined = (Option<NcclSum>, Option<String>);

fn no_nccl(reason: impl fmt::Display) -> Error {
    Error::Trainer(TrainerError::NoNccl { reason: reason.to_string() })
}

impl fmt::Debug for NcclGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_required, deadline, .. } = self;
        f.debug_struct("NcclGroup")
            .field("is_required", is_required)
            .field("deadline", deadline)
            .finish_non_exhaustive()
    }
}
