/// An error in a loss of one's own, found before training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CustomLossError {
    /// The name cannot identify the loss in the files of a run.
    #[error(
        "the name of a loss of one's own is '{name}', expected a text that is not empty and has no control characters"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The function returns losses that are not one per item.
    #[error(
        "the loss {name} returns {got} losses for {n_items} items, expected one per item: do not take the mean or the sum, \
         or return the sum with the weight of the items"
    )]
    Shape {
        /// The name of the loss.
        name: String,
        /// The number of items.
        n_items: usize,
        /// The number of losses.
        got: usize,
    },
    /// The function returns a weight by which the sum cannot be divided.
    #[error("the loss {name} returns the weight {got}, expected a finite number of at least 0")]
    Weight {
        /// The name of the loss.
        name: String,
        /// The weight.
        got: f64,
    },
}
