//! How the model of `kiln train` learns, for how long, and what is kept of the run.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use kiln::FitConfig;
use kiln::train::{Optimizer, OptimizerConfig, RunDir, StepDecay};

use crate::flags;

/// How the model learns, and for how long.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct FitArgs {
    /// Passes over the training items.
    #[arg(long, value_parser = flags::size, default_value = "20")]
    pub(crate) epochs: usize,
    /// Step size of the optimizer: 0.003 if not given, and 0.01 on graphs.
    #[arg(long, value_parser = flags::positive)]
    lr: Option<f64>,
    /// Epochs after which the step size is multiplied by --lr-decay, over and over; never, if not given.
    #[arg(long, value_parser = flags::size)]
    lr_decay_every: Option<usize>,
    /// What the step size is multiplied by; 0.5 if not given.
    #[arg(long, value_parser = flags::share)]
    lr_decay: Option<f64>,
    /// Update rule.
    #[arg(long, default_value = "adam", value_parser = flags::choice([
        ("adam", "Adam; weight decay is added to the gradients", Optimizer::Adam),
        ("adamw", "AdamW; weight decay is applied to the weights", Optimizer::AdamW),
    ]))]
    optimizer: Optimizer,
    /// Weight decay.
    #[arg(long, value_parser = flags::non_negative, default_value = "0")]
    weight_decay: f64,
    /// Prints the loss after so many steps of an epoch; never, if not given.
    #[arg(long, value_parser = flags::size)]
    pub(crate) loss_every: Option<usize>,
    /// Stops after so many epochs without a better validation accuracy; never, if not given.
    #[arg(long, value_parser = flags::size)]
    patience: Option<usize>,
    /// Writes a checkpoint after so many steps of an epoch, besides the one at its end.
    #[arg(long, value_parser = flags::size)]
    checkpoint_every: Option<usize>,
    /// New or empty folder for the results; `runs/train-NNN` if not given.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Folder of a run that was stopped: continues from its last checkpoint, with the same results as if it had not been. Give the same flags again but for --out; --epochs may be larger, and --ranks where --batch-size keeps the batch of all ranks.
    #[arg(long, conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Folder of the run, which is started there, or continued where it holds a checkpoint: for jobs that are started again by the same command.
    #[arg(long = "continue", conflicts_with_all = ["out", "resume"])]
    start_or_resume: Option<PathBuf>,
}

impl FitArgs {
    /// The step size that was not given.
    pub(crate) fn lr(&self, is_of_graphs: bool) -> f64 {
        self.lr.unwrap_or(if is_of_graphs { 0.01 } else { 0.003 })
    }

    /// The update rule with its numbers.
    pub(crate) fn optimizer(&self, is_of_graphs: bool) -> anyhow::Result<OptimizerConfig> {
        let &Self { lr_decay, lr_decay_every, weight_decay, optimizer: kind, .. } = self;
        ensure!(
            lr_decay.is_none() || lr_decay_every.is_some(),
            "--lr-decay is for --lr-decay-every: give both"
        );
        let factor = lr_decay.unwrap_or(0.5);
        let decay = lr_decay_every.map(|every_epochs| StepDecay { every_epochs, factor });
        Ok(OptimizerConfig { kind, learning_rate: self.lr(is_of_graphs), weight_decay, decay })
    }

    /// How long to train, and where the run's files go.
    pub(crate) fn config(&self) -> FitConfig {
        let dir = match (&self.resume, &self.start_or_resume, &self.out) {
            (Some(path), ..) => RunDir::Resume(path.clone()),
            (None, Some(path), _) => RunDir::StartOrResume(path.clone()),
            (None, None, Some(path)) => RunDir::New(path.clone()),
            (None, None, None) => RunDir::Numbered { parent: "runs".into(), name: "train".to_owned() },
        };
        let mut config = FitConfig::epochs(self.epochs).dir(dir).quiet();
        if let Some(n_epochs) = self.patience {
            config = config.patience(n_epochs);
        }
        if let Some(n_steps) = self.checkpoint_every {
            config = config.checkpoint_every(n_steps);
        }
        config
    }
}
