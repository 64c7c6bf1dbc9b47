//! The flags of `kiln train` for the length of the run and its folder.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use kiln::FitConfig;
use kiln::train::{Metric, RunDir, read_settings};

use crate::flags::parse;
use crate::output::LogFormat;

/// The flags for training, checkpoints and the run's folder.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct FitArgs {
    /// Number of epochs.
    #[arg(long, value_parser = parse::size, default_value = "20")]
    pub(crate) epochs: usize,
    /// Prints the loss every N steps of an epoch. Default: never.
    #[arg(long, value_parser = parse::size)]
    pub(crate) loss_every: Option<usize>,
    /// Metric on the validation split that selects the best epoch and ends --patience. Default: accuracy for
    /// classes, roc-auc for several labels, rmse for regression, mrr for links.
    #[arg(long, value_parser = parse::choice(Metric::ALL.map(|metric| (metric.name(), "", metric))))]
    metric: Option<Metric>,
    /// Stops early after N epochs without a better --metric. Default: never.
    #[arg(long, value_parser = parse::size)]
    patience: Option<usize>,
    /// Also writes an event file for TensorBoard to the folder `tensorboard` of the run.
    #[arg(long)]
    pub(crate) tensorboard: bool,
    /// Format of the lines on standard output.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Writes a checkpoint after every N steps of an epoch, in addition to the one at its end.
    #[arg(long, value_parser = parse::size)]
    checkpoint_every: Option<usize>,
    /// Starts from the best weights of this run, or from a safetensors file. The model must have the same layers; with another
    /// number of classes, the head starts anew.
    #[arg(long, value_name = "RUN")]
    pub(crate) init_from: Option<PathBuf>,
    /// New or empty folder for the results. Default: `runs/train-NNN`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Resumes the run in this folder from its last checkpoint; the results are bit-identical to those of an
    /// uninterrupted run. Its flags need not be repeated. --epochs may be larger; --ranks may change if --batch-size
    /// times --ranks does not, which changes the results by rounding only.
    #[arg(long, conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Starts a run in this folder, or resumes it if the folder contains a checkpoint: for jobs that a scheduler
    /// restarts with the same command.
    #[arg(long = "continue", conflicts_with_all = ["out", "resume"])]
    start_or_resume: Option<PathBuf>,
}

impl FitArgs {
    /// Returns the folder of the run, and whether the run starts or resumes there.
    pub(crate) fn dir(&self) -> RunDir {
        match (&self.resume, &self.start_or_resume, &self.out) {
            (Some(path), ..) => RunDir::Resume(path.clone()),
            (None, Some(path), _) => RunDir::StartOrResume(path.clone()),
            (None, None, Some(path)) => RunDir::New(path.clone()),
            (None, None, None) => RunDir::Numbered { parent: "runs".into(), name: "train".to_owned() },
        }
    }

    /// Returns the settings of the run: its epochs, its folder, early stopping and checkpoints.
    pub(crate) fn config(&self) -> FitConfig {
        let mut config = FitConfig::epochs(self.epochs).dir(self.dir()).quiet();
        if let Some(metric) = self.metric {
            config = config.metric(metric);
        }
        if let Some(n_epochs) = self.patience {
            config = config.patience(n_epochs);
        }
        if let Some(n_steps) = self.checkpoint_every {
            config = config.checkpoint_every(n_steps);
        }
        config
    }

    /// Returns the flags of the run that is resumed, by their names; `None` for the run of another program, which has none.
    pub(crate) fn read_resumed_flags(&self) -> Option<BTreeMap<String, String>> {
        let folder = self.resume.as_ref().or(self.start_or_resume.as_ref())?;
        let settings = read_settings(folder).ok()?;
        settings.contains_key("task").then_some(settings)
    }
}
