use std::sync::{Mutex, PoisonError};

use ::metis::Graph;
use ::metis::option::Seed;
use kiln_graph::Csc;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::balance::{MOST_OF_SHARE, TrainSet};
use crate::fennel::settle;
use crate::symmetric::Symmetric;
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
    // METIS does not report how far it is.
    let _progress = Progress::start("assigning nodes by METIS", ProgressUnit::Nodes, None);
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
