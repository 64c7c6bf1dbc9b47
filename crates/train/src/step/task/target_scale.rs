use std::fmt;

use kiln_feature::{TargetScaler, Targets};
use kiln_graph::ItemId;

use crate::error::Result;

/// The scale on which a model learns regression targets. Predictions and metrics are in the units of the targets in any
/// case; losses, and the delta of the Huber loss, are on this scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetScale {
    /// Each column has mean 0 and standard deviation 1 over the training split ([`TargetScaler::standardize`]), whatever
    /// its units. A saved model contains the means and deviations.
    #[default]
    Standardize,
    /// The targets are learned as they are.
    None,
}

impl TargetScale {
    /// Returns the scaler of regression targets over these training items; `None` for other targets and for
    /// [`TargetScale::None`].
    ///
    /// # Errors
    /// Returns [`Error::Feature`](crate::Error::Feature) for an item without a target, or with an infinite one.
    pub fn scaler<I: ItemId>(self, targets: &Targets<I>, train: &[I]) -> Result<Option<TargetScaler>> {
        match (self, targets) {
            (Self::Standardize, Targets::Values(values)) if values.as_numbers().is_some() => {
                Ok(Some(TargetScaler::standardize(values, train)?))
            }
            _ => Ok(None),
        }
    }
}

impl fmt::Display for TargetScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standardize => "standardize",
            Self::None => "none",
        })
    }
}
