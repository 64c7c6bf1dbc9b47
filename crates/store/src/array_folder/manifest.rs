//! Reading a manifest, and checking that what it says is what its form knows.

use std::io::{self, Read};
use std::path::Path;

use kiln_graph::open_file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Entries, Entry, Known};
use crate::paths::is_there;
use crate::{Error, Result};

/// The longest that a manifest may be.
const MAX_BYTES: usize = 16 << 20;

/// Reads a manifest: JSON whose key `format` is the version of the form. `what` it is stands in the message
/// where it lacks.
///
/// # Errors
/// [`Error::Missing`] where there is none, [`Error::Format`] for one of another version, [`Error::Manifest`] for
/// one that is not what `M` takes, [`Error::Metadata`] for one of more than 16 MiB, [`Error::Io`].
pub fn read_manifest<M: DeserializeOwned>(path: &Path, version: u32, what: &str) -> Result<M> {
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
    // Another version may have other keys, so its number is read alone.
    let Versioned { format } = serde_json::from_slice(&bytes).map_err(bad)?;
    if format != version {
        return Err(Error::Format { path: path.to_owned(), expected: version, got: format });
    }
    serde_json::from_slice(&bytes).map_err(bad)
}

/// The bytes of the manifest at `path`.
pub(super) fn manifest_bytes(path: &Path, manifest: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(manifest).expect("a manifest should be JSON");
    bytes.push(b'\n');
    check_length(path, &bytes)?;
    Ok(bytes)
}

/// Checks that each entry of the manifest at `path` is one that its form knows, of a type and of the shape that
/// the form asks for, and that none is missing that is needed.
///
/// # Errors
/// [`Error::Metadata`].
pub fn check_entries(path: &Path, entries: &Entries, known: &[Known]) -> Result<()> {
    for (name, entry) in entries {
        check_entry(path, name, entry, known)?;
    }
    match known.iter().find(|known| known.is_needed && !entries.contains_key(known.name)) {
        Some(known) => Err(missing_entry(path, known.name)),
        None => Ok(()),
    }
}

fn check_entry(path: &Path, name: &str, entry: &Entry, known: &[Known]) -> Result<()> {
    let Some(known) = known.iter().find(|known| known.name == name) else {
        return Err(bad_entry(path, name, "", "a file of the form (docs/format.md)", "none"));
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

/// Checks that these files are there together or not at all.
///
/// # Errors
/// [`Error::Metadata`].
pub fn check_together(path: &Path, entries: &Entries, names: &[&str]) -> Result<()> {
    let has = |name: &&&str| entries.contains_key(**name);
    match names.iter().find(|name| !has(name)) {
        Some(name) if names.iter().any(|name| has(&name)) => Err(missing_entry(path, name)),
        _ => Ok(()),
    }
}

/// Checks that no file of these names is in the folder unless the manifest lists it: other readers would take it
/// for a part of the whole.
///
/// # Errors
/// [`Error::Metadata`].
pub fn check_unlisted<'a>(
    path: &Path,
    entries: &Entries,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let is_unlisted = |name: &&str| !entries.contains_key(*name) && is_there(&folder.join(name));
    match names.into_iter().find(is_unlisted) {
        None => Ok(()),
        Some(name) => Err(bad_entry(path, name, "", "an entry, since the file is there", "none")),
    }
}

/// Returns an error for the key of a manifest that cannot be used.
pub fn bad_key(path: &Path, key: &str, expected: impl Into<String>, found: impl ToString) -> Error {
    let (path, key) = (path.to_owned(), key.to_owned());
    Error::Metadata { path, key, expected: expected.into(), found: found.to_string() }
}

/// Returns an error for the entry of a file; `key` is empty or follows the file's name.
pub fn bad_entry(
    path: &Path,
    name: &str,
    key: &str,
    expected: impl Into<String>,
    found: impl ToString,
) -> Error {
    bad_key(path, &format!("files.{name}{key}"), expected, found)
}

/// Returns an error for the lack of the entry of a file.
pub fn missing_entry(path: &Path, name: &str) -> Error {
    bad_key(path, "files", format!("an entry {name}"), "none")
}

/// The bytes of a file; of a longer one than a manifest may be, one more than that.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check_length(path: &Path, bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_BYTES {
        let expected =
            format!("at most {MAX_BYTES} bytes: give classes and edge types shorter names or none");
        return Err(bad_key(path, "its length", expected, "more"));
    }
    Ok(())
}
