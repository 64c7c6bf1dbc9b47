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
    /// A weight matrix that fits no memory.
    #[error("a weight of {d_in} x {d_out} values, at most {max} in all are taken")]
    WeightTooLarge {
        /// Its rows.
        d_in: usize,
        /// Its columns.
        d_out: usize,
        /// The largest number of values taken.
        max: usize,
    },
    /// The dropout probability is not one that leaves anything.
    #[error("{name} probability {dropout}, expected 0 <= {name} < 1")]
    Dropout {
        /// The configuration's field.
        name: &'static str,
        /// The probability given.
        dropout: f64,
    },
}

/// The largest width or number of layers: more is a slip of the keyboard, and its weights fit no memory.
const MAX: usize = 1 << 20;

/// The largest number of values in one weight: 4 GiB.
const MAX_WEIGHT: usize = 1 << 30;

/// `Ok` if a weight of two checked widths is one that a machine may hold.
pub(crate) fn check_weight(d_in: usize, d_out: usize) -> Result<(), Error> {
    let max = MAX_WEIGHT;
    if d_in * d_out <= max { Ok(()) } else { Err(Error::WeightTooLarge { d_in, d_out, max }) }
}

/// `Ok` if the field is at least 1, and not absurd.
pub(crate) fn check_size(name: &'static str, got: usize) -> Result<(), Error> {
    if (1..=MAX).contains(&got) { Ok(()) } else { Err(Error::OutOfRange { name, got, max: MAX }) }
}
