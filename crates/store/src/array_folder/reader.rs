//! The reader of a folder of arrays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use kiln_graph::SharedArray;

use super::Entries;
use super::manifest::bad_entry;
use crate::array_file::ArrayFile;
use crate::hash::hash_file;
use crate::progress::{Progress, ProgressUnit};
use crate::{Error, Result};

/// A folder of mapped arrays whose headers and file lengths match the manifest. Their values are not validated.
#[derive(Debug)]
pub struct ArrayFolder {
    folder: PathBuf,
    entries: Entries,
    arrays: BTreeMap<String, ArrayFile>,
}

impl ArrayFolder {
    /// Maps the arrays that the manifest at path `manifest` lists, from the same folder. The caller must have checked
    /// the entries with [`check_entries`](super::check_entries).
    ///
    /// # Errors
    /// Returns [`Error::Io`] or [`Error::Npy`] if a file is missing, truncated or has another element type, and
    /// [`Error::Metadata`] if the shape of a file differs from the shape in the manifest.
    pub fn open(manifest: &Path, entries: &Entries) -> Result<Self> {
        let folder = manifest.parent().unwrap_or(manifest).to_owned();
        let mut arrays = BTreeMap::new();
        for (name, entry) in entries {
            let array = ArrayFile::open(folder.join(name))?;
            if array.dtype() != entry.dtype.stored_as() {
                return Err(array.wrong_type(entry.dtype.stored_as().descr()));
            }
            if array.shape() != entry.shape {
                let expected = format!("{:?} as in the file's header", array.shape());
                return Err(bad_entry(manifest, name, ".shape", expected, format!("{:?}", entry.shape)));
            }
            arrays.insert(name.clone(), array);
        }
        Ok(Self { folder, entries: entries.clone(), arrays })
    }

    /// Returns the elements of an array.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if the values are not aligned in the file and their aligned copy does not fit in
    /// memory. Files that kiln wrote are aligned, so they are mapped without a copy.
    ///
    /// # Panics
    /// Panics if the manifest has no entry of this name, or if the size of an element is not that of `T`.
    pub fn values<T: Pod>(&self, name: &str) -> Result<SharedArray<T>> {
        self.arrays[name].elements()
    }

    /// Returns the elements of an optional array; `None` if the folder does not have it.
    ///
    /// # Errors
    /// Returns the same errors as [`ArrayFolder::values`].
    pub fn optional<T: Pod>(&self, name: &str) -> Result<Option<SharedArray<T>>> {
        self.arrays.contains_key(name).then(|| self.values(name)).transpose()
    }

    /// Reads all files and compares their SHA-256 with the manifest.
    ///
    /// # Errors
    /// Returns [`Error::HashMismatch`] for the first file that differs, and [`Error::Io`] if a file cannot be read.
    pub fn verify_hashes(&self) -> Result<()> {
        let n_bytes: u64 = self.arrays.values().map(ArrayFile::n_bytes).sum();
        let progress = Progress::start("verifying hashes", ProgressUnit::Bytes, n_bytes);
        for (name, entry) in &self.entries {
            let path = self.folder.join(name);
            let got = hash_file(&path, &progress)?;
            if got != entry.sha256 {
                return Err(Error::HashMismatch { path, expected: entry.sha256.clone(), got });
            }
        }
        Ok(())
    }

    /// Returns the path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the entries of the manifest.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Returns an array; `None` if the folder does not have it.
    pub fn array(&self, name: &str) -> Option<&ArrayFile> {
        self.arrays.get(name)
    }
}
