use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kiln_comm::{Communicator, RankInfo};
use kiln_kernels::{DeviceError, NcclSum};

use crate::error::{Error, Result};
use crate::step::device_all_reduce::DeviceAllReduce;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;

/// NCCL's sums of gradients for the ranks of one process, which share this value where they are threads.
pub struct NcclGroup {
    is_required: bool,
    deadline: Duration,
    /// Made by the first thread that asks for it; `None` in the place of a communicator that its rank has taken.
    threads: OnceLock<std::result::Result<Mutex<Vec<Option<NcclSum>>>, DeviceError>>,
}

/// The CUDA devices that the ranks of one process compute on.
#[derive(Debug, Clone, Copy)]
pub enum CudaDevices<'a> {
    /// The ranks are threads of this process: the number of each rank's device, by rank; `None` where one has another kind
    /// of device.
    OfThreads(Option<&'a [usize]>),
    /// The ranks are processes: the number of this one's device.
    OfProcess(Option<usize>),
}

impl NcclGroup {
    /// Sums wait for the other ranks for at most `deadline`. Where NCCL is missing, or two ranks share a device, the host
    /// sums the gradients; with `is_required` that is an error.
    pub fn new(is_required: bool, deadline: Duration) -> Self {
        Self { is_required, deadline, threads: OnceLock::new() }
    }

    /// Lets NCCL sum the trainer's gradients where every rank computes on a CUDA device of its own; otherwise returns the
    /// trainer as it was. On rank 0, the text says why NCCL is not used although a rank has a CUDA device. A collective.
    ///
    /// # Errors
    /// [`Error::NoNccl`] where NCCL is required, [`Error::Device`] where it fails, and those of the other ranks.
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

    /// The communicator of a rank that is a thread, if there are several and each has a device of its own.
    fn of_thread(&self, rank_info: RankInfo, indices: Option<&[usize]>) -> Result<Joined> {
        let distinct = |indices: &&[usize]| indices.iter().collect::<BTreeSet<_>>().len() == indices.len();
        let Some(indices) = indices.filter(distinct).filter(|indices| 1 < indices.len()) else {
            let is_missed = self.is_required && 1 < rank_info.world_size;
            return if is_missed {
                Err(no_nccl("every rank needs a CUDA device of its own"))
            } else {
                Ok((None, None))
            };
        };
        // The first rank initializes the communicators of all, in one group, while the others wait for it here.
        let made = self.threads.get_or_init(|| {
            let all = NcclSum::for_devices(indices, self.deadline)?;
            Ok(Mutex::new(all.into_iter().map(Some).collect()))
        });
        match made {
            Ok(all) => {
                let taken = all.lock().unwrap_or_else(PoisonError::into_inner)[rank_info.rank].take();
                match (taken, self.is_required) {
                    (Some(nccl), _) => Ok((Some(nccl), None)),
                    (None, true) => Err(no_nccl("an earlier training of these ranks uses it")),
                    (None, false) => {
                        let reason =
                            "gradients are summed by the host: an earlier training of these ranks uses NCCL";
                        Ok((None, Some(reason.to_owned())))
                    }
                }
            }
            Err(error) if self.is_required => Err(no_nccl(error)),
            Err(error) => Ok((None, Some(format!("gradients are summed by the host: {error}")))),
        }
    }

    /// The communicator of this process, if every process computes on a device of its own and has NCCL. The processes agree
    /// on that first: NCCL refuses two ranks on one device, and waits for a rank that does not take part.
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
                "gradients are summed by the host: NCCL needs a CUDA device and libnccl for every rank";
            return Ok((None, (!distinct.is_empty()).then(|| reason.to_owned())));
        };
        let RankInfo { rank, world_size, .. } = comm.rank_info();
        let mut id = if rank == 0 { NcclSum::new_id()? } else { Vec::new() };
        comm.broadcast(0, &mut id)?;
        // NCCL waits for all ranks: a collective, so that the job's watchdog covers it.
        let mut nccl = None;
        let mut join = || nccl = Some(NcclSum::join(index, rank, world_size, &id, self.deadline));
        comm.device_sum(0, &mut join)?;
        Ok((nccl.transpose()?, None))
    }
}

/// The communicator, or the reason why there is none.
type Joined = (Option<NcclSum>, Option<String>);

fn no_nccl(reason: impl fmt::Display) -> Error {
    Error::NoNccl { reason: reason.to_string() }
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
