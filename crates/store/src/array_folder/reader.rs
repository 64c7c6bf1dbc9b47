//! A folder of arrays, opened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use kiln_graph::SharedArray;

use super::Entries;
use super::manifest::bad_entry;
use crate::array_file::ArrayFile;
use crate::hash::sha256_of_file;
use crate::{Error, Result};

/// A folder whose arrays are mapped, and are what its manifest says as far as their headers and lengths tell.
#[derive(Debug)]
pub struct ArrayFolder {
    folder: PathBuf,
    entries: Entries,
    arrays: BTreeMap<String, ArrayFile>,
}

impl ArrayFolder {
    /// Maps the arrays beside the manifest at `manifest`, which lists them. The form has checked the entries
    /// before ([`check_entries`](super::check_entries)).
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Npy`] for files that are absent, cut off or of another element type,
    /// [`Error::Metadata`] for those of another shape than the manifest says.
    pub fn open(manifest: &Path, entries: &Entries) -> Result<Self> {
        let folder = manifest.parent().unwrap_or(manifest).to_owned();
        let mut arrays = BTreeMap::new();
        for (name, entry) in entries {
            let array = ArrayFile::open(folder.join(name))?;
            if array.dtype() != entry.dtype.stored_as() {
                return Err(array.wrong_type(entry.dtype.stored_as().descr()));
            }
            if array.shape() != entry.shape {
                let expected = format!("{:?}, as the file's header says", array.shape());
                return Err(bad_entry(manifest, name, ".shape", expected, format!("{:?}", entry.shape)));
            }
            arrays.insert(name.clone(), array);
        }
        Ok(Self { folder, entries: entries.clone(), arrays })
    }

    /// The elements of an array.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] for an array that another writer did not align, so that it has to be copied.
    ///
    /// # Panics
    /// When the manifest has no entry of this name, or its elements have not the bytes of a `T`: the form asked
    /// for both.
    pub fn values<T: Pod>(&self, name: &str) -> Result<SharedArray<T>> {
        self.arrays[name].elements()
    }

    /// The elements of an array that may lack.
    ///
    /// # Errors
    /// As [`ArrayFolder::values`].
    pub fn optional<T: Pod>(&self, name: &str) -> Result<Option<SharedArray<T>>> {
        self.arrays.contains_key(name).then(|| self.values(name)).transpose()
    }

    /// Reads all files and checks that each is the one that the manifest was written for.
    ///
    /// # Errors
    /// [`Error::HashMismatch`], [`Error::Io`].
    pub fn verify_hashes(&self) -> Result<()> {
        for (name, entry) in &self.entries {
            let path = self.folder.join(name);
            let got = sha256_of_file(&path)?;
            if got != entry.sha256 {
                return Err(Error::HashMismatch { path, expected: entry.sha256.clone(), got });
            }
        }
        Ok(())
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the manifest says of the arrays.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// An array, where the folder has it.
    pub fn array(&self, name: &str) -> Option<&ArrayFile> {
        self.arrays.get(name)
    }
}
