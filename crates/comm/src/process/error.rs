use std::io;

use crate::{EXIT_FAILED, EXIT_RETRY, LaunchError};

/// An error of joining a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The flags or the variables of the launcher are incomplete or contradict each other.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// There are several processes, but the program was built without the feature that connects them.
    #[error(
        "{launch}: this program was built without the feature `grpc` of kiln-comm, which connects processes: build \
         it with that feature, or start a single process"
    )]
    NoProcesses {
        /// The launch of this process.
        launch: String,
    },
    /// The file with the token cannot be used.
    #[cfg(feature = "grpc")]
    #[error(transparent)]
    Token(crate::rpc::Error),
    /// There are several processes, but no engine works on this machine.
    #[error(
        "{launch}: no engine connects the processes; tried {tried}; build and install one of them, start a single \
         process, or use --engine store, which needs no library and is slow"
    )]
    NoEngine {
        /// The launch of this process.
        launch: String,
        /// The engines that were tried, each with its error.
        tried: String,
    },
    /// The program was built without the requested engine.
    #[error("this program was built without the feature `{engine}`: build it with the feature `{engine}`")]
    NotBuilt {
        /// The name of the requested engine.
        engine: &'static str,
    },
    /// MPI reports another rank or world size than the launcher.
    #[error(
        "{launch}: MPI reports rank {rank} of {world_size}: start the program with a launcher that MPI supports \
         (mpirun, or srun --mpi=pmix), or use --engine store"
    )]
    OtherWorld {
        /// The launch of this process.
        launch: String,
        /// The rank of this process according to MPI.
        rank: usize,
        /// The number of processes according to MPI.
        world_size: usize,
    },
    /// MPI cannot be used, for example because it does not support several threads.
    #[error("MPI cannot be used: {reason}")]
    Mpi {
        /// The reason why MPI cannot be used.
        reason: String,
    },
    /// NCCL is not installed, or there is no GPU for this process.
    #[error("NCCL cannot be used: {reason}")]
    Nccl {
        /// The reason why NCCL cannot be used.
        reason: String,
    },
    /// The address of rank 0 is unknown.
    #[error("{launch}: the address of rank 0 is missing: give --master HOST:PORT to all processes")]
    NoMaster {
        /// The launch of this process.
        launch: String,
    },
    /// No token was configured.
    #[error(
        "the job has no token: set KILN_JOB_TOKEN to the same random text for all its processes, or \
         KILN_JOB_TOKEN_FILE to a file that contains it and that only you can read"
    )]
    NoToken,
    /// Other machines cannot reach the address of rank 0 or of this process.
    #[error("{host} has no usable address: {reason}")]
    NoAddress {
        /// The host name of this machine.
        host: String,
        /// The reason why no address of the host is usable.
        reason: String,
    },
    /// Rank 0 cannot listen at its address.
    #[error("rank 0 cannot listen at {address}: give --master HOST:PORT with a free port of this machine")]
    Listen {
        /// The address at which rank 0 should listen, as `HOST:PORT`.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The watchdog thread could not be started.
    #[error("failed to start the thread that joins the job")]
    Thread(#[source] io::Error),
    /// A process was lost before all had joined, or did not join in time.
    #[error("{reason}")]
    Lost {
        /// The name of the process, and what happened to the process.
        reason: String,
    },
    /// A process was refused, the processes were started with different settings, or a request to rank 0 failed.
    #[error("{reason}")]
    Refused {
        /// The rank at fault, the problem, and what to do.
        reason: String,
    },
    /// Rank 0 cannot be reached, or a token or certificate is invalid.
    #[cfg(feature = "grpc")]
    #[error("cannot connect to rank 0: {0}")]
    Rpc(#[from] crate::rpc::Error),
}

impl JobError {
    /// Returns the status with which the process should exit: [`EXIT_RETRY`] if another attempt may succeed, otherwise
    /// [`EXIT_FAILED`].
    pub fn status(&self) -> u8 {
        match self {
            Self::Lost { .. } => EXIT_RETRY,
            #[cfg(feature = "grpc")]
            Self::Rpc(crate::rpc::Error::NoAnswer { .. }) => EXIT_RETRY,
            _ => EXIT_FAILED,
        }
    }
}
