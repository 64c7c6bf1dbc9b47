use std::collections::HashMap;
use std::sync::Arc;

use kiln_graph::NodeId;
use kiln_store::name_key;
use rayon::prelude::*;

/// The keys of the nodes of a type, `[n_nodes]`, by which the trainable row of a node is found in other data, where the node
/// has another id. Cloning shares them.
///
/// The key of a node is that of its name ([`kiln_store::name_key`]): the first 16 bytes of its SHA-256. The file of the best
/// weights has a key for each row, so predictions do not depend on the ids of the data. Partitions have these keys, too.
/// Without names, row `v` is that of node `v`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeKeys(Arc<[[u8; NodeKeys::N_BYTES]]>);

impl NodeKeys {
    /// The number of bytes of a key.
    pub(crate) const N_BYTES: usize = 16;

    /// Computes the keys of nodes from their names, on all threads. `name` returns the name of a node, from 0.
    pub fn of_names<'a>(n_nodes: usize, name: impl Fn(usize) -> &'a str + Sync) -> Self {
        (0..n_nodes).into_par_iter().map(|node: usize| name_key(name(node))).collect::<Vec<_>>().into()
    }

    /// Creates keys from their bytes, `[n_nodes, 16]`.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.as_chunks().0.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_flattened()
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the node with each key of `others`, `[others.len()]`; [`NodeKeys::NO_NODE`] for a key that is not here. If nodes
    /// have the same key, it is the first.
    pub(crate) fn nodes_of(&self, others: &Self) -> Arc<[NodeId]> {
        if self == others {
            return (0..self.len() as u32).map(NodeId).collect();
        }
        let mut nodes = HashMap::with_capacity(self.len());
        for (node, key) in self.0.iter().enumerate() {
            nodes.entry(key).or_insert(NodeId(node as u32));
        }
        others.0.iter().map(|key| nodes.get(key).copied().unwrap_or(Self::NO_NODE)).collect()
    }

    /// The id that no node of a table has.
    pub(crate) const NO_NODE: NodeId = NodeId(u32::MAX);
}

impl From<Vec<[u8; 16]>> for NodeKeys {
    /// Creates keys that were stored with the nodes.
    fn from(keys: Vec<[u8; 16]>) -> Self {
        Self(keys.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> NodeKeys {
        NodeKeys::of_names(names.len(), |node| names[node])
    }

    #[test]
    fn nodes_are_found_by_their_names() {
        let trained = keys(&["anna", "ben", "", "ben"]);
        let others = keys(&["ben", "carla", "anna", ""]);
        assert_eq!(*trained.nodes_of(&others), [NodeId(1), NodeKeys::NO_NODE, NodeId(0), NodeId(2)]);
        assert_eq!(*trained.nodes_of(&trained), [0, 1, 2, 3].map(NodeId));
        assert!(keys(&[]).is_empty());
    }

    #[test]
    fn keys_survive_their_bytes() {
        let keys = keys(&["anna", "ben"]);
        assert_eq!(NodeKeys::from_bytes(keys.as_bytes()), keys);
        // The first bytes of `printf anna | sha256sum`.
        assert_eq!(keys.as_bytes()[..4], [0x55, 0x57, 0x9b, 0x55]);
    }
}
