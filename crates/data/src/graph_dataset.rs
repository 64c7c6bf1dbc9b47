use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_feature::{FeatureStore, Labels, TargetValues, Targets};
use kiln_graph::{
    Csc, CscBuilder, EdgeColumns, GraphId, NodeId, SharedArray, add_self_loops_of_type,
    features_with_self_loops,
};
use kiln_store::Error as StoreError;
use kiln_store::check_count;

use crate::dataset::noun;
use crate::limits::numbers;
use crate::{BuildError, Note, Result};

/// A data set for graph tasks: many small graphs with targets. They are consecutive parts of one block-diagonal
/// graph, so that any range of graphs is a range of nodes and of edges. Cloning shares the arrays.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `graph` | [`Csc`] | all nodes, all edges | [`NodeId`]; its edge types are the edges' labels |
/// | `node_offsets` | `u32` | `n_graphs + 1` | graph; `node_offsets[g]..node_offsets[g + 1]` are its nodes |
/// | `labels` | class, negative for none | `n_graphs`, or empty if there are target values | [`GraphId`] |
/// | `target_values` | several labels, or numbers | `n_graphs`, or absent | [`GraphId`] |
/// | `node_labels` | class, negative for none | `n_nodes`, or absent | [`NodeId`] |
/// | `features` | row | `n_nodes`, or absent | [`NodeId`] |
///
/// There is at least one graph. `node_offsets` starts at 0, never decreases and ends at the number of nodes. Both
/// ends of an edge are in the same graph. A graph may have no nodes. The arrays are private, because the constructor checks
/// them against each other.
#[derive(Debug, Clone)]
pub struct GraphDataset {
    /// The name of the set in messages and reports.
    pub name: String,
    /// The classes' names, by class. For a set that was read from files, these are the labels in the file.
    pub class_names: Vec<String>,
    /// The node labels' names, by class; empty for sets without node labels.
    pub node_label_names: Vec<String>,
    /// The edge types' names, by type; empty for graphs without edge types.
    pub edge_type_names: Vec<String>,
    /// Notes about how the set was read.
    pub notes: Vec<Note>,
    graph: Arc<Csc>,
    node_offsets: SharedArray<u32>,
    labels: Arc<Labels<GraphId>>,
    target_values: Option<Arc<TargetValues<GraphId>>>,
    node_labels: Option<Arc<Labels>>,
    features: Option<Arc<dyn FeatureStore>>,
}

impl GraphDataset {
    /// Creates a set without features and node labels; see the table on [`GraphDataset`]. It reads the whole graph
    /// and all targets once: classes ([`Labels`]) or [`TargetValues`]. Classes, or the columns of the values, are named
    /// by their numbers.
    ///
    /// ```
    /// # use kiln_data::GraphDataset;
    /// use kiln_feature::Labels;
    /// use kiln_graph::{CscBuilder, GraphId};
    /// // A triangle of class 1, and two nodes with one edge of class 0.
    /// let graph = CscBuilder::new(5).symmetrize().build(&[0, 1, 2, 3], &[1, 2, 0, 4])?;
    /// let classes = Labels::<GraphId>::new(vec![1, 0], 2);
    /// let graphs = GraphDataset::new("shapes", graph, vec![0, 3, 5], classes)?;
    /// assert_eq!((graphs.n_graphs(), graphs.nodes(1)), (2, 3..5));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Inconsistent`] if the lengths of the arrays are inconsistent,
    /// [`kiln_store::Error::BadValue`] if offsets decrease or an edge connects two graphs, and
    /// [`Error::Graph`](crate::Error::Graph) or [`Error::Feature`](crate::Error::Feature) if the graph or a target is
    /// invalid. Error messages contain `name` instead of a path.
    pub fn new(
        name: impl Into<String>,
        graph: Csc,
        node_offsets: impl Into<SharedArray<u32>>,
        targets: impl Into<Targets<GraphId>>,
    ) -> Result<Self> {
        let (name, node_offsets, targets) = (name.into(), node_offsets.into(), targets.into());
        graph.validate()?;
        targets.validate()?;
        check_offsets(&name, &node_offsets, graph.n_nodes())?;
        check_edges(&name, &node_offsets, &graph)?;
        check_count(&name, "the number of graph labels", node_offsets.len() - 1, targets.len())?;
        let class_names = numbers(targets.n_outputs());
        let (labels, target_values) = match targets {
            Targets::Classes(labels) => (labels, None),
            Targets::Values(values) => (Arc::new(Labels::new(Vec::new(), 0)), Some(values)),
        };
        Ok(Self {
            name,
            class_names,
            node_label_names: Vec::new(),
            edge_type_names: Vec::new(),
            notes: Vec::new(),
            graph: Arc::new(graph),
            node_offsets,
            labels,
            target_values,
            node_labels: None,
            features: None,
        })
    }

    /// Returns the set with a feature row for each node.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Inconsistent`] unless there is one row per node.
    pub fn with_features(self, features: Arc<dyn FeatureStore>) -> Result<Self> {
        let n_nodes = self.graph.n_nodes();
        check_count(&self.name, "the number of feature rows", n_nodes, features.n_rows())?;
        Ok(Self { features: Some(features), ..self })
    }

    /// Returns the set with a class for each node. The classes are named by their numbers.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Inconsistent`] unless there is one label per node, and
    /// [`Error::Feature`](crate::Error::Feature) if a label is out of range.
    pub fn with_node_labels(self, labels: Labels) -> Result<Self> {
        labels.validate()?;
        check_count(&self.name, "the number of node labels", self.graph.n_nodes(), labels.len())?;
        let node_label_names = numbers(labels.n_classes());
        Ok(Self { node_labels: Some(Arc::new(labels)), node_label_names, ..self })
    }

    /// Returns the set with a self loop on each node that has none (`self_loop=True` of DGL's `GINDataset`). Degrees of nodes
    /// ([`GraphDataset::node_features`]) count them. Added loops have a type of their own, which is named `self loop`, and the
    /// mean of the features of the edges into their node.
    ///
    /// ```
    /// # use kiln_data::GraphDataset;
    /// let graphs = GraphDataset::open("mutag")?;
    /// let n_edges = graphs.graph().n_edges();
    /// let n_nodes = graphs.graph().n_nodes() as u64;
    /// assert_eq!(graphs.add_self_loops()?.graph().n_edges(), n_edges + n_nodes);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if a loop is missing and an edge has type 255, and
    /// [`BuildError::NoEdgeFeatures`] if a loop is missing and edges have other columns than weights, types and features.
    pub fn add_self_loops(mut self) -> Result<Self> {
        let before = Arc::clone(&self.graph);
        let n_edge_types = before.n_edge_types().unwrap_or(0).max(self.edge_type_names.len());
        let mut graph = add_self_loops_of_type(&before, n_edge_types)?;
        if before.n_edges() < graph.n_edges() {
            if let Some(column) = before.columns().rows().without(EdgeColumns::FEATURES).names().next() {
                return Err(BuildError::NoEdgeFeatures { name: self.name, column: column.to_owned() }.into());
            }
            if let Some(features) = features_with_self_loops(&before, &graph) {
                graph = graph.with_column(EdgeColumns::FEATURES, features)?;
            }
            if !self.edge_type_names.is_empty() {
                self.edge_type_names.push("self loop".to_owned());
            }
        }
        Ok(Self { graph: Arc::new(graph), ..self })
    }

    /// Returns the number of graphs, at least 1.
    pub fn n_graphs(&self) -> usize {
        self.node_offsets.len() - 1
    }

    /// Returns the nodes of one graph, as a range of indices of [`NodeId`]s.
    ///
    /// # Panics
    /// Panics if `graph` is not below [`GraphDataset::n_graphs`].
    pub fn nodes(&self, graph: usize) -> Range<usize> {
        self.node_offsets[graph] as usize..self.node_offsets[graph + 1] as usize
    }

    /// Returns the block-diagonal graph of all graphs; see the table on [`GraphDataset`].
    pub fn graph(&self) -> &Arc<Csc> {
        &self.graph
    }

    /// Returns the offsets of each graph's nodes; see the table on [`GraphDataset`].
    pub fn node_offsets(&self) -> &SharedArray<u32> {
        &self.node_offsets
    }

    /// Returns the targets: the class of each graph, or its target values.
    pub fn targets(&self) -> Targets<GraphId> {
        match &self.target_values {
            Some(values) => Targets::Values(values.clone()),
            None => Targets::Classes(self.labels.clone()),
        }
    }

    /// Returns the class of each graph; empty if the graphs have target values.
    pub fn labels(&self) -> &Arc<Labels<GraphId>> {
        &self.labels
    }

    /// Returns the class of each node, if the nodes have classes.
    pub fn node_labels(&self) -> Option<&Arc<Labels>> {
        self.node_labels.as_ref()
    }

    /// Returns the features of each node, if the nodes have features.
    pub fn features(&self) -> Option<&Arc<dyn FeatureStore>> {
        self.features.as_ref()
    }

    /// Adds a note if an edge lacks its reverse, because GIN and TU files should contain both directions of each edge.
    pub(crate) fn note_asymmetry(mut self) -> Result<Self> {
        let graph = &self.graph;
        let mut dsts = Vec::with_capacity(graph.indices().len());
        for (dst, range) in graph.indptr().windows(2).enumerate() {
            dsts.resize(range[1] as usize, dst as u32);
        }
        let srcs = bytemuck::cast_slice(graph.indices());
        let reversed = CscBuilder::new(graph.n_nodes()).build(&dsts, srcs)?;
        if (reversed.indptr(), reversed.indices()) != (graph.indptr(), graph.indices()) {
            let text = "some edges lack their reverse: they are kept as directed edges, from the first node of the \
                        file's entry to the second";
            self.notes.push(Note::Other(text.to_owned()));
        }
        Ok(self)
    }
}

impl fmt::Display for GraphDataset {
    /// Writes one line with the name, the numbers of graphs and outputs, and the average size of a graph.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n_graphs, targets) = (self.n_graphs() as f64, self.targets());
        write!(
            f,
            "{}: {} graphs of {:.2} nodes and {:.2} edges on average, {} {}",
            self.name,
            self.n_graphs(),
            self.graph.n_nodes() as f64 / n_graphs,
            self.graph.n_edges() as f64 / n_graphs,
            targets.n_outputs(),
            noun(targets.kind()),
        )
    }
}

fn check_offsets(name: &str, offsets: &[u32], n_nodes: usize) -> Result<()> {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return Ok(check_count(name, "the number of node offsets", 2, 0)?);
    };
    if offsets.len() < 2 {
        return Ok(check_count(name, "the number of node offsets", 2, offsets.len())?);
    }
    check_count(name, "the first node offset", 0, first as usize)?;
    if let Some(graph) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
        return Err(StoreError::BadValue {
            path: name.into(),
            what: "node offset",
            position: graph as u64 + 1,
            expected: format!("at least {}, the previous offset", offsets[graph]),
            found: offsets[graph + 1].to_string(),
        }
        .into());
    }
    Ok(check_count(name, "the last node offset", n_nodes, last as usize)?)
}

/// Checks that both ends of each edge are in the same graph. The graph and the offsets must be valid.
fn check_edges(name: &str, offsets: &[u32], graph: &Csc) -> Result<()> {
    for (position, nodes) in offsets.windows(2).enumerate() {
        let first_edge = graph.indptr()[nodes[0] as usize] as usize;
        let srcs = &graph.indices()[first_edge..graph.indptr()[nodes[1] as usize] as usize];
        let is_outside = |src: &NodeId| !(nodes[0]..nodes[1]).contains(&src.0);
        if let Some(edge) = srcs.iter().position(is_outside) {
            return Err(StoreError::BadValue {
                path: name.into(),
                what: "the source of edge",
                position: (first_edge + edge) as u64,
                expected: format!("a node of graph {position}, the graph of its destination"),
                found: format!("node {}", srcs[edge].0),
            }
            .into());
        }
    }
    Ok(())
}
