//! The functions of libnccl, resolved at run time.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::{CudaContext, DriverError};
use libloading::Library;

use crate::Error;

/// The file names of the library. Runtime packages contain the first one only; the second is in development packages.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// The C type `ncclComm_t`.
pub(crate) type RawComm = *mut c_void;

/// The C type `cudaStream_t`.
pub(crate) type RawStream = *mut c_void;

/// The number of bytes of a [`UniqueId`](crate::UniqueId).
pub const ID_BYTES: usize = 128;

/// The C type `ncclUniqueId`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawId(pub(crate) [c_char; ID_BYTES]);

/// The C type `ncclConfig_t` as NCCL 2.14 introduced it. Fields that later versions added keep their defaults.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

impl RawConfig {
    /// Returns the configuration of a non-blocking communicator: its calls return before the other ranks have called,
    /// so that a deadline can end the wait.
    pub(crate) fn non_blocking() -> Self {
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21_400, blocking: 0 }
    }
}

/// The value `ncclSuccess` of `ncclResult_t`.
pub(crate) const SUCCESS: c_int = 0;
/// The value `ncclInProgress` of `ncclResult_t`.
pub(crate) const IN_PROGRESS: c_int = 7;

/// The value `ncclUint8` of `ncclDataType_t`.
pub(crate) const UINT8: c_int = 1;
/// The value `ncclFloat32` of `ncclDataType_t`.
pub(crate) const FLOAT32: c_int = 7;
/// The value `ncclSum` of `ncclRedOp_t`.
pub(crate) const SUM: c_int = 0;

/// The functions that this crate calls, with the signatures of `nccl.h` of NCCL 2.
pub(crate) struct Nccl {
    pub(crate) get_unique_id: unsafe extern "C" fn(*mut RawId) -> c_int,
    pub(crate) comm_init_rank_config:
        unsafe extern "C" fn(*mut RawComm, c_int, RawId, c_int, *mut RawConfig) -> c_int,
    pub(crate) comm_finalize: unsafe extern "C" fn(RawComm) -> c_int,
    pub(crate) comm_destroy: unsafe extern "C" fn(RawComm) -> c_int,
    pub(crate) comm_abort: unsafe extern "C" fn(RawComm) -> c_int,
    pub(crate) comm_get_async_error: unsafe extern "C" fn(RawComm, *mut c_int) -> c_int,
    pub(crate) all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, RawComm, RawStream) -> c_int,
    pub(crate) send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, RawComm, RawStream) -> c_int,
    pub(crate) recv: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, RawComm, RawStream) -> c_int,
    pub(crate) group_start: unsafe extern "C" fn() -> c_int,
    pub(crate) group_end: unsafe extern "C" fn() -> c_int,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    /// The library, which must stay loaded while its functions are used.
    _library: Library,
}

/// Checks that libnccl can be loaded and the process has a GPU, without creating a communicator.
///
/// # Errors
/// Returns [`Error::NotFound`] if NCCL or the driver is not installed, [`Error::Outdated`] if NCCL is too old,
/// [`Error::NoDevice`] if there is no GPU, and [`Error::Failed`] if the driver does not start.
pub fn check() -> Result<(), Error> {
    nccl()?;
    device_count()?;
    Ok(())
}

/// Returns the number of GPUs of this process, at least one.
///
/// # Errors
/// Returns [`Error::NotFound`] if the driver is not installed, [`Error::Failed`] if it does not start, and
/// [`Error::NoDevice`] if it reports no GPU.
pub(crate) fn device_count() -> Result<usize, Error> {
    // SAFETY: the call only opens the driver's library by its name and closes it.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(Error::NotFound { library: "the NVIDIA driver", names: vec!["libcuda.so.1".to_owned()] });
    }
    match CudaContext::device_count()
        .map_err(|error: DriverError| Error::Failed { call: "cuInit", reason: error.to_string() })?
        .max(0) as usize
    {
        0 => Err(Error::NoDevice { index: 0, n_devices: 0 }),
        n_devices => Ok(n_devices),
    }
}

/// Returns the NCCL library. The first call loads it; later calls return the same result.
pub(crate) fn nccl() -> Result<&'static Nccl, Error> {
    static NCCL: OnceLock<Result<Nccl, Error>> = OnceLock::new();
    NCCL.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Nccl, Error> {
    for file in NAMES {
        // SAFETY: loading the library runs its initializers, which have no precondition.
        if let Ok(library) = unsafe { Library::new(file) } {
            return functions(library, file);
        }
    }
    Err(Error::NotFound { library: "NCCL", names: NAMES.map(str::to_owned).to_vec() })
}

fn functions(library: Library, file: &'static str) -> Result<Nccl, Error> {
    /// Looks up a function of the library by name. Its type is that of the field to which it is assigned.
    macro_rules! function {
        ($name:literal) => {{
            // SAFETY: `nccl.h` declares the function with the type of the field that this initializes.
            let found = unsafe { library.get(concat!($name, "\0").as_bytes()) };
            *found.map_err(|_| Error::Outdated { file, function: $name })?
        }};
    }
    Ok(Nccl {
        get_unique_id: function!("ncclGetUniqueId"),
        comm_init_rank_config: function!("ncclCommInitRankConfig"),
        comm_finalize: function!("ncclCommFinalize"),
        comm_destroy: function!("ncclCommDestroy"),
        comm_abort: function!("ncclCommAbort"),
        comm_get_async_error: function!("ncclCommGetAsyncError"),
        all_reduce: function!("ncclAllReduce"),
        send: function!("ncclSend"),
        recv: function!("ncclRecv"),
        group_start: function!("ncclGroupStart"),
        group_end: function!("ncclGroupEnd"),
        get_error_string: function!("ncclGetErrorString"),
        _library: library,
    })
}

impl Nccl {
    /// Returns an error unless the call succeeded or continues in the background.
    pub(crate) fn started(&self, call: &'static str, status: c_int) -> Result<(), Error> {
        if status == IN_PROGRESS { Ok(()) } else { self.ok(call, status) }
    }

    /// Returns an error unless the call succeeded.
    pub(crate) fn ok(&self, call: &'static str, status: c_int) -> Result<(), Error> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: for any status, NCCL returns a null-terminated string that is never freed.
        let text = unsafe { CStr::from_ptr((self.get_error_string)(status)) };
        Err(Error::Failed { call, reason: format!("{} (status {status})", text.to_string_lossy()) })
    }
}
