/// An error of NCCL, of its library or of the GPUs that it was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library is not installed.
    #[error("{library} is not installed: looked for {}", names.join(", "))]
    NotFound {
        /// The library.
        library: &'static str,
        /// The file names that were tried.
        names: Vec<String>,
    },
    /// The library is older than what is called.
    #[error("{file} has no function `{function}`: install NCCL 2.14 or newer")]
    Outdated {
        /// The library's file name.
        file: &'static str,
        /// The missing function.
        function: &'static str,
    },
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Failed {
        /// The function.
        call: &'static str,
        /// The library's description of the error.
        reason: String,
    },
    /// The process has no GPU of this number.
    #[error("there is no GPU {index}: the driver reports {n_devices}; check CUDA_VISIBLE_DEVICES")]
    NoDevice {
        /// The number that was asked for, from 0.
        index: usize,
        /// The number of GPUs.
        n_devices: usize,
    },
    /// Two ranks of one communicator on one GPU, which NCCL does not support.
    #[error("GPU {index} is given to two ranks: NCCL needs a GPU for every rank")]
    SharedDevice {
        /// The GPU.
        index: usize,
    },
    /// The id is not one that [`UniqueId::bytes`](crate::UniqueId::bytes) returned.
    #[error("an id of NCCL has {expected} bytes, not {got}")]
    BadId {
        /// The right length.
        expected: usize,
        /// The length of what was given.
        got: usize,
    },
    /// Another rank failed, or did not call in time: the communicator is aborted and cannot be used again.
    #[error("the NCCL communicator of rank {rank} was aborted: {reason}")]
    Aborted {
        /// This rank.
        rank: usize,
        /// What happened.
        reason: &'static str,
    },
}
