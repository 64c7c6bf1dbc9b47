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
    self, FLOAT32, ID_BYTES, IN_PROGRESS, Nccl, RawComm, RawConfig, RawId, RawStream, SUCCESS, SUM, UINT8,
};

/// The id of a communicator. One rank creates it and sends it to the others before all of them join.
#[derive(Debug, Clone, Copy)]
pub struct UniqueId(RawId);

impl UniqueId {
    /// Creates a new id.
    ///
    /// # Errors
    /// Returns [`Error::NotFound`] if NCCL is not installed, [`Error::Outdated`] if it is too old, and
    /// [`Error::Failed`] if NCCL cannot create an id.
    pub fn new() -> Result<Self, Error> {
        let nccl = library::nccl()?;
        let mut id = RawId([0; ID_BYTES]);
        // SAFETY: `id` has the size of an NCCL id, and NCCL writes only to it.
        nccl.ok("ncclGetUniqueId", unsafe { (nccl.get_unique_id)(&mut id) })?;
        Ok(Self(id))
    }

    /// Restores the id that another rank sent as [`bytes`](Self::bytes).
    ///
    /// # Errors
    /// Returns [`Error::BadId`] if there are not exactly [`ID_BYTES`] bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let bytes: [u8; ID_BYTES] =
            bytes.try_into().map_err(|_| Error::BadId { expected: ID_BYTES, got: bytes.len() })?;
        Ok(Self(RawId(bytes.map(|byte| byte as c_char))))
    }

    /// Returns the [`ID_BYTES`] bytes of the id, which must be sent to the other ranks.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.0.iter().map(|byte| *byte as u8).collect()
    }
}

/// The time for which a call continues to wait after a rank of the same [`Comm::for_devices`] call has failed or ended,
/// because that rank may have finished the same collective. It is also the maximum time to finalize a communicator.
const GRACE: Duration = Duration::from_secs(2);

/// A range of device memory.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// The start address on the device of the communicator.
    pub address: u64,
    /// The length, in f32 values for [`Comm::all_reduce_sum`] and in bytes for [`Comm::exchange`].
    pub len: usize,
}

/// One rank of a communicator, on one GPU.
///
/// Calls are collective: all ranks make the same calls in the same order, each on its own thread. A call returns when
/// the GPU has finished it. If a rank does not call, the others wait until the deadline. Ranks that were created by one
/// [`Comm::for_devices`] call wait at most two seconds after one of them has failed or was dropped. The communicator
/// does not block inside NCCL, so the deadline also covers initialization and the connections of the first call.
pub struct Comm {
    nccl: &'static Nccl,
    /// Points to the handle, which is null once the communicator has ended. The handle must not move: NCCL's threads
    /// access it until the communicator is initialized or aborted.
    raw: NonNull<RawComm>,
    stream: Arc<CudaStream>,
    rank: usize,
    n_ranks: usize,
    deadline: Duration,
    /// True once a communicator of the same [`Comm::for_devices`] call has failed or ended.
    is_over: Arc<AtomicBool>,
}

// SAFETY: NCCL lets any thread use a communicator as long as no two use it at the same time, which `&mut self` rules
// out. Each call first makes the GPU's context current on its thread.
unsafe impl Send for Comm {}

impl Comm {
    /// Joins a communicator as one rank, on the GPU with the index `device`. Waits until all ranks have joined, at most
    /// until the deadline. For several ranks on one thread, use [`Comm::for_devices`].
    ///
    /// # Errors
    /// Returns [`Error::NoDevice`] if the process has no such GPU, [`Error::NotFound`] if NCCL or the driver is not
    /// installed, [`Error::Outdated`] if NCCL is too old, [`Error::Failed`] if a call fails, and [`Error::Aborted`] if
    /// a rank does not join before the deadline.
    pub fn join(
        device: usize,
        rank: usize,
        n_ranks: usize,
        id: &UniqueId,
        deadline: Duration,
    ) -> Result<Self, Error> {
        let nccl = library::nccl()?;
        let stream = new_stream(device)?;
        let mut comm = Self::new(nccl, stream, rank, n_ranks, deadline, Arc::default());
        let started = comm.start(id);
        comm.finish("ncclCommInitRankConfig", started)?;
        Ok(comm)
    }

    /// Creates one communicator for each of the given GPUs of this process; `devices[r]` is the GPU of rank `r`. All
    /// communicators are initialized in one NCCL group, because a thread that initialized only one would wait for the
    /// others.
    ///
    /// Two seconds after a communicator is dropped or fails, the calls of the others return [`Error::Aborted`].
    ///
    /// # Errors
    /// Returns [`Error::SharedDevice`] if a GPU occurs twice, and the errors of [`Comm::join`].
    pub fn for_devices(devices: &[usize], deadline: Duration) -> Result<Vec<Self>, Error> {
        let mut distinct = BTreeSet::new();
        if let Some(index) = devices.iter().find(|index| !distinct.insert(**index)) {
            return Err(Error::SharedDevice { index: *index });
        }
        let nccl = library::nccl()?;
        let id = UniqueId::new()?;
        let is_over = Arc::default();
        let streams = devices.iter().map(|device| new_stream(*device)).collect::<Result<Vec<_>, _>>()?;
        let new =
            |(rank, stream)| Self::new(nccl, stream, rank, devices.len(), deadline, Arc::clone(&is_over));
        let mut comms: Vec<Self> = streams.into_iter().enumerate().map(new).collect();
        // SAFETY: the call starts a group of this thread, and the group ends below on every path.
        nccl.ok("ncclGroupStart", unsafe { (nccl.group_start)() })?;
        let mut started = comms.iter_mut().try_for_each(|comm| comm.start(&id));
        // SAFETY: the group of this thread was started above; `comms` owns the handles and outlives NCCL's writes.
        let ended = nccl.started("ncclGroupEnd", unsafe { (nccl.group_end)() });
        started = started.and(ended);
        for comm in &mut comms {
            // After an error all communicators are aborted, because the initialized ones would wait for the others.
            started = comm.finish("ncclCommInitRankConfig", started.clone());
        }
        started.map(|()| comms)
    }

    /// Creates the `Comm` of a rank that has not joined yet; its handle is null.
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

    /// Returns the handle, or null if there is no communicator.
    fn raw(&self) -> RawComm {
        // SAFETY: the box lives as long as this value, and NCCL writes to it only before the initialization returns.
        unsafe { self.raw.read() }
    }

    /// Starts to join the other ranks. Within an NCCL group of this thread, the join starts when the group ends.
    fn start(&mut self, id: &UniqueId) -> Result<(), Error> {
        self.bind()?;
        let n_ranks = self.n_ranks as c_int;
        let rank = self.rank as c_int;
        let mut config = RawConfig::non_blocking();
        // SAFETY: the handle's box lives as long as this value, and the configuration has the layout of its version.
        let status =
            unsafe { (self.nccl.comm_init_rank_config)(self.raw.as_ptr(), n_ranks, id.0, rank, &mut config) };
        self.nccl.started("ncclCommInitRankConfig", status)
    }

    /// Returns the rank of this communicator, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks of the communicator.
    pub fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// Returns the stream on which the calls run and for which they wait.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Replaces each f32 value of the buffer by its sum over the ranks. The buffers of all ranks must have the same
    /// length. NCCL chooses the order of the additions; it is the same in every run with the same number of ranks on
    /// the same machines.
    ///
    /// # Safety
    /// The buffer must be memory of this communicator's GPU. It must be completely written before the call, and nothing
    /// else may use it until the call returns.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if a call of NCCL or the driver fails, and [`Error::Aborted`] if another rank fails or
    /// does not call before the deadline, or if an earlier call failed.
    pub unsafe fn all_reduce_sum(&mut self, buffer: Buffer) -> Result<(), Error> {
        self.check()?;
        let at = buffer.address as *mut c_void;
        let stream = self.raw_stream();
        // SAFETY: the caller guarantees that the buffer is valid and that nothing else uses it until `finish` returns.
        let status = unsafe { (self.nccl.all_reduce)(at, at, buffer.len, FLOAT32, SUM, self.raw(), stream) };
        let started = self.nccl.started("ncclAllReduce", status);
        self.finish("ncclAllReduce", started)
    }

    /// Sends the bytes of `sends[r]` to every rank `r` and receives `recvs[r]` from it, all in one NCCL group (an
    /// all-to-all with variable lengths). Empty buffers are not transferred, so both sides must agree on the lengths.
    ///
    /// # Safety
    /// The buffers must be memory of this communicator's GPU and must not overlap. Those in `sends` must be completely
    /// written when this is called. Nothing else may use any of them until this returns.
    ///
    /// # Errors
    /// Same as [`Comm::all_reduce_sum`].
    pub unsafe fn exchange(&mut self, sends: &[Buffer], recvs: &[Buffer]) -> Result<(), Error> {
        self.check()?;
        let nccl = self.nccl;
        let stream = self.raw_stream();
        // SAFETY: the call starts a group of this thread, and the group ends below on every path.
        nccl.ok("ncclGroupStart", unsafe { (nccl.group_start)() })?;
        let mut started = Ok(());
        for (peer, buffer) in sends.iter().enumerate().filter(|(_, buffer)| 0 < buffer.len) {
            let at = buffer.address as *const c_void;
            // SAFETY: the caller guarantees that the buffer is valid and written, and that nothing else uses it.
            let status = unsafe { (nccl.send)(at, buffer.len, UINT8, peer as c_int, self.raw(), stream) };
            started = started.and(nccl.started("ncclSend", status));
        }
        for (peer, buffer) in recvs.iter().enumerate().filter(|(_, buffer)| 0 < buffer.len) {
            let at = buffer.address as *mut c_void;
            // SAFETY: the caller guarantees that the buffer is valid and that nothing else uses it.
            let status = unsafe { (nccl.recv)(at, buffer.len, UINT8, peer as c_int, self.raw(), stream) };
            started = started.and(nccl.started("ncclRecv", status));
        }
        // SAFETY: the group of this thread was started above.
        let ended = nccl.started("ncclGroupEnd", unsafe { (nccl.group_end)() });
        self.finish("ncclSend and ncclRecv", started.and(ended))
    }

    /// Returns an error if the communicator is aborted; otherwise makes the GPU's context current on this thread.
    fn check(&self) -> Result<(), Error> {
        if self.raw().is_null() {
            return Err(Error::Aborted { rank: self.rank, reason: "an earlier call failed" });
        }
        self.bind()
    }

    fn bind(&self) -> Result<(), Error> {
        self.stream.context().bind_to_thread().map_err(|error| driver("cuCtxSetCurrent", error))
    }

    /// Waits for a call that was started. Aborts the communicator after an error, because the ranks' calls may no
    /// longer be in the same order.
    fn finish(&mut self, call: &'static str, started: Result<(), Error>) -> Result<(), Error> {
        let outcome = started.and_then(|()| self.wait(call, self.deadline));
        if outcome.is_err() {
            self.abort();
        }
        outcome
    }

    /// Waits until NCCL has finished the call and the stream is idle. Returns [`Error::Aborted`] after the deadline, or
    /// [`GRACE`] after a rank of the same [`Comm::for_devices`] call has failed or ended.
    fn wait(&self, call: &'static str, deadline: Duration) -> Result<(), Error> {
        let start = Instant::now();
        let aborted = |reason| Err(Error::Aborted { rank: self.rank, reason });
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
            // The thread yields instead of sleeping, because the shortest sleep takes long compared to the all-reduce
            // of a gradient.
            std::thread::yield_now();
        }
    }

    /// Returns true if the call still runs in the background. Returns an error if the call or the network has failed.
    fn is_in_progress(&self, call: &'static str) -> Result<bool, Error> {
        let mut status = SUCCESS;
        // SAFETY: the communicator is not aborted, and `status` is a valid pointer.
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

    /// Aborts the communicator with its running calls. Waiting ranks of the same [`Comm::for_devices`] call fail after
    /// [`GRACE`].
    fn abort(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if !self.raw().is_null() && self.bind().is_ok() {
            // SAFETY: the handle is not null, and `forget` sets it to null below, so NCCL aborts the communicator only
            // once. A failure is ignored, because the communicator is not used again.
            unsafe { (self.nccl.comm_abort)(self.raw()) };
            // This waits for the communicator's kernels, which may still write to the caller's memory.
            let _ = self.stream.synchronize();
        }
        self.forget();
    }

    /// Finalizes and destroys the communicator. Returns false if finalizing fails. Also returns false, without trying,
    /// if there is no communicator, during a panic, or if a rank of the same [`Comm::for_devices`] call has failed or
    /// ended.
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
        // SAFETY: the communicator was finalized. It is destroyed once, because `forget` sets its handle to null below.
        unsafe { (self.nccl.comm_destroy)(self.raw()) };
        self.forget();
        true
    }

    fn forget(&mut self) {
        // SAFETY: the box lives as long as this value; NCCL has ended the communicator and no longer reads the handle.
        unsafe { self.raw.write(null_mut()) };
    }
}

/// Ends this rank. NCCL does not notify the other ranks. Those of the same [`Comm::for_devices`] call abort their waits
/// after two seconds, a grace period in which they can finish a collective that this rank has finished.
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

/// Returns the primary CUDA context of a GPU of this process.
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

/// Returns the UUID of a GPU of this process as 32 hexadecimal digits. The UUID is unique across machines.
///
/// # Errors
/// Returns [`Error::NoDevice`] if the process has no such GPU, [`Error::NotFound`] if the driver is not installed, and
/// [`Error::Failed`] if a call of the driver fails.
pub fn device_uuid(device: usize) -> Result<String, Error> {
    let uuid = context(device)?.uuid().map_err(|error| driver("cuDeviceGetUuid", error))?;
    Ok(uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect())
}
