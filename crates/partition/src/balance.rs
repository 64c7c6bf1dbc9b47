//! What is balanced: nodes, and training nodes among them.

use kiln_graph::NodeId;

use crate::Result;
use crate::assign::check_train;

/// How much more than its share a part may have, of nodes and of training nodes.
pub(crate) const MOST_OF_SHARE: f64 = 1.05;

/// Which nodes are for training. 1 byte a node.
#[derive(Debug)]
pub(crate) struct TrainSet {
    is_train: Vec<bool>,
    n_train: usize,
}

impl TrainSet {
    /// Checks that the training nodes are nodes; one that is given twice counts once.
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

/// The most of `n` nodes that one of the parts may have: [`MOST_OF_SHARE`] times its share or, of few, the share
/// rounded up. All parts together have room for `n`.
pub(crate) fn most_of(n: usize, n_parts: usize) -> u32 {
    let widened = (MOST_OF_SHARE * n as f64 / n_parts as f64) as usize;
    widened.max(n.div_ceil(n_parts)) as u32
}
