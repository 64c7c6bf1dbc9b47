use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_graph::{Relation, Relations};
use kiln_store::array_folder::{ArrayFolder, bad_key};

use super::attachment;
use super::links_entry::LinksEntry;
use super::manifest::Manifest;
use crate::format::manifest::path_in;
use crate::graph_folder::{
    FEATURES, class_names_of, numbered, read_link_targets, read_relation, read_rows, read_split, read_targets,
};
use crate::{NodeNames, Result, TypedDataset, TypedLinks, TypedTargets};

/// The folder of a heterogeneous set in the kiln format. The headers and lengths of its files match the manifest; values
/// are not checked.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    manifest: Manifest,
    pub(super) arrays: ArrayFolder,
}

impl Folder {
    /// Reads the manifest and maps each file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let manifest = Manifest::read(path)?;
        let arrays = ArrayFolder::open(&path_in(path), &manifest.files)?;
        Ok(Self { path: path.to_owned(), manifest, arrays })
    }

    /// Returns the number of arrays and attachments.
    pub(super) fn n_files(&self) -> usize {
        self.manifest.files.len() + self.manifest.attachments.len()
    }

    /// Compares the hashes of the attachments with the manifest.
    pub(super) fn verify_attachments(&self) -> Result<()> {
        attachment::verify(&self.path, &self.manifest.attachments)
    }

    /// Returns the set.
    pub(super) fn dataset(&self) -> Result<TypedDataset> {
        let (manifest, arrays) = (&self.manifest, &self.arrays);
        let graph = Arc::new(self.graph()?);
        let (mut features, mut names) = (Vec::new(), Vec::new());
        for (position, node_type) in manifest.node_types.iter().enumerate() {
            let rows = node_type.dim.map(|dim| read_rows(arrays, &FEATURES.of_type(position), dim));
            features.push(rows.transpose()?);
            names.push(Arc::new(match arrays.optional(&numbered("names_ends.npy", position))? {
                Some(ends) => {
                    NodeNames::from_arrays(arrays.values(&numbered("names_text.npy", position))?, ends)
                }
                None => NodeNames::default(),
            }));
        }
        let target_type = manifest.target_type.as_ref().and_then(|name| graph.types().position(name));
        let targets = match (target_type, manifest.n_classes) {
            (Some(node_type), Some(n_classes)) => Some(TypedTargets {
                node_type,
                values: read_targets(arrays, n_classes)?,
                split: read_split(arrays)?,
                class_names: class_names_of(manifest.class_names.clone(), n_classes),
            }),
            _ => None,
        };
        let links = self.links(&graph)?;
        let (name, notes) = (manifest.name.clone(), Vec::new());
        Ok(TypedDataset { name, graph, features, targets, links, names, notes })
    }

    fn links(&self, graph: &Relations) -> Result<Option<TypedLinks>> {
        let Some(LinksEntry { relation, reverse }) = &self.manifest.links else { return Ok(None) };
        let reverse = reverse.as_ref().map(|name| graph.require(name)).transpose()?;
        let relation = graph.require(relation)?;
        let targets = read_link_targets(|name| self.arrays.array(name))?;
        Ok(targets.map(|targets| TypedLinks { relation, reverse, targets: Arc::new(targets) }))
    }

    fn graph(&self) -> Result<Relations> {
        let path = path_in(&self.path);
        let types = self.manifest.types(&path)?;
        let mut relations = Vec::new();
        for (position, relation) in self.manifest.relations.iter().enumerate() {
            let graph = read_relation(&self.arrays, position)?;
            let [src_type, dst_type] = self.manifest.types_of(&path, position)?;
            relations.push(Relation {
                name: relation.name.clone(),
                src_type,
                dst_type,
                graph: Arc::new(graph),
            });
        }
        let bad = |error| bad_key(&path, "relations", "at most 256 with different names", error);
        Ok(Relations::new(types, relations).map_err(bad)?)
    }
}
