/// The best epoch of a run cannot be selected by a metric on the validation split.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// The metric has one value for every model, or none, so it ranks no epoch above another.
    #[error(
        "the metric {metric} cannot select the best epoch: it is {value} for every model on the validation split, {reason}: {instead}"
    )]
    CannotRank {
        /// The name of the metric.
        metric: &'static str,
        /// Its value for every model: a number, or `undefined`.
        value: String,
        /// The property of the validation split that is the cause.
        reason: String,
        /// The advice, with the metrics that can rank the epochs, if there are any.
        instead: String,
    },
    /// The metric is undefined for the first epoch.
    #[error(
        "the metric {metric} cannot select the best epoch: it is undefined for the first epoch: select another metric, or \
         train without a validation split"
    )]
    Undefined {
        /// The name of the metric.
        metric: &'static str,
    },
    /// Early stopping was requested for a run without a validation split.
    #[error(
        "early stopping (patience) compares epochs on the validation split, which has no items: remove the patience, or \
         add items to the split"
    )]
    PatienceWithoutValidation,
}
