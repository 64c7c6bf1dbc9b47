use std::path::Path;

use kiln_store::array_folder::{Entries, FolderWriter};

use super::plain_manifest::PlainManifest;
use super::set::Set;
use crate::Result;
use crate::graph_folder::class_names_to_write;

/// Copies a homogeneous set in the kiln format, which may be a graph without node data, and returns its number of nodes and
/// edges. The hashes of the copy are recomputed, so the caller verifies the source first: otherwise damaged data would get
/// valid hashes.
pub(crate) fn copy(folder: &Path, out: &Path) -> Result<[usize; 2]> {
    let mut to = FolderWriter::create(out)?;
    let set = Set::open(folder)?;
    let manifest = set.plain()?.clone();
    for (name, entry) in &manifest.files {
        let Some(array) = set.arrays.array(name) else { continue };
        let mut copy = match entry.shape[..] {
            [_, dim] => to.rows(name.clone(), entry.dtype, dim)?,
            _ => to.vector(name.clone(), entry.dtype)?,
        };
        copy.push_bytes(array.value_bytes())?;
        to.add(copy)?;
    }
    let class_names = class_names_to_write(&manifest.class_names, manifest.n_classes.unwrap_or(0));
    let (n_nodes, n_edges) = (manifest.n_nodes, manifest.n_edges);
    PlainManifest { class_names, files: Entries::new(), ..manifest }.commit(to)?;
    Ok([n_nodes, n_edges])
}
