use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUresult, cuStreamQuery};
use cudarc::driver::{CudaContext, CudaStream, DriverError};

use crate::Error;
use crate::library::{
    self, FLOAT32, IN_PROGRESS, Nccl, RawComm, RawConfig, RawId, RawStream, SUCCESS, SUM, UINT8,
};

/// Bytes of a [`UniqueId`].
pub const ID_BYTES: usize = 128;

/// The name of a communicator, which its first rank makes and sends to the others.
#[derive(Debug, Clone, Copy)]
pub struct UniqueId(RawId);

impl UniqueId {
    /// A new id.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Outdated`] and [`Error::Failed`].
    pub fn new() -> Result<Self, Error> {
        let nccl = library::nccl()?;
        let mut id = RawId([0; ID_BYTES]);
        // SAFETY: `id` has room for an id.
        nccl.ok("ncclGetUniqueId", unsafe { (nccl.get_unique_id)(&mut id) })?;
        Ok(Self(id))
    }

    /// The id of another rank.
    ///
    /// # Errors
    /// [`Error::BadId`] where there are not [`ID_BYTES`] bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let bytes: [u8; ID_BYTES] =
            bytes.try_into().map_err(|_| Error::BadId { expected: ID_BYTES, got: bytes.len() })?;
        Ok(Self(RawId(bytes.map(|byte| byte as c_char))))
    }

    /// The bytes to send to the other ranks, [`ID_BYTES`] of them.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.0.iter().map(|byte| *byte as u8).collect()
    }
}

/// How long a call still waits after another rank of the process is gone: that rank may have finished the same call.
const GRACE: Duration = Duration::from_secs(2);

/// Device memory: so many bytes or values from an address on.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// The address on the device of the communicator.
    pub address: u64,
    /// The number of values.
    pub len: usize,
}

/// One rank of a communicator, on one GPU.
///
/// A call returns when the GPU has finished it. Ranks call the same functions in the same order, each on a thread of its
/// own. A rank that does not call keeps the others waiting until the deadline, or until its own [`Comm`] is dropped, if
/// it belongs to the same process. The communicator does not block inside NCCL, so that the deadline covers initialization
/// and the connection at the first call, too.
pub struct Comm {
    nccl: &'static Nccl,
    /// The place of the handle, null once the communicator has ended. NCCL reads it from threads of its own until it has
    /// initialized or aborted the communicator, so that it stays where it is.
    raw: NonNull<RawComm>,
    stream: Arc<CudaStream>,
    rank: usize,
    n_ranks: usize,
    deadline: Duration,
    /// Set when a communicator of the same group in this process has failed or ended.
    is_over: Arc<AtomicBool>,
}

// SAFETY: NCCL lets any thread use a communicator if no two do at the same time, which `&mut self` excludes; each call
// makes the GPU's context current first.
unsafe impl Send for Comm {}

impl Comm {
    /// Joins a communicator as one of its ranks, each in a process of its own, on a GPU of this process. Waits for the
    /// others, at most for the deadline.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::NotFound`], [`Error::Outdated`], [`Error::Failed`] and [`Error::Aborted`].
    pub fn join(
        device: usize,
        rank: usize,
        n_ranks: usize,
        id: &UniqueId,
        deadline: Duration,
    ) -> Result<Self, Error> {
        let (nccl, stream) = (library::nccl()?, new_stream(device)?);
        let mut comm = Self::new(nccl, stream, rank, n_ranks, deadline, Arc::default());
        let started = comm.start(id);
        comm.finish("ncclCommInitRankConfig", started)?;
        Ok(comm)
    }

    /// A communicator for each of these GPUs of this process, by rank, initialized together in one group: a thread that
    /// initialized one alone would wait for the others.
    ///
    /// When one of them is dropped, or fails, the waits of the others end with [`Error::Aborted`].
    ///
    /// # Errors
    /// [`Error::SharedDevice`] where a GPU occurs twice, and those of [`Comm::join`].
    pub fn for_devices(devices: &[usize], deadline: Duration) -> Result<Vec<Self>, Error> {
        let mut distinct = BTreeSet::new();
        if let Some(index) = devices.iter().find(|index| !distinct.insert(**index)) {
            return Err(Error::SharedDevice { index: *index });
        }
        let (nccl, id, is_over) = (library::nccl()?, UniqueId::new()?, Arc::default());
        let streams = devices.iter().map(|device| new_stream(*device)).collect::<Result<Vec<_>, _>>()?;
        let new =
            |(rank, stream)| Self::new(nccl, stream, rank, devices.len(), deadline, Arc::clone(&is_over));
        let mut comms: Vec<Self> = streams.into_iter().enumerate().map(new).collect();
        // SAFETY: starts a group of this thread, which ends below on every path.
        nccl.ok("ncclGroupStart", unsafe { (nccl.group_start)() })?;
        let mut started = comms.iter_mut().try_for_each(|comm| comm.start(&id));
        // SAFETY: the group of this thread was started above; the handles are written until it ends.
        let ended = nccl.started("ncclGroupEnd", unsafe { (nccl.group_end)() });
        started = started.and(ended);
        for comm in &mut comms {
            // After an error all are aborted: those that were initialized would wait for the others.
            started = comm.finish("ncclCommInitRankConfig", started.clone());
        }
        started.map(|()| comms)
    }

    /// Of a rank that has not joined the others.
    fn new(
        nccl: &'static Nccl,
        stream: Arc<CudaStream>,
        rank: usize,
        n_ranks: usize,
        deadline: Duration,
        is_over: Arc<AtomicBool>,
    ) -> Self {
        let raw = NonNull::from(Box::leak(Box::new(null_mut())));
        Self { nccl, raw, stream, rank, n_ranks, deadline, is_over }
    }

    /// The handle; null where there is no communicator.
    fn raw(&self) -> RawComm {
        // SAFETY: the place lives as long as this value, and NCCL writes to it only before it returns the first time.
        unsafe { self.raw.read() }
    }

    /// Starts to join the others; in a group of this thread, when the group ends.
    fn start(&mut self, id: &UniqueId) -> Result<(), Error> {
        self.bind()?;
        let (n_ranks, rank, mut config) =
            (self.n_ranks as c_int, self.rank as c_int, RawConfig::non_blocking());
        // SAFETY: the handle's place lives as long as this value, and the configuration has the layout of its version.
        let status =
            unsafe { (self.nccl.comm_init_rank_config)(self.raw.as_ptr(), n_ranks, id.0, rank, &mut config) };
        self.nccl.started("ncclCommInitRankConfig", status)
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    pub fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// The stream that the calls run on and wait for.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Replaces each f32 value of the buffer by its sum over the ranks, whose buffers are equally long. The order of the
    /// sums is NCCL's own: the same in every run of as many ranks on the same machines.
    ///
    /// # Safety
    /// The buffer is memory of this communicator's GPU, written by now, that nothing else uses until this returns.
    ///
    /// # Errors
    /// [`Error::Failed`] and [`Error::Aborted`].
    pub unsafe fn all_reduce_sum(&mut self, buffer: Buffer) -> Result<(), Error> {
        self.check()?;
        let (at, stream) = (buffer.address as *mut c_void, self.raw_stream());
        // SAFETY: as the caller promises.
        let status = unsafe { (self.nccl.all_reduce)(at, at, buffer.len, FLOAT32, SUM, self.raw(), stream) };
        let started = self.nccl.started("ncclAllReduce", status);
        self.finish("ncclAllReduce", started)
    }

    /// Sends `sends[r]`, in bytes, to every rank `r` and receives `recvs[r]` from it, all at once. Empty buffers are
    /// left out, on both sides.
    ///
    /// # Safety
    /// The buffers are memory of this communicator's GPU that do not overlap; those that are sent are written by now, and
    /// nothing else uses any of them until this returns.
    ///
    /// # Errors
    /// [`Error::Failed`] and [`Error::Aborted`].
    pub unsafe fn exchange(&mut self, sends: &[Buffer], recvs: &[Buffer]) -> Result<(), Error> {
        self.check()?;
        let (nccl, stream) = (self.nccl, self.raw_stream());
        // SAFETY: starts a group of this thread, which ends below on every path.
        nccl.ok("ncclGroupStart", unsafe { (nccl.group_start)() })?;
        let mut started = Ok(());
        for (peer, buffer) in sends.iter().enumerate().filter(|(_, buffer)| 0 < buffer.len) {
            let at = buffer.address as *const c_void;
            // SAFETY: as the caller promises.
            let status = unsafe { (nccl.send)(at, buffer.len, UINT8, peer as c_int, self.raw(), stream) };
            started = started.and(nccl.started("ncclSend", status));
        }
        for (peer, buffer) in recvs.iter().enumerate().filter(|(_, buffer)| 0 < buffer.len) {
            let at = buffer.address as *mut c_void;
            // SAFETY: as the caller promises.
            let status = unsafe { (nccl.recv)(at, buffer.len, UINT8, peer as c_int, self.raw(), stream) };
            started = started.and(nccl.started("ncclRecv", status));
        }
        // SAFETY: the group of this thread was started above.
        let ended = nccl.started("ncclGroupEnd", unsafe { (nccl.group_end)() });
        self.finish("ncclSend and ncclRecv", started.and(ended))
    }

    /// Refuses an aborted communicator, and makes the GPU's context current.
    fn check(&self) -> Result<(), Error> {
        if self.raw().is_null() {
            return Err(Error::Aborted { rank: self.rank, reason: "an earlier call failed" });
        }
        self.bind()
    }

    fn bind(&self) -> Result<(), Error> {
        self.stream.context().bind_to_thread().map_err(|error| driver("cuCtxSetCurrent", error))
    }

    /// Waits for what was started. An error leaves the order of the ranks' calls unknown, so that the communicator is
    /// aborted.
    fn finish(&mut self, call: &'static str, started: Result<(), Error>) -> Result<(), Error> {
        let outcome = started.and_then(|()| self.wait(call, self.deadline));
        if outcome.is_err() {
            self.abort();
        }
        outcome
    }

    /// Waits for the call and for the stream, as long as no rank of this process is lost.
    fn wait(&self, call: &'static str, deadline: Duration) -> Result<(), Error> {
        let (start, aborted) = (Instant::now(), |reason| Err(Error::Aborted { rank: self.rank, reason }));
        let mut over_since = None;
        loop {
            if !self.is_in_progress(call)? && self.is_stream_done()? {
                return Ok(());
            }
            if self.is_over.load(Ordering::Acquire)
                && GRACE < over_since.get_or_insert_with(Instant::now).elapsed()
            {
                return aborted("another rank of this process has failed or ended");
            }
            if deadline < start.elapsed() {
                return aborted("a rank did not call within the deadline");
            }
            // Sums of gradients take less than a millisecond: sleeping would be most of the wait.
            std::thread::yield_now();
        }
    }

    /// Whether the call still works in the background; its error, or one of the network's.
    fn is_in_progress(&self, call: &'static str) -> Result<bool, Error> {
        let mut status = SUCCESS;
        // SAFETY: the communicator is not aborted, and `status` has room for a number.
        let asked = unsafe { (self.nccl.comm_get_async_error)(self.raw(), &mut status) };
        self.nccl.ok("ncclCommGetAsyncError", asked)?;
        self.nccl.started(call, status)?;
        Ok(status == IN_PROGRESS)
    }

    fn is_stream_done(&self) -> Result<bool, Error> {
        // SAFETY: the stream lives as long as this communicator.
        match unsafe { cuStreamQuery(self.stream.cu_stream()) } {
            CUresult::CUDA_SUCCESS => Ok(true),
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            error => Err(driver("cuStreamQuery", DriverError(error))),
        }
    }

    fn raw_stream(&self) -> RawStream {
        self.stream.cu_stream().cast()
    }

    /// Ends the communicator and what it runs; the other ranks of this process end their waits.
    fn abort(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if !self.raw().is_null() && self.bind().is_ok() {
            // SAFETY: the communicator was created, and is aborted once. The result no longer matters.
            unsafe { (self.nccl.comm_abort)(self.raw()) };
            // Its kernels may still write to the caller's memory.
            let _ = self.stream.synchronize();
        }
        self.forget();
    }

    /// Ends the communicator, which no call works on; false where that fails, or another rank of the process has ended.
    fn end(&mut self) -> bool {
        let is_idle = !self.raw().is_null() && !std::thread::panicking();
        if !is_idle || self.is_over.load(Ordering::Acquire) || self.bind().is_err() {
            return false;
        }
        let call = "ncclCommFinalize";
        // SAFETY: the communicator was initialized, and no call is in progress.
        let started = self.nccl.started(call, unsafe { (self.nccl.comm_finalize)(self.raw()) });
        if started.and_then(|()| self.wait(call, GRACE)).is_err() {
            return false;
        }
        // SAFETY: the communicator was finalized, and is destroyed once.
        unsafe { (self.nccl.comm_destroy)(self.raw()) };
        self.forget();
        true
    }

    fn forget(&mut self) {
        // SAFETY: the place lives as long as this value; NCCL has ended the communicator and reads it no more.
        unsafe { self.raw.write(null_mut()) };
    }
}

/// NCCL does not tell the other ranks that one has ended: those of this process end their waits two seconds later, as they
/// may have finished the same call.
impl Drop for Comm {
    fn drop(&mut self) {
        if !self.end() {
            self.abort();
        }
        self.is_over.store(true, Ordering::Release);
        // SAFETY: `new` leaked the box, and this is the last use.
        drop(unsafe { Box::from_raw(self.raw.as_ptr()) });
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, n_ranks, deadline, .. } = self;
        let device = self.stream.context().ordinal();
        f.debug_struct("Comm")
            .field("rank", rank)
            .field("n_ranks", n_ranks)
            .field("device", &device)
            .field("deadline", deadline)
            .finish_non_exhaustive()
    }
}

fn new_stream(device: usize) -> Result<Arc<CudaStream>, Error> {
    context(device)?.new_stream().map_err(|error| driver("cuStreamCreate", error))
}

/// The context of a GPU of this process.
fn context(device: usize) -> Result<Arc<CudaContext>, Error> {
    let n_devices = library::device_count()?;
    if n_devices <= device {
        return Err(Error::NoDevice { index: device, n_devices });
    }
    CudaContext::new(device).map_err(|error| driver("cuDevicePrimaryCtxRetain", error))
}

fn driver(call: &'static str, error: DriverError) -> Error {
    Error::Failed { call, reason: error.to_string() }
}

/// The name of a GPU of this process that no other GPU has, on any machine.
///
/// # Errors
/// [`Error::NoDevice`], [`Error::NotFound`] and [`Error::Failed`].
pub fn device_uuid(device: usize) -> Result<String, Error> {
    let uuid = context(device)?.uuid().map_err(|error| driver("cuDeviceGetUuid", error))?;
    Ok(uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect())
}
