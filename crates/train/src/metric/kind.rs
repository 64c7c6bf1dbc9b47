use std::fmt;
use std::str::FromStr;

use kiln_feature::TargetKind;

use crate::error::{Error, MetricError, Result};
use crate::metric::custom::{CustomMetric, MetricRef, RecordedMetric};

/// A metric of a model on a split. It selects the best epoch and ends a run's patience. A metric of one's own is a
/// [`CustomMetric`](crate::CustomMetric).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The fraction of correct items. For several labels per item, all labels of the item must be correct (subset
    /// accuracy).
    Accuracy,
    /// The F1 score of the summed counts of all classes or labels.
    F1Micro,
    /// The mean of the F1 scores of the classes or labels.
    F1Macro,
    /// The area under the ROC curve: of class 1 for two classes, otherwise the mean over the classes or labels. For links,
    /// that of all links and all their negatives together.
    RocAuc,
    /// The average precision: of class 1 for two classes, otherwise the mean over the classes or labels. For links, that
    /// of all links and all their negatives together.
    AveragePrecision,
    /// The average precision of all labels of all items together, each an item of its own, for several labels per item.
    AveragePrecisionMicro,
    /// The root of the mean squared error, averaged over the target columns.
    Rmse,
    /// The mean absolute error, averaged over the target columns.
    Mae,
    /// The coefficient of determination, averaged over the target columns.
    R2,
    /// The mean reciprocal rank of links, each among its own negatives ([`LinkRanks::mrr`](crate::LinkRanks::mrr)).
    Mrr,
    /// The fraction of links of a rank of at most 10, each among its own negatives
    /// ([`LinkRanks::hits_at`](crate::LinkRanks::hits_at)).
    Hits10,
    /// The fraction of links of a rank of at most 50, each among its own negatives.
    Hits50,
    /// The fraction of links of a rank of at most 100, each among its own negatives.
    Hits100,
    /// A metric of one's own: `Metric::from(metric)`.
    Custom(MetricRef),
}

impl Metric {
    /// All built-in metrics.
    pub const ALL: [Self; 13] = [
        Self::Accuracy,
        Self::F1Micro,
        Self::F1Macro,
        Self::RocAuc,
        Self::AveragePrecision,
        Self::AveragePrecisionMicro,
        Self::Rmse,
        Self::Mae,
        Self::R2,
        Self::Mrr,
        Self::Hits10,
        Self::Hits50,
        Self::Hits100,
    ];

    /// Returns the metric that selects the best epoch by default: accuracy for classes, the area under the ROC curve
    /// for several labels, the RMSE for regression, and the mean reciprocal rank for links.
    pub fn default_of(kind: TargetKind) -> Self {
        match kind {
            TargetKind::Classes => Self::Accuracy,
            TargetKind::MultiLabel => Self::RocAuc,
            TargetKind::Regression => Self::Rmse,
            TargetKind::Links => Self::Mrr,
        }
    }

    /// Returns the name, as in `--metric`: `accuracy`, `f1-micro`, `f1-macro`, `roc-auc`, `average-precision`,
    /// `average-precision-micro`, `rmse`, `mae`, `r2`, `mrr`, `hits@10`, `hits@50` or `hits@100`, or that of one's own.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1Micro => "f1-micro",
            Self::F1Macro => "f1-macro",
            Self::RocAuc => "roc-auc",
            Self::AveragePrecision => "average-precision",
            Self::AveragePrecisionMicro => "average-precision-micro",
            Self::Rmse => "rmse",
            Self::Mae => "mae",
            Self::R2 => "r2",
            Self::Mrr => "mrr",
            Self::Hits10 => "hits@10",
            Self::Hits50 => "hits@50",
            Self::Hits100 => "hits@100",
            Self::Custom(metric) => metric.get().name(),
        }
    }

    /// Returns true if larger values are better, and false for errors.
    pub fn higher_is_better(self) -> bool {
        match self {
            Self::Custom(metric) => metric.get().higher_is_better(),
            _ => !matches!(self, Self::Rmse | Self::Mae),
        }
    }

    /// Returns true if `new` is strictly better than `best`. An undefined value (`None` or NaN) is worse than every
    /// other value, so it never replaces one.
    pub fn is_better(self, new: Option<f64>, best: Option<f64>) -> bool {
        let defined = |value: Option<f64>| value.filter(|value| !value.is_nan());
        match (defined(new), defined(best)) {
            (Some(new), Some(best)) if self.higher_is_better() => best < new,
            (Some(new), Some(best)) => new < best,
            (new, best) => new.is_some() && best.is_none(),
        }
    }

    /// Returns true if the metric is defined for targets of this kind.
    pub fn applies_to(self, kind: TargetKind) -> bool {
        match self {
            Self::Rmse | Self::Mae | Self::R2 => kind == TargetKind::Regression,
            // Its sort takes memory for each class of each item, too much for many classes.
            Self::AveragePrecisionMicro => kind == TargetKind::MultiLabel,
            Self::Mrr | Self::Hits10 | Self::Hits50 | Self::Hits100 => kind == TargetKind::Links,
            Self::Accuracy | Self::F1Micro | Self::F1Macro => {
                matches!(kind, TargetKind::Classes | TargetKind::MultiLabel)
            }
            Self::RocAuc | Self::AveragePrecision => kind != TargetKind::Regression,
            Self::Custom(metric) => metric.get().target_kind() == kind,
        }
    }

    /// Returns the built-in metrics that are defined for targets of this kind.
    pub fn of_kind(kind: TargetKind) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |metric| metric.applies_to(kind))
    }

    /// Checks that the metric is defined for targets of this kind.
    ///
    /// # Errors
    /// Returns [`MetricError::OtherMetric`] with the metrics that are, and [`MetricError::CustomName`] for a metric of one's own
    /// whose name is that of a built-in one, or no word.
    pub fn check(self, kind: TargetKind) -> Result<()> {
        if let Self::Custom(metric) = self
            && (!metric.is_named_by_word() || self.name().parse::<Self>().is_ok())
        {
            let name = self.name().to_owned();
            return Err(Error::Metric(MetricError::CustomName { name }));
        }
        match self.applies_to(kind) {
            true => Ok(()),
            false => Err(Error::Metric(MetricError::OtherMetric {
                metric: self.to_string(),
                kind,
                expected: names(kind),
            })),
        }
    }

    /// Returns the metric that a file names. `higher_is_better` is recorded for metrics of one's own only.
    ///
    /// # Errors
    /// Returns [`MetricError::UnknownMetric`] for another name without a direction.
    pub(crate) fn recorded(
        name: &str,
        higher_is_better: Option<bool>,
        target_kind: TargetKind,
    ) -> Result<Self> {
        match (name.parse(), higher_is_better) {
            (Err(_), Some(higher_is_better)) => {
                Ok(RecordedMetric { name: name.to_owned(), higher_is_better, target_kind }.into())
            }
            (parsed, _) => parsed,
        }
    }

    /// Returns the direction as files record it, for a metric of one's own.
    pub(crate) fn recorded_direction(self) -> Option<bool> {
        match self {
            Self::Custom(metric) => Some(metric.get().higher_is_better()),
            _ => None,
        }
    }
}

/// Returns the names of the metrics for targets of this kind, separated by commas.
fn names(kind: TargetKind) -> String {
    Metric::of_kind(kind).map(Metric::name).collect::<Vec<_>>().join(", ")
}

/// Keeps a metric of one's own for the rest of the process, so that a [`Metric`] stays a small value that is copied.
impl<M: CustomMetric + 'static> From<M> for Metric {
    fn from(metric: M) -> Self {
        Self::Custom(MetricRef::keep(metric))
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Metric {
    type Err = Error;

    /// Parses the [name](Metric::name) of a built-in metric.
    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|metric| metric.name() == name);
        found.ok_or_else(|| {
            Error::Metric(MetricError::UnknownMetric {
                name: name.to_owned(),
                expected: Self::ALL.map(Self::name).join(", "),
            })
        })
    }
}
