use kiln_feature::{FeatureDType, MAX_DIM};

use crate::{Error, Result};

/// The number of columns and the element type of feature rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowFormat {
    pub(crate) dim: usize,
    pub(crate) dtype: FeatureDType,
}

impl RowFormat {
    /// Creates the format that a partition describes. `what` are the rows, for errors.
    ///
    /// # Errors
    /// Returns [`Error::BadParts`] if the number of columns or the element type is not supported.
    pub(crate) fn new(what: &str, dim: u32, row_type: &str) -> Result<Self> {
        let dim = dim as usize;
        if !(1..=MAX_DIM).contains(&dim) {
            let reason = format!(
                "the {what} have {dim} columns, expected 1 to {MAX_DIM}: partition a data set with {what}"
            );
            return Err(Error::BadParts { reason });
        }
        let known = [FeatureDType::F32, FeatureDType::F16, FeatureDType::BF16];
        let dtype = known.into_iter().find(|known| known.name() == row_type).ok_or_else(|| Error::BadParts {
            reason: format!(
                "{what} of {row_type} are not supported: use the same version of kiln for clients and servers"
            ),
        })?;
        Ok(Self { dim, dtype })
    }

    /// Returns the size of a row in bytes.
    pub(crate) fn row_bytes(self) -> usize {
        self.dim * self.dtype.bytes()
    }
}
