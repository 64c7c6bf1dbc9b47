use std::sync::{Mutex, PoisonError};

use ::metis::Graph;
use ::metis::option::Seed;
use kiln_graph::{Csc, NodeId};

use crate::assign::check_entries;
use crate::balance::{MOST_OF_SHARE, TrainSet};
use crate::fennel::settle;
use crate::{Error, Result};

/// METIS's default seed, to which the caller's seed is added.
const METIS_SEED: u64 = 4321;

/// Serialises calls of METIS. It seeds and draws from the C library's global generator, so concurrent calls would share
/// one random stream and their results would not be reproducible.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Multilevel k-way partitioning (Karypis and Kumar 1998, "Multilevel k-way partitioning scheme for irregular graphs"),
/// with nodes and training nodes as two balance constraints. METIS may exceed its tolerance, so surplus nodes are then
/// moved to other partitions.
///
/// Memory: see [`Method::Metis`](crate::Method::Metis). It includes the symmetric graph, 4 bytes for each in-edge and
/// for each reverse edge.
pub(crate) fn assign(graph: &Csc, train: &TrainSet, n_parts: usize, seed: u64) -> Result<Vec<u16>> {
    let symmetric = Symmetric::new(graph)?;
    let mut parts = vec![0; graph.n_nodes()];
    // METIS rejects graphs without edges and graphs with fewer nodes than partitions. `settle` alone distributes the
    // nodes of these graphs, and of graphs with one node per partition.
    if n_parts < graph.n_nodes() && !symmetric.neighbors.is_empty() {
        // METIS divides by 0 if the weights of a constraint sum to 0.
        let n_constraints = if train.n_train() == 0 { 1 } else { 2 };
        let weigh = |node| [1, i32::from(train.contains(node))].into_iter().take(n_constraints);
        let weights: Vec<i32> = (0..graph.n_nodes()).flat_map(weigh).collect();
        let tolerances = [MOST_OF_SHARE as f32; 2];
        let metis = Graph::new(n_constraints as i32, n_parts as i32, &symmetric.indptr, &symmetric.neighbors)
            .map_err(|error| Error::Metis { said: error.to_string() })?
            .set_vwgt(&weights)
            .set_ubvec(&tolerances[..n_constraints])
            .set_option(Seed((METIS_SEED.wrapping_add(seed) & 0x7fff_ffff) as i32));
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        metis.part_kway(&mut parts).map_err(|error| Error::Metis { said: error.to_string() })?;
    }
    drop(symmetric);
    let parts = parts.into_iter().map(|part| part as u16).collect();
    Ok(settle(graph, train, parts, n_parts))
}

/// The symmetric adjacency lists that METIS requires, without self-loops and parallel edges.
#[derive(Debug, PartialEq, Eq)]
struct Symmetric {
    /// The start of each node's neighbours in `neighbors`, `[n_nodes + 1]`.
    indptr: Vec<i32>,
    /// The neighbours of each node, ascending.
    neighbors: Vec<i32>,
}

impl Symmetric {
    fn new(graph: &Csc) -> Result<Self> {
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
