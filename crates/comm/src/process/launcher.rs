use std::fmt;

/// A launcher of processes. The first one, in the order of the variants, that sets any value is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// The command line.
    Flags,
    /// torchrun, or a Kubernetes manifest that sets the same variables.
    Torchrun,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// PMIx in a Slurm step: `srun --mpi=pmix`.
    Pmix,
    /// `srun`.
    Slurm,
}

/// The variables of the step id that Slurm sets in each task: the current name and an older one.
pub(super) const STEP_IDS: [&str; 2] = ["SLURM_STEP_ID", "SLURM_STEPID"];

impl Launcher {
    /// Returns the names of the flags or variables for the rank, the world size and the local rank.
    pub(super) fn numbers(self) -> [&'static str; 3] {
        match self {
            Self::Flags => ["--rank", "--world-size", "--local-rank"],
            Self::Torchrun => ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
            Self::OpenMpi => ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
            // PMIx sets a variable for the rank only, and Slurm sets variables for all three numbers.
            Self::Pmix | Self::Slurm => ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"],
        }
    }

    /// Returns the names of the flags or variables that identify this launcher: it was used if any one of them is set.
    pub(super) fn signs(self) -> Vec<&'static str> {
        match self {
            Self::Pmix => vec!["PMIX_RANK"],
            Self::Slurm => STEP_IDS.to_vec(),
            _ => self.numbers().to_vec(),
        }
    }

    /// Returns the advice for a launch with missing values.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Flags => "give both --rank and --world-size, or no launch flags",
            Self::Torchrun => "set the missing variables, as torchrun does, or unset the others",
            Self::OpenMpi => "start with mpirun, which sets all of them, or unset the others",
            Self::Pmix => {
                "the world size is available in a Slurm step only; start with `srun --mpi=pmix` or mpirun of Open \
                 MPI, or give --rank and --world-size"
            }
            Self::Slurm => {
                "start with srun, which sets all of them, or give --rank, --world-size and --master"
            }
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flags => "the flags",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Pmix => "PMIx",
            Self::Slurm => "a Slurm step",
        })
    }
}
