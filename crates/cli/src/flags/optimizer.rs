//! The flags of `kiln train` for the optimizer, the schedule of the learning rate and the size of a step.

use clap::{Args, ValueEnum};
use kiln::train::{LrSchedule, Optimizer, OptimizerConfig, TrainingLength};
use kiln_usage::ensure;

use crate::flags::parse;

/// The kind of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Schedule {
    /// Keeps the learning rate.
    Constant,
    /// Multiplies it by --lr-decay after every --lr-decay-every epochs.
    Step,
    /// Decreases it to 0 along a cosine, over --lr-epochs.
    Cosine,
    /// Decreases it to 0 along a line, over --lr-epochs.
    Linear,
}

/// The flags for the update of the weights.
#[derive(Debug, Args)]
#[command(next_help_heading = "Optimizer")]
pub(crate) struct OptimizerArgs {
    /// Learning rate. Default: 0.003, or 0.01 for graphs.
    #[arg(long, value_parser = parse::learning_rate)]
    lr: Option<f64>,
    /// Schedule of the learning rate. Default: constant, or step with --lr-decay-every.
    #[arg(long, value_enum)]
    lr_schedule: Option<Schedule>,
    /// Number of epochs after which --lr-schedule cosine or linear ends, warm-up included. Default: --epochs.
    #[arg(long, value_parser = parse::size)]
    lr_epochs: Option<usize>,
    /// Multiplies the learning rate by --lr-decay after every N epochs. Default: never.
    #[arg(long, value_parser = parse::size)]
    lr_decay_every: Option<usize>,
    /// Factor for --lr-decay-every. Default: 0.5.
    #[arg(long, value_parser = parse::share)]
    lr_decay: Option<f64>,
    /// Raises the learning rate in a line from 0 during the first N steps, or with `Nepochs` during the first N epochs.
    /// Default: no warm-up.
    #[arg(long, value_parser = str::parse::<TrainingLength>)]
    warmup: Option<TrainingLength>,
    /// Optimizer.
    #[arg(long, default_value = "adam", value_parser = parse::choice([
        ("adam", "Adam; weight decay is added to the gradients", Optimizer::Adam),
        ("adamw", "AdamW; weight decay is applied to the weights", Optimizer::AdamW),
        ("sgd", "SGD; weight decay is added to the gradients", Optimizer::Sgd { momentum: 0.0, nesterov: false }),
    ]))]
    optimizer: Optimizer,
    /// Momentum, for --optimizer sgd.
    #[arg(long, value_parser = parse::rate, default_value = "0")]
    momentum: f64,
    /// Uses Nesterov momentum, for --optimizer sgd.
    #[arg(long)]
    nesterov: bool,
    /// Weight decay factor; --optimizer determines how it is applied.
    #[arg(long, value_parser = parse::non_negative, default_value = "0")]
    weight_decay: f64,
    /// Scales the gradients of a step to this norm if theirs is larger. Default: no limit.
    #[arg(long, value_parser = parse::positive)]
    clip_grad_norm: Option<f64>,
    /// Averages the gradients of N batches of each rank before an update, as if batches were N times as large.
    #[arg(long, value_parser = parse::size, default_value = "1")]
    pub(crate) accumulate: usize,
}

impl OptimizerArgs {
    /// Returns the learning rate, with the task's default if the flag was not given.
    fn lr(&self, is_of_graphs: bool) -> f64 {
        self.lr.unwrap_or(if is_of_graphs { 0.01 } else { 0.003 })
    }

    /// Returns the values of flags with computed defaults: the learning rate, and the length of the schedule if it has
    /// one, because a run that resumes with more epochs must keep it.
    pub(crate) fn defaults(&self, is_of_graphs: bool, n_epochs: usize) -> Vec<(&'static str, String)> {
        let length = match self.lr_schedule {
            Some(Schedule::Cosine | Schedule::Linear) => Some(self.lr_epochs.unwrap_or(n_epochs)),
            _ => None,
        };
        let length = length.map(|length| ("lr-epochs", length.to_string()));
        [("lr", self.lr(is_of_graphs).to_string())].into_iter().chain(length).collect()
    }

    /// Returns the configuration of the optimizer.
    pub(crate) fn config(&self, is_of_graphs: bool, n_epochs: usize) -> anyhow::Result<OptimizerConfig> {
        let &Self { momentum, nesterov, weight_decay, clip_grad_norm, .. } = self;
        let kind = match self.optimizer {
            Optimizer::Sgd { .. } => Optimizer::Sgd { momentum, nesterov },
            kind => {
                ensure!(momentum == 0.0 && !nesterov, "--momentum and --nesterov require --optimizer sgd");
                kind
            }
        };
        ensure!(
            !nesterov || 0.0 < momentum,
            "--nesterov requires --momentum: add it, such as --momentum 0.9"
        );
        let schedule = self.schedule(n_epochs)?;
        let plain = OptimizerConfig::new(kind, self.lr(is_of_graphs));
        Ok(OptimizerConfig { weight_decay, schedule, clip_grad_norm, ..plain })
    }

    fn schedule(&self, n_epochs: usize) -> anyhow::Result<LrSchedule> {
        let &Self { lr_schedule, lr_epochs, lr_decay_every, lr_decay, warmup, .. } = self;
        ensure!(
            lr_decay.is_none() || lr_decay_every.is_some(),
            "--lr-decay requires --lr-decay-every: give both"
        );
        let implied = if lr_decay_every.is_some() { Schedule::Step } else { Schedule::Constant };
        let kind = lr_schedule.unwrap_or(implied);
        ensure!(
            (kind == Schedule::Step) == lr_decay_every.is_some(),
            "--lr-schedule step and --lr-decay-every require each other: give both, or none of them"
        );
        let has_length = matches!(kind, Schedule::Cosine | Schedule::Linear);
        ensure!(
            has_length || lr_epochs.is_none(),
            "--lr-epochs requires --lr-schedule cosine or linear: add it, or remove --lr-epochs"
        );
        let over = TrainingLength::Epochs(lr_epochs.unwrap_or(n_epochs));
        let schedule = match (kind, lr_decay_every) {
            (Schedule::Cosine, _) => LrSchedule::cosine(over),
            (Schedule::Linear, _) => LrSchedule::linear(over),
            (_, Some(every_epochs)) => LrSchedule::step(every_epochs, lr_decay.unwrap_or(0.5)),
            (_, None) => LrSchedule::default(),
        };
        Ok(LrSchedule { warmup, ..schedule })
    }
}

#[cfg(test)]
#[path = "../../tests/flags/optimizer.rs"]
mod tests;
