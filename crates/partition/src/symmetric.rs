//! The symmetric graph that METIS requires, and its limit of entries.

use kiln_graph::{Csc, NodeId};

use crate::{Error, Result};

/// The largest number of adjacency entries that METIS supports; it counts them with `i32`.
const MAX_ENTRIES: u64 = (1 << 31) - 1;

/// Checks that METIS supports `n_entries` adjacency entries.
pub(crate) fn check_entries(n_entries: u64) -> Result<()> {
    if MAX_ENTRIES < n_entries {
        let (what, max) = ("adjacency entries", MAX_ENTRIES);
        return Err(Error::TooLargeForMetis { what, n: n_entries, max });
    }
    Ok(())
}

/// The symmetric adjacency lists that METIS requires, without self-loops and parallel edges.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Symmetric {
    /// The start of each node's neighbours in `neighbors`, `[n_nodes + 1]`.
    pub(crate) indptr: Vec<i32>,
    /// The neighbours of each node, ascending.
    pub(crate) neighbors: Vec<i32>,
}

impl Symmetric {
    pub(crate) fn new(graph: &Csc) -> Result<Self> {
        let n_nodes = graph.n_nodes();
        if i32::try_from(n_nodes).is_err() {
            let (n, max) = (n_nodes as u64, i32::MAX as u64);
            return Err(Error::TooLargeForMetis { what: "nodes", n, max });
        }
        let mut ends = vec![0_u64; n_nodes + 1];
        for_each_end(graph, |node, _| ends[node + 1] += 1);
        for node in 0..n_nodes {
            ends[node + 1] += ends[node];
        }
        let mut neighbors = vec![0_i32; ends[n_nodes] as usize];
        for_each_end(graph, |node, neighbor| {
            neighbors[ends[node] as usize] = neighbor as i32;
            ends[node] += 1;
        });
        // `ends[node]` has advanced to the end of the node's neighbours, which is the start of the next node's.
        let (mut indptr, mut n_kept, mut start) = (vec![0_i32], 0, 0);
        for end in ends.into_iter().take(n_nodes).map(|end| end as usize) {
            neighbors[start..end].sort_unstable();
            let first_kept = n_kept;
            for at in start..end {
                if n_kept == first_kept || neighbors[n_kept - 1] != neighbors[at] {
                    neighbors[n_kept] = neighbors[at];
                    n_kept += 1;
                }
            }
            check_entries(n_kept as u64)?;
            indptr.push(n_kept as i32);
            start = end;
        }
        neighbors.truncate(n_kept);
        neighbors.shrink_to_fit();
        Ok(Self { indptr, neighbors })
    }
}

/// Calls `visit(node, neighbor)` twice for each edge that is not a self-loop, once from each end.
fn for_each_end(graph: &Csc, mut visit: impl FnMut(usize, usize)) {
    for dst in 0..graph.n_nodes() {
        for src in graph.in_neighbors(NodeId(dst as u32)).iter().filter(|src| src.index() != dst) {
            visit(dst, src.index());
            visit(src.index(), dst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symmetric_graph_has_no_loops_or_parallel_edges() {
        // The in-neighbours are 0: -    1: 0    2: 1 3 4    3: 3 4    4: -    5: 2
        let symmetric = Symmetric::new(&kiln_testkit::six_nodes()).unwrap();
        assert_eq!(symmetric.indptr, [0, 1, 3, 7, 9, 11, 12]);
        assert_eq!(symmetric.neighbors, [1, 0, 2, 1, 3, 4, 5, 2, 4, 2, 3, 2]);
    }
}
