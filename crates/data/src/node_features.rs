//! Features for the nodes of graphs that have none: made of the topology, of the node labels, or of nothing.

use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureStore, SparseFeatures};
use kiln_graph::NodeId;

use crate::error::require;
use crate::{GraphDataset, Result};

impl GraphDataset {
    /// One column for each number of in-neighbours that some node of the set has, ascending: a node's row is 1
    /// in the column of its own. Parallel edges and loops count. So the GIN paper does with graphs without
    /// node labels (Xu et al. 2019, section 7), over the graphs of all parts of the split: no label is read.
    ///
    /// 16 bytes a node, whatever the number of columns.
    ///
    /// # Errors
    /// [`Error::BadParameter`](crate::Error::BadParameter) for graphs without a single node, whose features
    /// would have no columns, and [`Error::Feature`](crate::Error::Feature) for more than
    /// [`kiln_feature::MAX_DIM`] different numbers: more columns than are gathered.
    pub fn one_hot_degrees(&self) -> Result<Arc<dyn FeatureStore>> {
        let n_nodes = self.graph().n_nodes();
        require(n_nodes > 0, "the number of nodes of the set", "at least 1", n_nodes)?;
        let degrees: Vec<u64> =
            (0..n_nodes as u32).map(|node| self.graph().in_degree(NodeId(node))).collect();
        let mut distinct = degrees.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let column = |degree: &u64| Some(distinct.partition_point(|before| before < degree) as u32);
        one_hot(degrees.iter().map(column), distinct.len())
    }

    /// One column for each class of the node labels: a node's row is 1 in the column of its class, and all 0
    /// where it has none.
    ///
    /// 16 bytes a node, whatever the number of columns.
    ///
    /// # Errors
    /// [`Error::BadParameter`](crate::Error::BadParameter) for a set without node labels or without classes of
    /// them, and [`Error::Feature`](crate::Error::Feature) for more than [`kiln_feature::MAX_DIM`] classes: more
    /// columns than are gathered.
    pub fn one_hot_node_labels(&self) -> Result<Arc<dyn FeatureStore>> {
        let (classes, n_classes) = match self.node_labels() {
            Some(labels) => (labels.as_slice(), labels.n_classes()),
            None => (&[][..], 0),
        };
        let expected = "at least 1: without node labels, take one_hot_degrees or constant_features";
        require(n_classes > 0, "the number of classes of the node labels", expected, n_classes)?;
        one_hot(classes.iter().map(|&class| u32::try_from(class).ok()), n_classes)
    }

    /// One column that is 1 for each node: the model sees the topology alone, as in DGL's tutorial.
    pub fn constant_features(&self) -> Arc<dyn FeatureStore> {
        let ones = DenseFeatures::from_f32(vec![1.0; self.graph().n_nodes()], 1);
        Arc::new(ones.expect("any number of values should be rows of one"))
    }
}

/// Rows of one 1, or of none.
fn one_hot(
    columns_of: impl ExactSizeIterator<Item = Option<u32>>,
    dim: usize,
) -> Result<Arc<dyn FeatureStore>> {
    let mut indptr = Vec::with_capacity(columns_of.len() + 1);
    let mut columns = Vec::with_capacity(columns_of.len());
    indptr.push(0);
    for column in columns_of {
        columns.extend(column);
        indptr.push(columns.len() as u64);
    }
    let values = vec![1.0; columns.len()];
    Ok(Arc::new(SparseFeatures::new(indptr.into(), columns.into(), values.into(), dim)?))
}
