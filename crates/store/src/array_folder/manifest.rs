//! Reads manifests and checks their entries against the folder format.

use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;

use kiln_graph::open_file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Entries, Entry, Known};
use crate::paths::is_there;
use crate::{Error, Result};

/// The maximum size of a manifest in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Reads a manifest: JSON whose key `format` is the version of the folder format, one of `versions`. `what` describes
/// the manifest in the error for a missing one.
///
/// # Errors
/// Returns [`Error::Missing`] if the file does not exist, [`Error::Format`] if it has another version,
/// [`Error::Manifest`] if it cannot be deserialised to `M`, [`Error::Metadata`] if it is larger than 16 MiB, and
/// [`Error::Io`] if it cannot be read.
pub fn read_manifest<M: DeserializeOwned>(
    path: &Path,
    versions: RangeInclusive<u32>,
    what: &str,
) -> Result<M> {
    #[derive(Deserialize)]
    struct Versioned {
        format: u32,
    }
    let bytes = read_bytes(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound if !is_there(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let folder = path.parent().unwrap_or(path).to_owned();
            Error::Missing { folder, expected: format!("{name} ({what})") }
        }
        _ => Error::Io { path: path.to_owned(), source },
    })?;
    check_length(path, &bytes)?;
    let bad = |source| Error::Manifest { path: path.to_owned(), source };
    // The version is parsed separately, because another version may have other keys.
    let Versioned { format } = serde_json::from_slice(&bytes).map_err(bad)?;
    if !versions.contains(&format) {
        return Err(Error::Format { path: path.to_owned(), expected: *versions.end(), got: format });
    }
    serde_json::from_slice(&bytes).map_err(bad)
}

/// Serialises a manifest to JSON, or returns an error if the JSON is too large. `path` is the path of the manifest, for
/// the error.
pub(super) fn manifest_bytes(path: &Path, manifest: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(manifest).expect("a manifest should serialise to JSON");
    bytes.push(b'\n');
    check_length(path, &bytes)?;
    Ok(bytes)
}

/// Checks that the format defines each entry of the manifest at `path`, with an allowed type and shape, and that no
/// required entry is missing.
///
/// # Errors
/// Returns [`Error::Metadata`] for the first violation.
pub fn check_entries(path: &Path, entries: &Entries, known: &[Known]) -> Result<()> {
    for (name, entry) in entries {
        check_entry(path, name, entry, known)?;
    }
    match known.iter().find(|known| known.is_needed && !entries.contains_key(&*known.name)) {
        Some(known) => Err(missing_entry(path, &known.name)),
        None => Ok(()),
    }
}

fn check_entry(path: &Path, name: &str, entry: &Entry, known: &[Known]) -> Result<()> {
    let Some(known) = known.iter().find(|known| known.name == name) else {
        return Err(bad_entry(path, name, "", "a file of the format (docs/formats.md)", "unknown"));
    };
    if !known.types.contains(&entry.dtype) {
        let expected: Vec<String> = known.types.iter().map(ToString::to_string).collect();
        return Err(bad_entry(path, name, ".dtype", expected.join(" or "), entry.dtype));
    }
    let found = format!("{:?}", entry.shape);
    match &known.shape {
        None if entry.shape.len() != 1 => Err(bad_entry(path, name, ".shape", "one dimension", found)),
        Some(shape) if *shape != entry.shape => {
            Err(bad_entry(path, name, ".shape", format!("{shape:?}"), found))
        }
        _ => Ok(()),
    }
}

/// Checks that the manifest lists either all or none of these files.
///
/// # Errors
/// Returns [`Error::Metadata`] if some of them are missing.
pub fn check_together(path: &Path, entries: &Entries, names: &[&str]) -> Result<()> {
    let has = |name: &&&str| entries.contains_key(**name);
    match names.iter().find(|name| !has(name)) {
        Some(name) if names.iter().any(|name| has(&name)) => Err(missing_entry(path, name)),
        _ => Ok(()),
    }
}

/// Checks that the manifest lists every existing file with one of these names, because other readers would treat an
/// unlisted file as part of the data set.
///
/// # Errors
/// Returns [`Error::Metadata`] for the first unlisted file.
pub fn check_unlisted<'a>(
    path: &Path,
    entries: &Entries,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    match names.into_iter().find(|name: &&str| !entries.contains_key(*name) && is_there(&folder.join(name))) {
        None => Ok(()),
        Some(name) => Err(bad_entry(path, name, "", "an entry, because the file exists", "none")),
    }
}

/// Creates an error for an invalid value of a manifest's key.
pub fn bad_key(path: &Path, key: &str, expected: impl Into<String>, found: impl ToString) -> Error {
    let path = path.to_owned();
    let key = key.to_owned();
    Error::Metadata { path, key, expected: expected.into(), found: found.to_string() }
}

/// Creates an error for an invalid entry of the file `name`. `key` is the key within the entry, such as `.shape`, or
/// empty for the whole entry.
pub fn bad_entry(
    path: &Path,
    name: &str,
    key: &str,
    expected: impl Into<String>,
    found: impl ToString,
) -> Error {
    bad_key(path, &format!("files.{name}{key}"), expected, found)
}

/// Creates an error for a manifest that has no entry for the file `name`.
pub fn missing_entry(path: &Path, name: &str) -> Error {
    bad_key(path, "files", format!("an entry {name}"), "none")
}

/// Reads a file up to one byte more than the maximum size of a manifest, so that a larger file is detected.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check_length(path: &Path, bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_BYTES {
        let expected =
            format!("at most {MAX_BYTES} bytes: give classes and edge types shorter names or none");
        return Err(bad_key(path, "the file size", expected, "over the limit"));
    }
    Ok(())
}
