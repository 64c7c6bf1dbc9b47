use kiln_data::format::TimesEntry;
use kiln_feature::{FeatureColumn, Preparation};
use kiln_store::array_folder::Entries;
use serde::{Deserialize, Serialize};

use super::{EdgeEntry, Manifest, RelationEntry, TypeEntry};
use crate::Method;
use kiln_data::Layout;

/// The version of the format with target values, and the last one that can be read. Partitions with classes have
/// [`VERSION_OF_CLASSES`]. Version 1, which has no `preparation`, is read, too.
pub(super) const VERSION: u32 = 3;

/// The version of the format with classes.
const VERSION_OF_CLASSES: u32 = 2;

/// The metadata of a partition of a graph with one node type and one relation, as in its manifest. All keys except
/// `part` and `files` describe the whole data set.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlainManifest {
    /// The version of the format, at most [`VERSION`].
    format: u32,
    name: String,
    hash: String,
    n_nodes: usize,
    n_edges: u64,
    dim: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    feature_columns: Vec<FeatureColumn>,
    n_classes: usize,
    class_names: Vec<String>,
    edge_type_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n_edge_types: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    edge_dim: Option<usize>,
    #[serde(default, skip_serializing_if = "TimesEntry::is_default")]
    times: TimesEntry,
    /// `None` in version 1.
    #[serde(default)]
    preparation: Option<Preparation>,
    method: Method,
    n_cut_edges: u64,
    offsets: Vec<u32>,
    part: usize,
    files: Entries,
}

impl From<PlainManifest> for Manifest {
    fn from(json: PlainManifest) -> Self {
        let node = TypeEntry {
            name: "node".to_owned(),
            n_nodes: json.n_nodes,
            dim: Some(json.dim),
            feature_columns: json.feature_columns,
            offsets: json.offsets,
        };
        let edges =
            EdgeEntry { type_names: json.edge_type_names, n_types: json.n_edge_types, dim: json.edge_dim };
        let edge =
            RelationEntry { name: "edge".to_owned(), src_type: 0, dst_type: 0, n_edges: json.n_edges, edges };
        Self {
            layout: Layout::Plain,
            name: json.name,
            hash: json.hash,
            node_types: vec![node],
            relations: vec![edge],
            target_type: 0,
            n_classes: json.n_classes,
            class_names: json.class_names,
            times: json.times,
            preparation: json.preparation,
            method: json.method,
            n_cut_edges: json.n_cut_edges,
            part: json.part,
            files: json.files,
        }
    }
}

impl PlainManifest {
    /// Returns the manifest of a graph with this node type and this relation.
    pub(super) fn new(manifest: &Manifest, node: &TypeEntry, edge: &RelationEntry) -> Self {
        Self {
            format: if manifest.has_target_values() { VERSION } else { VERSION_OF_CLASSES },
            name: manifest.name.clone(),
            hash: manifest.hash.clone(),
            n_nodes: node.n_nodes,
            n_edges: edge.n_edges,
            dim: node.dim.unwrap_or(0),
            feature_columns: node.feature_columns.clone(),
            n_classes: manifest.n_classes,
            class_names: manifest.class_names.clone(),
            edge_type_names: edge.edges.type_names.clone(),
            n_edge_types: edge.edges.n_types,
            edge_dim: edge.edges.dim,
            times: manifest.times,
            preparation: manifest.preparation.clone(),
            method: manifest.method,
            n_cut_edges: manifest.n_cut_edges,
            offsets: node.offsets.clone(),
            part: manifest.part,
            files: manifest.files.clone(),
        }
    }
}
