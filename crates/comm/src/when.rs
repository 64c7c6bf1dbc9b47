use std::fmt;

/// Formats the last known step of a rank, as in `in step 7`.
pub(crate) struct When<'a>(pub(crate) &'a Option<u64>);

impl fmt::Display for When<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(step) => write!(f, "in step {step}"),
            None => f.write_str("before its first step"),
        }
    }
}
