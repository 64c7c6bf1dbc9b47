use std::path::Path;

use crate::{DatasetFormat, Result, detect_format, format};

/// Returns the hash of a set in the kiln format, which comes from its manifest ([`format::hash`]); `None` for sets of other
/// formats, whose hash is that of their values ([`Dataset::hash`](crate::Dataset::hash)).
///
/// # Errors
/// Returns the errors of [`detect_format`] and [`format::hash`].
pub fn recorded_hash(path: impl AsRef<Path>) -> Result<Option<String>> {
    let path = path.as_ref();
    match detect_format(path)? {
        DatasetFormat::Kiln => format::hash(path).map(Some),
        _ => Ok(None),
    }
}
