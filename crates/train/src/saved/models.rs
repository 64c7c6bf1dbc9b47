//! The table of the models of nodes, from which programs take the names and configurations of models, and [`ModelRegistry`]
//! the constructors of saved models.
//!
//! A row determines which saved models [`ModelRegistry::default`] opens (those of nodes, and of links with such an encoder),
//! what [`NamedModel::configure`](crate::NamedModel::configure) passes to a [`ConfigVisitor`](crate::ConfigVisitor), and the
//! values of `kiln train --model` with their help. The configuration states everything else: its form in JSON has the
//! options, so a flag such as `--heads` applies to the models whose configuration has the field. Its `GraphRequirements`
//! determine edge types, edge features, self loops and the normalisation of GCN, and thereby the sampling rule. An option
//! that a configuration does not have is an error that names both.

use kiln_graph::similar_alias;
use kiln_nn::{
    BlockModel, GatConfig, GcnConfig, GineConfig, GraphMetadata, GraphRequirements, HgtConfig, ModelConfig,
    RgcnConfig, RsageConfig, SageConfig, TransformerConfig,
};
use serde_json::{Map, Value};

use crate::saved::config_fields::config_fields;

/// Visits the rows of the table, in the order in which programs list the names. A new model of nodes is added here.
///
/// A name has at most one row for graphs with one type of nodes and one for those with several. [`RowVisitor::saved`] is for a
/// configuration that no name selects.
pub(crate) fn visit_rows<V: RowVisitor>(visitor: V) -> V {
    let sage =
        Row::new("sage", "GraphSAGE with mean aggregation, for nodes").aliases(&["graphsage", "sageconv"]);
    let gcn =
        Row::new("gcn", "GCN, normalised over the whole graph, for nodes").aliases(&["gcnconv", "graphconv"]);
    let gat = Row::new("gat", "GAT, with self-loops on the whole graph, for nodes").aliases(&["gatconv"]);
    let gatv2 =
        Row::new("gatv2", "GATv2, with self-loops on the whole graph, for nodes").aliases(&["gatv2conv"]);
    let transformer =
        Row::new("transformer", "Graph transformer (TransformerConv), with dot-product attention, for nodes")
            .aliases(&["transformerconv", "graph-transformer"]);
    let rgcn = Row::new("rgcn", "R-GCN with basis decomposition, for nodes of a graph with edge types")
        .aliases(&["rgcnconv", "r-gcn", "relgraphconv"]);
    let hgt = Row::new(
        "hgt",
        "HGT, a transformer with attention per relation, for nodes of a heterogeneous dataset",
    )
    .aliases(&["hgtconv"]);
    let gine = Row::new("gine", "GINE, for nodes of a graph with edge features, or with edge types")
        .aliases(&["gineconv"]);
    visitor
        .one_type::<SageConfig>(sage)
        .several_types::<RsageConfig>(sage)
        .saved::<SageConfig>()
        .one_type::<GcnConfig>(gcn)
        .one_type::<GatConfig>(gat)
        .one_type::<GatConfig>(gatv2.with("attention", "gat_v2"))
        .one_type::<TransformerConfig>(transformer)
        .one_type::<RgcnConfig>(rgcn)
        .several_types::<RgcnConfig>(rgcn)
        .several_types::<HgtConfig>(hgt)
        .one_type::<GineConfig>(gine)
}

/// A name of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// The name.
    pub(crate) name: &'static str,
    /// The description, a phrase without a full stop.
    pub(crate) about: &'static str,
    /// Other names of the model, such as those of its layer in PyG and DGL, which messages translate.
    pub(crate) aliases: &'static [&'static str],
    /// The option by which the model differs from others with the same configuration, and its value.
    pub(crate) option: Option<(&'static str, &'static str)>,
}

impl Row {
    fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about, aliases: &[], option: None }
    }

    fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    fn with(self, option: &'static str, value: &'static str) -> Self {
        Self { option: Some((option, value)), ..self }
    }
}

/// A function of the configurations of the table.
pub(crate) trait RowVisitor: Sized {
    /// Visits a name and its configuration for graphs with one type of nodes.
    fn one_type<C: ModelConfig<Model: BlockModel> + 'static>(self, row: Row) -> Self;

    /// Visits a name and its configuration for graphs with several types of nodes, that of the model within a
    /// [`HeteroModelConfig`](kiln_nn::HeteroModelConfig).
    fn several_types<C: ModelConfig<Model: BlockModel> + 'static>(self, row: Row) -> Self;

    /// Visits a configuration for graphs with several types of nodes that no name selects. The default ignores it.
    fn saved<C: ModelConfig<Model: BlockModel> + 'static>(self) -> Self {
        self
    }
}

/// A name of a model of nodes, with what a program needs to know before it configures a
/// [`NamedModel`](crate::NamedModel).
#[derive(Debug, Clone, PartialEq)]
pub struct NodeModelEntry {
    /// The name.
    pub name: &'static str,
    /// The description, a phrase without a full stop.
    pub about: &'static str,
    /// Other names of the model, such as those of its layer in PyG and DGL, in lower case. They select no model; messages about
    /// unknown names translate them ([`similar_model`]).
    pub aliases: &'static [&'static str],
    /// True if there is such a model for graphs with one type of nodes.
    pub one_type: bool,
    /// True if there is such a model for graphs with several types of nodes, or with named relations.
    pub several_types: bool,
    /// The fields of the default configuration by name, with their values in JSON. If the model has a configuration for graphs
    /// with one type of nodes and another for those with several, the fields of both.
    pub options: Map<String, Value>,
    /// The requirements of the default configuration for a graph of which nothing is known.
    pub requirements: GraphRequirements,
    /// True if the model reads the features of edges of a graph that has some, without being asked to.
    pub edge_features: bool,
    /// True for each kind of graph of whose edges the model can read the features
    /// ([`NamedModel::edge_features()`](crate::NamedModel::edge_features())): with one type of nodes, and with several.
    pub optional_edge_features: [bool; 2],
}

impl NodeModelEntry {
    /// Returns true if the model can read the features of edges of such a graph.
    pub fn can_read_edge_features(&self, has_several_types: bool) -> bool {
        self.optional_edge_features[usize::from(has_several_types)]
    }
}

/// Returns the names of the models of nodes, in the order in which programs list them.
///
/// ```
/// use kiln_train::node_models;
/// let models = node_models();
/// let names: Vec<_> = models.iter().map(|model| model.name).collect();
/// assert_eq!(names, ["sage", "gcn", "gat", "gatv2", "transformer", "rgcn", "hgt", "gine"]);
/// let with_heads = models.iter().filter(|model| model.options.contains_key("n_heads"));
/// assert_eq!(with_heads.map(|model| model.name).collect::<Vec<_>>(), ["gat", "gatv2", "transformer", "hgt"]);
/// ```
pub fn node_models() -> Vec<NodeModelEntry> {
    visit_rows(Entries(Vec::new())).0
}

/// Returns the name in [`node_models`] that is meant by an unknown name: a misspelt one, or that of PyG, DGL or a paper.
///
/// ```
/// use kiln_train::similar_model;
/// assert_eq!(similar_model("GraphSAGE"), Some("sage"));
/// assert_eq!(similar_model("gatv3"), Some("gatv2"));
/// assert_eq!(similar_model("mlp"), None);
/// ```
pub fn similar_model(name: &str) -> Option<&'static str> {
    let aliases = node_models().into_iter().flat_map(|entry| {
        let others = entry.aliases.iter().map(move |alias| (*alias, entry.name));
        [(entry.name, entry.name)].into_iter().chain(others)
    });
    similar_alias(name, aliases)
}

/// Returns the properties of a graph whose edges have features.
fn graph_with_edge_features(has_several_types: bool) -> GraphMetadata {
    match has_several_types {
        true => GraphMetadata { edge_widths: Some(vec![Some(1)]), ..GraphMetadata::default() },
        false => GraphMetadata { d_edge: Some(1), ..GraphMetadata::default() },
    }
}

/// The names of the rows so far.
struct Entries(Vec<NodeModelEntry>);

impl Entries {
    /// Returns the entry of a row, a new one unless there is one of its name.
    fn entry<C: ModelConfig>(&mut self, row: Row, has_several_types: bool) -> &mut NodeModelEntry {
        let config = C::for_dims(1, 1);
        let mut options = config_fields(&config).expect("a configuration should have a form in JSON");
        options.extend(row.option.map(|(option, value)| (option.to_owned(), value.into())));
        let of_row = serde_json::from_value::<C>(Value::Object(options.clone()));
        let of_row = of_row.expect("the option of a row should be one of the configuration");
        let is_read = of_row.with_edge_features(&graph_with_edge_features(has_several_types)).is_some();
        let entry = self.entry_of(row, &config, options);
        entry.optional_edge_features[usize::from(has_several_types)] = is_read;
        entry
    }

    fn entry_of<C: ModelConfig>(
        &mut self,
        row: Row,
        config: &C,
        options: Map<String, Value>,
    ) -> &mut NodeModelEntry {
        if let Some(i) = self.0.iter().position(|entry| entry.name == row.name) {
            self.0[i].options.extend(options);
            return &mut self.0[i];
        }
        let requirements = config.requirements();
        let featured = GraphMetadata { d_edge: Some(1), ..GraphMetadata::default() };
        self.0.push(NodeModelEntry {
            name: row.name,
            about: row.about,
            aliases: row.aliases,
            one_type: false,
            several_types: false,
            options,
            requirements,
            edge_features: config.clone().for_graph(&featured).requirements().d_edge.is_some(),
            optional_edge_features: [false; 2],
        });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }
}

impl RowVisitor for Entries {
    fn one_type<C: ModelConfig<Model: BlockModel> + 'static>(mut self, row: Row) -> Self {
        self.entry::<C>(row, false).one_type = true;
        self
    }

    fn several_types<C: ModelConfig<Model: BlockModel> + 'static>(mut self, row: Row) -> Self {
        self.entry::<C>(row, true).several_types = true;
        self
    }
}
