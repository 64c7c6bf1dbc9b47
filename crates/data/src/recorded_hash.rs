use std::path::Path;

use crate::{DatasetFormat, Result, detect_format, format, typed};

/// Returns the hash of a set in the kiln format, homogeneous or heterogeneous, which comes from its manifest
/// ([`format::hash`], [`typed::hash`]); `None` for sets of other formats, whose hash is that of their values
/// ([`Dataset::hash`](crate::Dataset::hash), [`TypedDataset::hash`](crate::TypedDataset::hash)).
///
/// # Errors
/// Returns the errors of [`detect_format`], [`typed::is_heterogeneous`] and the functions for the hash.
pub fn recorded_hash(path: impl AsRef<Path>) -> Result<Option<String>> {
    let path = path.as_ref();
    match detect_format(path)? {
        DatasetFormat::Kiln if typed::is_heterogeneous(path)? => typed::hash(path).map(Some),
        DatasetFormat::Kiln => format::hash(path).map(Some),
        _ => Ok(None),
    }
}
