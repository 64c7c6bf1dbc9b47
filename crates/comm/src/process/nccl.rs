use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::DevicePtr;
use kiln_nccl::{Buffer, Comm, CudaContext, UniqueId};

use crate::process::engine::{Engine, Engines, Outcome, Parts, PartsMut};
use crate::process::watchdog::control::Control;
use crate::{EngineError, JobError};

/// The maximum number of bytes of one call. The device buffers take twice as much memory.
const MAX_BYTES: usize = 256 << 20;

/// The maximum time to wait for the NCCL id of a group, and for the end of a call: a day. The watchdog ends the process
/// earlier, at the deadline of the collective.
const WAIT: Duration = Duration::from_secs(24 * 3600);

/// The NCCL engine, with one GPU per process. NCCL neither authenticates nor encrypts.
///
/// Host data is copied to the device and back. Tensors in device memory are summed there, by `kiln_kernels::NcclSum`.
pub(crate) struct Nccl {
    control: Arc<Control>,
    device: usize,
}

impl Nccl {
    /// Returns the GPU of a process: the configured one, else the only visible one, else the one whose number is the
    /// local rank. Also checks that libnccl can be loaded.
    pub(crate) fn device_of(local_rank: usize, cuda_device: Option<usize>) -> Result<usize, JobError> {
        kiln_nccl::check().map_err(failed)?;
        if let Some(device) = cuda_device {
            return Ok(device);
        }
        match CudaContext::device_count().map_err(failed)? as usize {
            1 => Ok(0),
            n_devices if local_rank < n_devices => Ok(local_rank),
            n_devices => Err(JobError::Engine(EngineError::Nccl {
                reason: format!(
                    "local rank {local_rank} has no GPU: the process sees {n_devices} GPUs; start one process per GPU"
                ),
            })),
        }
    }

    pub(crate) fn new(control: &Arc<Control>, device: usize) -> Self {
        Self { control: Arc::clone(control), device }
    }
}

impl Engines for Nccl {
    fn open(&self, ranks: &[usize], name: &str) -> Result<Box<dyn Engine>, String> {
        let member = ranks.iter().position(|rank| *rank == self.control.rank());
        let member = member.ok_or("this rank is not in the group")?;
        let key = format!("nccl id of {name}");
        if member == 0 {
            self.control.put(&key, UniqueId::new().map_err(told)?.bytes())?;
        }
        let id = UniqueId::from_bytes(&self.control.get(&key, WAIT)?).map_err(told)?;
        let comm = Comm::join(self.device, member, ranks.len(), &id, WAIT).map_err(told)?;
        Ok(Box::new(NcclEngine { comm }))
    }
}

struct NcclEngine {
    comm: Comm,
}

impl NcclEngine {
    /// Sends a part to each rank and receives a part from each, in one NCCL group.
    fn exchange(&mut self, send: Parts<'_>, recv: PartsMut<'_>) -> Outcome {
        let stream = Arc::clone(self.comm.stream());
        stream.context().bind_to_thread().map_err(told)?;
        // A device cannot allocate empty buffers.
        let bytes = if send.bytes.is_empty() { &[0][..] } else { send.bytes };
        let outgoing = stream.clone_htod(bytes).map_err(told)?;
        let n_received: usize = recv.counts.iter().sum();
        let incoming = stream.alloc_zeros::<u8>(n_received.max(1)).map_err(told)?;
        stream.synchronize().map_err(told)?;
        let from = outgoing.device_ptr(&stream).0;
        let to = incoming.device_ptr(&stream).0;
        // SAFETY: each allocation is memory of this GPU with room for the sum of its counts. The two do not overlap,
        // were written before the stream became idle, and are dropped only after the call has returned.
        unsafe { self.comm.exchange(&buffers(from, send.counts), &buffers(to, recv.counts)) }
            .map_err(told)?;
        if 0 < n_received {
            stream.memcpy_dtoh(&incoming.slice(..n_received), recv.bytes).map_err(told)?;
        }
        stream.synchronize().map_err(told)
    }
}

/// Returns contiguous buffers of these lengths, starting at `address`.
fn buffers(mut address: u64, counts: &[usize]) -> Vec<Buffer> {
    counts
        .iter()
        .map(|len: &usize| {
            let start = address;
            address += *len as u64;
            Buffer { address: start, len: *len }
        })
        .collect()
}

impl Engine for NcclEngine {
    fn max_bytes(&self) -> usize {
        MAX_BYTES
    }

    fn all_gather(&mut self, send: &[u8], counts: &[usize], recv: &mut [u8]) -> Outcome {
        let bytes = send.repeat(self.comm.n_ranks());
        let sent = vec![send.len(); self.comm.n_ranks()];
        self.exchange(Parts { bytes: &bytes, counts: &sent }, PartsMut { bytes: recv, counts })
    }

    fn all_to_all(&mut self, send: Parts<'_>, recv: PartsMut<'_>) -> Outcome {
        self.exchange(send, recv)
    }

    fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Outcome {
        let is_root = root == self.comm.rank();
        let to_each = if is_root { bytes.len() } else { 0 };
        let sent = if is_root { bytes.repeat(self.comm.n_ranks()) } else { Vec::new() };
        let mut taken = vec![0; self.comm.n_ranks()];
        taken[root] = bytes.len();
        let send = Parts { bytes: &sent, counts: &vec![to_each; self.comm.n_ranks()] };
        self.exchange(send, PartsMut { bytes, counts: &taken })
    }
}

fn told(error: impl std::fmt::Display) -> String {
    format!("NCCL reports: {error}")
}

fn failed(error: impl std::fmt::Display) -> JobError {
    JobError::Engine(EngineError::Nccl { reason: error.to_string() })
}
