//! The manifest `kiln.json` of a set in either layout.

use std::path::Path;

use kiln_store::array_folder::{Entries, FolderWriter, read_manifest};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::location::path_in;
use super::numbered_manifest::NumberedManifest;
use super::plain_manifest::PlainManifest;
use crate::layout::Layout;
use crate::{Dataset, Result};

/// The manifest of a set, in the encoding of its layout.
#[derive(Debug)]
pub(super) enum Manifest {
    Plain(PlainManifest),
    Numbered(NumberedManifest),
}

impl Manifest {
    /// Returns the manifest of a set, without files. The parts of the set are consistent.
    pub(super) fn describe(data: &Dataset) -> Result<Self> {
        Ok(match data.layout {
            Layout::Plain => Self::Plain(PlainManifest::describe(data)?),
            Layout::Numbered => Self::Numbered(NumberedManifest::describe(data)),
        })
    }

    /// Reads the manifest of a folder and checks that it is consistent and conforms to the format.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        Ok(match layout_of(folder) {
            Some(Layout::Numbered) => Self::Numbered(NumberedManifest::read(folder)?),
            // The reader of the plain layout has the error for other files.
            Some(Layout::Plain) | None => Self::Plain(PlainManifest::read(folder)?),
        })
    }

    /// Checks that the counts and names are consistent.
    pub(super) fn check_counts(&self, path: &Path) -> Result<()> {
        match self {
            Self::Plain(manifest) => manifest.check_counts(path),
            Self::Numbered(manifest) => manifest.check_counts(path),
        }
    }

    /// Writes the manifest with the entries of the written files, and renames the folder to its final name.
    pub(super) fn commit(self, folder: FolderWriter) -> Result<()> {
        match self {
            Self::Plain(manifest) => manifest.commit(folder),
            Self::Numbered(manifest) => manifest.commit(folder),
        }
    }

    /// Returns the entries of the files, by file name.
    pub(super) fn files(&self) -> &Entries {
        match self {
            Self::Plain(manifest) => &manifest.files,
            Self::Numbered(manifest) => &manifest.files,
        }
    }

    /// Returns the hash that [`format::hash`](super::hash) documents.
    pub(super) fn hash(&self) -> String {
        match self {
            Self::Plain(manifest) => manifest.hash(),
            Self::Numbered(manifest) => manifest.hash(),
        }
    }
}

/// Returns the layout of the set of a manifest of any version; `None` if it cannot be read.
pub(super) fn layout_of(folder: &Path) -> Option<Layout> {
    #[derive(Deserialize)]
    struct Keys {
        n_nodes: Option<IgnoredAny>,
        node_types: Option<IgnoredAny>,
    }
    let keys: Keys = read_manifest(&path_in(folder), 0..=u32::MAX, "").ok()?;
    match (keys.node_types, keys.n_nodes) {
        (Some(_), None) => Some(Layout::Numbered),
        (None, Some(_)) => Some(Layout::Plain),
        _ => None,
    }
}
