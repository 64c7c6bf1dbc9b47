//! Readers of the data set formats of other libraries.

mod classes;
pub(crate) mod edge_means;
pub(crate) mod edge_targets;
pub(crate) mod files;
pub mod gin;
pub mod graphbolt;
pub(crate) mod ids;
pub(crate) mod links;
pub mod npy;
pub mod ogb;
mod ogb_graphs;
mod relabel;
mod relation_files;
pub(crate) mod stored;
pub(crate) mod target_arrays;
pub mod tu;

use std::path::Path;

/// Returns the name of the folder, the default name of its data set.
pub(crate) fn name_of(folder: &Path) -> String {
    let resolved = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    resolved.file_name().map_or_else(|| "data".into(), |name| name.to_string_lossy().into_owned())
}
