use std::fmt;
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
}

impl Default for ImportOptions {
    /// Returns a limit of 1 GiB, the threads of the current pool, and statistics of the imported tables.
    fn default() -> Self {
        Self { memory_bytes: ReadLimit::DEFAULT_BYTES, n_threads: None, transforms_of: None }
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
    /// The split of the nodes with targets; `None` if the spec has no split or no targets.
    pub split: Option<ImportedSplit>,
    /// The rows that were dropped.
    pub dropped: Vec<BadRows>,
    /// What of the spec and of the columns has no effect, or another one than in the earlier import.
    pub notes: Vec<String>,
    /// The columns with values that are unlike those of the earlier import whose transforms are used.
    pub drift: Vec<ColumnDrift>,
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self
            .node_types
            .iter()
            .map(|(name, n_nodes)| format!("node type {name}: {}", counted(*n_nodes, "node")));
        let relations = self
            .relations
            .iter()
            .map(|(name, n_edges)| format!("relation {name}: {}", counted(*n_edges, "edge")));
        let split = self.split.iter().flat_map(|split| {
            let sizes = split.parts().map(|(part, n_nodes)| format!("{n_nodes} {part}")).join(", ");
            let empty = split.parts().into_iter().filter(|(_, n_nodes)| *n_nodes == 0);
            let notes = empty.map(|(part, _)| {
                let name = &split.node_type;
                format!("note: no node of `{name}` is in the {part} part: check the split and its column")
            });
            [format!("split of {}: {sizes}", split.node_type)].into_iter().chain(notes).collect::<Vec<_>>()
        });
        let dropped = self.dropped.iter().map(|rows| {
            let BadRows { table, kind, n_rows, because, .. } = rows;
            format!("dropped from {table}: {}, {}{because}", counted(*n_rows, "row"), kind.name())
        });
        let notes = self.notes.iter().map(|note| format!("note: {note}"));
        let drift =
            self.drift.iter().filter(|drift| drift.is_notable()).map(|drift| format!("note: {drift}"));
        let lines: Vec<String> =
            types.chain(relations).chain(split).chain(dropped).chain(notes).chain(drift).collect();
        f.write_str(&lines.join("\n"))
    }
}
