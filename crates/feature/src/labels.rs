use kiln_graph::{Buf, NodeId};

use crate::row::check_ids;
use crate::{Error, Result};

/// The class of each node, or none. Cloning shares the array.
///
/// Invariant: every label is negative (unlabelled) or below `n_classes`.
#[derive(Debug, Clone)]
pub struct Labels {
    classes: Buf<i32>,
    n_classes: usize,
}

impl Labels {
    /// Labels from one class a node, indexed by node id; any negative number means that the node has
    /// none.
    ///
    /// # Errors
    /// [`Error::LabelOutOfRange`] for the first label that is not below `n_classes`.
    pub fn new(classes: impl Into<Buf<i32>>, n_classes: usize) -> Result<Self> {
        let classes = classes.into();
        let is_bad = |&label: &i32| usize::try_from(label).is_ok_and(|class| class >= n_classes);
        if let Some(position) = classes.iter().position(is_bad) {
            let label = classes[position];
            return Err(Error::LabelOutOfRange { node: NodeId(position as u32), label, n_classes });
        }
        Ok(Self { classes, n_classes })
    }

    /// Number of classes.
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// Number of nodes, labelled or not.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// A node's class; `None` when it has none or is not a node of these labels.
    pub fn get(&self, node: NodeId) -> Option<u32> {
        self.classes.get(node.index()).and_then(|&label| u32::try_from(label).ok())
    }

    /// The array that the labels were made from, indexed by node id; negative means unlabelled.
    pub fn as_slice(&self) -> &[i32] {
        &self.classes
    }

    /// Overwrites `out` with the classes of `nodes`, in their order; repeated nodes repeat their class.
    ///
    /// The classes are never negative; they are signed because integer tensors are.
    ///
    /// # Errors
    /// [`Error::NodeOutOfRange`] or [`Error::Unlabelled`] for the first node without a class. What `out`
    /// holds then is unspecified.
    pub fn gather(&self, nodes: &[NodeId], out: &mut Vec<i32>) -> Result<()> {
        check_ids("label", nodes, self.len())?;
        out.clear();
        out.reserve(nodes.len());
        for &node in nodes {
            let label = self.classes[node.index()];
            if label < 0 {
                return Err(Error::Unlabelled { node });
            }
            out.push(label);
        }
        Ok(())
    }
}
