//! The flags of `kiln train` for the loss.

use clap::Args;
use kiln::feature::TargetKind;
use kiln::nn::{ClassLoss, LinkLoss, TargetLoss};
use kiln::train::{Objective, TargetScale};
use kiln_usage::ensure;

use crate::flags::parse;

/// The kind of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LossKind {
    CrossEntropy,
    BinaryCrossEntropy,
    Squared,
    Absolute,
    Huber,
    BayesianPersonalizedRanking,
}

/// The flags for the loss.
#[derive(Debug, Args)]
#[command(next_help_heading = "Loss")]
pub(crate) struct LossArgs {
    /// Loss. Default: cross-entropy for classes, bce for several labels per item and for links, mse for regression.
    #[arg(long, value_parser = parse::choice([
        ("cross-entropy", "Cross entropy, for classes", LossKind::CrossEntropy),
        ("bce", "Binary cross entropy, for several labels per item and for links", LossKind::BinaryCrossEntropy),
        ("mse", "Squared error, for regression", LossKind::Squared),
        ("mae", "Absolute error, for regression", LossKind::Absolute),
        ("huber", "Huber loss, for regression", LossKind::Huber),
        ("bpr", "Bayesian personalized ranking, for links", LossKind::BayesianPersonalizedRanking),
    ]))]
    loss: Option<LossKind>,
    /// Weight of each class in the cross entropy, separated by commas. Default: 1.
    #[arg(long, value_delimiter = ',', value_parser = parse::non_negative)]
    class_weights: Vec<f64>,
    /// Share of each label that the cross entropy distributes over all classes. Default: 0.
    #[arg(long, value_parser = parse::rate)]
    label_smoothing: Option<f64>,
    /// Error at which the Huber loss becomes linear, on the scale of --target-scale. Default: 1.
    #[arg(long, value_parser = parse::positive)]
    huber_delta: Option<f64>,
    /// Scale on which regression targets are learned. Losses are on this scale, metrics and predictions in the units of the
    /// targets. Default: standardize.
    #[arg(long, value_parser = parse::choice([
        ("standardize", "Mean 0 and standard deviation 1 of each column over the training split", TargetScale::Standardize),
        ("none", "The targets as they are", TargetScale::None),
    ]))]
    pub(crate) target_scale: Option<TargetScale>,
}

impl LossArgs {
    /// Returns the objective for targets of this kind: the given loss, or the default for the targets.
    pub(crate) fn objective(&self, kind: TargetKind) -> anyhow::Result<Objective> {
        let of_links = kind == TargetKind::Links;
        let kind = self.loss.unwrap_or(match kind {
            TargetKind::Classes => LossKind::CrossEntropy,
            TargetKind::MultiLabel => LossKind::BinaryCrossEntropy,
            TargetKind::Regression => LossKind::Squared,
            TargetKind::Links => LossKind::BinaryCrossEntropy,
        });
        let has_class_flags = !self.class_weights.is_empty() || self.label_smoothing.is_some();
        ensure!(
            kind == LossKind::CrossEntropy || !has_class_flags,
            "--class-weights and --label-smoothing require --loss cross-entropy: remove them"
        );
        ensure!(
            kind == LossKind::Huber || self.huber_delta.is_none(),
            "--huber-delta requires --loss huber: add it, or remove --huber-delta"
        );
        let weights: Vec<f32> = self.class_weights.iter().map(|&weight| weight as f32).collect();
        Ok(match kind {
            LossKind::CrossEntropy => Objective::Classes(ClassLoss {
                class_weights: (!weights.is_empty()).then_some(weights),
                label_smoothing: self.label_smoothing.unwrap_or(0.0) as f32,
            }),
            LossKind::BinaryCrossEntropy if of_links => Objective::Links(LinkLoss::BinaryCrossEntropy),
            LossKind::BinaryCrossEntropy => Objective::MultiLabel,
            LossKind::BayesianPersonalizedRanking => Objective::Links(LinkLoss::BayesianPersonalizedRanking),
            LossKind::Squared => Objective::Regression(TargetLoss::SquaredError),
            LossKind::Absolute => Objective::Regression(TargetLoss::AbsoluteError),
            LossKind::Huber => {
                Objective::Regression(TargetLoss::Huber { delta: self.huber_delta.unwrap_or(1.0) as f32 })
            }
        })
    }
}
