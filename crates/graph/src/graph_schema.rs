use std::ops::Range;
use std::sync::Arc;

use crate::metagraph::check_relation_count;
use crate::node_types::check_names;
use crate::{EdgeId, Error, Metagraph, NodeTypes, Result, SchemaError};

/// The types of a heterogeneous graph's nodes, with their numbers of nodes, and its relations, with their numbers of
/// edges: everything about a graph except its edges. Each partition of a graph has its schema.
///
/// ```
/// use kiln_graph::{GraphSchema, NodeTypes, RelationSchema};
/// let rates = RelationSchema { name: "rates".into(), src_type: 0, dst_type: 1, n_edges: 5 };
/// let sells = RelationSchema { name: "sells".into(), src_type: 2, dst_type: 1, n_edges: 2 };
/// let schema = GraphSchema::new(NodeTypes::new([("user", 2), ("item", 3), ("shop", 1)])?, vec![rates, sells])?;
/// assert_eq!((schema.n_edges(), schema.first_edge(1).0), (7, 5));
/// assert_eq!(schema.position("sells"), Some(1));
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphSchema {
    types: Arc<NodeTypes>,
    relations: Vec<RelationSchema>,
    /// The first edge of each relation, and the number of edges.
    first_edges: Vec<u64>,
}

/// The name, the node types and the number of edges of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationSchema {
    /// The name, which is unique among the relations of a graph.
    pub name: String,
    /// The type of the sources.
    pub src_type: usize,
    /// The type of the destinations.
    pub dst_type: usize,
    /// The number of edges in the whole graph.
    pub n_edges: u64,
}

impl GraphSchema {
    /// Creates a schema.
    ///
    /// # Errors
    /// Returns [`Error::TooMany`] for more than [`Relations::MOST`](crate::Relations::MOST) relations,
    /// [`SchemaError::BadName`] for a name that is empty or occurs twice, and [`SchemaError::NoSuchType`] within
    /// [`Error::InRelation`] for a type that does not exist.
    pub fn new(types: impl Into<Arc<NodeTypes>>, relations: Vec<RelationSchema>) -> Result<Self> {
        let types = types.into();
        check_relation_count(relations.len())?;
        check_names("relation", relations.iter().map(|relation| &*relation.name))?;
        let mut first_edges = vec![0];
        for (position, relation) in relations.iter().enumerate() {
            for node_type in [relation.src_type, relation.dst_type] {
                if types.n_types() <= node_type {
                    let error = Error::Schema(SchemaError::NoSuchType {
                        name: node_type.to_string(),
                        known: types.names().to_vec(),
                    });
                    return Err(error.in_relation(&relation.name));
                }
            }
            // A graph has fewer than 2^63 edges in memory, so only the numbers of a damaged file overflow.
            first_edges.push(u64::saturating_add(first_edges[position], relation.n_edges));
        }
        Ok(Self { types, relations, first_edges })
    }

    /// Returns the schema of a homogeneous graph: one type of nodes, `node`, and one relation, `edge`.
    ///
    /// # Errors
    /// Returns [`Error::TooMany`] for more than 2^32 - 1 nodes.
    pub fn homogeneous(n_nodes: usize, n_edges: u64) -> Result<Self> {
        let edge = RelationSchema { name: "edge".to_owned(), src_type: 0, dst_type: 0, n_edges };
        Self::new(NodeTypes::new([("node", n_nodes)])?, vec![edge])
    }

    /// Returns the types of the nodes.
    pub fn types(&self) -> &Arc<NodeTypes> {
        &self.types
    }

    /// Returns the relations.
    pub fn relations(&self) -> &[RelationSchema] {
        &self.relations
    }

    /// Returns the ids of the nodes of the sources' type and of the destinations' type of the relation at a position.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn node_ranges(&self, relation: usize) -> [Range<u32>; 2] {
        let RelationSchema { src_type, dst_type, .. } = self.relations[relation];
        [src_type, dst_type].map(|node_type| self.types.range(node_type))
    }

    /// Returns the position of the relation of this name; `None` if there is none.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.relations.iter().position(|relation| relation.name == name)
    }

    /// Returns the position of the relation of this name.
    ///
    /// # Errors
    /// Returns [`SchemaError::NoSuchRelation`] with the names of all relations if there is none.
    pub fn require(&self, name: &str) -> Result<usize> {
        let known = || self.relations.iter().map(|relation| relation.name.clone()).collect();
        self.position(name).ok_or_else(|| {
            Error::Schema(SchemaError::NoSuchRelation { name: name.to_owned(), known: known() })
        })
    }

    /// Returns the number of nodes of all types.
    pub fn n_nodes(&self) -> usize {
        self.types.n_nodes()
    }

    /// Returns the number of edges of all relations.
    pub fn n_edges(&self) -> u64 {
        self.first_edges[self.relations.len()]
    }

    /// Returns the id of the first edge of a relation.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn first_edge(&self, relation: usize) -> EdgeId {
        assert!(relation < self.relations.len(), "there are {} relations", self.relations.len());
        EdgeId(self.first_edges[relation])
    }

    /// Returns the position of the relation of an edge. An id beyond the edges counts as one of the last relation, which does
    /// not have it.
    ///
    /// # Panics
    /// Panics if there are no relations.
    pub fn relation_of(&self, edge: EdgeId) -> usize {
        let n_relations = self.relations.len();
        self.first_edges[..n_relations].partition_point(|first| *first <= edge.0) - 1
    }

    /// Returns the types of the graph without its nodes and edges.
    pub fn metagraph(&self) -> Metagraph {
        Metagraph::of(
            self.types.n_types(),
            self.relations
                .iter()
                .map(|relation: &RelationSchema| [relation.src_type, relation.dst_type])
                .collect(),
        )
    }
}
