//! When a run stops, what is kept of it, and going on with it.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use kiln_train::{Error, FitConfig, Resumed, Run, RunFolder, RunIdentity, Task, Trainer};

use crate::args::Settings;
use crate::run::RunArgs;
use crate::{flags, say};

/// When a run stops, and what is kept of it.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Stops after so many epochs without a better validation accuracy; never, if not given.
    #[arg(long, value_parser = flags::size)]
    patience: Option<usize>,
    /// Writes a checkpoint after so many steps of an epoch, besides the one at its end.
    #[arg(long, value_parser = flags::size)]
    checkpoint_every: Option<usize>,
    /// New or empty folder for the results; `runs/NAME-NNN` if not given.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Folder of a run that was stopped: goes on from its last checkpoint, with the same results as if it had not been. Give the same flags again but for --out; --epochs may be larger, and --ranks where --batch-size keeps the batch of all ranks.
    #[arg(long, conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Folder of the run, which is started there, or gone on with where it holds a checkpoint: for jobs that are started again by the same command.
    #[arg(long = "continue", conflicts_with_all = ["out", "resume"])]
    start_or_resume: Option<PathBuf>,
}

impl KeepArgs {
    /// How long to train.
    pub fn config(&self, n_epochs: usize) -> FitConfig {
        let &Self { patience, checkpoint_every, .. } = self;
        FitConfig { n_epochs, patience, checkpoint_every }
    }

    /// Starts the program's run in a new folder, or goes on with the one that `--resume` names. A meeting of
    /// the ranks.
    ///
    /// # Errors
    /// When the folder cannot be made, holds something already, or is of another run or one of more epochs.
    pub fn start<T: Task>(
        &self,
        settings: &Settings,
        run: &RunArgs,
        n_epochs: usize,
        data_hash: &str,
        trainer: &mut Trainer<T>,
    ) -> anyhow::Result<Run> {
        let identity = identity(settings, run, data_hash);
        let mut started = Run::start(trainer, || self.folder(settings), identity)?;
        let n_done = started.n_epochs();
        ensure!(n_done <= n_epochs, "--epochs {n_epochs}: the run has done {n_done}, give at least as many");
        started.write_config(&settings.flags)?;
        let resumed = started.resumed().filter(|_| trainer.is_first());
        if let Some(Resumed { epoch, step, n_ranks, damage }) = resumed {
            if let Some(damage) = damage {
                say(format_args!("note: {damage}: going on from the checkpoint before it"));
            }
            say(format_args!("going on after {epoch} epochs and {step} steps"));
            if *n_ranks != run.n_ranks() {
                let ranks = run.n_ranks();
                say(format_args!(
                    "note: on {ranks} ranks after {n_ranks}: the same items, samples and masks, but sums round otherwise, and a batch normalisation sees other batches"
                ));
            }
        }
        Ok(started)
    }

    fn folder(&self, settings: &Settings) -> kiln_train::Result<RunFolder> {
        if let Some(path) = &self.resume {
            return RunFolder::open(path);
        }
        if let Some(path) = &self.start_or_resume {
            return match RunFolder::open(path) {
                Err(Error::NoCheckpoint { .. }) => RunFolder::create(path),
                opened => opened,
            };
        }
        match &self.out {
            Some(path) => RunFolder::create(path),
            None => RunFolder::create_numbered("runs", settings.program),
        }
    }
}

/// The program and the flags that the result depends on. Those that say how it is computed do not count, nor
/// where the data lies, whose hash does.
pub(crate) fn identity(settings: &Settings, run: &RunArgs, data_hash: &str) -> RunIdentity {
    let counts = |(flag, _): &(&String, &String)| !NOT_OF_THE_RESULT.contains(&flag.as_str());
    let flags = settings.flags.iter().filter(counts);
    // Two ways to write a number are one setting; whole numbers may be too large for a float.
    let plain = |value: &String| match (value.parse::<u64>(), value.parse::<f64>()) {
        (Err(_), Ok(number)) => number.to_string(),
        _ => value.clone(),
    };
    let flags = flags.map(|(flag, value)| (format!("--{flag}"), plain(value)));
    let program = ("the program".to_owned(), settings.program.to_owned());
    let settings = flags.chain(run.settings()).chain([program]).collect();
    RunIdentity { settings, data_hash: data_hash.to_owned() }
}

/// Flags that change nothing of what a run learns, or that stand for something that counts in their place.
const NOT_OF_THE_RESULT: &[&str] = &[
    "ranks",
    "batch-size",
    "threads-per-rank",
    "deadline",
    "rank",
    "world-size",
    "local-rank",
    "master",
    "engine",
    "join-within",
    "tls-ca",
    "tls-cert",
    "tls-key",
    "workers",
    "data",
    "in-memory",
    "verify",
    "epochs",
    "checkpoint-every",
    "memory",
    "graph-mode",
    "feature-cache",
    "hot-by",
    "mode",
    "parts",
    "servers",
    "host",
    "no-static-cache",
    "cache-size",
    "worker-concurrency",
    "channel-size",
    "out",
    "resume",
    "continue",
];
