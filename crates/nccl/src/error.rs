/// An error of NCCL or the CUDA driver, of loading their libraries, or about an invalid GPU or id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library is not installed.
    #[error("{library} is not installed: tried to load {}", names.join(", "))]
    NotFound {
        /// The name of the library, for the message.
        library: &'static str,
        /// The file names that were tried.
        names: Vec<String>,
    },
    /// The library is too old and lacks a function that this crate calls.
    #[error("{file} does not export `{function}`: install NCCL 2.14 or newer")]
    Outdated {
        /// The library's file name.
        file: &'static str,
        /// The missing function.
        function: &'static str,
    },
    /// A call of NCCL or the CUDA driver failed.
    #[error("{call} failed: {reason}")]
    Failed {
        /// The function that failed.
        call: &'static str,
        /// The library's description of the error.
        reason: String,
    },
    /// The process has no GPU with this index.
    #[error(
        "GPU {index} does not exist: the driver reports {n_devices} GPUs, numbered from 0; check CUDA_VISIBLE_DEVICES"
    )]
    NoDevice {
        /// The requested index, from 0.
        index: usize,
        /// The number of GPUs that the process sees.
        n_devices: usize,
    },
    /// Two ranks of one communicator were given the same GPU, which NCCL does not support.
    #[error("GPU {index} is assigned to two ranks: NCCL needs a separate GPU for every rank")]
    SharedDevice {
        /// The index of the GPU.
        index: usize,
    },
    /// The number of bytes differs from that of a unique id ([`ID_BYTES`](crate::ID_BYTES)).
    #[error("invalid NCCL unique id: expected {expected} bytes, got {got}")]
    BadId {
        /// The length of an id in bytes.
        expected: usize,
        /// The number of given bytes.
        got: usize,
    },
    /// Another rank failed or did not call in time, or an earlier call failed. The communicator cannot be used again.
    #[error("the NCCL communicator of rank {rank} was aborted: {reason}")]
    Aborted {
        /// The rank whose communicator was aborted.
        rank: usize,
        /// The reason for the abort.
        reason: &'static str,
    },
}
