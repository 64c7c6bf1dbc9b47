use super::launcher::Launcher;

/// The maximum number of processes of a job, which catches typing errors.
pub const MAX_WORLD_SIZE: usize = 1 << 16;

/// An error in the launch of a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A launcher sets some of its values, but not all.
    #[error("the launch by {launcher} has {found}, but lacks {missing}: {}", launcher.remedy())]
    Incomplete {
        /// The launcher whose values are incomplete.
        launcher: Launcher,
        /// The values that the launcher sets, as `NAME=value`.
        found: String,
        /// The names of the missing values.
        missing: String,
    },
    /// A value, as `NAME=value`, is not a number.
    #[error("{0} is not a whole number: correct it, or unset it and give --rank and --world-size")]
    NotANumber(String),
    /// Two numbers of one launcher contradict each other.
    #[error(
        "{first} does not fit {second}: ranks count from 0 and are less than the number of processes, and no \
         machine has more processes than the job; correct one of them"
    )]
    Misfit {
        /// The number that is too large, as `NAME=value`.
        first: String,
        /// The number that bounds it, as `NAME=value`.
        second: String,
    },
    /// The number of processes, as `NAME=value`, exceeds [`MAX_WORLD_SIZE`].
    #[error("{0} is too many processes: expected at most {MAX_WORLD_SIZE}; correct it")]
    TooManyRanks(String),
    /// Two launchers set different values.
    #[error(
        "{first}, but {second}: two launchers contradict each other; unset all variables of one of them, or give \
         --rank and --world-size"
    )]
    Contradiction {
        /// The value of one launcher, as `NAME=value`.
        first: String,
        /// The value of the other launcher, as `NAME=value`.
        second: String,
    },
    /// Slurm gave several tasks to a job, but did not start this process as one of them.
    #[error(
        "started without srun in an sbatch script or under salloc: SLURM_NTASKS={n_tasks}, but SLURM_STEP_ID \
         names no step, so this is the only process; start it as `srun PROGRAM ...`, or, to train in one \
         process, unset SLURM_NTASKS or request one task"
    )]
    NoStep {
        /// The number of tasks of the job.
        n_tasks: usize,
    },
    /// The value, as `NAME=value`, does not contain the host of rank 0.
    #[error("{0} names no host for rank 0: correct it, or give --master HOST:PORT")]
    NoHost(String),
    /// The value, as `NAME=value`, does not provide a port for rank 0.
    #[error(
        "{0} provides no port for rank 0: expected 1 to 65535, or 1 to 65534 if \
         TORCHELASTIC_USE_AGENT_STORE=True, as torchrun then listens on this port itself and rank 0 on the \
         next one; correct it, or give --master HOST:PORT"
    )]
    NoPort(String),
    /// The text is not a [`MasterAddress`](crate::MasterAddress).
    #[error("{0:?} is not HOST:PORT: write node1:29400 or [::1]:29400, with a port from 1 to 65535")]
    BadMaster(String),
}
