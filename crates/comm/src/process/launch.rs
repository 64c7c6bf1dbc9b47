use std::fmt;
use std::num::NonZeroU16;

use crate::MasterAddress;
use crate::process::master_address::{first_host, is_host};

/// What stands between the id of a run of torchrun and the number of restarts of an agent.
pub(crate) const AGENT_RESTART: &str = ", agent restart ";

/// The launch of a process as its launcher describes it: which process of a job this is, and how it finds the others.
///
/// ```
/// use kiln_comm::{LaunchEnv, LaunchFlags};
/// // As torchrun sets them.
/// let vars = [("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "n1"), ("MASTER_PORT", "29500")];
/// let var = |name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, value)| value.to_string());
/// let launch = LaunchEnv::detect(&LaunchFlags::default(), var)?.expect("there are several processes");
/// assert_eq!((launch.rank, launch.world_size, launch.master.unwrap().port), (1, 4, 29500));
/// # Ok::<(), kiln_comm::LaunchError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchEnv {
    /// What said so.
    pub source: Launcher,
    /// This process among all, below `world_size`.
    pub rank: usize,
    /// Processes of the job, at least 1.
    pub world_size: usize,
    /// This process among those of its machine.
    pub local_rank: usize,
    /// Where the first process serves the others; `None` where the launcher does not say and MPI
    /// must carry it.
    pub master: Option<MasterAddress>,
    /// Identifies this attempt at the job, the same for all its processes and another one after a restart; `None` where
    /// the launcher has no name for it.
    pub job_id: Option<String>,
}

/// The most processes of a job: more are a typing error.
pub const MAX_WORLD_SIZE: usize = 1 << 16;

/// A launcher, which says which process of a job this is, in the order of who is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// The command line.
    Flags,
    /// torchrun, or who sets the same variables: a manifest of Kubernetes.
    Torchrun,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// PMIx in a Slurm step: `srun --mpi=pmix`.
    Pmix,
    /// `srun`.
    Slurm,
}

/// What the command line says; an empty one says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchFlags {
    /// `--rank`: goes with `world_size`.
    pub rank: Option<usize>,
    /// `--world-size`: goes with `rank`.
    pub world_size: Option<usize>,
    /// `--local-rank`: the rank where it is not given, so that all processes are of one machine.
    pub local_rank: Option<usize>,
    /// `--master`: believed before what any launcher says of it, and no launch by itself.
    pub master: Option<MasterAddress>,
}

/// Why the way a process was started cannot be made out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A source says something, but not all.
    #[error("the launch by {launcher} has {found}, but lacks {missing}: {}", launcher.remedy())]
    Incomplete {
        /// What speaks.
        launcher: Launcher,
        /// What it says, as `NAME=value`.
        found: String,
        /// The names of what it does not say.
        missing: String,
    },
    /// A value, as `NAME=value`, that is no number.
    #[error("{0} is no whole number: correct it, or unset it and give --rank and --world-size")]
    NotANumber(String),
    /// Two numbers of one source that cannot both be.
    #[error(
        "{first} does not go with {second}: ranks count from 0 and stay below the number of processes, and no \
         machine has more processes than the job; correct one of them"
    )]
    Misfit {
        /// The number that is too large, as `NAME=value`.
        first: String,
        /// What it must fit into.
        second: String,
    },
    /// More processes than [`MAX_WORLD_SIZE`], as `NAME=value`.
    #[error("{0} is too many processes: expected at most {MAX_WORLD_SIZE}; correct it")]
    TooManyRanks(String),
    /// Two launchers that say different things.
    #[error(
        "{first}, but {second}: two launchers contradict each other; unset one of them with all that its \
         launcher sets, or give --rank and --world-size"
    )]
    Contradiction {
        /// What the one says, as `NAME=value`.
        first: String,
        /// What the other says.
        second: String,
    },
    /// Slurm gave several tasks to a job, but did not start this process as one of them.
    #[error(
        "started in an sbatch script without srun (or so under salloc): SLURM_NTASKS={n_tasks}, but \
         SLURM_STEP_ID names no step, so this process is the only one; start it as `srun PROGRAM ...`, or, to \
         train in one process, unset SLURM_NTASKS or ask for one task"
    )]
    NoStep {
        /// Tasks of the job.
        n_tasks: usize,
    },
    /// What should name the host of the first process, as `NAME=value`, and does not.
    #[error("{0} names no host for the first process: correct it, or give --master HOST:PORT")]
    NoHost(String),
    /// What should give the port of the first process, as `NAME=value`, and does not.
    #[error(
        "{0} leaves no port to the first process: expected 1 to 65535, or to 65534 where \
         TORCHELASTIC_USE_AGENT_STORE=True, as torchrun listens there itself and the first process takes the \
         next; correct it, or give --master HOST:PORT"
    )]
    NoPort(String),
    /// A text that is no [`MasterAddress`].
    #[error("{0:?} is no HOST:PORT: write node1:29400 or [::1]:29400, with a port from 1 to 65535")]
    BadMaster(String),
}

/// Names under which Slurm tells a process that it is in a step: today's and the older one.
const STEP_IDS: [&str; 2] = ["SLURM_STEP_ID", "SLURM_STEPID"];

/// The step that Slurm counts the batch script itself as; it has one process, whatever the job asked for.
const BATCH_STEP: &str = "4294967291";

impl LaunchEnv {
    /// Reads how this process was started; `None` is one process alone, as is a Slurm step of one task.
    /// The first [`Launcher`] that says anything is believed, and must be complete. `var` gives the value of an
    /// environment variable; an empty one counts as not set.
    ///
    /// Slurm names no master: it is on the first host of the step, where rank 0 is unless the tasks were
    /// placed by hand (`--distribution=arbitrary`), at a port made of the job's number. Such steps, and those
    /// of one job that run at the same time, need `flags.master`.
    ///
    /// # Errors
    ///
    /// If what speaks is incomplete, out of range or contradicted by another launcher, and if Slurm gave
    /// several tasks to the job but this process is not one of them.
    pub fn detect(
        flags: &LaunchFlags,
        var: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, LaunchError> {
        let said = Said { flags, var: &var };
        let Some(source) = said.source()? else { return Ok(None) };
        let [rank_name, world_name, local_name] = source.numbers();
        let world_size = said.number(source, world_name)?;
        if MAX_WORLD_SIZE < world_size {
            return Err(LaunchError::TooManyRanks(said.setting(world_name)));
        }
        if source == Launcher::Slurm && world_size == 1 {
            return Ok(None);
        }
        let rank = said.number(source, rank_name)?;
        let local_rank = match source {
            Launcher::Flags => flags.local_rank.unwrap_or(rank),
            _ => said.number(source, local_name)?,
        };
        let mut fits = vec![
            (rank < world_size, rank_name, world_name),
            (local_rank < world_size, local_name, world_name),
        ];
        if source == Launcher::Torchrun
            && let Some(n_local) = said.optional("LOCAL_WORLD_SIZE")?
        {
            fits.push((local_rank < n_local, local_name, "LOCAL_WORLD_SIZE"));
            fits.push((n_local <= world_size, "LOCAL_WORLD_SIZE", world_name));
        }
        if let Some((_, first, second)) = fits.into_iter().find(|(is_so, ..)| !is_so) {
            return Err(LaunchError::Misfit { first: said.setting(first), second: said.setting(second) });
        }
        said.agree(source)?;
        let (master, job_id) = (said.master(source)?, said.job_id(source));
        Ok(Some(Self { source, rank, world_size, local_rank, master, job_id }))
    }
}

impl Launcher {
    /// The names of the rank, the world size and the local rank.
    fn numbers(self) -> [&'static str; 3] {
        match self {
            Self::Flags => ["--rank", "--world-size", "--local-rank"],
            Self::Torchrun => ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
            Self::OpenMpi => ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
            // PMIx tells the rest to who asks its library; Slurm tells the same in variables.
            Self::Pmix | Self::Slurm => ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"],
        }
    }

    /// The names of which any one shows that the source speaks.
    fn signs(self) -> Vec<&'static str> {
        match self {
            Self::Pmix => vec!["PMIX_RANK"],
            Self::Slurm => STEP_IDS.to_vec(),
            _ => self.numbers().to_vec(),
        }
    }

    /// What to do where the source is incomplete.
    fn remedy(self) -> &'static str {
        match self {
            Self::Flags => "give both --rank and --world-size, or none of the three",
            Self::Torchrun => "set what it lacks, as torchrun does, or unset what it has",
            Self::OpenMpi => "start with mpirun, which sets all of it, or unset what it has",
            Self::Pmix => {
                "the world size is known in a Slurm step only; start with `srun --mpi=pmix` or mpirun of Open \
                 MPI, or give --rank and --world-size"
            }
            Self::Slurm => "start with srun, which sets all of it, or give --rank, --world-size and --master",
        }
    }
}

/// All that is said of the launch, by the command line and by the environment.
struct Said<'a> {
    flags: &'a LaunchFlags,
    var: &'a dyn Fn(&str) -> Option<String>,
}

impl Said<'_> {
    /// The first source that says anything.
    fn source(&self) -> Result<Option<Launcher>, LaunchError> {
        for source in [Launcher::Flags, Launcher::Torchrun, Launcher::OpenMpi, Launcher::Pmix] {
            if source.signs().iter().any(|name| self.get(name).is_some()) {
                return Ok(Some(source));
            }
        }
        if STEP_IDS.iter().find_map(|name| self.get(name)).is_some_and(|id| id != BATCH_STEP) {
            return Ok(Some(Launcher::Slurm));
        }
        match self.optional("SLURM_NTASKS")? {
            Some(n_tasks @ 2..) if self.get("SLURM_JOB_ID").is_some() => Err(LaunchError::NoStep { n_tasks }),
            _ => Ok(None),
        }
    }

    /// Refuses a number that another launcher tells otherwise. A Slurm step may differ from torchrun, as each
    /// of its tasks may be an agent that starts several ranks.
    fn agree(&self, source: Launcher) -> Result<(), LaunchError> {
        let twins: &[_] = match source {
            Launcher::Torchrun => &[("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")],
            Launcher::Pmix => &[("SLURM_PROCID", "PMIX_RANK")],
            _ => &[],
        };
        for (ours, theirs) in twins {
            if let Some(their_number) = self.optional(theirs)?
                && their_number != self.number(source, ours)?
            {
                let (first, second) = (self.setting(ours), self.setting(theirs));
                return Err(LaunchError::Contradiction { first, second });
            }
        }
        Ok(())
    }

    fn master(&self, source: Launcher) -> Result<Option<MasterAddress>, LaunchError> {
        match source {
            _ if self.flags.master.is_some() => Ok(self.flags.master.clone()),
            Launcher::Flags | Launcher::OpenMpi => Ok(None),
            Launcher::Torchrun => self.master_of_torchrun().map(Some),
            Launcher::Pmix | Launcher::Slurm => self.master_of_slurm(source).map(Some),
        }
    }

    fn master_of_torchrun(&self) -> Result<MasterAddress, LaunchError> {
        let host = self.needed(Launcher::Torchrun, "MASTER_ADDR")?;
        if !is_host(&host) {
            return Err(LaunchError::NoHost(self.setting("MASTER_ADDR")));
        }
        let agent = self.get("TORCHELASTIC_USE_AGENT_STORE");
        let agent_listens = agent.is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let port = self.needed(Launcher::Torchrun, "MASTER_PORT")?.parse::<NonZeroU16>().ok();
        let port = port.and_then(|port| port.get().checked_add(agent_listens.into()));
        let port = port.ok_or_else(|| LaunchError::NoPort(self.setting("MASTER_PORT")))?;
        Ok(MasterAddress { host, port })
    }

    fn master_of_slurm(&self, source: Launcher) -> Result<MasterAddress, LaunchError> {
        let nodes_name = self.nodes_name();
        let host = first_host(&self.needed(source, nodes_name)?);
        let host = host.ok_or_else(|| LaunchError::NoHost(self.setting(nodes_name)))?;
        let job_id = self.number(source, "SLURM_JOB_ID")?;
        Ok(MasterAddress { host, port: 29_400 + (job_id % 1000) as u16 })
    }

    /// What tells this attempt at the job from others: torchrun counts restarts, Slurm those of a job that it requeued.
    fn job_id(&self, source: Launcher) -> Option<String> {
        let (id, how, restarts) = match source {
            Launcher::Flags | Launcher::OpenMpi => return None,
            Launcher::Torchrun => {
                (self.get("TORCHELASTIC_RUN_ID")?, AGENT_RESTART, "TORCHELASTIC_RESTART_COUNT")
            }
            Launcher::Pmix | Launcher::Slurm => {
                let step = STEP_IDS.iter().find_map(|name| self.get(name))?;
                (format!("{}.{step}", self.get("SLURM_JOB_ID")?), ", restart ", "SLURM_RESTART_COUNT")
            }
        };
        Some(match self.get(restarts) {
            Some(n_restarts) => format!("{id}{how}{n_restarts}"),
            None => id,
        })
    }

    /// The name of the list of hosts: a step may have fewer than its job.
    fn nodes_name(&self) -> &'static str {
        let step_nodes = "SLURM_STEP_NODELIST";
        if self.get(step_nodes).is_some() { step_nodes } else { "SLURM_JOB_NODELIST" }
    }

    fn number(&self, source: Launcher, name: &str) -> Result<usize, LaunchError> {
        self.optional(name)?.ok_or_else(|| self.incomplete(source))
    }

    fn needed(&self, source: Launcher, name: &str) -> Result<String, LaunchError> {
        self.get(name).ok_or_else(|| self.incomplete(source))
    }

    fn optional(&self, name: &str) -> Result<Option<usize>, LaunchError> {
        let number = self.get(name).map(|value| value.parse()).transpose();
        number.map_err(|_| LaunchError::NotANumber(self.setting(name)))
    }

    fn incomplete(&self, launcher: Launcher) -> LaunchError {
        let mut needed = launcher.numbers().to_vec();
        match launcher {
            Launcher::Flags => needed.truncate(2), // The local rank has its default.
            Launcher::OpenMpi => {}
            _ if self.flags.master.is_some() => {}
            Launcher::Torchrun => needed.extend(["MASTER_ADDR", "MASTER_PORT"]),
            Launcher::Pmix | Launcher::Slurm => needed.extend([self.nodes_name(), "SLURM_JOB_ID"]),
        }
        needed.retain(|name| self.get(name).is_none());
        let mut found = launcher.signs();
        found.retain(|name| self.get(name).is_some());
        let found: Vec<_> = found.into_iter().map(|name| self.setting(name)).collect();
        LaunchError::Incomplete { launcher, found: found.join(", "), missing: needed.join(", ") }
    }

    /// What is said under a name, as messages show it.
    fn setting(&self, name: &str) -> String {
        format!("{name}={}", self.get(name).unwrap_or_default())
    }

    /// What is said under a name: flags start with dashes, which no variable does.
    fn get(&self, name: &str) -> Option<String> {
        match name {
            "--rank" => self.flags.rank.map(|rank| rank.to_string()),
            "--world-size" => self.flags.world_size.map(|world_size| world_size.to_string()),
            "--local-rank" => self.flags.local_rank.map(|local_rank| local_rank.to_string()),
            _ => (self.var)(name).filter(|value| !value.is_empty()),
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

impl fmt::Display for LaunchEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, rank, world_size, local_rank, master, .. } = self;
        write!(f, "rank {rank} of {world_size}, local rank {local_rank}, by {source}")?;
        master.as_ref().map_or(Ok(()), |master| write!(f, ", master {master}"))
    }
}
