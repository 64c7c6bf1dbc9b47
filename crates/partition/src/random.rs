use kiln_graph::NodeId;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::balance::TrainSet;
use crate::draws::shuffle;

/// Assigns nodes in a random order to the partitions in turn, training nodes first: partitions differ by at most one
/// node and one training node. Memory: 7 bytes per node, including the training set.
pub(crate) fn assign(train: &TrainSet, n_parts: usize, seed: u64) -> Vec<u16> {
    let name = "assigning nodes at random";
    let progress = Progress::start(name, ProgressUnit::Nodes, train.n_nodes() as u64);
    let mut order: Vec<NodeId> = (0..train.n_nodes() as u32).map(NodeId).collect();
    shuffle(&mut order, seed);
    let mut parts = vec![0; order.len()];
    let mut counter = progress.counter();
    let those = |are_train| order.iter().filter(move |node| train.contains(node.index()) == are_train);
    for (position, node) in those(true).chain(those(false)).enumerate() {
        parts[node.index()] = (position % n_parts) as u16;
        counter.add(1);
    }
    parts
}
