use std::fmt;
use std::num::NonZeroU16;

use crate::process::launcher::STEP_IDS;
use crate::process::master_address::{first_host, is_host};
use crate::{LaunchError, Launcher, MAX_WORLD_SIZE, MasterAddress};

/// The separator between a torchrun run id and the restart count of an agent, in a job id.
pub(crate) const AGENT_RESTART: &str = ", agent restart ";

/// The launch of a process as its launcher describes it: the rank of the process and the address of rank 0.
///
/// ```
/// use kiln_comm::{LaunchEnv, LaunchFlags};
/// // These are the variables that torchrun sets.
/// let vars = [("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "n1"), ("MASTER_PORT", "29500")];
/// let var = |name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, value)| value.to_string());
/// let launch = LaunchEnv::detect(&LaunchFlags::default(), var)?.expect("there are several processes");
/// assert_eq!((launch.rank, launch.world_size, launch.master.unwrap().port), (1, 4, 29500));
/// # Ok::<(), kiln_comm::LaunchError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchEnv {
    /// The launcher that provided the values.
    pub source: Launcher,
    /// The rank of this process, below `world_size`.
    pub rank: usize,
    /// The number of processes of the job, at least 1.
    pub world_size: usize,
    /// The position of this process among those of its machine, from 0.
    pub local_rank: usize,
    /// The address at which rank 0 serves the others; `None` if the launcher does not provide it. Only jobs over MPI
    /// can start without it, because MPI distributes the address.
    pub master: Option<MasterAddress>,
    /// The id of this attempt at the job: the same for all processes, different after a restart. `None` if the launcher
    /// does not provide one.
    pub job_id: Option<String>,
}

/// The values of the command line; all are `None` if it has no launch flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchFlags {
    /// The value of `--rank`, which requires `world_size`.
    pub rank: Option<usize>,
    /// The value of `--world-size`, which requires `rank`.
    pub world_size: Option<usize>,
    /// The value of `--local-rank`. Defaults to the rank, for processes of a single machine.
    pub local_rank: Option<usize>,
    /// The value of `--master`. It overrides the address of any launcher. Without a launcher it has no effect.
    pub master: Option<MasterAddress>,
}

/// The step id of a batch script, which runs as one process whatever the job requested.
const BATCH_STEP: &str = "4294967291";

impl LaunchEnv {
    /// Detects how this process was started. Returns `None` for a single process, which includes a Slurm step of one
    /// task. The first [`Launcher`] that sets any value is used, and must be complete. `var` returns the value of an
    /// environment variable; an empty value counts as not set.
    ///
    /// Slurm does not provide the address of rank 0. The host is then the first one of the step, which runs rank 0
    /// unless tasks were placed with `--distribution=arbitrary`; the port, 29400 to 30399, is derived from the job id.
    /// Steps with such a placement, and steps of one job that run at the same time, need `flags.master`.
    ///
    /// # Errors
    ///
    /// Returns an error if the launcher's values are incomplete, malformed, out of range or contradicted by another
    /// launcher, or if Slurm gave several tasks to the job but this process is not one of them.
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
        let master = said.master(source)?;
        let job_id = said.job_id(source);
        Ok(Some(Self { source, rank, world_size, local_rank, master, job_id }))
    }
}

/// The values that describe the launch: flags and environment variables.
struct Said<'a> {
    flags: &'a LaunchFlags,
    var: &'a dyn Fn(&str) -> Option<String>,
}

impl Said<'_> {
    /// Returns the first launcher that sets any value.
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

    /// Fails if another launcher sets a different number. The numbers of torchrun may differ from those of a Slurm
    /// step, because each task of the step may be a torchrun agent that starts several ranks.
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
                let first = self.setting(ours);
                let second = self.setting(theirs);
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

    /// Returns the id of this attempt at the job, with the number of restarts by torchrun or of requeues by Slurm.
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

    /// Returns the name of the variable with the list of hosts. A step may have fewer hosts than its job.
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
            Launcher::Flags => needed.truncate(2), // The local rank has a default.
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

    /// Formats a value for messages, as `NAME=value`.
    fn setting(&self, name: &str) -> String {
        format!("{name}={}", self.get(name).unwrap_or_default())
    }

    /// Returns the value of a flag or variable, or `None` if it is not set. Names of flags start with dashes.
    fn get(&self, name: &str) -> Option<String> {
        match name {
            "--rank" => self.flags.rank.map(|rank| rank.to_string()),
            "--world-size" => self.flags.world_size.map(|world_size| world_size.to_string()),
            "--local-rank" => self.flags.local_rank.map(|local_rank| local_rank.to_string()),
            _ => (self.var)(name).filter(|value| !value.is_empty()),
        }
    }
}

impl fmt::Display for LaunchEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, rank, world_size, local_rank, master, .. } = self;
        write!(f, "rank {rank} of {world_size}, local rank {local_rank}, by {source}")?;
        master.as_ref().map_or(Ok(()), |master| write!(f, ", master {master}"))
    }
}
