use kiln_graph::{NodeId, SharedArray};

use crate::array::check_ids;
use crate::{Error, Result};

/// The class of each node, or none. Cloning shares the array.
///
/// Every label is negative (unlabelled) or below `n_classes`; of a mapped file this is checked where labels
/// are read.
#[derive(Debug, Clone)]
pub struct Labels {
    classes: SharedArray<i32>,
    n_classes: usize,
}

impl Labels {
    /// Labels from one class a node, indexed by node id; any negative number means that the node has
    /// none. Runs in constant time, as a mapped file must: [`Labels::validate`] reads all classes, and
    /// [`Labels::gather`] checks those that it meets.
    pub fn new(classes: impl Into<SharedArray<i32>>, n_classes: usize) -> Self {
        Self { classes: classes.into(), n_classes }
    }

    /// Reads all labels once.
    ///
    /// # Errors
    /// [`Error::LabelOutOfRange`] for the first label that is not below [`Labels::n_classes`].
    pub fn validate(&self) -> Result<()> {
        let is_bad = |&label: &i32| usize::try_from(label).is_ok_and(|class| class >= self.n_classes);
        match self.classes.iter().position(is_bad) {
            Some(position) => Err(self.out_of_range(NodeId(position as u32))),
            None => Ok(()),
        }
    }

    fn out_of_range(&self, node: NodeId) -> Error {
        let label = self.classes[node.index()];
        Error::LabelOutOfRange { node, label, n_classes: self.n_classes }.in_file(self.classes.path())
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

    /// A node's class; `None` when it has none, or one that does not exist, or is not a node of these labels.
    pub fn get(&self, node: NodeId) -> Option<u32> {
        let class = u32::try_from(*self.classes.get(node.index())?).ok()?;
        ((class as usize) < self.n_classes).then_some(class)
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
    /// [`Error::NodeOutOfRange`] or [`Error::Unlabelled`] for the first node without a class, and
    /// [`Error::LabelOutOfRange`] for one with a class that does not exist. What `out` holds then is
    /// unspecified.
    pub fn gather(&self, nodes: &[NodeId], out: &mut Vec<i32>) -> Result<()> {
        check_ids("label", nodes, self.len())?;
        out.clear();
        out.reserve(nodes.len());
        for &node in nodes {
            let label = self.classes[node.index()];
            if label < 0 {
                return Err(Error::Unlabelled { node });
            }
            if label as usize >= self.n_classes {
                return Err(self.out_of_range(node));
            }
            out.push(label);
        }
        Ok(())
    }
}
