use std::path::Path;

use kiln_store::array_folder::{Entries, FolderWriter, check_new};

use super::edges_by_time::is_order;
use super::plain_manifest::PlainManifest;
use super::set::Set;
use super::verify::{VerifyReport, verify_set};
use crate::Result;
use crate::check::Place;
use crate::graph_folder::class_names_to_write;

/// Verifies a homogeneous set in the kiln format, which may be a graph without node data, and copies it. The hashes of the
/// copy are recomputed: without the verification, damaged data would get valid hashes.
pub(crate) fn copy_verified(folder: &Path, out: &Path) -> Result<VerifyReport> {
    // An output that is not empty is an error before any work.
    check_new(out)?;
    let set = Set::open(folder)?;
    let report = verify_set(&set, Place::Folder(folder))?;
    let mut to = FolderWriter::create(out)?;
    let manifest = set.plain()?.clone();
    for (name, entry) in manifest.files.iter().filter(|(name, _)| !is_order(name)) {
        let Some(array) = set.arrays.array(name) else { continue };
        let mut copy = match entry.shape[..] {
            [_, dim] => to.rows(name.clone(), entry.dtype, dim)?,
            _ => to.vector(name.clone(), entry.dtype)?,
        };
        copy.push_bytes(array.value_bytes())?;
        to.add(copy)?;
    }
    let class_names = class_names_to_write(&manifest.class_names, manifest.n_classes.unwrap_or(0));
    PlainManifest { class_names, files: Entries::new(), ..manifest }.commit(to)?;
    Ok(report)
}
