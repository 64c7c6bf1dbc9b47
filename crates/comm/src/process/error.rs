mod engine_error;

use std::io;

use crate::LaunchError;

pub use self::engine_error::EngineError;

/// An error of joining a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The flags or the variables of the launcher are incomplete or contradict each other.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// There are several processes, but the program was built without the feature that connects them: each process would
    /// train alone.
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
    /// The processes cannot be connected by an engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
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
