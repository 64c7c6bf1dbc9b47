//! Features for the nodes of graphs that have none: made of the topology, of the node labels, or of nothing.

use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureStore, SparseFeatures};
use kiln_graph::NodeId;

use crate::error::require;
use crate::{Error, GraphDataset, Result};

/// The features of the nodes of a [`GraphDataset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeFeatures {
    /// Those of the data, else its nodes' labels, else a constant.
    #[default]
    Auto,
    /// Those of the data.
    Stored,
    /// A column for each label of the data's nodes.
    Labels,
    /// A column for each degree that occurs.
    Degrees,
    /// The number 1.
    Constant,
}

impl GraphDataset {
    /// The features of the nodes, of which a set may have several.
    ///
    /// # Errors
    /// [`Error::BadParameter`](crate::Error::BadParameter) for features that the set does not have, and those of the
    /// methods below.
    pub fn node_features(&self, kind: NodeFeatures) -> Result<Arc<dyn FeatureStore>> {
        let has_labels = self.node_labels().is_some_and(|labels| 0 < labels.n_classes());
        match (kind, self.features()) {
            (NodeFeatures::Auto | NodeFeatures::Stored, Some(features)) => Ok(features.clone()),
            (NodeFeatures::Stored, None) => Err(Error::BadParameter {
                what: "the features of the nodes",
                expected: "labels, degrees or a constant, as the set has no features",
                got: "data".to_owned(),
            }),
            (NodeFeatures::Auto, None) if !has_labels => Ok(self.constant_features()),
            (NodeFeatures::Auto, None) | (NodeFeatures::Labels, _) => self.one_hot_node_labels(),
            (NodeFeatures::Degrees, _) => self.one_hot_degrees(),
            (NodeFeatures::Constant, _) => Ok(self.constant_features()),
        }
    }

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
