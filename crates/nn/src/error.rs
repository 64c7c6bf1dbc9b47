/// What can be wrong with a model's configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A width or number that must be at least 1 is 0.
    #[error("{name} is 0, expected at least 1")]
    Zero {
        /// The configuration's field.
        name: &'static str,
    },
    /// The dropout probability is not one that leaves anything.
    #[error("dropout probability {dropout}, expected 0 <= dropout < 1")]
    Dropout {
        /// The probability given.
        dropout: f64,
    },
}

/// `Ok` if the field is at least 1.
pub(crate) fn at_least_one(name: &'static str, number: usize) -> Result<(), Error> {
    if number == 0 { Err(Error::Zero { name }) } else { Ok(()) }
}
