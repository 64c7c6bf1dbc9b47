//! When a run stops, what is kept of it, and going on with it.

use std::path::PathBuf;

use clap::Args;
use kiln_train::{FitConfig, RunDir, RunIdentity};

use crate::args::Settings;
use crate::flags;
use crate::run::RunArgs;

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

    /// The folder of the program's run, and whether the run starts or resumes there.
    pub(crate) fn dir(&self, settings: &Settings) -> RunDir {
        match (&self.resume, &self.start_or_resume, &self.out) {
            (Some(path), ..) => RunDir::Resume(path.clone()),
            (None, Some(path), _) => RunDir::StartOrResume(path.clone()),
            (None, None, Some(path)) => RunDir::New(path.clone()),
            (None, None, None) => {
                RunDir::Numbered { parent: "runs".into(), name: settings.program.to_owned() }
            }
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
