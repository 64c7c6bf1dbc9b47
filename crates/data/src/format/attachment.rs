//! JSON files beside the arrays of a heterogeneous set, which other crates write and read. The manifest has their hashes.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use kiln_graph::open_file;
use kiln_store::array_folder::{bad_entry, bad_key};
use kiln_store::whole_file::write_whole;
use kiln_store::{Error as StoreError, io_error, sha256};

use super::location::{FILE_NAME, path_in};
use crate::Result;

/// The maximum size of an attachment in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// The maximum number of attachments of a set.
const MAX_ATTACHMENTS: usize = 16;

/// Writes an attachment to the folder of a set and returns its hash.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<String> {
    if MAX_BYTES < bytes.len() as u64 {
        let expected = format!("at most {MAX_BYTES} bytes, which can be read back: attach less data");
        let found = format!("{} bytes", bytes.len());
        return Err(bad_entry(&path_in(folder), name, "", expected, &found).into());
    }
    let path = folder.join(name);
    write_whole(&path, bytes).map_err(io_error(&path))?;
    Ok(sha256(bytes))
}

/// Copies attachments to the folder of another set. Each hash is compared first.
pub(super) fn copy(from: &Path, to: &Path, attachments: &BTreeMap<String, String>) -> Result<()> {
    attachments.iter().try_for_each(|(name, hash)| write(to, name, &read(from, name, hash)?).map(drop))
}

/// Reads an attachment and compares its hash.
pub(super) fn read(folder: &Path, name: &str, expected: &str) -> Result<Vec<u8>> {
    let path = folder.join(name);
    let mut bytes = Vec::new();
    let file = open_file(&path).map_err(io_error(&path))?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io_error(&path))?;
    if MAX_BYTES < bytes.len() as u64 {
        return Err(bad_entry(&path, name, "", format!("at most {MAX_BYTES} bytes"), "more").into());
    }
    let got = sha256(&bytes);
    if got != expected {
        return Err(StoreError::HashMismatch { path, expected: expected.to_owned(), got }.into());
    }
    Ok(bytes)
}

/// Checks that a name is a file name of the folder itself, and neither that of an array nor of the manifest.
pub(super) fn check_name(manifest: &Path, name: &str) -> Result<()> {
    let is_plain = |stem: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        (1..=64).contains(&stem.len()) && stem.bytes().all(is_allowed)
    };
    if name.strip_suffix(".json").is_some_and(is_plain) && name != FILE_NAME {
        return Ok(());
    }
    let expected = "a name of lower-case letters, digits and _ that ends in .json, but not kiln.json";
    let found: String = name.chars().take(80).collect();
    Err(bad_key(manifest, "attachments", expected, format!("{found:?}")).into())
}

/// Compares the hashes of all attachments of a set, by name.
pub(super) fn verify(folder: &Path, attachments: &BTreeMap<String, String>) -> Result<()> {
    attachments.iter().map(|(name, hash)| read(folder, name, hash)).try_for_each(|read| read.map(drop))
}

/// Checks the names of the attachments of a manifest, which is at `path`.
pub(super) fn check_names(path: &Path, attachments: &BTreeMap<String, String>) -> Result<()> {
    if MAX_ATTACHMENTS < attachments.len() {
        let expected = format!("at most {MAX_ATTACHMENTS} files");
        let found = attachments.len();
        return Err(bad_key(path, "attachments", expected, found).into());
    }
    attachments.keys().try_for_each(|name| check_name(path, name))
}
