use kiln_graph::NodeId;

/// An error in the means and factors by which features or targets are scaled, or in features that cannot be scaled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScalingError {
    /// The number of a scaling's means or factors differs from the number of feature columns.
    #[error(
        "the scaling has {got} {what}, expected {expected}, one per feature column: use the data's own columns"
    )]
    ScalingWidth {
        /// The array that differs: `means` or `factors`.
        what: &'static str,
        /// The number of feature columns.
        expected: usize,
        /// The number of values of the scaling.
        got: usize,
    },
    /// The number of means or deviations of targets differs from the number of target columns.
    #[error("the scaling of targets has {got} {what}, expected {expected}, one per target column")]
    TargetScalingWidth {
        /// The array that differs: `means` or `deviations`.
        what: &'static str,
        /// The number of target columns.
        expected: usize,
        /// The number of values of the scaling.
        got: usize,
    },
    /// A deviation of targets is not above 0.
    #[error("the deviation of target column {column} is {value}, expected a number above 0")]
    DeviationNotPositive {
        /// The column.
        column: usize,
        /// The deviation.
        value: f64,
    },
    /// A value of a scaling is infinite or NaN.
    #[error("the scaling's {what} contain {value} at column {column}, expected finite numbers")]
    ScalingNotFinite {
        /// The array: `means`, `factors` or `deviations`.
        what: &'static str,
        /// The column of the value.
        column: usize,
        /// The value.
        value: f64,
    },
    /// A feature that is divided by the sum of its row is negative.
    #[error("node {} has the feature {value}, expected no negative values: the model divides each row by its sum", node.0)]
    NegativeFeature {
        /// The node.
        node: NodeId,
        /// The value of the feature.
        value: f32,
    },
}
