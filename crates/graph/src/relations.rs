use std::sync::Arc;

use crate::metagraph::MAX_RELATIONS;
use crate::{
    Csc, CscBuilder, EdgeColumns, EdgeId, Error, GraphSchema, Metagraph, NodeId, NodeTypes,
    RelationEdgesError, RelationSchema, Result, SharedArray,
};

/// The edges of one kind between the nodes of two types, such as `user rates item`.
#[derive(Debug, Clone)]
pub struct Relation {
    /// The name, which is unique among the relations of a graph.
    pub name: String,
    /// The type of the sources.
    pub src_type: usize,
    /// The type of the destinations.
    pub dst_type: usize,
    /// The edges: row `i` has those into the node `i` of the destinations' type. Sources are node ids of the whole graph.
    pub graph: Arc<Csc>,
}

/// The edge list of a relation. Ids count from 0 within the type, as in DGL and PyG.
#[derive(Debug, Clone, Copy)]
pub struct RelationEdges<'a> {
    /// The name, which is unique among the relations of a graph.
    pub name: &'a str,
    /// The name of the sources' type.
    pub src_type: &'a str,
    /// The name of the destinations' type.
    pub dst_type: &'a str,
    /// The source of each edge.
    pub srcs: &'a [u32],
    /// The destination of each edge.
    pub dsts: &'a [u32],
    /// The weight of each edge; `None` for edges without weights.
    pub weights: Option<&'a [f32]>,
    /// The other columns of the edges, in the order of the list; `None` for edges without others.
    pub columns: Option<&'a EdgeColumns>,
}

/// A heterogeneous graph: the types of its nodes, and one adjacency per relation.
///
/// Node ids are unique over types, and edge ids over relations: those of relation `r` begin at [`Relations::first_edge`],
/// and follow the order of its adjacency. The position of a relation is the type of its edges in blocks.
///
/// ```
/// use kiln_graph::{NodeId, NodeTypes, RelationEdges, Relations};
/// let types = NodeTypes::new([("user", 2), ("item", 3)])?;
/// let rates = RelationEdges {
///     name: "rates",
///     src_type: "user",
///     dst_type: "item",
///     srcs: &[0, 1, 1],
///     dsts: &[0, 0, 2],
///     weights: None,
///     columns: None,
/// };
/// let rated_by = RelationEdges { name: "rated by", src_type: "item", dst_type: "user", srcs: &[0], dsts: &[1], weights: None, columns: None };
/// let graph = Relations::from_edges(types, &[rates, rated_by])?;
/// assert_eq!(graph.relation(0).graph.in_neighbors(NodeId(0)), [NodeId(0), NodeId(1)]);
/// // Item 0 is node 2 of the graph.
/// assert_eq!(graph.relation(1).graph.in_neighbors(NodeId(1)), [NodeId(2)]);
/// assert_eq!((graph.n_edges(), graph.first_edge(1).0), (4, 3));
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Relations {
    schema: GraphSchema,
    relations: Vec<Relation>,
}

impl From<Csc> for Arc<Relations> {
    /// Returns the graph with one type of nodes and one relation of [`Relations::of_graph`].
    fn from(graph: Csc) -> Self {
        Arc::new(Relations::of_graph(graph))
    }
}

impl Relations {
    /// The maximum number of relations: an edge's type in a block has 8 bits.
    pub const MOST: usize = MAX_RELATIONS;

    /// Creates a graph from adjacencies, which may be mapped from files. It runs in time proportional to the number of
    /// relations; [`Relations::validate`] reads all values.
    ///
    /// # Errors
    /// Returns [`Error::TooMany`] for more than [`Relations::MOST`] relations,
    /// [`SchemaError::BadName`](crate::SchemaError::BadName) for a name that is empty or occurs twice,
    /// [`SchemaError::NoSuchType`](crate::SchemaError::NoSuchType) for a type that does not exist, and
    /// [`Error::LengthMismatch`] within [`Error::InRelation`] unless an adjacency has one row per node of the destinations'
    /// type.
    pub fn new(types: impl Into<Arc<NodeTypes>>, relations: Vec<Relation>) -> Result<Self> {
        let schema = GraphSchema::new(
            types,
            relations
                .iter()
                .map(|relation: &Relation| RelationSchema {
                    name: relation.name.clone(),
                    src_type: relation.src_type,
                    dst_type: relation.dst_type,
                    n_edges: relation.graph.n_edges(),
                })
                .collect(),
        )?;
        for relation in &relations {
            let expected = schema.types().range(relation.dst_type).len() as u64;
            let got = relation.graph.n_nodes() as u64;
            if expected != got {
                let error = Error::LengthMismatch { what: "the list of rows", expected, got };
                return Err(error.in_relation(&relation.name));
            }
        }
        Ok(Self { schema, relations })
    }

    /// Builds a graph from the edge lists of its relations. The neighbours of a node ascend in each relation, and parallel
    /// edges are kept.
    ///
    /// # Errors
    /// Returns [`RelationEdgesError::NotInType`], [`Error::LengthMismatch`] or [`Error::Column`] within
    /// [`Error::InRelation`] for an invalid edge list, [`SchemaError::NoSuchType`](crate::SchemaError::NoSuchType) within it for the name of a type that does
    /// not exist, and the errors of [`Relations::new`].
    pub fn from_edges(types: impl Into<Arc<NodeTypes>>, relations: &[RelationEdges<'_>]) -> Result<Self> {
        let types = types.into();
        let build =
            |edges: &RelationEdges<'_>| edges.build(&types).map_err(|error| error.in_relation(edges.name));
        let relations = relations.iter().map(build).collect::<Result<_>>()?;
        Self::new(types, relations)
    }

    /// Returns a graph with one type of nodes, `node`, and one relation, `edge`.
    pub fn of_graph(graph: impl Into<Arc<Csc>>) -> Self {
        let graph = graph.into();
        let types =
            NodeTypes::new([("node", graph.n_nodes())]).expect("a graph should have fewer than 2^32 nodes");
        let relation = Relation { name: "edge".to_owned(), src_type: 0, dst_type: 0, graph };
        Self::new(types, vec![relation]).expect("the relation should have a row per node")
    }

    /// Reads all relations and checks the order of their offsets, and that each edge comes from a node of the sources' type.
    ///
    /// # Errors
    /// Returns [`Error::IndptrNotMonotone`] or [`RelationEdgesError::NotOfType`] within [`Error::InRelation`] for the first
    /// invalid value, with the path of the file if the array is mapped.
    pub fn validate(&self) -> Result<()> {
        for relation in &self.relations {
            let types = self.types();
            let srcs = types.range(relation.src_type);
            let name = &types.names()[relation.src_type];
            let is_valid = relation.graph.validate_rows(srcs, name);
            is_valid.map_err(|error| error.in_relation(&relation.name))?;
        }
        Ok(())
    }

    /// Returns the edges of all relations as one graph of all nodes, without weights, types and other columns of
    /// the edges, such as partitioners need. The sources of a node's edges are in
    /// the order of the relations, so they may not ascend. Memory: 8 bytes per node and 4 per edge.
    ///
    /// # Errors
    /// Returns the errors of [`Relations::validate`].
    pub fn to_homogeneous(&self) -> Result<Csc> {
        self.validate()?;
        let types = self.types();
        let mut indptr = Vec::with_capacity(self.n_nodes() + 1);
        let mut indices: Vec<NodeId> = Vec::with_capacity(self.n_edges() as usize);
        indptr.push(0);
        for dst_type in 0..types.n_types() {
            let into: Vec<&Csc> = self
                .iter()
                .filter(|relation| relation.dst_type == dst_type)
                .map(|relation| &*relation.graph)
                .collect();
            for row in 0..types.range(dst_type).len() as u32 {
                into.iter().for_each(|graph| indices.extend_from_slice(graph.in_neighbors(NodeId(row))));
                indptr.push(indices.len() as u64);
            }
        }
        Csc::new(indptr.into(), indices.into())
    }

    /// Returns the types of the nodes and the relations, without the edges.
    pub fn schema(&self) -> &GraphSchema {
        &self.schema
    }

    /// Returns the types of the graph without its nodes and edges.
    pub fn metagraph(&self) -> Metagraph {
        self.schema().metagraph()
    }

    /// Returns the types of the nodes.
    pub fn types(&self) -> &Arc<NodeTypes> {
        self.schema.types()
    }

    /// Returns the number of relations.
    pub fn n_relations(&self) -> usize {
        self.relations.len()
    }

    /// Returns the relation at a position.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn relation(&self, position: usize) -> &Relation {
        &self.relations[position]
    }

    /// Returns the relations.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Relation> {
        self.relations.iter()
    }

    /// Returns the names of the columns of the edges of each relation, of which weights are `weights` and types `types`.
    pub fn edge_columns(&self) -> Vec<Vec<String>> {
        let mut columns = Vec::with_capacity(self.relations.len());
        for relation in &self.relations {
            columns.push(relation.graph.columns().names().map(str::to_owned).collect());
        }
        columns
    }

    /// Returns the position of the relation of this name; `None` if there is none.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.schema.position(name)
    }

    /// Returns the position of the relation of this name.
    ///
    /// # Errors
    /// Returns [`SchemaError::NoSuchRelation`](crate::SchemaError::NoSuchRelation) with the names of all relations if there
    /// is none.
    pub fn require(&self, name: &str) -> Result<usize> {
        self.schema.require(name)
    }

    /// Returns the graph of all nodes with the edges of one relation. The arrays of the edges are shared, and with one node
    /// type also the offsets. [`Relations::with_graph`] is its inverse.
    ///
    /// # Errors
    /// Returns [`Error::IndptrNotMonotone`] within [`Error::InRelation`] if the relation is damaged.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn whole_graph(&self, relation: usize) -> Result<Csc> {
        let Relation { name, dst_type, graph, .. } = self.relation(relation);
        if self.types().n_types() == 1 {
            graph.validate_indptr().map_err(|error| self.locate_error(error, name))?;
            return Ok(Csc::clone(graph));
        }
        let dsts: SharedArray<NodeId> = self.types().range(*dst_type).map(NodeId).collect();
        graph.scatter_rows(&dsts, self.n_nodes()).map_err(|error| self.locate_error(error, name))
    }

    /// Returns an error with the name of its relation. In a graph with one type and one relation, the name tells nothing.
    fn locate_error(&self, error: Error, name: &str) -> Error {
        match (self.types().n_types(), self.n_relations()) {
            (1, 1) => error,
            _ => error.in_relation(name),
        }
    }

    /// Returns these relations with other edges of one relation: those of a graph of all nodes. The arrays of the edges
    /// are shared, and with one node type the graph itself.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`], within [`Error::InRelation`] if there are several relations, if the graph has another
    /// number of nodes, or edges into nodes that are not of the destinations' type.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn with_graph(&self, relation: usize, graph: impl Into<Arc<Csc>>) -> Result<Self> {
        let Relation { name, dst_type, .. } = self.relation(relation);
        let graph: Arc<Csc> = graph.into();
        let expected = self.n_nodes() as u64;
        let got = graph.n_nodes() as u64;
        let graph = match (expected == got, self.types().n_types()) {
            (false, _) => Err(Error::LengthMismatch { what: "the list of rows", expected, got }),
            (true, 1) => Ok(graph),
            (true, _) => graph.narrow_rows(self.types().range(*dst_type)).map(Arc::new),
        };
        let mut relations = self.relations.clone();
        relations[relation].graph = graph.map_err(|error| self.locate_error(error, name))?;
        Self::new(Arc::clone(self.types()), relations)
    }

    /// Returns the number of nodes of all types.
    pub fn n_nodes(&self) -> usize {
        self.schema.n_nodes()
    }

    /// Returns the number of edges of all relations.
    pub fn n_edges(&self) -> u64 {
        self.schema.n_edges()
    }

    /// Returns the id of the first edge of a relation. That of the edge at a position of its adjacency is as much larger.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn first_edge(&self, relation: usize) -> EdgeId {
        self.schema.first_edge(relation)
    }
}

impl<'a> RelationEdges<'a> {
    /// Returns the edges `srcs[i] -> dsts[i]` without weights and other columns.
    pub fn new(
        name: &'a str,
        src_type: &'a str,
        dst_type: &'a str,
        srcs: &'a [u32],
        dsts: &'a [u32],
    ) -> Self {
        Self { name, src_type, dst_type, srcs, dsts, weights: None, columns: None }
    }

    fn build(&self, types: &NodeTypes) -> Result<Relation> {
        let src_type = types.require(self.src_type)?;
        let dst_type = types.require(self.dst_type)?;
        let src_nodes = types.range(src_type);
        let n_dst = types.range(dst_type).len();
        for (ids, name, n_nodes) in
            [(self.srcs, self.src_type, src_nodes.len()), (self.dsts, self.dst_type, n_dst)]
        {
            if let Some(edge) = ids.iter().position(|&id| n_nodes <= id as usize) {
                let (edge, node, name) = (edge as u64, ids[edge], name.to_owned());
                return Err(RelationEdgesError::NotInType { edge, node, name, n_nodes }.into());
            }
        }
        let srcs: Vec<u32> = self.srcs.iter().map(|src| src_nodes.start + src).collect();
        // The rows of destinations are numbered within their type, and sources are node ids of the whole graph.
        let mut builder = CscBuilder::new(n_dst).bipartite();
        if let Some(weights) = self.weights {
            builder = builder.weights(weights);
        }
        if let Some(columns) = self.columns {
            builder = builder.columns(columns.clone());
        }
        let graph = Arc::new(builder.build(&srcs, self.dsts)?);
        Ok(Relation { name: self.name.to_owned(), src_type, dst_type, graph })
    }
}
