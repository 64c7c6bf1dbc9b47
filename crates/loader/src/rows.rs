//! The input rows of nodes: where they are stored, and those of a batch.

use std::borrow::Cow;
use std::sync::Arc;

use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::{NodeId, NodeTypes};

use crate::BatchError;

/// The features of the nodes of a graph, by type. A feature store alone is that of a graph of one type, whose nodes are the
/// rows of the store.
#[derive(Debug, Clone)]
pub struct FeatureStores {
    /// The types of nodes; `None` for a graph of one type.
    types: Option<Arc<NodeTypes>>,
    stores: Vec<Option<Arc<dyn FeatureStore>>>,
}

impl FeatureStores {
    /// Creates the features of nodes of these types. The rows of `stores[t]` are those of the nodes of type `t`, which are
    /// numbered from 0 within the type; `None` for a type without features.
    ///
    /// # Panics
    /// Panics if there is not one entry per type.
    pub fn new(types: Arc<NodeTypes>, stores: Vec<Option<Arc<dyn FeatureStore>>>) -> Self {
        let n_stores = stores.len();
        let n_types = types.n_types();
        assert_eq!(n_stores, n_types, "got features of {n_stores} types, expected {n_types}");
        Self { types: Some(types), stores }
    }

    /// Returns the features of the only type of nodes; `None` if there are several types, or if the type has no features. A
    /// model reads such features as they are, without a layer or a trainable row in front of it.
    pub fn only_store(&self) -> Option<&Arc<dyn FeatureStore>> {
        match &self.stores[..] {
            [store] => store.as_ref(),
            _ => None,
        }
    }

    /// Returns the number of feature columns of each type of nodes; `None` for a type without features.
    pub fn widths(&self) -> Vec<Option<usize>> {
        self.stores.iter().map(|store| store.as_ref().map(|store| store.dim())).collect()
    }

    /// Returns the number of types of nodes.
    pub(crate) fn n_types(&self) -> usize {
        self.stores.len()
    }

    /// Returns the number of each node within its type.
    ///
    /// # Errors
    /// Returns [`BatchError::NoSuchNode`] for a node that does not exist. The nodes of a graph whose types are not known are
    /// not checked.
    pub(crate) fn numbers_within_types(&self, nodes: &[NodeId]) -> Result<Vec<NodeId>, BatchError> {
        let Some(types) = &self.types else { return Ok(nodes.to_vec()) };
        nodes.iter().map(|&node| locate(types, node).map(|(_, number)| number)).collect()
    }

    /// Gathers the rows of nodes, and returns them by type with the type of each node. `gather` returns the rows of nodes of
    /// one store, which are numbered from 0 within their type.
    ///
    /// # Errors
    /// Returns [`BatchError::NoSuchNode`] for a node that does not exist, and the errors of `gather`.
    pub fn gather_with<R>(
        &self,
        nodes: &[NodeId],
        gather: impl Fn(&dyn FeatureStore, &[NodeId]) -> kiln_feature::Result<R>,
    ) -> Result<NodeRows<R>, BatchError> {
        let NodesByType { node_types, nodes } = self.split(nodes)?;
        let mut rows = Vec::with_capacity(nodes.len());
        for (store, nodes) in self.stores.iter().zip(nodes) {
            rows.push(match store {
                Some(store) => RowsOfType::Features(gather(&**store, &nodes)?),
                None => RowsOfType::Trainable { nodes: nodes.into_owned() },
            });
        }
        Ok(NodeRows { node_types, rows })
    }

    /// Gathers the rows of nodes into memory of the host, as [`FeatureStores::gather_with`] does.
    ///
    /// # Errors
    /// Returns [`BatchError::NoSuchNode`] for a node that does not exist, and the errors of [`FeatureStore::gather`].
    pub fn gather(&self, nodes: &[NodeId]) -> Result<NodeRows, BatchError> {
        self.gather_with(nodes, FeatureRows::gather)
    }

    /// Lists the nodes of each type.
    fn split<'a>(&self, nodes: &'a [NodeId]) -> Result<NodesByType<'a>, BatchError> {
        let of_one_type = NodesByType { node_types: Vec::new(), nodes: vec![Cow::Borrowed(nodes)] };
        let Some(types) = &self.types else { return Ok(of_one_type) };
        if types.n_types() == 1 {
            let n_nodes = types.n_nodes();
            return match nodes.iter().find(|node| n_nodes <= node.index()) {
                Some(&node) => Err(BatchError::NoSuchNode { node, n_nodes }),
                None => Ok(of_one_type),
            };
        }
        let mut node_types = Vec::with_capacity(nodes.len());
        let mut by_type = vec![Vec::new(); types.n_types()];
        for &node in nodes {
            let (node_type, number) = locate(types, node)?;
            node_types.push(node_type);
            by_type[node_type].push(number);
        }
        Ok(NodesByType { node_types, nodes: by_type.into_iter().map(Cow::Owned).collect() })
    }
}

impl<F: FeatureStore + 'static> From<Arc<F>> for FeatureStores {
    fn from(store: Arc<F>) -> Self {
        Self::from(store as Arc<dyn FeatureStore>)
    }
}

impl From<Arc<dyn FeatureStore>> for FeatureStores {
    fn from(store: Arc<dyn FeatureStore>) -> Self {
        Self { types: None, stores: vec![Some(store)] }
    }
}

/// Returns the type of a node and its number within the type.
fn locate(types: &NodeTypes, node: NodeId) -> Result<(usize, NodeId), BatchError> {
    types.locate(node).ok_or_else(|| BatchError::NoSuchNode { node, n_nodes: types.n_nodes() })
}

/// Nodes by type, numbered from 0 within their type.
struct NodesByType<'a> {
    /// The type of each node; empty if there is one type.
    node_types: Vec<usize>,
    /// The nodes of each type, in their order.
    nodes: Vec<Cow<'a, [NodeId]>>,
}

/// The input rows of nodes. `R` has the rows of the nodes of one type: in memory of the host, or of a device.
#[derive(Debug, Clone)]
pub struct NodeRows<R = FeatureRows> {
    /// The type of each node; empty if there is one type.
    pub node_types: Vec<usize>,
    /// The rows of each type, `[n_types]`, in the order of its nodes.
    pub rows: Vec<RowsOfType<R>>,
}

impl<R> NodeRows<R> {
    /// Returns the features of the only type of nodes; `None` if there are several types, or if the type has no features.
    pub fn only(&self) -> Option<&R> {
        match &self.rows[..] {
            [RowsOfType::Features(rows)] => Some(rows),
            _ => None,
        }
    }

    /// Converts the features of each type.
    pub fn map<T>(self, mut convert: impl FnMut(R) -> T) -> NodeRows<T> {
        let mut rows = Vec::with_capacity(self.rows.len());
        for of_type in self.rows {
            rows.push(match of_type {
                RowsOfType::Features(features) => RowsOfType::Features(convert(features)),
                RowsOfType::Trainable { nodes } => RowsOfType::Trainable { nodes },
            });
        }
        NodeRows { node_types: self.node_types, rows }
    }
}

impl NodeRows {
    /// Returns the size of the rows in bytes.
    pub fn n_bytes(&self) -> usize {
        let of_types = self.rows.iter().map(|rows| match rows {
            RowsOfType::Features(rows) => rows.x.n_bytes(),
            RowsOfType::Trainable { nodes } => size_of_val(nodes.as_slice()),
        });
        size_of_val(self.node_types.as_slice()) + of_types.sum::<usize>()
    }
}

/// The input rows of the nodes of one type.
#[derive(Debug, Clone)]
pub enum RowsOfType<R = FeatureRows> {
    /// The features of the nodes.
    Features(R),
    /// The nodes of a type without features, whose rows are trainable.
    Trainable {
        /// The nodes, numbered from 0 within the type.
        nodes: Vec<NodeId>,
    },
}

/// Feature rows in memory of the host.
#[derive(Debug, Clone)]
pub struct FeatureRows {
    /// The rows in their stored type, `[n, dim]`.
    pub x: FeatureBuffer,
    /// The number of columns.
    pub dim: usize,
}

impl FeatureRows {
    /// Gathers the rows of nodes, which are numbered as the rows of the store.
    ///
    /// # Errors
    /// Returns the errors of [`FeatureStore::gather`].
    pub fn gather(store: &dyn FeatureStore, nodes: &[NodeId]) -> kiln_feature::Result<Self> {
        let mut x = FeatureBuffer::empty(store.dtype());
        store.gather(nodes, &mut x)?;
        Ok(Self { x, dim: store.dim() })
    }
}
