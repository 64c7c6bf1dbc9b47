//! A folder in kiln's form, opened: its manifest and its mapped arrays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::bf16;
use kiln_feature::{Dense, FeatureSource, Labels, Rows, Sparse};
use kiln_graph::{Buf, Csc};

use super::manifest::{self, ElementType, Manifest};
use crate::arrays::Array;
use crate::check::Place;
use crate::folder::{graph_of, numbers};
use crate::{Dataset, Error, Names, Result, Split};

/// A set whose files are what its manifest says, as far as their headers and lengths tell.
#[derive(Debug)]
pub(super) struct Set {
    folder: PathBuf,
    pub(super) manifest: Manifest,
    arrays: BTreeMap<String, Array>,
}

impl Set {
    /// Reads the manifest and maps each file.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let manifest = Manifest::read(folder)?;
        let mut arrays = BTreeMap::new();
        for (name, entry) in &manifest.files {
            let array = Array::open(folder.join(name))?;
            if array.dtype() != entry.dtype.stored_as() {
                return Err(array.wrong_type(entry.dtype.stored_as().descr()));
            }
            if array.shape() != entry.shape {
                return Err(Error::Metadata {
                    path: manifest::path_in(folder),
                    key: format!("files.{name}.shape"),
                    expected: format!("{:?}, as the file's header says", array.shape()),
                    found: format!("{:?}", entry.shape),
                });
            }
            arrays.insert(name.clone(), array);
        }
        Ok(Self { folder: folder.to_owned(), manifest, arrays })
    }

    /// The topology.
    pub(super) fn graph(&self) -> Result<Csc> {
        let weights = self.optional("weights.npy")?;
        let types = self.optional("edge_types.npy")?;
        let (indptr, indices) = (self.values("indptr.npy")?, self.values("indices.npy")?);
        graph_of(Place::Folder(&self.folder), indptr, indices, weights, types)
    }

    /// The whole set; not for a graph alone.
    pub(super) fn dataset(&self) -> Result<Dataset> {
        let (Some(dim), Some(n_classes)) = (self.manifest.dim, self.manifest.n_classes) else {
            return Err(Error::WrongKind {
                path: self.folder.clone(),
                kind: "a graph alone, without features, labels and split: open it with format::open_graph"
                    .into(),
                expected: "a set for node classification",
            });
        };
        let names = match self.arrays.contains_key("names_ends.npy") {
            true => Names::from_arrays(self.values("names_text.npy")?, self.values("names_ends.npy")?),
            false => Names::default(),
        };
        let class_names = self.manifest.class_names.clone();
        Ok(Dataset {
            name: self.manifest.name.clone(),
            graph: Arc::new(self.graph()?),
            features: self.features(dim)?,
            labels: Arc::new(Labels::new(self.values::<i32>("labels.npy")?, n_classes)),
            split: Split {
                train: self.values("train.npy")?,
                val: self.values("val.npy")?,
                test: self.values("test.npy")?,
            },
            names: Arc::new(names),
            class_names: if class_names.is_empty() { numbers(n_classes) } else { class_names },
            edge_type_names: self.manifest.edge_type_names.clone(),
            notes: Vec::new(),
        })
    }

    fn features(&self, dim: usize) -> Result<Arc<dyn FeatureSource>> {
        let located = |error: kiln_feature::Error| Place::Folder(&self.folder).located(error.into());
        let Some(entry) = self.manifest.files.get("features.npy") else {
            let (indptr, columns) =
                (self.values("features_indptr.npy")?, self.values("features_indices.npy")?);
            let sparse = Sparse::new(indptr, columns, self.values("features_data.npy")?, dim);
            return Ok(Arc::new(sparse.map_err(located)?));
        };
        let rows = match entry.dtype {
            ElementType::F16 => Rows::F16(self.values("features.npy")?),
            ElementType::BF16 => Rows::BF16(self.values::<bf16>("features.npy")?),
            _ => Rows::F32(self.values("features.npy")?),
        };
        Ok(Arc::new(Dense::new(rows, dim).map_err(located)?))
    }

    /// Checks what [`Set::dataset`] does of the arrays, also of a graph alone.
    pub(super) fn check(&self) -> Result<()> {
        self.graph()?;
        self.manifest.dim.map_or(Ok(()), |dim| self.features(dim).map(drop))
    }

    /// An array, where the set has it.
    pub(super) fn array(&self, name: &str) -> Option<&Array> {
        self.arrays.get(name)
    }

    fn optional<T: bytemuck::Pod>(&self, name: &str) -> Result<Option<Buf<T>>> {
        self.arrays.contains_key(name).then(|| self.values(name)).transpose()
    }

    /// The elements of an array that the manifest was checked to have.
    fn values<T: bytemuck::Pod>(&self, name: &str) -> Result<Buf<T>> {
        self.arrays[name].elements()
    }
}
