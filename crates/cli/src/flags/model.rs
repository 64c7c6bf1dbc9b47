//! The model flags of `kiln train`, and the configurations that they select.

use anyhow::Context;
use clap::Args;
use clap::builder::TypedValueParser;
use kiln::DataDims;
use kiln::data::Dataset;
use kiln::graph::Metagraph;
use kiln::nn::{
    EdgeWeighting, Epsilon, GinConfig, GraphMetadata, JumpingKnowledge, Normalization, Readout,
    TimeEncoderConfig, TimedParts, WeightInit,
};
use kiln::train::{NamedModel, NodeModelEntry, node_models};
use kiln_usage::{bail, ensure};
use serde_json::{Map, Value};

use crate::flags::node_model::{NodeModel, check_partitioned};
use crate::flags::parse;
use crate::output::print_rank_zero;

/// The default model of nodes.
const SAGE: &str = "sage";

/// The default model of graphs.
const GIN: &str = "gin";

/// Another model of graphs, which has no options.
const SIMPLIFIED: &str = "simplified";

/// The models of graphs, with their descriptions. Those of nodes are [`node_models`].
const GRAPH_MODELS: [(&str, &str); 2] = [
    (GIN, "The network of the GIN paper, for graphs"),
    (
        SIMPLIFIED,
        "The network of DGL's tutorial, for graphs: two GIN layers with one linear layer each, and sum pooling",
    ),
];

/// The choices of `--weight-init`.
pub(crate) const WEIGHT_INITS: [(&str, &str, WeightInit); 2] = [
    ("dgl", "As in DGL: Xavier uniform with the gain of a ReLU", WeightInit::Dgl),
    ("pyg", "As in PyG: uniform within 1 / sqrt(width of the input)", WeightInit::Pyg),
];

/// The message for partitions of a heterogeneous dataset with one type of nodes and a model of other graphs.
const CONVERT: &str = "the partitions are of a graph with relation names, which --model does not read: write the data \
    without them (`kiln data convert DATA --homogeneous --out NEW`), and partition that";

/// What a model reads of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EdgeInputKind {
    Features,
    Types,
}

/// The flags for the model and its shape.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Kind of model. Default: sage, or gin for graphs.
    #[arg(long = "model", id = "model", value_parser = names())]
    name: Option<&'static str>,
    /// Number of layers. Default: the number of fanouts, which is 3 by default, or 5 for gin, which counts the input as a
    /// layer, as in its paper.
    #[arg(long, value_parser = parse::whole(1, 1000))]
    pub(crate) layers: Option<usize>,
    #[arg(long, value_parser = parse::size, help = hidden_help())]
    hidden: Option<usize>,
    /// Dropout rate of the hidden layers; for gin, of the scores. Default: 0.5.
    #[arg(long, value_parser = parse::rate)]
    dropout: Option<f64>,
    /// Dropout rate of the input features, for models of nodes.
    #[arg(long, value_parser = parse::rate, default_value = "0")]
    input_dropout: f64,
    #[arg(long, value_parser = parse::size, help = heads_help())]
    heads: Option<usize>,
    #[arg(long, value_parser = parse::size, help = output_heads_help())]
    output_heads: Option<usize>,
    #[arg(long, value_parser = parse::rate, help = attention_dropout_help())]
    attention_dropout: Option<f64>,
    /// Bases of each layer, of which the matrix of a relation is a weighted sum, for rgcn. Default: 4.
    #[arg(long, value_parser = parse::size)]
    bases: Option<usize>,
    #[arg(long, help = edge_input_help(), value_parser = parse::choice([
        ("features", "Its features", EdgeInputKind::Features),
        ("types", "Its type", EdgeInputKind::Types),
    ]))]
    edge_input: Option<EdgeInputKind>,
    /// Linear layers in the MLP of each layer, for gin and gine. Default: 2.
    #[arg(long, value_parser = parse::whole(1, 1000))]
    mlp_layers: Option<usize>,
    /// Normalisation of the hidden layers. Default: none, or batch for gin.
    #[arg(long, value_parser = parse::choice([
        ("batch", "Batch normalisation, for gin", Normalization::Batch),
        ("layer", "Layer normalisation, for models of nodes", Normalization::Layer),
        ("none", "No normalisation", Normalization::None),
    ]))]
    norm: Option<Normalization>,
    /// Adds a node's own row to the result of each layer of equal widths, for models of nodes.
    #[arg(long)]
    residual: bool,
    /// Use of the weights of edges in the means over neighbours, for sage and rgcn. Default: none.
    #[arg(long, value_parser = parse::choice([
        ("none", "Each edge counts with 1", EdgeWeighting::None),
        ("scale", "A row is multiplied by the weight of its edge: sum(w x) / n, as by DGL's edge_weight", EdgeWeighting::Scale),
        ("normalize", "The mean is weighted: sum(w x) / sum(|w|)", EdgeWeighting::Normalize),
    ]))]
    edge_weighting: Option<EdgeWeighting>,
    /// Distribution of the initial weights, for sage. Default: dgl, or pyg for links.
    #[arg(long, value_parser = parse::choice(WEIGHT_INITS))]
    weight_init: Option<WeightInit>,
    /// Learns epsilon, the extra weight of a node's own row (GIN-eps), for gin and gine. Default: a fixed 0 (GIN-0).
    #[arg(long)]
    learn_epsilon: bool,
    /// Pooling of the nodes of a graph, for gin. Default: sum.
    #[arg(long, value_parser = parse::choice([
        ("sum", "Sum pooling", Readout::Sum),
        ("mean", "Mean pooling", Readout::Mean),
        ("max", "Max pooling", Readout::Max),
    ]))]
    readout: Option<Readout>,
    /// Layers from which a linear layer computes the scores (jumping knowledge). Default: all for gin; for models of nodes,
    /// the last layer is the scores.
    #[arg(long, visible_alias = "jumping-knowledge", value_parser = parse::choice([
        ("all", "The input and all layers, as in the paper, for gin", JumpingKnowledge::Sum),
        ("last", "The last layer", JumpingKnowledge::Last),
        ("cat", "All layers, concatenated, for models of nodes", JumpingKnowledge::Cat),
        ("max", "The maximum over all layers, for models of nodes", JumpingKnowledge::Max),
    ]))]
    jumping: Option<JumpingKnowledge>,
}

/// What the configuration of a model of nodes takes from the graph.
pub(crate) enum ModelGraph<'a> {
    /// The nodes have one type.
    OneType(&'a dyn DataDims),
    /// There are several types of nodes, or relations with names.
    SeveralTypes {
        metagraph: Metagraph,
        /// The number of feature columns of each node type, `[n_types]`; `None` for a type without features.
        dims: Vec<Option<usize>>,
        /// The widths of the edge features of each relation.
        edge_widths: Option<Vec<Option<usize>>>,
    },
}

/// An option that only some models of nodes have.
struct ModelOption {
    /// The flag, without dashes.
    flag: &'static str,
    /// The field of the configuration.
    field: &'static str,
    /// The value; `None` for the default of the configuration.
    value: Option<Value>,
}

impl ModelOption {
    fn new(flag: &'static str, field: &'static str, value: Option<impl Into<Value>>) -> Self {
        Self { flag, field, value: value.map(Into::into) }
    }
}

impl ModelArgs {
    /// Returns the name of the model, the hidden width, the dropout rate and the options of the model, with the defaults for
    /// flags that were not given.
    pub(crate) fn defaults(&self, is_of_graphs: bool) -> Vec<(&'static str, String)> {
        let name = self.name.unwrap_or(if is_of_graphs { GIN } else { SAGE });
        let entry = find_entry(name);
        let hidden = match &entry {
            Some(entry) if !is_of_graphs => self.hidden(entry),
            _ => Some(self.hidden_of_graphs()),
        };
        let mut defaults = vec![("model", name.to_owned()), ("dropout", self.dropout().to_string())];
        defaults.extend(hidden.map(|hidden| ("hidden", hidden.to_string())));
        if let Some(entry) = entry {
            for ModelOption { flag, field, value } in self.own_options() {
                let default = entry.options.get(field);
                defaults
                    .extend(default.map(|default| (flag, format_value(value.as_ref().unwrap_or(default)))));
            }
        }
        defaults
    }

    /// Returns the distribution of the initial weights of an encoder of links; `None` for a model without a choice.
    pub(crate) fn weight_init_of_encoder(&self) -> Option<WeightInit> {
        self.weight_init(true).filter(|_| self.has_option("weight_init"))
    }

    /// Returns the distribution of the initial weights; `None` for the default of the configuration.
    fn weight_init(&self, is_encoder: bool) -> Option<WeightInit> {
        // An encoder of links has small initial weights, so that dot products are small.
        self.weight_init.or(is_encoder.then_some(WeightInit::Pyg))
    }

    /// Checks that the model uses the sampling rule of the flags.
    pub(crate) fn check_rule(&self) -> anyhow::Result<()> {
        let has_own_rule =
            |entry: &NodeModelEntry| entry.requirements.gcn_norm || entry.requirements.self_loops;
        ensure!(
            !self.entry().is_some_and(|entry| has_own_rule(&entry)),
            "--rule requires --model {}: {} always use their own sampling rule",
            list_models(|entry| !has_own_rule(entry), "or"),
            list_models(has_own_rule, "and")
        );
        Ok(())
    }

    /// Returns the model of the nodes of a graph: the encoder of links, or else a classifier, whose output rows have the width
    /// `d_out`. With several types of nodes, its input rows have the hidden width, unless there is one type with features. `ages` is
    /// the encoding of ages with the parts of the graph that have times.
    pub(crate) fn build_node_model(
        &self,
        graph: &ModelGraph<'_>,
        d_out: usize,
        is_encoder: bool,
        n_layers: usize,
        ages: Option<(TimeEncoderConfig, TimedParts)>,
    ) -> anyhow::Result<NodeModel> {
        self.check_flags_of_nodes()?;
        let (entry, mut model) = match graph {
            ModelGraph::OneType(data) => self.choose_for_one_type(*data, d_out)?,
            ModelGraph::SeveralTypes { metagraph, dims, edge_widths } => {
                self.choose_for_several_types(metagraph, dims, edge_widths, d_out)?
            }
        };
        model.options = self.options(&entry, is_encoder, n_layers)?;
        let has_several_types = matches!(graph, ModelGraph::SeveralTypes { .. });
        model.edge_features = self.edge_input == Some(EdgeInputKind::Features) && !entry.edge_features;
        ensure!(
            !model.edge_features || entry.can_read_edge_features(has_several_types),
            "--model {} does not read the edge features of such data: use {} with --edge-input features",
            entry.name,
            list_models(|entry| entry.can_read_edge_features(has_several_types), "or")
        );
        (model.time_encoding, model.graph.timed) = ages.unzip();
        if let ModelGraph::OneType(data) = graph {
            self.add_edges(*data, &entry, &mut model)?;
        }
        if n_layers == 1 && self.jumping.is_none() {
            let has_encoder = !matches!(graph, ModelGraph::OneType(_)) || model.time_encoding.is_some();
            self.note_no_hidden_layer(&entry, has_encoder);
        }
        NodeModel::new(model)
    }

    /// Prints a note about the given flags of hidden layers, for a model whose only layer computes its output. Models of
    /// heterogeneous graphs alone compute it by a layer of their own.
    fn note_no_hidden_layer(&self, entry: &NodeModelEntry, has_encoder: bool) {
        let has_option = |field: &str| entry.options.contains_key(field);
        let flags = [
            // The hidden width is also that of MLPs, and of the input rows of an encoder.
            ("--hidden", self.hidden.is_some() && !has_encoder && !has_option("mlp_layers")),
            ("--dropout", self.dropout.is_some()),
            ("--norm", self.norm.is_some_and(|norm| norm != Normalization::None)),
            ("--heads", self.heads.is_some() && has_option("n_output_heads")),
        ];
        let unused: Vec<&str> =
            flags.iter().filter(|(_, is_given)| *is_given && entry.one_type).map(|(flag, _)| *flag).collect();
        if !unused.is_empty() {
            let unused = parse::join_words(unused, "and");
            print_rank_zero(format_args!("note: a model of one layer has no hidden layers, for {unused}"));
        }
    }

    fn choose_for_one_type(
        &self,
        data: &dyn DataDims,
        d_out: usize,
    ) -> anyhow::Result<(NodeModelEntry, NamedModel)> {
        let entry = self.require_model_of_nodes()?;
        ensure!(entry.one_type, "--model {} needs a heterogeneous dataset: use another model", entry.name);
        let model = NamedModel::new(entry.name, data.dims().0, d_out);
        Ok((entry, model))
    }

    fn choose_for_several_types(
        &self,
        metagraph: &Metagraph,
        dims: &[Option<usize>],
        edge_widths: &Option<Vec<Option<usize>>>,
        d_out: usize,
    ) -> anyhow::Result<(NodeModelEntry, NamedModel)> {
        let Some(entry) = self.entry().filter(|entry| entry.several_types) else {
            let entry = self.require_model_of_nodes()?;
            ensure!(metagraph.n_types() == 1, "{}", self.describe_types(metagraph.n_types()));
            // A dataset with one type was joined, so these are partitions.
            check_partitioned(entry.name, &entry.requirements)?;
            bail!("{CONVERT}")
        };
        let d_in = match dims[..] {
            [Some(width)] => Some(width),
            _ => self.hidden(&entry),
        };
        let d_in = d_in.with_context(|| format!("--model {} needs --hidden: add it", entry.name))?;
        let model = NamedModel::new(entry.name, d_in, d_out).graph(GraphMetadata {
            n_relations: Some(metagraph.n_relations()),
            metagraph: Some(metagraph.clone()),
            widths: Some(dims.to_vec()),
            edge_widths: edge_widths.clone(),
            ..GraphMetadata::default()
        });
        Ok((entry, model))
    }

    /// Adds what the model reads of the edges of a graph with one type of nodes.
    fn add_edges(
        &self,
        data: &dyn DataDims,
        entry: &NodeModelEntry,
        model: &mut NamedModel,
    ) -> anyhow::Result<()> {
        model.graph.d_edge = data.d_edge().filter(|_| self.edge_input != Some(EdgeInputKind::Types));
        let has_ages = model.graph.timed.as_ref().is_some_and(|timed| timed.relations.contains(&true));
        if has_ages && entry.edge_features && self.edge_input.is_none() && data.n_edge_types().is_none() {
            // The ages of edges are all that the model reads of them.
            model.graph.d_edge = model.graph.d_edge.or(Some(0));
        }
        // The types are counted only for a model that reads them, because that may read those of all edges.
        if model.requirements()?.n_relations.is_none() {
            return Ok(());
        }
        // Only GINE reads either features or types.
        let is_read = self.edge_input != Some(EdgeInputKind::Features) || model.edge_features;
        model.graph.n_relations = if is_read { data.n_edge_types() } else { None };
        ensure!(
            model.graph.n_relations.is_some(),
            "--model {} needs data with {}; partition the data again if an older version of kiln wrote the partitions",
            entry.name,
            match entry.edge_features {
                true =>
                    "edge features or edge types, and those that --edge-input names: use another model, or data with them",
                false => "edge types: use another model, or data with types",
            }
        );
        Ok(())
    }

    /// Returns true for a model of nodes of graphs with one type of nodes alone.
    pub(crate) fn needs_one_type(&self) -> bool {
        self.entry().is_some_and(|entry| !entry.several_types)
    }

    /// Returns a heterogeneous dataset with one type of nodes as the graph that such a model reads, and prints a note.
    pub(crate) fn join_relations(&self, data: Dataset) -> anyhow::Result<Dataset> {
        let name = self.name.unwrap_or(SAGE);
        let n_types = data.graph.types().n_types();
        ensure!(n_types == 1, "{}", self.describe_types(n_types));
        let data = data.to_homogeneous().with_context(|| format!("--model {name} does not read the data"))?;
        let types = match data.edge_type_names.len() {
            0 => String::new(),
            n_types => format!(", whose edge types are its {n_types} relations"),
        };
        let set = &data.name;
        print_rank_zero(format_args!("note: --model {name} reads {set} as a homogeneous graph{types}"));
        Ok(data)
    }

    /// Returns the message for a model of graphs with one type of nodes and data with others.
    fn describe_types(&self, n_types: usize) -> String {
        let names = list_models(|entry| entry.several_types, "or");
        let name = self.name.unwrap_or(SAGE);
        format!("--model {name} reads one type of nodes, and the data has {n_types}: use {names}")
    }

    /// Returns the model of nodes; `None` if the name is that of a model of graphs.
    fn entry(&self) -> Option<NodeModelEntry> {
        find_entry(self.name.unwrap_or(SAGE))
    }

    fn require_model_of_nodes(&self) -> anyhow::Result<NodeModelEntry> {
        let Some(entry) = self.entry() else {
            bail!("--model gin and simplified classify graphs: give --data a set of graphs")
        };
        Ok(entry)
    }

    /// Returns true if the model is one of nodes and has an option.
    fn has_option(&self, field: &str) -> bool {
        self.entry().is_some_and(|entry| entry.options.contains_key(field))
    }

    /// Returns the hidden width of a model of nodes; `None` if it has none.
    fn hidden(&self, entry: &NodeModelEntry) -> Option<usize> {
        let default = entry.options.get("hidden").and_then(Value::as_u64);
        self.hidden.or(default.map(|hidden| hidden as usize))
    }

    /// Returns the hidden width of a model of graphs.
    fn hidden_of_graphs(&self) -> usize {
        self.hidden.unwrap_or(64)
    }

    fn dropout(&self) -> f64 {
        // The default is the same for all models, as the help text states; that of `HgtConfig` differs.
        self.dropout.unwrap_or(0.5)
    }

    /// Returns the options that only some models have.
    fn own_options(&self) -> [ModelOption; 5] {
        // The default is the same for all models, as the help text states; that of `HgtConfig` differs.
        let heads = self.heads.unwrap_or(4);
        [
            ModelOption::new("heads", "n_heads", Some(heads)),
            ModelOption::new("output-heads", "n_output_heads", self.output_heads),
            ModelOption::new("attention-dropout", "attention_dropout", self.attention_dropout),
            ModelOption::new("bases", "n_bases", self.bases),
            ModelOption::new("mlp-layers", "mlp_layers", self.mlp_layers),
        ]
    }

    /// Returns the fields of the configuration of a model of nodes that the flags set.
    fn options(
        &self,
        entry: &NodeModelEntry,
        is_encoder: bool,
        n_layers: usize,
    ) -> anyhow::Result<Map<String, Value>> {
        // Those of all models, whose other defaults are those of the configuration.
        let of_all = [
            ("n_layers", Some(n_layers.into())),
            ("hidden", self.hidden.map(Value::from)),
            ("dropout", Some(self.dropout().into())),
            ("input_dropout", (self.input_dropout != 0.0).then(|| self.input_dropout.into())),
            ("norm", self.norm.map(serde_json::to_value).transpose()?),
            ("residual", self.residual.then_some(Value::Bool(true))),
            ("jumping", self.jumping.map(serde_json::to_value).transpose()?),
        ];
        let weight_init = self.weight_init(is_encoder);
        let epsilon = self.learn_epsilon.then_some(self.epsilon());
        let of_enums = [
            ("weight_init", weight_init.map(serde_json::to_value).transpose()?),
            ("epsilon", epsilon.map(serde_json::to_value).transpose()?),
            ("edge_weighting", self.edge_weighting.map(serde_json::to_value).transpose()?),
        ];
        let of_some =
            self.own_options().map(|option| (option.field, option.value)).into_iter().chain(of_enums);
        let of_model = of_some.filter(|(field, _)| entry.options.contains_key(*field));
        let set = of_all.into_iter().chain(of_model);
        Ok(set.filter_map(|(field, value)| Some((field.to_owned(), value?))).collect())
    }

    /// Checks that no flag of another kind of model was given.
    fn check_flags_of_nodes(&self) -> anyhow::Result<()> {
        ensure!(self.readout.is_none(), "--readout requires --model gin: remove it");
        let reads_types = self.edge_input == Some(EdgeInputKind::Types);
        self.check_options("--edge-input types requires", [("edges", reads_types)])?;
        self.check_options(
            "--mlp-layers and --learn-epsilon require",
            [("mlp_layers", self.mlp_layers.is_some()), ("epsilon", self.learn_epsilon)],
        )?;
        self.check_options("--edge-weighting requires", [("edge_weighting", self.edge_weighting.is_some())])?;
        self.check_options("--weight-init requires", [("weight_init", self.weight_init.is_some())])?;
        self.check_options(
            "--output-heads and --attention-dropout require",
            [
                ("n_output_heads", self.output_heads.is_some()),
                ("attention_dropout", self.attention_dropout.is_some()),
            ],
        )?;
        self.check_options("--heads requires", [("n_heads", self.heads.is_some())])?;
        self.check_options("--bases requires", [("n_bases", self.bases.is_some())])?;
        ensure!(
            self.output_heads.is_none() || self.jumping.is_none(),
            "--output-heads does not apply with --jumping, which computes the scores by a linear layer: remove it"
        );
        Ok(())
    }

    /// Checks that the model has those options that were given. `flags` is the beginning of the message: their flags.
    fn check_options<const N: usize>(&self, flags: &str, options: [(&str, bool); N]) -> anyhow::Result<()> {
        let has_all =
            |fields: &Map<String, Value>| options.iter().all(|(field, _)| fields.contains_key(*field));
        if options.iter().all(|&(field, is_given)| !is_given || self.has_option(field)) {
            return Ok(());
        }
        let of_gin = serde_json::from_value(serde_json::to_value(GinConfig::paper(1, 1, 1))?)?;
        let of_graphs = has_all(&of_gin).then_some(GIN);
        let of_nodes =
            node_models().into_iter().filter(|entry| has_all(&entry.options)).map(|entry| entry.name);
        let names = parse::join_words(of_graphs.into_iter().chain(of_nodes), "or");
        bail!("{flags} --model {names}: remove {}", if N == 1 { "it" } else { "them" })
    }

    /// Returns the graph classification model for this input width and number of classes.
    pub(crate) fn build_graph_model(&self, (d_in, n_classes): (usize, usize)) -> anyhow::Result<GinConfig> {
        let has_options = self.norm.is_some() || self.jumping.is_some();
        let has_shape = self.has_gin_flags() || has_options || self.layers.is_some() || self.hidden.is_some();
        match self.name.unwrap_or(GIN) {
            GIN => {}
            SIMPLIFIED => {
                ensure!(
                    !has_shape && self.dropout.is_none(),
                    "flags that shape the model require --model gin: add --model gin, or remove these flags"
                );
                return Ok(GinConfig::simplified(d_in, n_classes, n_classes));
            }
            _ => {
                let names = list_models(|_| true, "and");
                bail!("--model {names} classify nodes: use gin or simplified for graphs")
            }
        }
        let paper = GinConfig::paper(d_in, self.hidden_of_graphs(), n_classes);
        ensure!(
            self.layers != Some(1),
            "--layers is 1, but the input of a gin counts as a layer: give at least 2"
        );
        Ok(GinConfig {
            n_layers: self.layers.map_or(paper.n_layers, |n_layers| n_layers - 1),
            mlp_layers: self.mlp_layers.unwrap_or(paper.mlp_layers),
            norm: self.norm.unwrap_or(paper.norm),
            epsilon: self.epsilon(),
            readout: self.readout.unwrap_or(paper.readout),
            jumping: self.jumping.unwrap_or(paper.jumping),
            dropout: self.dropout.unwrap_or(paper.dropout),
            ..paper
        })
    }

    fn epsilon(&self) -> Epsilon {
        if self.learn_epsilon { Epsilon::Learnable(0.0) } else { Epsilon::Fixed(0.0) }
    }

    fn has_gin_flags(&self) -> bool {
        let Self { mlp_layers, learn_epsilon, readout, .. } = self;
        mlp_layers.is_some() || *learn_epsilon || readout.is_some()
    }
}

/// Returns the parser of `--model`.
fn names() -> impl TypedValueParser<Value = &'static str> {
    let of_nodes = node_models().into_iter().map(|entry| (entry.name, entry.about));
    let aliases = node_models()
        .into_iter()
        .flat_map(|entry| entry.aliases.iter().map(move |alias| (*alias, entry.name)));
    parse::choice(of_nodes.chain(GRAPH_MODELS).map(|(name, about)| (name, about, name)))
        .aliases(aliases.chain([("ginconv", GIN)]))
}

fn edge_input_help() -> String {
    let names = list_models(|entry| entry.edge_features, "and");
    format!(
        "What the model reads of an edge. Default: for {names}, its features if the data has some, else its type; {} read its \
         features only if this flag is given (sage those of heterogeneous datasets)",
        list_models(|entry| !entry.edge_features && entry.optional_edge_features.contains(&true), "and")
    )
}

fn hidden_help() -> String {
    let names = list_models(has_output_heads, "and");
    format!("Width of the hidden layers; for {names}, of all heads together. Default: 256, or 64 for gin")
}

fn heads_help() -> String {
    let names = list_models(has_output_heads, "and");
    let others =
        list_models(|entry| entry.options.contains_key("n_heads") && !has_output_heads(entry), "and");
    format!(
        "Attention heads of each layer, for {names} of each but the last; also for {others}. Their rows are concatenated. \
         Default: 4"
    )
}

fn output_heads_help() -> String {
    let names = list_models(has_output_heads, "and");
    format!("Attention heads of the last layer, for {names}. Their rows are averaged. Default: 1")
}

fn attention_dropout_help() -> String {
    let names = list_models(|entry| entry.options.contains_key("attention_dropout"), "and");
    format!("Dropout rate of the attention weights, for {names}. Default: 0")
}

fn has_output_heads(entry: &NodeModelEntry) -> bool {
    entry.options.contains_key("n_output_heads")
}

/// Returns the model of nodes with a name; `None` for the name of a model of graphs.
fn find_entry(name: &str) -> Option<NodeModelEntry> {
    node_models().into_iter().find(|entry| entry.name == name)
}

/// Returns the names of some models of nodes, with a word before the last of them.
fn list_models(has: impl Fn(&NodeModelEntry) -> bool, word: &str) -> String {
    parse::join_words(node_models().iter().filter(|entry| has(entry)).map(|entry| entry.name), word)
}

/// Returns the value of an option as a flag has it.
fn format_value(value: &Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (None, Some(number)) => number.to_string(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
#[path = "../../tests/flags/model.rs"]
mod tests;
