//! The model flags of `kiln train`, and the configurations that they select.

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use kiln::DataDims;
use kiln::graph::Metagraph;
use kiln::nn::{
    AttentionKind, EdgeInput, Epsilon, GatConfig, GcnConfig, GinConfig, GineConfig, HgtConfig,
    JumpingKnowledge, Normalization, Readout, RgcnConfig, RsageConfig, SageConfig, TypedModelConfig,
    WeightInit,
};

use crate::flags;
use crate::node_model::NodeModel;
use crate::typed::TypedNodeModel;

/// The kind of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelKind {
    /// GraphSAGE with mean aggregation, for nodes.
    Sage,
    /// GCN, normalised over the whole graph, for nodes.
    Gcn,
    /// GAT, with self-loops on the whole graph, for nodes.
    Gat,
    /// GATv2, with self-loops on the whole graph, for nodes.
    #[value(name = "gatv2")]
    GatV2,
    /// R-GCN with basis decomposition, for nodes of a graph with edge types.
    Rgcn,
    /// HGT, a transformer with attention per relation, for nodes of a heterogeneous dataset.
    Hgt,
    /// GINE, for nodes of a graph with edge features, or with edge types.
    Gine,
    /// The network of the GIN paper, for graphs.
    Gin,
    /// The network of DGL's tutorial, for graphs: two GIN layers with one linear layer each, and sum pooling.
    Simplified,
}

/// The kind of an [`EdgeInput`].
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
    #[arg(long = "model", id = "model", value_enum)]
    kind: Option<ModelKind>,
    /// Number of layers. Default: the number of fanouts, which is 3 by default, or 5 for gin, which counts the input as a
    /// layer, as in its paper.
    #[arg(long, value_parser = flags::layers)]
    pub(crate) layers: Option<usize>,
    /// Width of the hidden layers; for gat and gatv2, of all heads together. Default: 256, or 64 for gin.
    #[arg(long, value_parser = flags::size)]
    hidden: Option<usize>,
    /// Dropout rate of the hidden layers; for gin, of the scores. Default: 0.5.
    #[arg(long, value_parser = flags::rate)]
    dropout: Option<f64>,
    /// Dropout rate of the input features, for models of nodes.
    #[arg(long, value_parser = flags::rate, default_value = "0")]
    input_dropout: f64,
    /// Attention heads of each layer, for gat and gatv2 of each but the last; also for hgt. Their rows are concatenated.
    /// Default: 4.
    #[arg(long, value_parser = flags::size)]
    heads: Option<usize>,
    /// Attention heads of the last layer, for gat and gatv2. Their rows are averaged. Default: 1.
    #[arg(long, value_parser = flags::size)]
    output_heads: Option<usize>,
    /// Dropout rate of the attention weights, for gat and gatv2. Default: 0.
    #[arg(long, value_parser = flags::rate)]
    attention_dropout: Option<f64>,
    /// Bases of each layer, of which the matrix of a relation is a weighted sum, for rgcn. Default: 4.
    #[arg(long, value_parser = flags::size)]
    bases: Option<usize>,
    /// What gine reads of an edge. Default: its features if the data has some, else its type.
    #[arg(long, value_parser = flags::choice([
        ("features", "Its features", EdgeInputKind::Features),
        ("types", "Its type", EdgeInputKind::Types),
    ]))]
    edge_input: Option<EdgeInputKind>,
    /// Linear layers in the MLP of each layer, for gin and gine. Default: 2.
    #[arg(long, value_parser = flags::layers)]
    mlp_layers: Option<usize>,
    /// Normalisation of the hidden layers. Default: none, or batch for gin.
    #[arg(long, value_parser = flags::choice([
        ("batch", "Batch normalisation, for gin", Normalization::Batch),
        ("layer", "Layer normalisation, for models of nodes", Normalization::Layer),
        ("none", "No normalisation", Normalization::None),
    ]))]
    norm: Option<Normalization>,
    /// Adds a node's own row to the result of each layer of equal widths, for models of nodes.
    #[arg(long)]
    residual: bool,
    /// Distribution of the initial weights, for sage. Default: dgl, or pyg for links.
    #[arg(long, value_parser = flags::choice([
        ("dgl", "As in DGL: Xavier uniform with the gain of a ReLU", WeightInit::Dgl),
        ("pyg", "As in PyG: uniform within 1 / sqrt(width of the input)", WeightInit::Pyg),
    ]))]
    pub(crate) weight_init: Option<WeightInit>,
    /// Learns epsilon, the extra weight of a node's own row (GIN-eps), for gin and gine. Default: a fixed 0 (GIN-0).
    #[arg(long)]
    learn_epsilon: bool,
    /// Pooling of the nodes of a graph, for gin. Default: sum.
    #[arg(long, value_parser = flags::choice([
        ("sum", "Sum pooling", Readout::Sum),
        ("mean", "Mean pooling", Readout::Mean),
        ("max", "Max pooling", Readout::Max),
    ]))]
    readout: Option<Readout>,
    /// Layers from which a linear layer computes the scores (jumping knowledge). Default: all for gin; for models of nodes,
    /// the last layer is the scores.
    #[arg(long, visible_alias = "jumping-knowledge", value_parser = flags::choice([
        ("all", "The input and all layers, as in the paper, for gin", JumpingKnowledge::Sum),
        ("last", "The last layer", JumpingKnowledge::Last),
        ("cat", "All layers, concatenated, for models of nodes", JumpingKnowledge::Cat),
        ("max", "The maximum over all layers, for models of nodes", JumpingKnowledge::Max),
    ]))]
    jumping: Option<JumpingKnowledge>,
}

/// Sets the flags that the models of nodes have in common. The configurations have the same setters, but no common type.
macro_rules! shaped {
    ($args:expr, $n_layers:expr, $config:expr) => {
        $config
            .layers($n_layers)
            .hidden($args.hidden.unwrap_or(256))
            .input_dropout($args.input_dropout)
            .dropout($args.dropout.unwrap_or(0.5))
            .norm($args.norm.unwrap_or_default())
            .residual($args.residual)
            .jumping($args.jumping.unwrap_or_default())
    };
}

impl ModelArgs {
    /// Returns the kind of model, the hidden width and the dropout rate, with the defaults for flags that were not
    /// given.
    pub(crate) fn defaults(&self, is_of_graphs: bool) -> Vec<(&'static str, String)> {
        let kind = self.kind.unwrap_or(if is_of_graphs { ModelKind::Gin } else { ModelKind::Sage });
        let kind = kind.to_possible_value().map(|kind| kind.get_name().to_owned()).unwrap_or_default();
        let hidden = self.hidden.unwrap_or(if is_of_graphs { 64 } else { 256 });
        let dropout = self.dropout.unwrap_or(0.5);
        let mut defaults =
            vec![("model", kind), ("hidden", hidden.to_string()), ("dropout", dropout.to_string())];
        if self.is_gat() {
            defaults.extend([
                ("heads", self.heads.unwrap_or(4).to_string()),
                ("output-heads", self.output_heads.unwrap_or(1).to_string()),
                ("attention-dropout", self.attention_dropout.unwrap_or(0.0).to_string()),
            ]);
        }
        if self.kind == Some(ModelKind::Rgcn) {
            defaults.push(("bases", self.bases.unwrap_or(4).to_string()));
        }
        if self.kind == Some(ModelKind::Hgt) {
            defaults.push(("heads", self.heads.unwrap_or(4).to_string()));
        }
        if self.kind == Some(ModelKind::Gine) {
            defaults.push(("mlp-layers", self.mlp_layers.unwrap_or(2).to_string()));
        }
        defaults
    }

    /// Returns true if the model reads features of edges if the data has some.
    pub(crate) fn reads_edge_features(&self) -> bool {
        self.kind == Some(ModelKind::Gine) && self.edge_input != Some(EdgeInputKind::Types)
    }

    /// Returns true if the model is GraphSAGE, if it is one of nodes.
    pub(crate) fn is_sage(&self) -> bool {
        matches!(self.kind, None | Some(ModelKind::Sage))
    }

    /// Returns true if the model needs self loops, and therefore its own sampling rule.
    pub(crate) fn has_own_rule(&self) -> bool {
        self.kind == Some(ModelKind::Gcn) || self.is_gat()
    }

    fn is_gat(&self) -> bool {
        matches!(self.kind, Some(ModelKind::Gat | ModelKind::GatV2))
    }

    /// Returns the model of nodes for a dataset: the encoder of links, whose output rows have the width `embedding`, or else a
    /// classifier.
    pub(crate) fn of_nodes(
        &self,
        data: &impl DataDims,
        embedding: Option<usize>,
        n_layers: usize,
    ) -> anyhow::Result<NodeModel> {
        self.check_flags_of_nodes()?;
        let (d_in, n_classes) = data.dims();
        let n_outputs = embedding.unwrap_or(n_classes);
        let kind = self.kind.unwrap_or(ModelKind::Sage);
        match kind {
            ModelKind::Sage => {
                let weight_init = self.initial_weights(embedding.is_some());
                Ok(NodeModel::Sage(
                    shaped!(self, n_layers, SageConfig::new(d_in, n_outputs)).weight_init(weight_init),
                ))
            }
            ModelKind::Gcn => Ok(NodeModel::Gcn(shaped!(self, n_layers, GcnConfig::new(d_in, n_outputs)))),
            ModelKind::Gat | ModelKind::GatV2 => {
                let is_v2 = kind == ModelKind::GatV2;
                let attention = if is_v2 { AttentionKind::GatV2 } else { AttentionKind::Gat };
                let config = shaped!(self, n_layers, GatConfig::new(d_in, n_outputs))
                    .attention(attention)
                    .heads(self.heads.unwrap_or(4))
                    .output_heads(self.output_heads.unwrap_or(1))
                    .attention_dropout(self.attention_dropout.unwrap_or(0.0));
                Ok(NodeModel::Gat(config))
            }
            ModelKind::Rgcn => {
                let Some(n_relations) = data.n_edge_types() else {
                    bail!(
                        "--model rgcn needs data with edge types: use another model, or data with types; partition \
                         the data again if an older version of kiln wrote the partitions"
                    );
                };
                let config = shaped!(self, n_layers, RgcnConfig::new(d_in, n_outputs, n_relations));
                Ok(NodeModel::Rgcn(config.bases(self.bases.unwrap_or(4))))
            }
            ModelKind::Gine => {
                let features = data.d_edge().filter(|_| self.edge_input != Some(EdgeInputKind::Types));
                let types =
                    || data.n_edge_types().filter(|_| self.edge_input != Some(EdgeInputKind::Features));
                let edges = features.map(EdgeInput::Features).or_else(|| types().map(EdgeInput::Types));
                let Some(edges) = edges else {
                    bail!(
                        "--model gine needs data with edge features or edge types, and those that --edge-input names: use \
                         another model, or data with them; partition the data again if an older version of kiln wrote the \
                         partitions"
                    )
                };
                let config = shaped!(self, n_layers, GineConfig::new(d_in, n_outputs, edges));
                Ok(NodeModel::Gine(config.mlp_layers(self.mlp_layers.unwrap_or(2)).epsilon(self.epsilon())))
            }
            ModelKind::Hgt => bail!("--model hgt needs a heterogeneous dataset: use another model"),
            ModelKind::Gin | ModelKind::Simplified => {
                bail!("--model gin and simplified classify graphs: give --data a set of graphs")
            }
        }
    }

    /// Returns the model for the nodes of a heterogeneous dataset, as [`ModelArgs::of_nodes`] does. Its input rows have the
    /// hidden width, unless there is one type of nodes with features.
    pub(crate) fn of_typed_nodes(
        &self,
        metagraph: &Metagraph,
        dims: &[Option<usize>],
        embedding: Option<usize>,
        n_classes: usize,
        n_layers: usize,
    ) -> anyhow::Result<TypedNodeModel> {
        self.check_flags_of_nodes()?;
        let n_outputs = embedding.unwrap_or(n_classes);
        let hidden = self.hidden.unwrap_or(256);
        let d_in = match dims[..] {
            [Some(width)] => width,
            _ => hidden,
        };
        let dims = dims.to_vec();
        match self.kind.unwrap_or(ModelKind::Sage) {
            ModelKind::Sage => {
                let config = shaped!(self, n_layers, RsageConfig::new(d_in, n_outputs).metagraph(metagraph));
                let config = config.weight_init(self.initial_weights(embedding.is_some()));
                Ok(TypedNodeModel::Rsage(TypedModelConfig::new(dims, config)))
            }
            ModelKind::Rgcn => {
                let config =
                    shaped!(self, n_layers, RgcnConfig::new(d_in, n_outputs, metagraph.n_relations()));
                let config = config.bases(self.bases.unwrap_or(4));
                Ok(TypedNodeModel::Rgcn(TypedModelConfig::new(dims, config)))
            }
            ModelKind::Hgt => {
                let config = shaped!(self, n_layers, HgtConfig::new(d_in, n_outputs).metagraph(metagraph));
                let config = config.jumping(self.jumping.unwrap_or(JumpingKnowledge::Last));
                let config = config.heads(self.heads.unwrap_or(4));
                Ok(TypedNodeModel::Hgt(TypedModelConfig::new(dims, config)))
            }
            _ => bail!("--model has no layers for a heterogeneous dataset: use sage, rgcn or hgt"),
        }
    }

    /// Returns the initial weights of GraphSAGE: those of the flags, or else small ones for an encoder of links, so that dot
    /// products are small.
    fn initial_weights(&self, is_encoder: bool) -> WeightInit {
        let default = if is_encoder { WeightInit::Pyg } else { WeightInit::default() };
        self.weight_init.unwrap_or(default)
    }

    /// Checks that no flag of another kind of model was given.
    fn check_flags_of_nodes(&self) -> anyhow::Result<()> {
        ensure!(self.readout.is_none(), "--readout requires --model gin: remove it");
        ensure!(
            self.edge_input.is_none() || self.kind == Some(ModelKind::Gine),
            "--edge-input requires --model gine: remove it"
        );
        ensure!(
            self.kind == Some(ModelKind::Gine) || !self.has_gin_flags(),
            "--mlp-layers and --learn-epsilon require --model gin or gine: remove them"
        );
        ensure!(
            self.weight_init.is_none() || self.is_sage(),
            "--weight-init requires --model sage: remove it"
        );
        ensure!(
            self.is_gat() || self.output_heads.is_none() && self.attention_dropout.is_none(),
            "--output-heads and --attention-dropout require --model gat or gatv2: remove them"
        );
        ensure!(
            self.is_gat() || self.kind == Some(ModelKind::Hgt) || self.heads.is_none(),
            "--heads requires --model gat, gatv2 or hgt: remove it"
        );
        ensure!(
            self.bases.is_none() || self.kind == Some(ModelKind::Rgcn),
            "--bases requires --model rgcn: remove it"
        );
        ensure!(
            self.output_heads.is_none() || self.jumping.is_none(),
            "--output-heads does not apply with --jumping, which computes the scores by a linear layer: remove it"
        );
        Ok(())
    }

    /// Returns the graph classification model for this input width and number of classes.
    pub(crate) fn of_graphs(&self, (d_in, n_classes): (usize, usize)) -> anyhow::Result<GinConfig> {
        let has_options = self.norm.is_some() || self.jumping.is_some();
        let has_shape = self.has_gin_flags() || has_options || self.layers.is_some() || self.hidden.is_some();
        match self.kind.unwrap_or(ModelKind::Gin) {
            ModelKind::Gin => {}
            ModelKind::Simplified => {
                ensure!(
                    !has_shape && self.dropout.is_none(),
                    "flags that shape the model require --model gin: add --model gin, or remove these flags"
                );
                return Ok(GinConfig::simplified(d_in, n_classes, n_classes));
            }
            ModelKind::Sage
            | ModelKind::Gcn
            | ModelKind::Gat
            | ModelKind::GatV2
            | ModelKind::Rgcn
            | ModelKind::Hgt
            | ModelKind::Gine => {
                bail!(
                    "--model sage, gcn, gat, gatv2, rgcn and gine classify nodes: use gin or simplified for graphs"
                )
            }
        }
        let paper = GinConfig::paper(d_in, self.hidden.unwrap_or(64), n_classes);
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
