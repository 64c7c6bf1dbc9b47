//! A folder of arrays, opened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use half::bf16;
use kiln_feature::{Dense, FeatureSource, Labels, Rows, Sparse};
use kiln_graph::{Buf, Csc};

use super::manifest::bad_entry;
use super::writer::sha256;
use super::{ElementType, Entries, RowFiles};
use crate::arrays::Array;
use crate::check::{Place, check_edge_data, check_features, check_split};
use crate::readers::npy::graph_of;
use crate::{Error, Note, Result, Split};

/// A folder whose arrays are mapped, and are what its manifest says as far as their headers and lengths tell.
#[derive(Debug)]
pub struct ArrayFolder {
    folder: PathBuf,
    entries: Entries,
    arrays: BTreeMap<String, Array>,
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
            let array = Array::open(folder.join(name))?;
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
    pub fn values<T: Pod>(&self, name: &str) -> Result<Buf<T>> {
        self.arrays[name].elements()
    }

    /// The elements of an array that may lack.
    ///
    /// # Errors
    /// As [`ArrayFolder::values`].
    pub fn optional<T: Pod>(&self, name: &str) -> Result<Option<Buf<T>>> {
        self.arrays.contains_key(name).then(|| self.values(name)).transpose()
    }

    /// The topology in `indptr.npy` and `indices.npy`, with `weights.npy` and `edge_types.npy` where they are there.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] and [`Error::BadValue`] for offsets that do not end where the edges do.
    pub fn graph(&self) -> Result<Csc> {
        let weights = self.optional("weights.npy")?;
        let types = self.optional("edge_types.npy")?;
        let (indptr, indices) = (self.values("indptr.npy")?, self.values("indices.npy")?);
        graph_of(Place::Folder(&self.folder), indptr, indices, weights, types)
    }

    /// The rows in one of the two ways that the form was checked to have.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] for offsets that do not end where the values do, [`Error::Feature`].
    pub fn rows(&self, files: &RowFiles, dim: usize) -> Result<Arc<dyn FeatureSource>> {
        let Some(entry) = self.entries.get(files.dense) else {
            let [indptr, columns, values] = files.sparse;
            let sparse = Sparse::new(self.values(indptr)?, self.values(columns)?, self.values(values)?, dim);
            return Ok(Arc::new(sparse.map_err(|error| match error {
                kiln_feature::Error::BadSparse { what, expected, got } => {
                    Error::Inconsistent { file: self.folder.join(indptr), what, expected, got }
                }
                other => other.into(),
            })?));
        };
        let rows = match entry.dtype {
            ElementType::F16 => Rows::F16(self.values(files.dense)?),
            ElementType::BF16 => Rows::BF16(self.values::<bf16>(files.dense)?),
            _ => Rows::F32(self.values(files.dense)?),
        };
        Ok(Arc::new(Dense::new(rows, dim)?))
    }

    /// The classes in `labels.npy`.
    ///
    /// # Errors
    /// As [`ArrayFolder::values`].
    pub fn labels(&self, n_classes: usize) -> Result<Labels> {
        Ok(Labels::new(self.values::<i32>("labels.npy")?, n_classes))
    }

    /// The split in `train.npy`, `val.npy` and `test.npy`.
    ///
    /// # Errors
    /// As [`ArrayFolder::values`].
    pub fn split(&self) -> Result<Split> {
        Ok(Split {
            train: self.values("train.npy")?,
            val: self.values("val.npy")?,
            test: self.values("test.npy")?,
        })
    }

    /// Reads all files and checks that each is the one that the manifest was written for.
    ///
    /// # Errors
    /// [`Error::HashMismatch`], [`Error::Io`].
    pub fn verify_hashes(&self) -> Result<()> {
        for (name, entry) in &self.entries {
            let path = self.folder.join(name);
            let got = sha256(&path)?;
            if got != entry.sha256 {
                return Err(Error::HashMismatch { path, expected: entry.sha256.clone(), got });
            }
        }
        Ok(())
    }

    /// Reads all rows and checks that they are finite numbers in columns that exist.
    ///
    /// # Errors
    /// [`Error::BadValue`] and [`Error::Feature`] with the first that is not.
    pub fn verify_rows(&self, files: &RowFiles, dim: usize) -> Result<()> {
        let is_dense = self.arrays.contains_key(files.dense);
        let file = self.folder.join(if is_dense { files.dense } else { files.sparse[2] });
        check_features(&*self.rows(files, dim)?, Place::Set(&file))
    }

    /// Reads all weights and edge types and checks that they are finite, and have names where there are any.
    ///
    /// # Errors
    /// [`Error::BadValue`] with the first that is not.
    pub fn verify_edge_data(&self, edge_type_names: &[String]) -> Result<()> {
        check_edge_data(&self.graph()?, edge_type_names, Place::Folder(&self.folder))
    }

    /// Reads labels and split and checks that classes exist, and that the nodes of the split have one.
    ///
    /// # Errors
    /// [`Error::BadValue`] with the first that is not, [`Error::Feature`].
    pub fn verify_labels(&self, n_classes: usize, notes: &mut Vec<Note>) -> Result<()> {
        let (place, labels) = (Place::Folder(&self.folder), self.labels(n_classes)?);
        labels.validate().map_err(|error| place.located(error.into()))?;
        check_split(place, &self.split()?, &labels, notes)
    }

    /// An array, where the folder has it.
    pub(crate) fn array(&self, name: &str) -> Option<&Array> {
        self.arrays.get(name)
    }
}
