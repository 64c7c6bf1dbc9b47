use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use kiln_usage::UsageError;

use crate::cores::CoreShare;
use crate::record::SweepRun;
use crate::sweep::Sweep;

/// The environment variable with the number of threads of the pool of a process, which loads data and samples.
const POOL_THREADS: &str = "RAYON_NUM_THREADS";

/// The command that trains a run: a program, its subcommand with the parser of its flags, and the cores.
#[derive(Debug, Clone)]
pub struct RunCommand {
    /// The program, such as `kiln`.
    pub program: PathBuf,
    /// The subcommand `train`. It has the flags `--continue` and `--threads-per-rank`.
    pub subcommand: clap::Command,
    /// The share of the cores.
    pub cores: CoreShare,
}

impl RunCommand {
    /// Returns the command of a run, which starts or continues it in its folder.
    ///
    /// ```
    /// use clap::{Arg, Command};
    /// use kiln_sweep::{CoreShare, Plan, RunCommand, Sweep};
    /// let plan = Plan::parse("[sweep]\nlr = [0.1, 0.01]", "sweep.toml".as_ref())?;
    /// let sweep = Sweep::preview(plan, "runs/none".as_ref())?;
    /// let flag = |name: &'static str| Arg::new(name).long(name);
    /// let command = RunCommand {
    ///     program: "kiln".into(),
    ///     subcommand: Command::new("train").args([flag("lr"), flag("seed")]),
    ///     cores: CoreShare { parallel: 2, cores_per_run: 1 },
    /// };
    /// let train = command.build(&sweep, &sweep.runs()[0])?;
    /// let args: Vec<_> = train.get_args().map(|arg| arg.to_string_lossy()).collect();
    /// let folder = "--continue=runs/none/cell-001-seed-0";
    /// assert_eq!(args, ["train", folder, "--lr=0.1", "--seed=0", "--threads-per-rank=1"]);
    /// assert!(train.get_envs().any(|variable| variable == ("RAYON_NUM_THREADS".as_ref(), Some("1".as_ref()))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the subcommand has no such flag.
    pub fn build(&self, sweep: &Sweep, run: &SweepRun) -> Result<Command, UsageError> {
        let mut command = Command::new(&self.program);
        let mut folder = OsString::from("--continue=");
        folder.push(sweep.run_folder(run));
        let flags = sweep.plan().describe(&run.flags);
        command.arg(self.subcommand.get_name()).arg(folder);
        command.args(flags.arguments(&self.subcommand, &BTreeSet::new())?);
        if let Some(n_threads) = self.cores.threads_per_rank(&run.flags) {
            command.arg(format!("--threads-per-rank={n_threads}"));
        }
        let given = env::var(POOL_THREADS).ok();
        command.env(POOL_THREADS, self.cores.pool_threads(given.as_deref()).to_string());
        Ok(command)
    }
}
