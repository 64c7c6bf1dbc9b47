//! The settings of a run, and the files of a run folder that may be absent.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use kiln_store::whole_file::read_whole;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result, RunError};

/// The maximum size of the small files of a run.
const MOST_BYTES: u64 = 1 << 28;

/// Returns true if two values of a setting are equal, as `0.5` and `0.50` are.
///
/// ```
/// use kiln_train::are_equal_settings;
/// assert!(are_equal_settings("0.5", "0.50"));
/// assert!(!are_equal_settings("10,10", "10"));
/// ```
pub fn are_equal_settings(one: &str, other: &str) -> bool {
    let numbers = [one, other].map(str::parse::<f64>);
    one == other || matches!(numbers, [Ok(one), Ok(other)] if one == other)
}

/// Reads the settings in `config.json` of a run folder, with each value as text; none without the file.
///
/// ```
/// // A folder without the file.
/// assert!(kiln_train::read_settings("runs/none".as_ref())?.is_empty());
/// # Ok::<(), kiln_train::Error>(())
/// ```
///
/// # Errors
/// Returns [`RunError::Io`] if the file cannot be read, and [`RunError::BadFile`] if it is no JSON object.
pub fn read_settings(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut settings = BTreeMap::new();
    let values: Option<BTreeMap<String, Value>> = read_json(&folder.join("config.json"))?;
    for (name, value) in values.into_iter().flatten() {
        let text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        settings.insert(name, text);
    }
    Ok(settings)
}

/// Reads a file that may be absent.
pub(super) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>> {
    match read_whole(path, MOST_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Run(RunError::Io { path: path.to_owned(), source })),
    }
}

/// Reads a file in JSON that may be absent.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let Some(bytes) = read_optional(path)? else { return Ok(None) };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Error::Run(RunError::BadFile { path: path.to_owned(), reason: error.to_string() })),
    }
}
