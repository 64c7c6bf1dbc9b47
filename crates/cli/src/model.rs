//! The model flags of `kiln train`, and the configurations that they select.

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use kiln::nn::{
    Epsilon, GcnConfig, GinConfig, JumpingKnowledge, Normalization, Readout, SageConfig, WeightInit,
};
use kiln::sample::Fanout;

use crate::flags;

/// The kind of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelKind {
    /// GraphSAGE with mean aggregation, for nodes.
    Sage,
    /// GCN, normalised over the whole graph, for nodes.
    Gcn,
    /// The network of the GIN paper, for graphs.
    Gin,
    /// The network of DGL's tutorial, for graphs: two GIN layers with one linear layer each, and sum pooling.
    Simplified,
}

/// The flags for the model and its shape.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Kind of model. Default: sage, or gin for graphs.
    #[arg(long = "model", id = "model", value_enum)]
    kind: Option<ModelKind>,
    /// Number of layers. Default: the number of fanouts, or 5 for gin, which counts the input as a layer, as in its
    /// paper.
    #[arg(long, value_parser = flags::layers)]
    layers: Option<usize>,
    /// Width of the hidden layers. Default: 256, or 64 for gin.
    #[arg(long, value_parser = flags::size)]
    hidden: Option<usize>,
    /// Dropout rate of the hidden layers; for gin, of the scores. Default: 0.5.
    #[arg(long, value_parser = flags::rate)]
    dropout: Option<f64>,
    /// Dropout rate of the input features, for sage and gcn.
    #[arg(long, value_parser = flags::rate, default_value = "0")]
    input_dropout: f64,
    /// Linear layers in the MLP of each layer, for gin. Default: 2.
    #[arg(long, value_parser = flags::layers)]
    mlp_layers: Option<usize>,
    /// Normalisation of the hidden layers. Default: none, or batch for gin.
    #[arg(long, value_parser = flags::choice([
        ("batch", "Batch normalisation, for gin", Normalization::Batch),
        ("layer", "Layer normalisation, for sage and gcn", Normalization::Layer),
        ("none", "No normalisation", Normalization::None),
    ]))]
    norm: Option<Normalization>,
    /// Adds a node's own row to the result of each layer of equal widths, for sage and gcn.
    #[arg(long)]
    residual: bool,
    /// Distribution of the initial weights, for sage. Default: dgl, or pyg for links.
    #[arg(long, value_parser = flags::choice([
        ("dgl", "As in DGL: Xavier uniform with the gain of a ReLU", WeightInit::Dgl),
        ("pyg", "As in PyG: uniform within 1 / sqrt(width of the input)", WeightInit::Pyg),
    ]))]
    pub(crate) weight_init: Option<WeightInit>,
    /// Learns epsilon, the extra weight of a node's own row (GIN-eps), for gin. Default: a fixed 0 (GIN-0).
    #[arg(long)]
    learn_epsilon: bool,
    /// Pooling of the nodes of a graph, for gin. Default: sum.
    #[arg(long, value_parser = flags::choice([
        ("sum", "Sum pooling", Readout::Sum),
        ("mean", "Mean pooling", Readout::Mean),
        ("max", "Max pooling", Readout::Max),
    ]))]
    readout: Option<Readout>,
    /// Layers from which a linear layer computes the scores (jumping knowledge). Default: all for gin; for sage and gcn,
    /// the last layer is the scores.
    #[arg(long, visible_alias = "jumping-knowledge", value_parser = flags::choice([
        ("all", "The input and all layers, as in the paper, for gin", JumpingKnowledge::Sum),
        ("last", "The last layer", JumpingKnowledge::Last),
        ("cat", "All layers, concatenated, for sage and gcn", JumpingKnowledge::Cat),
        ("max", "The maximum over all layers, for sage and gcn", JumpingKnowledge::Max),
    ]))]
    jumping: Option<JumpingKnowledge>,
}

/// The configuration of a model for node classification.
pub(crate) enum NodeModel {
    Sage(SageConfig),
    Gcn(GcnConfig),
}

impl ModelArgs {
    /// Returns the kind of model, the hidden width and the dropout rate, with the defaults for flags that were not
    /// given.
    pub(crate) fn defaults(&self, is_of_graphs: bool) -> Vec<(&'static str, String)> {
        let kind = self.kind.unwrap_or(if is_of_graphs { ModelKind::Gin } else { ModelKind::Sage });
        let kind = kind.to_possible_value().map(|kind| kind.get_name().to_owned()).unwrap_or_default();
        let hidden = self.hidden.unwrap_or(if is_of_graphs { 64 } else { 256 });
        let dropout = self.dropout.unwrap_or(0.5);
        vec![("model", kind), ("hidden", hidden.to_string()), ("dropout", dropout.to_string())]
    }

    /// Returns true if `--model gcn` was given.
    pub(crate) fn is_gcn(&self) -> bool {
        self.kind == Some(ModelKind::Gcn)
    }

    /// Returns a fanout for each layer: the given ones, or a single given fanout repeated `--layers` times.
    pub(crate) fn fanouts(&self, given: &[Fanout]) -> anyhow::Result<Vec<Fanout>> {
        match (self.layers, given) {
            (Some(n_layers), [fanout]) => Ok(vec![*fanout; n_layers]),
            (Some(n_layers), fanouts) if fanouts.len() != n_layers => {
                bail!(
                    "--fanouts has {} values for --layers {n_layers}: give one per layer, or one for all",
                    fanouts.len()
                )
            }
            _ => Ok(given.to_vec()),
        }
    }

    /// Returns the node classification model for this input width and number of classes.
    pub(crate) fn of_nodes(
        &self,
        (d_in, n_classes): (usize, usize),
        n_layers: usize,
    ) -> anyhow::Result<NodeModel> {
        ensure!(
            !self.has_gin_flags(),
            "--mlp-layers, --learn-epsilon and --readout require --model gin: remove them"
        );
        ensure!(
            self.weight_init.is_none() || !self.is_gcn(),
            "--weight-init requires --model sage: remove it"
        );
        let (hidden, dropout) = (self.hidden.unwrap_or(256), self.dropout.unwrap_or(0.5));
        let &Self { input_dropout, residual, .. } = self;
        let (norm, jumping) = (self.norm.unwrap_or_default(), self.jumping.unwrap_or_default());
        match self.kind.unwrap_or(ModelKind::Sage) {
            ModelKind::Sage => Ok(NodeModel::Sage(
                SageConfig::new(d_in, n_classes)
                    .layers(n_layers)
                    .hidden(hidden)
                    .input_dropout(input_dropout)
                    .dropout(dropout)
                    .norm(norm)
                    .residual(residual)
                    .jumping(jumping)
                    .weight_init(self.weight_init.unwrap_or_default()),
            )),
            ModelKind::Gcn => Ok(NodeModel::Gcn(
                GcnConfig::new(d_in, n_classes)
                    .layers(n_layers)
                    .hidden(hidden)
                    .input_dropout(input_dropout)
                    .dropout(dropout)
                    .norm(norm)
                    .residual(residual)
                    .jumping(jumping),
            )),
            ModelKind::Gin | ModelKind::Simplified => {
                bail!("--model gin and simplified classify graphs: give --data a set of graphs")
            }
        }
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
            ModelKind::Sage | ModelKind::Gcn => {
                bail!("--model sage and gcn classify nodes: use gin or simplified for graphs")
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
            epsilon: if self.learn_epsilon { Epsilon::Learnable(0.0) } else { Epsilon::Fixed(0.0) },
            readout: self.readout.unwrap_or(paper.readout),
            jumping: self.jumping.unwrap_or(paper.jumping),
            dropout: self.dropout.unwrap_or(paper.dropout),
            ..paper
        })
    }

    fn has_gin_flags(&self) -> bool {
        let Self { mlp_layers, learn_epsilon, readout, .. } = self;
        mlp_layers.is_some() || *learn_epsilon || readout.is_some()
    }
}
