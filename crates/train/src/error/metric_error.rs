use kiln_feature::TargetKind;
use kiln_graph::{did_you_mean, similar_name};

use crate::metric::selection_error::SelectionError;

/// An error in the choice of a metric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricError {
    /// The metric is not defined for the data's targets.
    #[error("the metric {metric} is not defined for {kind}: use one of {expected}")]
    OtherMetric {
        /// The name of the metric.
        metric: String,
        /// The kind of targets.
        kind: TargetKind,
        /// The names of the metrics that are defined.
        expected: String,
    },
    /// The name of a metric of one's own cannot identify it in files.
    #[error(
        "the name of a metric of one's own is '{name}', expected letters, digits and any of -_.@+, and no name of a built-in \
         metric"
    )]
    CustomName {
        /// The name.
        name: String,
    },
    /// The best epoch cannot be selected by the metric.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// No metric has this name.
    #[error("unknown metric '{name}': expected one of {expected}{}", suggestion(name, expected))]
    UnknownMetric {
        /// The name.
        name: String,
        /// The names of all metrics.
        expected: String,
    },
}

fn suggestion(name: &str, expected: &str) -> String {
    did_you_mean(similar_name(name, expected.split(", ")))
}
