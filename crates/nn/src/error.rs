/// What can be wrong with a model's configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A width or number of layers is 0, or larger than any model's.
    #[error("{name} is {got}, expected 1 to {max}")]
    OutOfRange {
        /// The configuration's field.
        name: &'static str,
        /// Its value.
        got: usize,
        /// The largest value taken.
        max: usize,
    },
    /// The dropout probability is not one that leaves anything.
    #[error("dropout probability {dropout}, expected 0 <= dropout < 1")]
    Dropout {
        /// The probability given.
        dropout: f64,
    },
}

/// The largest width or number of layers: more is a slip of the keyboard, and its weights fit no memory.
const MAX: usize = 1 << 20;

/// `Ok` if the field is at least 1, and not absurd.
pub(crate) fn check_size(name: &'static str, got: usize) -> Result<(), Error> {
    if (1..=MAX).contains(&got) { Ok(()) } else { Err(Error::OutOfRange { name, got, max: MAX }) }
}
