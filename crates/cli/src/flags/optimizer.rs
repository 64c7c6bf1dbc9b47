//! The flags of `kiln train` for the optimizer, the schedule of the learning rate and the size of a step.

use anyhow::ensure;
use clap::{Args, ValueEnum};
use kiln::train::{LrSchedule, Optimizer, OptimizerConfig, TrainingLength};

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
    #[arg(long, value_parser = parse::positive)]
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
    #[arg(long, value_parser = parse::length)]
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
mod tests {
    use clap::Parser;
    use kiln::train::LrDecay;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        optimizer: OptimizerArgs,
    }

    fn config(flags: &str) -> Result<OptimizerConfig, String> {
        let words = ["program"].into_iter().chain(flags.split_whitespace());
        let program = Program::try_parse_from(words).map_err(|error| error.to_string())?;
        program.optimizer.config(false, 20).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_set_the_optimizer_and_its_schedule() {
        let adam = OptimizerConfig::new(Optimizer::Adam, 0.003);
        assert_eq!(config(""), Ok(adam));
        let cosine = LrSchedule::cosine(TrainingLength::Epochs(20));
        let flags = "--lr-schedule cosine --warmup 100 --clip-grad-norm 0.5";
        let schedule = cosine.warmup(TrainingLength::Steps(100));
        assert_eq!(config(flags), Ok(OptimizerConfig { schedule, clip_grad_norm: Some(0.5), ..adam }));
        let over = TrainingLength::Epochs(7);
        let schedule = LrSchedule::from(LrDecay::Linear { over, final_factor: 0.0 });
        let schedule = schedule.warmup(TrainingLength::Epochs(2));
        let flags = "--lr-schedule linear --lr-epochs 7 --warmup 2epochs";
        assert_eq!(config(flags), Ok(OptimizerConfig { schedule, ..adam }));
        let step = OptimizerConfig { schedule: LrSchedule::step(5, 0.5), ..adam };
        assert_eq!(config("--lr-decay-every 5"), Ok(step));
        assert_eq!(config("--lr-schedule step --lr-decay-every 5 --lr-decay 0.5"), Ok(step));
        let sgd = OptimizerConfig::new(Optimizer::Sgd { momentum: 0.9, nesterov: true }, 0.1);
        let flags = "--optimizer sgd --momentum 0.9 --nesterov --lr 0.1 --weight-decay 0.01";
        assert_eq!(config(flags), Ok(OptimizerConfig { weight_decay: 0.01, ..sgd }));
    }

    #[test]
    fn rejects_flags_that_need_another_flag() {
        for (flags, expected) in [
            ("--momentum 0.9", "--momentum and --nesterov require --optimizer sgd"),
            ("--optimizer sgd --nesterov", "--nesterov requires --momentum"),
            ("--lr-decay 0.5", "--lr-decay requires --lr-decay-every"),
            ("--lr-schedule step", "--lr-schedule step and --lr-decay-every require each other"),
            (
                "--lr-schedule cosine --lr-decay-every 5",
                "--lr-schedule step and --lr-decay-every require each other",
            ),
            ("--lr-epochs 5", "--lr-epochs requires --lr-schedule cosine or linear"),
            ("--warmup 0", "expected a number of steps of at least 1, or of epochs, such as `2epochs`"),
            ("--warmup 2weeks", "expected a number of steps of at least 1, or of epochs, such as `2epochs`"),
            ("--momentum 1", "expected a number of at least 0 and below 1"),
        ] {
            let error = config(flags).expect_err(flags);
            assert!(error.contains(expected), "{flags}: {error}");
        }
    }
}
