use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use kiln_store::counted;

use crate::record::Import;
use crate::table::ReadLimit;
use crate::{BadRows, ColumnDrift, ImportedSplit};

/// The options of an import.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The maximum number of bytes on the heap; see the table of the [crate](crate#memory).
    pub memory_bytes: u64,
    /// The number of threads; `None` for those of the current thread pool. The result does not depend on it.
    pub n_threads: Option<usize>,
    /// An earlier import whose transforms and classes are used, for new rows of the same tables. Its node types must have
    /// the same columns; targets may be absent. Values unlike those of the earlier import are counted
    /// ([`ImportReport::drift`]), and a class that it does not have is a value of a wrong type.
    pub transforms_of: Option<Arc<Import>>,
    /// A set that an import has written, to which the rows are appended: the result is a new set with the nodes and edges of both,
    /// in which the nodes of the set keep their rows, features, targets and split. The statistics are those of its import. Node types
    /// and relations without new rows may be absent from the spec, and so may targets. A key that the set has is its node.
    pub append_to: Option<PathBuf>,
}

impl Default for ImportOptions {
    /// Returns a limit of 1 GiB, the threads of the current pool, statistics of the imported tables, and a set of these alone.
    fn default() -> Self {
        Self { memory_bytes: ReadLimit::DEFAULT_BYTES, n_threads: None, transforms_of: None, append_to: None }
    }
}

/// The report of an import. It is displayed as one line for each node type, relation, split and kind of dropped rows, with
/// a note for each part of the split that has no nodes, each option without effect and each notable [`ColumnDrift`].
#[derive(Debug, Clone, PartialEq)]
pub struct ImportReport {
    /// The name and the number of nodes of each node type.
    pub node_types: Vec<(String, u64)>,
    /// The name and the number of edges of each relation.
    pub relations: Vec<(String, u64)>,
    /// The nodes and edges that were added to a set ([`ImportOptions::append_to`]), which the numbers above include; `None` for a
    /// set of the imported tables alone.
    pub appended: Option<AppendedCounts>,
    /// The split of the nodes with targets; `None` if the spec has no split or no targets.
    pub split: Option<ImportedSplit>,
    /// The split of the edges with targets; `None` if no relation has a target and a split.
    pub edge_split: Option<ImportedSplit>,
    /// The split of each task table; rows in no part are not counted.
    pub task_splits: Vec<ImportedSplit>,
    /// The rows that were dropped.
    pub dropped: Vec<BadRows>,
    /// What of the spec and of the columns has no effect, or another one than in the earlier import.
    pub notes: Vec<String>,
    /// The columns with values that are unlike those of the earlier import whose transforms are used.
    pub drift: Vec<ColumnDrift>,
}

/// The numbers of nodes and edges that an import has appended to a set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppendedCounts {
    /// The number of new nodes of each node type.
    pub new_nodes: Vec<u64>,
    /// The number of new edges of each relation.
    pub new_edges: Vec<u64>,
    /// The number of rows of each node type that had the key of a node of the set, and its features.
    pub known_rows: Vec<u64>,
    /// The number of these rows that have another part of the split than the node, which keeps its part.
    pub other_parts: Vec<u64>,
}

impl AppendedCounts {
    /// Returns a note on the rows of each type that are those of known nodes.
    fn notes(&self, node_types: &[(String, u64)]) -> Vec<String> {
        let known = node_types.iter().zip(&self.known_rows).zip(&self.other_parts);
        let known = known.filter(|((_, n_rows), _)| **n_rows > 0);
        let notes = known.map(|(((name, _), n_rows), n_other_parts)| {
            let rows = counted(*n_rows, "row");
            let split = match n_other_parts {
                0 => String::new(),
                n_rows => format!("; another part of the split in {} has no effect", counted(*n_rows, "row")),
            };
            format!("note: node type {name}: {rows} of nodes that the set has, with the same features{split}")
        });
        notes.collect()
    }
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let new = |numbers: fn(&AppendedCounts) -> &Vec<u64>, position: usize| {
            let n_new = self.appended.as_ref().and_then(|of| numbers(of).get(position));
            n_new.map_or_else(String::new, |n_new| format!(", {n_new} new"))
        };
        let types = self.node_types.iter().enumerate().map(|(position, (name, n_nodes))| {
            let nodes = counted(*n_nodes, "node");
            format!("node type {name}: {nodes}{}", new(|of| &of.new_nodes, position))
        });
        let relations = self.relations.iter().enumerate().map(|(position, (name, n_edges))| {
            let edges = counted(*n_edges, "edge");
            format!("relation {name}: {edges}{}", new(|of| &of.new_edges, position))
        });
        let of_known = self.appended.iter().flat_map(|appended| appended.notes(&self.node_types));
        let of_nodes = self.split.iter().flat_map(|split| split.lines("node"));
        let split = of_nodes.chain(self.edge_split.iter().flat_map(|split| split.lines("edge")));
        let split = split.chain(self.task_splits.iter().flat_map(|split| split.lines("row")));
        let dropped = self.dropped.iter().map(|rows| {
            let BadRows { table, kind, n_rows, because, .. } = rows;
            format!("dropped from {table}: {}, {}{because}", counted(*n_rows, "row"), kind.name())
        });
        let notes = self.notes.iter().map(|note| format!("note: {note}"));
        let earlier_import =
            if self.appended.is_some() { "the import of the set" } else { "the earlier import" };
        let mut drift = Vec::new();
        for column in self.drift.iter().filter(|column| column.is_notable()) {
            let mut line = "note: ".to_owned();
            column.write(&mut line, earlier_import)?;
            drift.push(line);
        }
        let lines: Vec<String> = types
            .chain(relations)
            .chain(split)
            .chain(of_known)
            .chain(dropped)
            .chain(notes)
            .chain(drift)
            .collect();
        f.write_str(&lines.join("\n"))
    }
}
