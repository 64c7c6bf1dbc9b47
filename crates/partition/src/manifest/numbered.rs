use kiln_data::format::TimesEntry;
use kiln_feature::Preparation;
use kiln_store::array_folder::Entries;
use serde::{Deserialize, Serialize};

use super::{KEYS, Manifest, RelationEntry, TypeEntry};
use crate::Method;
use kiln_data::Layout;

/// The version of the format with target values, and the last one that can be read. Partitions with classes have
/// [`VERSION_OF_KEYS`] if nodes have keys, and otherwise version 1.
pub(super) const VERSION: u32 = 3;

/// The version of the format with classes and with the keys of nodes.
const VERSION_OF_KEYS: u32 = 2;

/// The metadata of a partition of a heterogeneous set, as in its manifest. All keys except `part` and `files` describe
/// the whole set.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NumberedManifest {
    /// The version of the format, at most [`VERSION`].
    format: u32,
    name: String,
    hash: String,
    node_types: Vec<TypeEntry>,
    relations: Vec<RelationEntry>,
    target_type: usize,
    n_classes: usize,
    class_names: Vec<String>,
    #[serde(default, skip_serializing_if = "TimesEntry::is_default")]
    times: TimesEntry,
    method: Method,
    n_cut_edges: u64,
    part: usize,
    files: Entries,
}

impl From<NumberedManifest> for Manifest {
    fn from(json: NumberedManifest) -> Self {
        Self {
            layout: Layout::Numbered,
            name: json.name,
            hash: json.hash,
            node_types: json.node_types,
            relations: json.relations,
            target_type: json.target_type,
            n_classes: json.n_classes,
            class_names: json.class_names,
            times: json.times,
            // Heterogeneous sets are not prepared.
            preparation: Some(Preparation::default()),
            method: json.method,
            n_cut_edges: json.n_cut_edges,
            part: json.part,
            files: json.files,
        }
    }
}

impl From<&Manifest> for NumberedManifest {
    fn from(manifest: &Manifest) -> Self {
        let has_keys = (0..manifest.node_types.len())
            .any(|node_type| manifest.files.contains_key(&*manifest.layout.file(KEYS, node_type)));
        Self {
            format: match (manifest.has_target_values(), has_keys) {
                (true, _) => VERSION,
                (false, true) => VERSION_OF_KEYS,
                (false, false) => 1,
            },
            name: manifest.name.clone(),
            hash: manifest.hash.clone(),
            node_types: manifest.node_types.clone(),
            relations: manifest.relations.clone(),
            target_type: manifest.target_type,
            n_classes: manifest.n_classes,
            class_names: manifest.class_names.clone(),
            times: manifest.times,
            method: manifest.method,
            n_cut_edges: manifest.n_cut_edges,
            part: manifest.part,
            files: manifest.files.clone(),
        }
    }
}
