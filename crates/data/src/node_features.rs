//! Generated features for graphs without node features: from the degrees, from the node labels, or constant.

use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureColumn, FeatureStore, SparseFeatures};
use kiln_graph::NodeId;

use crate::error::require;
use crate::{Error, GraphDataset, Result};

/// The kind of node features of a [`GraphDataset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeFeatures {
    /// The features of the set. If it has none, one-hot node labels; if it has no node labels either, a column of ones.
    #[default]
    Auto,
    /// The features of the set.
    Stored,
    /// One-hot node labels: a column for each label.
    Labels,
    /// One-hot degrees: a column for each degree that occurs.
    Degrees,
    /// A single column of ones.
    Constant,
}

impl NodeFeatures {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Stored, Self::Labels, Self::Degrees, Self::Constant];

    /// Returns the name by which a saved model and the program `kiln` identify the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Stored => "data",
            Self::Labels => "labels",
            Self::Degrees => "degrees",
            Self::Constant => "constant",
        }
    }

    /// Returns what the features are, for help texts.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Auto => "The stored features, else the node labels, else a constant",
            Self::Stored => "The stored features",
            Self::Labels => "One-hot node labels",
            Self::Degrees => "One-hot node degrees",
            Self::Constant => "The number 1",
        }
    }

    /// Returns the kind with this name, or `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl GraphDataset {
    /// Returns the kind that [`NodeFeatures::Auto`] selects for this set, and other kinds unchanged.
    pub fn node_features_kind(&self, kind: NodeFeatures) -> NodeFeatures {
        let has_labels = self.node_labels().is_some_and(|labels| 0 < labels.n_classes());
        match (kind, self.features()) {
            (NodeFeatures::Auto, Some(_)) => NodeFeatures::Stored,
            (NodeFeatures::Auto, None) if has_labels => NodeFeatures::Labels,
            (NodeFeatures::Auto, None) => NodeFeatures::Constant,
            (kind, _) => kind,
        }
    }

    /// Returns node features of the given kind.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if the set has no features of this kind, and the
    /// errors of [`GraphDataset::one_hot_node_labels`] and [`GraphDataset::one_hot_degrees`].
    pub fn node_features(&self, kind: NodeFeatures) -> Result<Arc<dyn FeatureStore>> {
        match (self.node_features_kind(kind), self.features()) {
            (NodeFeatures::Auto | NodeFeatures::Stored, Some(features)) => Ok(features.clone()),
            (NodeFeatures::Auto | NodeFeatures::Stored, None) => Err(Error::BadParameter {
                what: "the kind of node features",
                expected: "labels, degrees or constant: the set has no features",
                got: "data".to_owned(),
            }),
            (NodeFeatures::Labels, _) => self.one_hot_node_labels(),
            (NodeFeatures::Degrees, _) => self.one_hot_degrees(),
            (NodeFeatures::Constant, _) => Ok(self.constant_features()),
        }
    }

    /// Returns a note for each part of the graphs that a model with node features of this kind does not read: no model of
    /// graphs reads anything of an edge but its ends. If the kind is unknown, the nodes have no note.
    pub fn notes_on_unread(&self, kind: Option<NodeFeatures>) -> Vec<String> {
        let mut notes = Vec::new();
        for column in self.graph().columns().names() {
            notes
                .push(format!("the model does not read the edge column `{column}`: no model of graphs does"));
        }
        let Some(kind) = kind else { return notes };
        let has_labels = self.node_labels().is_some_and(|labels| 0 < labels.n_classes());
        let parts = [
            ("labels", has_labels, NodeFeatures::Labels),
            ("features", self.features().is_some(), NodeFeatures::Stored),
        ];
        for (part, is_there, reader) in parts {
            if is_there && self.node_features_kind(kind) != reader {
                notes.push(format!(
                    "the model does not read the {part} of the nodes: node features of the kind `{}` are these",
                    reader.name()
                ));
            }
        }
        notes
    }

    /// Returns what the columns of the node features of a kind mean; empty for stored features, whose columns have no names. A
    /// trained model stores them, and finds them in the data of predictions.
    ///
    /// ```
    /// use kiln_data::{NodeFeatures, mutag};
    /// let columns = mutag()?.feature_columns(NodeFeatures::Labels);
    /// assert_eq!((columns[0].name.as_str(), columns.len()), ("label C", 7));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn feature_columns(&self, kind: NodeFeatures) -> Vec<FeatureColumn> {
        match self.node_features_kind(kind) {
            NodeFeatures::Auto | NodeFeatures::Stored => Vec::new(),
            NodeFeatures::Labels => {
                let names = self.node_label_names.iter();
                names
                    .map(|name| FeatureColumn::new(format!("label {name}"), FeatureColumn::OCCURRING))
                    .collect()
            }
            NodeFeatures::Degrees => {
                let degrees = distinct(self.degrees()).into_iter();
                degrees
                    .map(|degree| FeatureColumn::new(format!("in-degree {degree}"), FeatureColumn::OCCURRING))
                    .collect()
            }
            NodeFeatures::Constant => vec![FeatureColumn::new("constant", "1")],
        }
    }

    /// Returns one-hot in-degrees: one column for each in-degree that occurs in the set, ascending. Parallel edges
    /// and self loops count. All graphs are included, also those of the validation and test split; no label is read.
    /// The GIN paper does the same for graphs without node labels (Xu et al. 2019, section 7).
    ///
    /// The features take 16 bytes per node for any number of columns.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if the graphs have no nodes, since the features
    /// would have no columns, and [`Error::Feature`](crate::Error::Feature) if there are more than
    /// [`kiln_feature::MAX_DIM`] different degrees.
    pub fn one_hot_degrees(&self) -> Result<Arc<dyn FeatureStore>> {
        let n_nodes = self.graph().n_nodes();
        require(n_nodes > 0, "the number of nodes of the set", "at least 1", n_nodes)?;
        let degrees = self.degrees();
        let distinct = distinct(degrees.clone());
        let column = |degree: &u64| Some(distinct.partition_point(|before| before < degree) as u32);
        one_hot(degrees.iter().map(column), distinct.len())
    }

    /// Returns the in-degree of each node.
    fn degrees(&self) -> Vec<u64> {
        (0..self.graph().n_nodes() as u32).map(|node| self.graph().in_degree(NodeId(node))).collect()
    }

    /// Returns one-hot node labels: one column for each class. The row of a node without a class contains only zeros.
    ///
    /// The features take 16 bytes per node for any number of columns.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if the set has no node labels or they have no
    /// classes, and [`Error::Feature`](crate::Error::Feature) if there are more than [`kiln_feature::MAX_DIM`]
    /// classes.
    pub fn one_hot_node_labels(&self) -> Result<Arc<dyn FeatureStore>> {
        let (classes, n_classes) = match self.node_labels() {
            Some(labels) => (labels.as_slice(), labels.n_classes()),
            None => (&[][..], 0),
        };
        let expected = "at least 1: without node labels, use one-hot degrees or constant features";
        require(n_classes > 0, "the number of classes of the node labels", expected, n_classes)?;
        one_hot(classes.iter().map(|&class| u32::try_from(class).ok()), n_classes)
    }

    /// Returns one column of ones: the model sees only the topology, as in DGL's tutorial.
    pub fn constant_features(&self) -> Arc<dyn FeatureStore> {
        let ones = DenseFeatures::from_f32(vec![1.0; self.graph().n_nodes()], 1);
        Arc::new(ones.expect("any number of values should form rows of one column"))
    }
}

/// Returns the different values, ascending.
fn distinct(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    values.dedup();
    values
}

/// Returns sparse rows that contain a single 1 in the given column, or only zeros.
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
