use std::collections::BTreeMap;
use std::path::Path;

use super::manifest::{Manifest, file_names};
use super::names_to_write;
use super::set::Set;
use super::verify::check_hashes;
use super::writer::SetWriter;
use crate::Result;

/// Copies a set in kiln's form, also a graph alone; gives its number of nodes and edges. The hashes of the copy
/// are made anew, so those of the source are checked first: damage must not get a sound hash.
pub(crate) fn copy(folder: &Path, out: &Path) -> Result<[usize; 2]> {
    let mut to = SetWriter::create(out)?;
    let set = Set::open(folder)?;
    check_hashes(folder, &set.manifest)?;
    set.check()?;
    for name in file_names() {
        let (Some(array), Some(entry)) = (set.array(name), set.manifest.files.get(name)) else {
            continue;
        };
        let mut copy = match entry.shape[..] {
            [_, dim] => to.rows(name, entry.dtype, dim)?,
            _ => to.vector(name, entry.dtype)?,
        };
        copy.push_bytes(array.value_bytes())?;
        to.add(copy)?;
    }
    let manifest = set.manifest;
    let class_names = names_to_write(&manifest.class_names, manifest.n_classes.unwrap_or(0));
    let (n_nodes, n_edges) = (manifest.n_nodes, manifest.n_edges);
    to.commit(Manifest { class_names, files: BTreeMap::new(), ..manifest })?;
    Ok([n_nodes, n_edges])
}
