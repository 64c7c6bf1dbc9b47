//! The functions of libnccl, found at run time.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::{CudaContext, DriverError};
use libloading::Library;

use crate::Error;

/// File names of the library. Packages for running programs have the first one only; the second is for development.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclComm_t`.
pub(crate) type RawComm = *mut c_void;

/// `cudaStream_t`.
pub(crate) type RawStream = *mut c_void;

/// `ncclUniqueId`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawId(pub(crate) [c_char; crate::ID_BYTES]);

/// `ncclConfig_t` of version 2.14, the first one: what later versions add has its default.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

impl RawConfig {
    /// Calls return at once, also those that wait for other ranks: otherwise no deadline could end them.
    pub(crate) fn non_blocking() -> Self {
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21_400, blocking: 0 }
    }
}

/// Values of `ncclResult_t`.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const IN_PROGRESS: c_int = 7;

/// Values of `ncclDataType_t` and `ncclRedOp_t`.
pub(crate) const UINT8: c_int = 1;
pub(crate) const FLOAT32: c_int = 7;
pub(crate) const SUM: c_int = 0;

/// The functions that are called, with the signatures of `nccl.h` of version 2.
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
    /// Keeps the functions' code in memory.
    _library: Library,
}

/// Checks that libnccl and a GPU are there, without a communicator.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Outdated`] and [`Error::NoDevice`].
pub fn check() -> Result<(), Error> {
    nccl()?;
    device_count()?;
    Ok(())
}

/// The number of GPUs of this process, at least one.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NoDevice`], and [`Error::Failed`] where the driver does not start.
pub(crate) fn device_count() -> Result<usize, Error> {
    // SAFETY: opens the driver's library by its name and closes it.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(Error::NotFound { library: "the NVIDIA driver", names: vec!["libcuda.so.1".to_owned()] });
    }
    let failed = |error: DriverError| Error::Failed { call: "cuInit", reason: error.to_string() };
    match CudaContext::device_count().map_err(failed)?.max(0) as usize {
        0 => Err(Error::NoDevice { index: 0, n_devices: 0 }),
        n_devices => Ok(n_devices),
    }
}

/// The library, loaded by the first call.
pub(crate) fn nccl() -> Result<&'static Nccl, Error> {
    static NCCL: OnceLock<Result<Nccl, Error>> = OnceLock::new();
    NCCL.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Nccl, Error> {
    for file in NAMES {
        // SAFETY: NCCL's initializers may run at any time.
        if let Ok(library) = unsafe { Library::new(file) } {
            return functions(library, file);
        }
    }
    Err(Error::NotFound { library: "NCCL", names: NAMES.map(str::to_owned).to_vec() })
}

fn functions(library: Library, file: &'static str) -> Result<Nccl, Error> {
    /// The function of a name, of the type that the field has.
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
    /// An error, unless the call succeeded or goes on in the background.
    pub(crate) fn started(&self, call: &'static str, status: c_int) -> Result<(), Error> {
        if status == IN_PROGRESS { Ok(()) } else { self.ok(call, status) }
    }

    /// An error, unless the call succeeded.
    pub(crate) fn ok(&self, call: &'static str, status: c_int) -> Result<(), Error> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: NCCL returns a string of its own for any number.
        let text = unsafe { CStr::from_ptr((self.get_error_string)(status)) };
        Err(Error::Failed { call, reason: format!("{} (status {status})", text.to_string_lossy()) })
    }
}
