use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaStream};
use cudarc::nccl::{Comm, Id};

use crate::JobError;
use crate::control::Control;
use crate::engine::{Engine, Engines, Outcome, Parts, PartsMut};

/// Bytes that one call moves at most: twice as many are held on the device meanwhile.
const MAX_BYTES: usize = 256 << 20;

/// How long the first rank has to make a secret: what it waits in is watched besides.
const WAIT: Duration = Duration::from_secs(24 * 3600);

/// A communicator's secret, which the first of its ranks makes.
const ID_BYTES: usize = 128;

/// The GPUs of a job's processes, one each, as NCCL connects them. NCCL neither authenticates nor encrypts.
///
/// Bytes of the host are copied to the device and back; what is on a device already is summed there by the gradients'
/// own way.
pub(crate) struct Nccl {
    control: Arc<Control>,
    stream: Arc<CudaStream>,
}

impl Nccl {
    /// Whether the library is there; it is loaded at run time.
    pub(crate) fn check() -> Result<(), JobError> {
        // SAFETY: it opens libraries by their names and closes them; NCCL's own initialisers are safe to run.
        match unsafe { cudarc::nccl::sys::is_culib_present() } {
            true => Ok(()),
            false => Err(JobError::Nccl { reason: "there is no libnccl on this machine".to_owned() }),
        }
    }

    /// With the device of this process's place on its machine, or the only one that it sees.
    pub(crate) fn start(control: &Arc<Control>, local_rank: usize) -> Result<Self, JobError> {
        let failed = |error: cudarc::driver::DriverError| JobError::Nccl { reason: error.to_string() };
        let n_devices = CudaContext::device_count().map_err(failed)? as usize;
        let device = match n_devices {
            1 => 0,
            n_devices if local_rank < n_devices => local_rank,
            _ => {
                let reason =
                    format!("local rank {local_rank} has none of {n_devices} GPUs: start one process a GPU");
                return Err(JobError::Nccl { reason });
            }
        };
        let stream = CudaContext::new(device).and_then(|context| context.new_stream()).map_err(failed)?;
        Ok(Self { control: Arc::clone(control), stream })
    }
}

impl Engines for Nccl {
    fn open(&self, ranks: &[usize], name: &str) -> Result<Box<dyn Engine>, String> {
        let member = ranks.iter().position(|rank| *rank == self.control.rank());
        let member = member.ok_or("this rank is not in the group")?;
        let key = format!("nccl id of {name}");
        if member == 0 {
            let id = Id::new().map_err(told)?;
            self.control.put(&key, id.internal().iter().map(|byte| *byte as u8).collect())?;
        }
        let bytes: [u8; ID_BYTES] =
            self.control.get(&key, WAIT)?.try_into().map_err(|_| "an id of NCCL of another length")?;
        let id = Id::uninit(bytes.map(|byte| byte as std::ffi::c_char));
        let comm = Comm::from_rank(Arc::clone(&self.stream), member, ranks.len(), id).map_err(told)?;
        Ok(Box::new(NcclEngine { comm: Mutex::new(Handle(comm)), member, n_members: ranks.len() }))
    }
}

struct NcclEngine {
    comm: Mutex<Handle>,
    member: usize,
    n_members: usize,
}

struct Handle(Comm);

// SAFETY: NCCL lets any thread use a communicator, if no two do at the same time, which the mutex sees to; the current
// device is set by each call of the stream's context.
unsafe impl Send for Handle {}

impl NcclEngine {
    /// Sends each rank its part and takes what each has for this one, at once.
    fn exchange(&mut self, send: Parts<'_>, recv: PartsMut<'_>) -> Outcome {
        let handle = self.comm.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (comm, stream) = (&handle.0, handle.0.stream());
        stream.context().bind_to_thread().map_err(told)?;
        // A device has no empty buffers.
        let bytes = if send.bytes.is_empty() { &[0][..] } else { send.bytes };
        let outgoing = stream.clone_htod(bytes).map_err(told)?;
        let room = |n_bytes: &usize| stream.alloc_zeros::<u8>((*n_bytes).max(1)).map_err(told);
        let mut rooms = recv.counts.iter().map(room).collect::<Result<Vec<_>, _>>()?;
        // Views outlive the group, at whose end all of it happens.
        let views: Vec<_> = rooms.iter_mut().map(|room| room.as_view_mut()).collect();
        let mut group = comm.group();
        let mut start = 0;
        for (peer, count) in send.counts.iter().enumerate().filter(|(_, count)| 0 < **count) {
            group.send(outgoing.slice(start..start + count), peer as i32).map_err(told)?;
            start += count;
        }
        for ((peer, view), _) in
            views.into_iter().enumerate().zip(recv.counts).filter(|(_, count)| 0 < **count)
        {
            group.recv(view, peer as i32).map_err(told)?;
        }
        drop(group);
        let mut rest = recv.bytes;
        for (room, count) in rooms.iter().zip(recv.counts) {
            let (own, others) = rest.split_at_mut(*count);
            if 0 < *count {
                stream.memcpy_dtoh(room, own).map_err(told)?;
            }
            rest = others;
        }
        stream.synchronize().map_err(told)
    }
}

impl Engine for NcclEngine {
    fn max_bytes(&self) -> usize {
        MAX_BYTES
    }

    fn all_gather(&mut self, send: &[u8], counts: &[usize], recv: &mut [u8]) -> Outcome {
        let (bytes, sent) = (send.repeat(self.n_members), vec![send.len(); self.n_members]);
        self.exchange(Parts { bytes: &bytes, counts: &sent }, PartsMut { bytes: recv, counts })
    }

    fn all_to_all(&mut self, send: Parts<'_>, recv: PartsMut<'_>) -> Outcome {
        self.exchange(send, recv)
    }

    fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Outcome {
        let is_root = root == self.member;
        let to_each = if is_root { bytes.len() } else { 0 };
        let sent = if is_root { bytes.repeat(self.n_members) } else { Vec::new() };
        let mut taken = vec![0; self.n_members];
        taken[root] = bytes.len();
        let send = Parts { bytes: &sent, counts: &vec![to_each; self.n_members] };
        self.exchange(send, PartsMut { bytes, counts: &taken })
    }
}

fn told(error: impl std::fmt::Debug) -> String {
    format!("NCCL: {error:?}")
}
