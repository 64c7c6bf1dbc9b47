//! Balance limits for nodes and training nodes.

use kiln_graph::NodeId;

use crate::{Error, Result};

/// The largest size of a partition as a multiple of an equal share, for nodes and for training nodes.
pub(crate) const MOST_OF_SHARE: f64 = 1.05;

/// The set of training nodes, in 1 byte per node of the graph.
#[derive(Debug)]
pub(crate) struct TrainSet {
    is_train: Vec<bool>,
    n_train: usize,
}

impl TrainSet {
    /// Creates the set. Checks that the training nodes are nodes of the graph; duplicates count once.
    pub(crate) fn new(n_nodes: usize, train: &[NodeId]) -> Result<Self> {
        check_train(n_nodes, train)?;
        let mut is_train = vec![false; n_nodes];
        for node in train {
            is_train[node.index()] = true;
        }
        let n_train = is_train.iter().filter(|&&is_train| is_train).count();
        Ok(Self { is_train, n_train })
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.is_train.len()
    }

    pub(crate) fn n_train(&self) -> usize {
        self.n_train
    }

    pub(crate) fn contains(&self, node: usize) -> bool {
        self.is_train[node]
    }
}

/// Returns the maximum number of nodes per partition for `n` nodes in `n_parts` partitions: [`MOST_OF_SHARE`] times an
/// equal share, or the share rounded up if that is more. `n_parts` times this maximum is at least `n`.
pub(crate) fn most_of(n: usize, n_parts: usize) -> u32 {
    let widened = (MOST_OF_SHARE * n as f64 / n_parts as f64) as usize;
    widened.max(n.div_ceil(n_parts)) as u32
}

/// Checks that training nodes are nodes of the graph.
pub(crate) fn check_train(n_nodes: usize, train: &[NodeId]) -> Result<()> {
    match train.iter().find(|node| n_nodes <= node.index()) {
        Some(node) => {
            let expected = format!("below {n_nodes}, the number of nodes");
            Err(Error::BadParameter { what: "a training node", expected, got: node.0.to_string() })
        }
        None => Ok(()),
    }
}
