use std::io;

use crate::{EXIT_FAILED, EXIT_RETRY, LaunchError};

/// Why a process could not become a rank of its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The flags or the variables of the launcher are incomplete or contradict each other.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Several processes, and a program that was built without their connections.
    #[error(
        "{launch}, but this program was built without the feature `grpc` of kiln-comm, by which processes connect: build \
         it with that feature, or start one process"
    )]
    NoProcesses {
        /// How the processes were started.
        launch: String,
    },
    /// The file with the token cannot be used.
    #[cfg(feature = "grpc")]
    #[error(transparent)]
    Token(crate::rpc::Error),
    /// Several processes, and no engine that works on this machine.
    #[error(
        "{launch}: no engine carries gradients between the processes; tried {tried}; build and install one of them, \
         start one process, or give --engine store, which needs neither and is slow"
    )]
    NoEngine {
        /// How the processes were started.
        launch: String,
        /// The engines that were tried, and why each does not work.
        tried: String,
    },
    /// An engine that this program was built without.
    #[error("this program was built without the feature `{engine}`: build it with the feature `{engine}`")]
    NotBuilt {
        /// The engine.
        engine: &'static str,
    },
    /// MPI sees other processes than the launcher says.
    #[error(
        "{launch}, but MPI says rank {rank} of {world_size}: start it by a launcher that MPI knows (mpirun, or srun \
         --mpi=pmix), or ask for the engine `store`"
    )]
    OtherWorld {
        /// How the processes were started.
        launch: String,
        /// MPI's number of this process.
        rank: usize,
        /// MPI's number of processes.
        world_size: usize,
    },
    /// MPI was not there, or not for several threads.
    #[error("MPI: {reason}")]
    Mpi {
        /// What is wrong.
        reason: String,
    },
    /// NCCL was not there, or has no GPU for this process.
    #[error("NCCL: {reason}")]
    Nccl {
        /// What is wrong.
        reason: String,
    },
    /// Nobody knows where the first process is.
    #[error("{launch}, without a word on where rank 0 is: give --master HOST:PORT to all processes")]
    NoMaster {
        /// How the processes were started.
        launch: String,
    },
    /// There is no word that the processes know each other by.
    #[error(
        "no token: set KILN_JOB_TOKEN to the same random text for all processes of the job, or KILN_JOB_TOKEN_FILE \
         to a file with it that only you can read"
    )]
    NoToken,
    /// The address of rank 0, or of this process, is not one that others reach.
    #[error("{host} has no address that can be used: {reason}")]
    NoAddress {
        /// The host.
        host: String,
        /// What is wrong.
        reason: String,
    },
    /// Rank 0 cannot serve there.
    #[error("rank 0 cannot listen at {address}: give --master HOST:PORT with a free port of this machine")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The thread that watches over the job could not be started.
    #[error("the thread that meets the other processes could not be started")]
    Thread(#[source] io::Error),
    /// A process was lost, or did not come, before the job began.
    #[error("{reason}")]
    Lost {
        /// Which one, and what became of it.
        reason: String,
    },
    /// The processes do not become a job.
    #[error("{reason}")]
    Refused {
        /// Which rank is why, and what to do.
        reason: String,
    },
    /// Rank 0 could not be reached, or the processes cannot let each other in.
    #[cfg(feature = "grpc")]
    #[error("rank 0: {0}")]
    Rpc(#[from] crate::rpc::Error),
}

impl JobError {
    /// What a process should end with for it: [`EXIT_RETRY`] where the same may go well another time.
    pub fn status(&self) -> u8 {
        match self {
            Self::Lost { .. } => EXIT_RETRY,
            #[cfg(feature = "grpc")]
            Self::Rpc(crate::rpc::Error::NoAnswer { .. }) => EXIT_RETRY,
            _ => EXIT_FAILED,
        }
    }
}
