use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_feature::{FeatureStore, Labels};
use kiln_graph::{Csc, CscBuilder, GraphId, NodeId, SharedArray};
use kiln_store::Error as StoreError;
use kiln_store::check_count;

use crate::limits::numbers;
use crate::{Note, Result};

/// Many small graphs with all that graph classification needs. The graphs stand one after the other in one
/// block-diagonal graph, so that any run of them is a range of nodes and of edges. Cloning shares the arrays.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `graph` | [`Csc`] | all nodes, all edges | [`NodeId`]; its edge types are the edges' labels |
/// | `node_offsets` | `u32` | `n_graphs + 1` | graph; `node_offsets[g]..node_offsets[g + 1]` are its nodes |
/// | `labels` | class, negative for none | `n_graphs` | [`GraphId`] |
/// | `node_labels` | class, negative for none | `n_nodes`, or absent | [`NodeId`] |
/// | `features` | row | `n_nodes`, or absent | [`NodeId`] |
///
/// There is at least one graph, `node_offsets` starts at 0, never falls and ends at the number of nodes, and
/// no edge leaves its graph. A graph may have no nodes.
#[derive(Debug, Clone)]
pub struct GraphDataset {
    /// What the set is called on a command line.
    pub name: String,
    /// The classes' names, by class: the labels as the file has them.
    pub class_names: Vec<String>,
    /// The node labels' names, by class; empty for sets without node labels.
    pub node_label_names: Vec<String>,
    /// The edge types' names, by type; empty for graphs without edge types.
    pub edge_type_names: Vec<String>,
    /// What the user should know of how the set was read.
    pub notes: Vec<Note>,
    graph: Arc<Csc>,
    node_offsets: SharedArray<u32>,
    labels: Arc<Labels<GraphId>>,
    node_labels: Option<Arc<Labels>>,
    features: Option<Arc<dyn FeatureStore>>,
}

impl GraphDataset {
    /// A set without features and node labels; see the table on [`GraphDataset`]. Reads the whole graph and
    /// all labels once. Classes are named by their numbers.
    ///
    /// # Errors
    /// [`kiln_store::Error::Inconsistent`] for arrays whose lengths contradict each other, [`kiln_store::Error::BadValue`] for
    /// offsets that fall and edges that leave their graph, [`Error::Graph`](crate::Error::Graph) and [`Error::Feature`](crate::Error::Feature) for a graph
    /// or labels that cannot be. Messages call the set by its name.
    pub fn new(
        name: impl Into<String>,
        graph: Csc,
        node_offsets: impl Into<SharedArray<u32>>,
        labels: Labels<GraphId>,
    ) -> Result<Self> {
        let (name, node_offsets) = (name.into(), node_offsets.into());
        graph.validate()?;
        labels.validate()?;
        check_offsets(&name, &node_offsets, graph.n_nodes())?;
        check_edges(&name, &node_offsets, &graph)?;
        check_count(&name, "the number of graph labels", node_offsets.len() - 1, labels.len())?;
        Ok(Self {
            name,
            class_names: numbers(labels.n_classes()),
            node_label_names: Vec::new(),
            edge_type_names: Vec::new(),
            notes: Vec::new(),
            graph: Arc::new(graph),
            node_offsets,
            labels: Arc::new(labels),
            node_labels: None,
            features: None,
        })
    }

    /// The same set with a feature row for each node.
    ///
    /// # Errors
    /// [`kiln_store::Error::Inconsistent`] unless there is one row a node.
    pub fn with_features(self, features: Arc<dyn FeatureStore>) -> Result<Self> {
        let n_nodes = self.graph.n_nodes();
        check_count(&self.name, "the number of feature rows", n_nodes, features.n_rows())?;
        Ok(Self { features: Some(features), ..self })
    }

    /// The same set with a class for each node. They are named by their numbers.
    ///
    /// # Errors
    /// [`kiln_store::Error::Inconsistent`] unless there is one label a node, [`Error::Feature`](crate::Error::Feature) for one that is no class.
    pub fn with_node_labels(self, labels: Labels) -> Result<Self> {
        labels.validate()?;
        check_count(&self.name, "the number of node labels", self.graph.n_nodes(), labels.len())?;
        let node_label_names = numbers(labels.n_classes());
        Ok(Self { node_labels: Some(Arc::new(labels)), node_label_names, ..self })
    }

    /// Number of graphs, at least 1.
    pub fn n_graphs(&self) -> usize {
        self.node_offsets.len() - 1
    }

    /// The nodes of one graph, as positions of [`NodeId`]s.
    ///
    /// # Panics
    /// When there is no such graph.
    pub fn nodes(&self, graph: usize) -> Range<usize> {
        self.node_offsets[graph] as usize..self.node_offsets[graph + 1] as usize
    }

    /// All graphs as one; see the table on [`GraphDataset`].
    pub fn graph(&self) -> &Arc<Csc> {
        &self.graph
    }

    /// Where each graph's nodes start; see the table on [`GraphDataset`].
    pub fn node_offsets(&self) -> &SharedArray<u32> {
        &self.node_offsets
    }

    /// The class of each graph.
    pub fn labels(&self) -> &Arc<Labels<GraphId>> {
        &self.labels
    }

    /// The class of each node, if the nodes have classes.
    pub fn node_labels(&self) -> Option<&Arc<Labels>> {
        self.node_labels.as_ref()
    }

    /// The features of each node, if the nodes have features.
    pub fn features(&self) -> Option<&Arc<dyn FeatureStore>> {
        self.features.as_ref()
    }

    /// The same set with a note if an edge lacks its reverse: such files are meant to have both.
    pub(crate) fn note_asymmetry(mut self) -> Result<Self> {
        let graph = &self.graph;
        let mut dsts = Vec::with_capacity(graph.indices().len());
        for (dst, range) in graph.indptr().windows(2).enumerate() {
            dsts.resize(range[1] as usize, dst as u32);
        }
        let srcs = bytemuck::cast_slice(graph.indices());
        let reversed = CscBuilder::new(graph.n_nodes()).build(&dsts, srcs)?;
        if (reversed.indptr(), reversed.indices()) != (graph.indptr(), graph.indices()) {
            let text = "some edges lack their reverse: they are read as they stand, from the first node named to \
                        the second";
            self.notes.push(Note::Other(text.to_owned()));
        }
        Ok(self)
    }
}

impl fmt::Display for GraphDataset {
    /// One line: the name and the sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_graphs = self.n_graphs() as f64;
        write!(
            f,
            "{}: {} graphs of {:.2} nodes and {:.2} edges on average, {} classes",
            self.name,
            self.n_graphs(),
            self.graph.n_nodes() as f64 / n_graphs,
            self.graph.n_edges() as f64 / n_graphs,
            self.labels.n_classes(),
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
            expected: format!("at least {}, the one before it", offsets[graph]),
            found: offsets[graph + 1].to_string(),
        }
        .into());
    }
    Ok(check_count(name, "the last node offset", n_nodes, last as usize)?)
}

/// Checks that both ends of each edge are in one graph. The graph is valid and the offsets are.
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
                expected: format!("a node of graph {position}, as its destination is"),
                found: format!("node {}", srcs[edge].0),
            }
            .into());
        }
    }
    Ok(())
}
