use std::cmp::Ordering;
use std::time::Duration;

use kiln_comm::Communicator;

use crate::error::Result;
use crate::evaluate::evaluation::Evaluation;
use crate::metric::kind::Metric;
use crate::step::task::metric_sums::MetricSums;

/// The result of a validation: its metric sums, and the value of the metric that selects the best epoch. Metric sums
/// convert to the validation by accuracy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Validation {
    /// The metric sums of all ranks.
    pub sums: MetricSums,
    /// The metric that selects the best epoch.
    pub metric: Metric,
    /// The value of the metric; `None` if it is undefined.
    pub value: Option<f64>,
    /// The duration of the validation on this rank; `None` if it was not measured.
    pub wall: Option<Duration>,
}

impl Validation {
    /// Computes a metric of the outputs of all ranks, each of which passes its own. The result is the same on all
    /// ranks. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`crate::MetricError::OtherMetric`] if the metric is not defined for the targets,
    /// [`crate::TrainerError::LossNotFinite`], and [`Error::Ranks`](crate::Error::Ranks) if a rank
    /// fails.
    pub fn of(own: &Evaluation, metric: Metric, comm: &mut dyn Communicator) -> Result<Self> {
        let sums = own.counts()?.sum_over(comm)?.checked()?;
        let value = own.stats(metric)?.value_over(comm)?;
        Ok(Self { sums, metric, value, wall: None })
    }

    /// Returns a validation without items, for a run without a validation split: [`fit`](crate::fit()) keeps its last
    /// epoch.
    pub fn without_items(metric: Metric) -> Self {
        Self { sums: MetricSums::default(), metric, value: None, wall: None }
    }

    /// Returns true if no item was evaluated: the run has no validation split.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Formats the metric for the line of an epoch: with the accuracy, also that of the epoch's training steps.
    pub fn progress(&self, train: &MetricSums) -> String {
        match (self.metric, self.value) {
            (Metric::Accuracy, _) if self.is_empty() => {
                format!("train {:.4}  no validation", train.accuracy())
            }
            _ if self.is_empty() => "no validation".to_owned(),
            (Metric::Accuracy, _) => {
                format!("train {:.4}  val {:.4}", train.accuracy(), self.sums.accuracy())
            }
            (metric, Some(value)) => format!("val {metric} {value:.4}"),
            (metric, None) => format!("val {metric} undefined"),
        }
    }

    /// Returns true if this validation is strictly better than an earlier one by the same metric. Items whose outputs are not
    /// finite count first, because values over other items cannot be compared: of two validations, the one with fewer of them
    /// is better.
    pub fn is_better_than(&self, earlier: &Self) -> bool {
        match self.sums.n_not_finite.cmp(&earlier.sums.n_not_finite) {
            Ordering::Less => self.value.is_some(),
            Ordering::Equal => self.metric.is_better(self.value, earlier.value),
            Ordering::Greater => false,
        }
    }
}

impl From<MetricSums> for Validation {
    fn from(sums: MetricSums) -> Self {
        let value = Some(sums.accuracy()).filter(|accuracy| !accuracy.is_nan());
        Self { sums, metric: Metric::Accuracy, value, wall: None }
    }
}

impl From<&MetricSums> for Validation {
    fn from(sums: &MetricSums) -> Self {
        (*sums).into()
    }
}
