/// An error in the configuration of a loss, or in the data that it needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossError {
    /// The class weights of a loss do not fit the classes.
    #[error(
        "the class weights are {got:?}, expected {n_classes} finite numbers, one per class, of at least 0 and not all 0"
    )]
    ClassWeights {
        /// The number of classes.
        n_classes: usize,
        /// The weights.
        got: Vec<f32>,
    },
    /// The label smoothing of a loss is not in `[0, 1)`.
    #[error("the label smoothing is {got}, expected at least 0 and below 1")]
    LabelSmoothing {
        /// The value of the setting.
        got: f32,
    },
    /// The threshold of the Huber loss is not a finite number above 0.
    #[error("the delta of the Huber loss is {got}, expected a finite number above 0")]
    HuberDelta {
        /// The value of the setting.
        got: f32,
    },
    /// A loss of link prediction has no negatives.
    #[error(
        "the links have no negatives, expected at least 1 per link: a loss of links alone has no minimum"
    )]
    NoNegatives,
}
