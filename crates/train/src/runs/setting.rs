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

/// Returns true if two values of a setting are equal, as `0.5` and `0.50` are: their [canonical forms](canonical_setting) are.
///
/// ```
/// use kiln_train::are_equal_settings;
/// assert!(are_equal_settings("0.5", "0.50"));
/// assert!(!are_equal_settings("10,10", "10"));
/// // Seeds have more digits than a number of double precision.
/// assert!(!are_equal_settings("9007199254740993", "9007199254740992"));
/// ```
pub fn are_equal_settings(one: &str, other: &str) -> bool {
    canonical_setting(one) == canonical_setting(other)
}

/// Returns a value of a setting in a form in which equal ones are identical. Whole numbers are exact.
///
/// ```
/// use kiln_train::canonical_setting;
/// assert_eq!(["0.50", "5e-1", "1e3", "-0", "-0.0", "sage"].map(canonical_setting), ["0.5", "0.5", "1000", "0", "0", "sage"]);
/// ```
pub fn canonical_setting(text: &str) -> String {
    match (text.parse::<i128>(), text.parse::<f64>()) {
        (Ok(whole), _) => whole.to_string(),
        // The sum of both zeros is the positive one.
        (_, Ok(number)) => (number + 0.0).to_string(),
        _ => text.to_owned(),
    }
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
