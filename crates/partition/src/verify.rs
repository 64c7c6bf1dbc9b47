use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use kiln_data::Note;
use kiln_data::graph_folder::{FEATURES, verify_columns, verify_rows, verify_targets};
use kiln_graph::{Csc, NodeId};
use kiln_store::array_folder::ArrayFolder;

use crate::books::BadRow;
use crate::manifest::{CACHE, bad_value};
use crate::{Cache, Part, PartOfRelation, PartitionRow, Result};

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

impl Part {
    /// Verifies a partition: opens it and checks the hashes of all files, that each book is a permutation and agrees with
    /// the rows, that edges have valid sources, ids and types, that weights and the features of nodes and edges are
    /// finite, that targets and split are valid, and that cached rows belong to remote nodes. Reads each file twice, once
    /// for its hash and once for its values.
    ///
    /// # Errors
    /// Returns the errors of [`Part::open`]; [`kiln_store::Error::HashMismatch`] if a file's hash differs from the
    /// manifest's; [`kiln_store::Error::BadValue`] with the file and the position of the first invalid value; and
    /// [`Error::BadBook`](crate::Error::BadBook) if a book is invalid.
    pub fn verify(folder: impl AsRef<Path>) -> Result<PartVerifyReport> {
        let (part, arrays) = Self::open_with_arrays(folder.as_ref())?;
        arrays.verify_hashes()?;
        for node_type in 0..part.types.len() {
            part.verify_type(&arrays, node_type)?;
        }
        for relation in 0..part.relations.len() {
            part.verify_relation(&arrays, relation)?;
        }
        let mut notes = Vec::new();
        let first = part.schema.types().range(part.target_type()).start;
        let n_outputs = part.targets.as_ref().map_or(0, |targets| targets.values.n_outputs());
        verify_targets(first, &arrays, n_outputs, &mut notes)?;
        let n_hashed = arrays.entries().len();
        Ok(PartVerifyReport { n_owned: part.n_owned(), n_edges: part.n_edges(), n_hashed, notes })
    }

    fn verify_type(&self, arrays: &ArrayFolder, node_type: usize) -> Result<()> {
        let of_type = &self.types[node_type];
        let book = self.books.of_type(node_type);
        book.validate()?;
        if let Some(BadRow { row, new_id, node }) =
            self.books.first_bad_row(node_type, self.index, &of_type.old_ids)
        {
            let file = self.layout.file("old_ids.npy", node_type);
            let expected = format!("the node whose new id is {new_id}");
            return Err(bad_value(arrays.folder(), &file, "the node of row", row, expected, node.0));
        }
        if let Some(features) = &of_type.features {
            verify_rows(arrays, &self.layout.rows(&FEATURES, node_type), features.dim())?;
        }
        if let Some(cache) = &of_type.cache {
            let is_remote = |node| book.place(node).is_some_and(|place| place.part != self.index);
            check_cache(arrays.folder(), |name| self.layout.file(name, node_type), cache, is_remote)?;
            verify_rows(arrays, &self.layout.rows(&CACHE, node_type), cache.features.dim())?;
        }
        Ok(())
    }

    fn verify_relation(&self, arrays: &ArrayFolder, position: usize) -> Result<()> {
        let of_relation = &self.relations[position];
        let relation = &self.schema.relations()[position];
        let edges = PartEdges {
            graph: &of_relation.graph,
            first_edges: &of_relation.first_edges,
            srcs: self.schema.types().range(relation.src_type),
            n_edges: relation.n_edges,
        };
        edges.check(arrays.folder(), |name| self.layout.file(name, position))?;
        let PartOfRelation { graph, edge_type_names, .. } = of_relation;
        Ok(verify_columns(graph, arrays.folder(), self.layout, position, edge_type_names)?)
    }
}

/// The edges into the rows of a partition, and what they are checked against.
struct PartEdges<'a> {
    graph: &'a Csc,
    first_edges: &'a [u64],
    /// The nodes that may be sources.
    srcs: Range<u32>,
    /// The number of edges of the whole relation.
    n_edges: u64,
}

impl PartEdges<'_> {
    /// Checks that `indptr` never decreases, that the sources of edges are nodes of the sources' type, and that edge ids
    /// ascend and are below the number of edges of the whole relation. `file` returns the name of an array's file.
    fn check(&self, folder: &Path, file: impl Fn(&'static str) -> Cow<'static, str>) -> Result<()> {
        let Self { graph, first_edges, srcs, n_edges } = self;
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
                let expected =
                    format!("at least {least} and at most {n_edges} minus the row's {degree} edges");
                let file = file("first_edges.npy");
                return Err(bad_value(folder, &file, "the first edge of row", row, expected, first));
            };
            least = end;
        }
        Ok(())
    }
}

/// Checks that cached rows belong to remote nodes in ascending order, and that their counts are at least 1. `file` returns the
/// name of an array's file.
fn check_cache(
    folder: &Path,
    file: impl Fn(&'static str) -> Cow<'static, str>,
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
