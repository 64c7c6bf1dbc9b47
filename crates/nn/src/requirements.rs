//! Requirements of models on graphs, and properties of graphs for which models are configured. Each is one value, so that
//! the config of a model around another one passes on two methods.

use kiln_graph::Metagraph;
use serde::{Deserialize, Serialize};

/// The requirements of a model on a graph and on the sampling of its neighbourhoods, besides the rows of nodes. The default
/// requires nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphRequirements {
    /// True if the model reads edge weights. [`BlockModel::layer`](crate::BlockModel::layer) then panics on blocks without
    /// them.
    pub edge_weights: bool,
    /// True if the edge weights that the model reads are meant to be those of `kiln_graph::gcn_norm`, which are computed on
    /// the whole graph.
    pub gcn_norm: bool,
    /// The number of relations of a model that reads edge types, all of which must be below it; `None` if it reads none.
    /// [`BlockModel::layer`](crate::BlockModel::layer) of such a model panics on blocks without types.
    pub n_relations: Option<usize>,
    /// The node types and relations for which a model that reads relation groups was configured; `None` if it reads none.
    /// [`BlockModel::layer`](crate::BlockModel::layer) panics on blocks without groups of this metagraph if
    /// [`InputFormat::relation_groups`](crate::InputFormat::relation_groups) is true, which it is not for a
    /// [`Rsage`](crate::Rsage) of one type of nodes and one relation.
    pub metagraph: Option<Metagraph>,
    /// The number of feature columns of each type of nodes for which a [`HeteroModel`](crate::HeteroModel) was configured; `None`
    /// for a model of graphs of one type.
    pub widths: Option<Vec<Option<usize>>>,
    /// The number of columns of the edge features that the model reads; `None` if it reads none.
    /// [`BlockModel::layer`](crate::BlockModel::layer) of such a model panics on blocks without edge features.
    pub d_edge: Option<usize>,
    /// The numbers of columns of the edge features of each relation, or edge type, for a model with matrices for each;
    /// `None` within for a relation without features, and as a whole for a model that reads no edge features, or only those of one
    /// width. If all are equal, [`GraphRequirements::d_edge`] is that number.
    pub edge_widths: Option<Vec<Option<usize>>>,
    /// True if the model is meant for graphs in which each node has a self loop, and for samplers that keep it.
    pub self_loops: bool,
    /// The types of nodes and the relations whose ages the model reads; `None` if it reads none. [`BlockModel::input`](crate::BlockModel::input)
    /// of such a model expects the ages of nodes as the last column of their rows, and its layers those of edges as a column of
    /// the block.
    pub ages: Option<TimedParts>,
}

/// The types of nodes and the relations with times, whose ages a model may read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedParts {
    /// Whether the nodes of each type have times, `[n_types]`.
    pub node_types: Vec<bool>,
    /// Whether the edges of each relation have times, `[n_relations]`.
    pub relations: Vec<bool>,
}

/// The properties of a graph for which a model is configured. What is unknown is `None`, as all is by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphMetadata {
    /// The number of relations, or of edge types.
    pub n_relations: Option<usize>,
    /// The node types and relations.
    pub metagraph: Option<Metagraph>,
    /// The number of feature columns of each type of nodes, in the order of their types; `None` for a type without features.
    /// It is unknown, `None` as a whole, for a graph with one type of nodes, for which a model has no
    /// [`HeteroModelConfig`](crate::HeteroModelConfig).
    pub widths: Option<Vec<Option<usize>>>,
    /// The number of columns of the edge features of a graph with one type of nodes.
    pub d_edge: Option<usize>,
    /// The number of columns of the edge features of each relation of a heterogeneous graph, `[n_relations]`; `None` within for
    /// a relation without features.
    pub edge_widths: Option<Vec<Option<usize>>>,
    /// The types of nodes and the relations with times, of which one has some.
    pub timed: Option<TimedParts>,
}
