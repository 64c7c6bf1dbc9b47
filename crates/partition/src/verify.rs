use std::ops::Range;
use std::path::Path;

use kiln_data::Note;
use kiln_data::graph_folder::{FEATURES, verify_edge_data, verify_edge_features, verify_labels, verify_rows};
use kiln_graph::{Csc, NodeId, SharedArray};
use kiln_store::array_folder::ArrayFolder;

use crate::manifest::{self, CACHE, Manifest, bad_value};
use crate::{Cache, Error, Part, PartitionRow, Result};

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
    let (owned, book) = (part.book.owned(part.index), &part.book);
    check_rows(folder, "old_ids.npy", &part.old_ids, owned, |node| book.new_id(node))?;
    check_edges(&PartEdges {
        folder,
        file: &str::to_owned,
        graph: &part.graph,
        first_edges: &part.first_edges,
        srcs: 0..book.n_nodes() as u32,
        n_edges: part.n_edges,
    })?;
    verify_edge_data(&arrays, &manifest.edge_type_names)?;
    verify_edge_features(&arrays, part.graph.n_edges())?;
    verify_rows(&arrays, &FEATURES, manifest.dim)?;
    let mut notes = Vec::new();
    verify_labels(&arrays, manifest.n_classes, &mut notes)?;
    if let Some(cache) = &part.cache {
        let is_remote = |node| book.place(node).is_some_and(|place| place.part != part.index);
        check_cache(folder, &str::to_owned, cache, is_remote)?;
        verify_rows(&arrays, &CACHE, manifest.dim)?;
    }
    let (n_owned, n_edges, n_hashed) = (part.old_ids.len(), part.graph.n_edges(), manifest.files.len());
    Ok(PartVerifyReport { n_owned, n_edges, n_hashed, notes })
}

/// Checks that the node of each row has the new id that the book assigns to the row. `owned` are the new ids of the rows, and
/// `new_id` returns that of a node. If the book is valid, the nodes then ascend.
pub(crate) fn check_rows(
    folder: &Path,
    file: &str,
    nodes: &[NodeId],
    owned: Range<u32>,
    new_id: impl Fn(NodeId) -> Option<u32>,
) -> Result<()> {
    let Some((row, expected, node)) = first_bad_row(nodes, owned, new_id) else { return Ok(()) };
    let expected = format!("the node whose new id is {expected}");
    Err(bad_value(folder, file, "the node of row", row, expected, node.0))
}

/// Returns the first row whose node does not have the new id that the book assigns to the row, as the row, this new id and
/// the node. Returns `None` if all rows agree with the book.
fn first_bad_row(
    nodes: &[NodeId],
    owned: Range<u32>,
    new_id: impl Fn(NodeId) -> Option<u32>,
) -> Option<(usize, u32, NodeId)> {
    let mut rows = nodes.iter().zip(owned).enumerate().map(|(row, (&node, new_id))| (row, new_id, node));
    rows.find(|(_, expected, node)| new_id(*node) != Some(*expected))
}

/// Checks that the nodes of a partition are those of its book, before it is sampled.
pub(crate) fn check_rows_of_book(
    nodes: &SharedArray<NodeId>,
    owned: Range<u32>,
    new_id: impl Fn(NodeId) -> Option<u32>,
) -> Result<()> {
    let Some((row, new_id, node)) = first_bad_row(nodes, owned, new_id) else { return Ok(()) };
    Err(Error::BadBook {
        file: nodes.path().map(Path::to_owned),
        what: format!("the node of row {row}"),
        expected: format!("the node whose new id is {new_id}"),
        got: node.0,
    })
}

/// The edges into the rows of a partition, and what they are checked against.
pub(crate) struct PartEdges<'a> {
    pub(crate) folder: &'a Path,
    /// Returns the name of an array's file, such as `indptr.2.npy` for `indptr.npy`.
    pub(crate) file: &'a dyn Fn(&str) -> String,
    pub(crate) graph: &'a Csc,
    pub(crate) first_edges: &'a [u64],
    /// The nodes that may be sources.
    pub(crate) srcs: Range<u32>,
    /// The number of edges of the whole graph or relation.
    pub(crate) n_edges: u64,
}

/// Checks that `indptr` never decreases, that the sources of edges are nodes of the whole graph, and that edge ids
/// ascend and are below the number of edges of the whole graph.
pub(crate) fn check_edges(edges: &PartEdges<'_>) -> Result<()> {
    let PartEdges { folder, file, graph, first_edges, srcs, n_edges } = edges;
    let indptr = graph.indptr();
    if let Some(row) = indptr.windows(2).position(|pair| pair[1] < pair[0]) {
        let expected = format!("at least {}, the previous entry", indptr[row]);
        return Err(bad_value(folder, &file("indptr.npy"), "entry", row + 1, expected, indptr[row + 1]));
    }
    if let Some(edge) = graph.indices().iter().position(|src| !srcs.contains(&src.0)) {
        let found = graph.indices()[edge].0;
        let expected = match srcs.start {
            0 => format!("a node id below {}", srcs.end),
            start => format!("a node id from {start} to {}, of the sources' type", srcs.end - 1),
        };
        return Err(bad_value(folder, &file("indices.npy"), "the source of edge", edge, expected, found));
    }
    let mut least = 0;
    for (row, &first) in first_edges.iter().enumerate() {
        let degree = graph.in_degree(PartitionRow(row as u32).local_node());
        // Edge ids below `least` belong to the previous rows.
        let end = first.checked_add(degree).filter(|end| least <= first && end <= n_edges);
        let Some(end) = end else {
            let expected = format!("at least {least} and at most {n_edges} minus the row's {degree} edges");
            let file = file("first_edges.npy");
            return Err(bad_value(folder, &file, "the first edge of row", row, expected, first));
        };
        least = end;
    }
    Ok(())
}

/// Checks that cached rows belong to remote nodes in ascending order, and that their counts are at least 1. `file` returns the
/// name of an array's file.
pub(crate) fn check_cache(
    folder: &Path,
    file: &dyn Fn(&str) -> String,
    cache: &Cache,
    is_remote: impl Fn(NodeId) -> bool,
) -> Result<()> {
    let mut least = 0;
    for (row, (&node, &count)) in cache.ids.iter().zip(&cache.counts).enumerate() {
        if node.0 < least || !is_remote(node) {
            let expected = format!("a node of another partition, at least {least}");
            return Err(bad_value(folder, &file("cache_ids.npy"), "the node of row", row, expected, node.0));
        }
        if count == 0 {
            let file = file("cache_counts.npy");
            return Err(bad_value(folder, &file, "the count of row", row, "at least 1", 0));
        }
        // The sum cannot overflow, because a valid node is below 2^32 - 1.
        least = node.0 + 1;
    }
    Ok(())
}
