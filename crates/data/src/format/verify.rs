use std::path::Path;

use kiln_store::paths::is_there;

use super::edges_by_time;
use super::location::path_in;
use super::manifest::Manifest;
use super::set::Set;
use crate::check::{Place, check_graph, check_set};
use crate::{Note, Result, npy};

/// The report of [`verify`] on a valid set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// The number of nodes.
    pub n_nodes: usize,
    /// The number of edges.
    pub n_edges: u64,
    /// The number of files whose SHA-256 was verified; 0 for a folder without a manifest.
    pub n_hashed: usize,
    /// Notes about suspicious but valid data: splits that overlap, arrays that had to be copied.
    pub notes: Vec<Note>,
}

/// Verifies a set: the SHA-256 of each file, then that offsets never decrease, that ids, labels, columns and splits
/// are in range, that weights and features (of nodes and edges) are finite, that each edge of a relation comes from a node
/// of its type, that names are UTF-8, and that stored orders of edges are those of their times; and the hashes of [`attachment`](super::attachment())s. [`open`](super::open) checks none of this. Each file is
/// read twice, once for its hash and once for its values.
///
/// A folder of `.npy` files without a `kiln.json` has no hashes; only its values are checked. Arrays that [`npy::open`]
/// copies are copied here too; otherwise memory does not grow with the set.
///
/// # Errors
/// Returns the errors of [`open`](super::open) or [`npy::open`], [`kiln_store::Error::HashMismatch`] if a file has
/// changed since the manifest was written, and [`kiln_store::Error::BadValue`] with the file and the position of the
/// first invalid value.
pub fn verify(folder: impl AsRef<Path>) -> Result<VerifyReport> {
    let folder = folder.as_ref();
    let place = Place::Folder(folder);
    if !is_there(&path_in(folder)) {
        let data = npy::open(folder)?;
        check_set(&data, place)?;
        let n_nodes = data.graph.n_nodes();
        let n_edges = data.graph.n_edges();
        return Ok(VerifyReport { n_nodes, n_edges, n_hashed: 0, notes: data.notes });
    }
    verify_set(&Set::open(folder)?, place)
}

/// Verifies an opened set, which is at `place`, as [`verify`] does. The arrays that a caller then uses are those that were
/// verified, also if the folder is replaced meanwhile.
pub(super) fn verify_set(set: &Set, place: Place) -> Result<VerifyReport> {
    set.verify_hashes()?;
    let n_hashed = set.n_files();
    if let Manifest::Plain(manifest) = &set.manifest
        && manifest.is_graph_alone()
    {
        let graph = set.csc()?;
        check_graph(&graph, &manifest.edge_type_names, place)?;
        let n_nodes = graph.n_nodes();
        return Ok(VerifyReport { n_nodes, n_edges: graph.n_edges(), n_hashed, notes: set.notes()? });
    }
    let data = set.dataset()?;
    let mut notes = check_set(&data, place)?;
    edges_by_time::verify(&data, set.arrays.folder())?;
    let n_nodes = data.graph.n_nodes();
    let n_edges = data.graph.n_edges();
    notes.extend(data.notes);
    Ok(VerifyReport { n_nodes, n_edges, n_hashed, notes })
}
