//! An opened folder in the kiln format: its manifest and its mapped arrays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_store::array_folder::ArrayFolder;

use super::manifest::{self, Manifest};
use crate::builder::labels_and_values;
use crate::graph_folder::{
    FEATURES, class_names_of, read_edge_features, read_graph, read_link_targets, read_rows, read_split,
    read_targets,
};
use crate::{Dataset, Error, NodeNames, Result};

/// A set in the kiln format. The headers and lengths of its files match the manifest; values are not checked.
#[derive(Debug)]
pub(super) struct Set {
    folder: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) arrays: ArrayFolder,
}

impl Set {
    /// Reads the manifest and maps each file.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let manifest = Manifest::read(folder)?;
        let arrays = ArrayFolder::open(&manifest::path_in(folder), &manifest.files)?;
        Ok(Self { folder: folder.to_owned(), manifest, arrays })
    }

    /// Returns the set, or an error for a graph without node data.
    pub(super) fn dataset(&self) -> Result<Dataset> {
        let (Some(dim), Some(n_classes)) = (self.manifest.dim, self.manifest.n_classes) else {
            return Err(Error::WrongKind {
                path: self.folder.clone(),
                kind: "a graph without features, labels and split (open it with format::open_graph)".into(),
                expected: "a node classification set",
            });
        };
        let arrays = &self.arrays;
        let names = match arrays.optional("names_ends.npy")? {
            Some(ends) => NodeNames::from_arrays(arrays.values("names_text.npy")?, ends),
            None => NodeNames::default(),
        };
        let (labels, target_values) = labels_and_values(read_targets(arrays, n_classes)?);
        Ok(Dataset {
            name: self.manifest.name.clone(),
            graph: Arc::new(read_graph(arrays)?),
            features: read_rows(arrays, &FEATURES, dim)?,
            edge_features: read_edge_features(arrays)?,
            labels,
            target_values,
            links: read_link_targets(|name| arrays.array(name))?.map(Arc::new),
            split: read_split(arrays)?,
            names: Arc::new(names),
            class_names: class_names_of(self.manifest.class_names.clone(), n_classes),
            edge_type_names: self.manifest.edge_type_names.clone(),
            preparation: self.manifest.preparation.clone(),
            notes: Vec::new(),
        })
    }

    /// Performs the checks of [`Set::dataset`]; the set may also be a graph without node data.
    pub(super) fn check(&self) -> Result<()> {
        read_graph(&self.arrays)?;
        read_edge_features(&self.arrays)?;
        self.manifest.dim.map_or(Ok(()), |dim| read_rows(&self.arrays, &FEATURES, dim).map(drop))
    }
}
