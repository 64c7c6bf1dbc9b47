/// An error in the choice or the start of the engine that connects the processes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
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
}
