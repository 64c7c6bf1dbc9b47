use kiln_graph::{Duplicates, SelfLoops};

use crate::limits::MEMORY_BYTES;

/// The options of a conversion: the memory limit, and how a graph is built from an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvertOptions {
    /// The maximum number of bytes on the heap; see [the table](super).
    pub memory_bytes: u64,
    /// The number of nodes. `None` stands for the number of labels or feature rows; if the input has neither, for the
    /// largest id plus 1.
    pub n_nodes: Option<usize>,
    /// True to add the reverse of each edge, with its weight and type. Self loops are not duplicated.
    pub symmetrize: bool,
    /// The treatment of parallel edges.
    pub duplicates: Duplicates,
    /// The treatment of self loops.
    pub self_loops: SelfLoops,
}

impl Default for ConvertOptions {
    /// Returns a limit of 1 GiB and options that do not change the edges.
    fn default() -> Self {
        Self {
            memory_bytes: MEMORY_BYTES,
            n_nodes: None,
            symmetrize: false,
            duplicates: Duplicates::Keep,
            self_loops: SelfLoops::Keep,
        }
    }
}

impl ConvertOptions {
    /// Returns true if the options do not change the edges.
    pub(super) fn keeps_edges(&self) -> bool {
        *self == Self { memory_bytes: self.memory_bytes, ..Self::default() }
    }
}
