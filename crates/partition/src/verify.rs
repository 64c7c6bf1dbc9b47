use std::path::Path;

use kiln_data::Note;
use kiln_data::graph_folder::{FEATURES, verify_edge_data, verify_edge_features, verify_labels, verify_rows};
use kiln_store::array_folder::ArrayFolder;

use crate::manifest::{self, CACHE, Manifest, bad_value};
use crate::{Part, PartitionRow, Result};

/// The report of [`Part::verify`] on a valid partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartVerifyReport {
    /// The number of nodes that the partition owns.
    pub n_owned: usize,
    /// The number of edges into the nodes that the partition owns.
    pub n_edges: u64,
    /// The number of files whose SHA-256 matches the manifest.
    pub n_hashed: usize,
    /// Notices that are not errors, such as overlapping parts of the split.
    pub notes: Vec<Note>,
}

/// Verifies a partition; see [`Part::verify`].
pub(crate) fn verify(folder: &Path) -> Result<PartVerifyReport> {
    let path = manifest::path_in(folder);
    let manifest = Manifest::read(&path)?;
    let arrays = ArrayFolder::open(&path, &manifest.files)?;
    let part = Part::open(folder)?;
    arrays.verify_hashes()?;
    part.book.validate()?;
    check_rows(folder, &part)?;
    check_edges(folder, &part)?;
    verify_edge_data(&arrays, &manifest.edge_type_names)?;
    verify_edge_features(&arrays, part.graph.n_edges())?;
    verify_rows(&arrays, &FEATURES, manifest.dim)?;
    let mut notes = Vec::new();
    verify_labels(&arrays, manifest.n_classes, &mut notes)?;
    if manifest.has_cache() {
        check_cache(folder, &part)?;
        verify_rows(&arrays, &CACHE, manifest.dim)?;
    }
    let (n_owned, n_edges, n_hashed) = (part.old_ids.len(), part.graph.n_edges(), manifest.files.len());
    Ok(PartVerifyReport { n_owned, n_edges, n_hashed, notes })
}

/// Checks that the node of each row agrees with the partition book. If the book is valid, the nodes then ascend.
fn check_rows(folder: &Path, part: &Part) -> Result<()> {
    let Some((row, new_id, node)) = part.bad_row() else { return Ok(()) };
    let expected = format!("the node whose new id is {new_id}");
    Err(bad_value(folder, "old_ids.npy", "the node of row", row, expected, node.0))
}

/// Checks that `indptr` never decreases, that the sources of edges are nodes of the whole graph, and that edge ids
/// ascend and are below the number of edges of the whole graph.
fn check_edges(folder: &Path, part: &Part) -> Result<()> {
    let indptr = part.graph.indptr();
    if let Some(row) = indptr.windows(2).position(|pair| pair[1] < pair[0]) {
        let expected = format!("at least {}, the previous entry", indptr[row]);
        return Err(bad_value(folder, "indptr.npy", "entry", row + 1, expected, indptr[row + 1]));
    }
    let n_nodes = part.book.n_nodes();
    if let Some(edge) = part.graph.indices().iter().position(|src| src.index() >= n_nodes) {
        let (expected, found) = (format!("a node id below {n_nodes}"), part.graph.indices()[edge].0);
        return Err(bad_value(folder, "indices.npy", "the source of edge", edge, expected, found));
    }
    let mut least = 0;
    for (row, &first) in part.first_edges.iter().enumerate() {
        let degree = part.graph.in_degree(PartitionRow(row as u32).local_node());
        // Edge ids below `least` belong to the previous rows.
        let end = first.checked_add(degree).filter(|&end| least <= first && end <= part.n_edges);
        let Some(end) = end else {
            let expected =
                format!("at least {least} and at most {} minus the row's {degree} edges", part.n_edges);
            return Err(bad_value(folder, "first_edges.npy", "the first edge of row", row, expected, first));
        };
        least = end;
    }
    Ok(())
}

/// Checks that cached rows belong to remote nodes in ascending order, and that their counts are at least 1.
fn check_cache(folder: &Path, part: &Part) -> Result<()> {
    let Some(cache) = &part.cache else { return Ok(()) };
    let mut least = 0;
    for (row, (&node, &count)) in cache.ids.iter().zip(&cache.counts).enumerate() {
        let is_remote = part.book.place(node).is_some_and(|place| place.part != part.index);
        if node.0 < least || !is_remote {
            let expected = format!("a node of another partition, at least {least}");
            return Err(bad_value(folder, "cache_ids.npy", "the node of row", row, expected, node.0));
        }
        if count == 0 {
            return Err(bad_value(folder, "cache_counts.npy", "the count of row", row, "at least 1", 0));
        }
        // The sum cannot overflow, because a valid node is below 2^32 - 1.
        least = node.0 + 1;
    }
    Ok(())
}
