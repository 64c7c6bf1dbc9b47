//! The model of `kiln train`.

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use kiln::nn::{
    Aggregate, Epsilon, GcnConfig, GinConfig, JumpingKnowledge, Normalization, Readout, SageConfig,
};
use kiln::sample::Fanout;

use crate::flags;

/// A kind of model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelKind {
    /// GraphSAGE with means, of nodes.
    Sage,
    /// Graph convolutions, normalised over the whole graph, of nodes.
    Gcn,
    /// The network of the GIN paper, of graphs.
    Gin,
    /// Two GIN layers of one product each and a sum over each graph's nodes: that of DGL's tutorial.
    Simplified,
}

/// The shape of the model.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Kind of model: sage if not given, and gin for graphs.
    #[arg(long = "model", id = "model", value_enum)]
    kind: Option<ModelKind>,
    /// Number of layers: as many as fanouts if not given. Of gin the input counts as one, as in the paper: 5 if not given.
    #[arg(long, value_parser = flags::layers)]
    layers: Option<usize>,
    /// Width of the hidden layers: 256 if not given, and 64 of gin.
    #[arg(long, value_parser = flags::size)]
    hidden: Option<usize>,
    /// Fraction of the hidden values, of gin of the scores, that is dropped in training: 0.5 if not given.
    #[arg(long, value_parser = flags::rate)]
    dropout: Option<f64>,
    /// Fraction of the input features that is dropped in training, of sage and gcn.
    #[arg(long, value_parser = flags::rate, default_value = "0")]
    input_dropout: f64,
    /// With `--model gin`: products in a layer; 2 if not given.
    #[arg(long, value_parser = flags::layers)]
    mlp_layers: Option<usize>,
    /// With `--model gin`: normalisation; batch if not given.
    #[arg(long, value_parser = flags::choice([
        ("batch", "By the statistics of batches", Normalization::Batch),
        ("none", "Not at all", Normalization::None),
    ]))]
    norm: Option<Normalization>,
    /// With `--model gin`: learns by how much a node's own row weighs more than a neighbour's (GIN-eps); 0 if not given (GIN-0).
    #[arg(long)]
    learn_epsilon: bool,
    /// With `--model gin`: how a graph's nodes are put together; sum if not given.
    #[arg(long, value_parser = flags::choice([
        ("sum", "By their sum", Readout::Sum),
        ("mean", "By their mean", Readout::Mean),
        ("max", "By their largest values", Readout::Max),
    ]))]
    readout: Option<Readout>,
    /// With `--model gin`: layers that are read out; all if not given.
    #[arg(long, value_parser = flags::choice([
        ("all", "The input and all layers, as in the paper", JumpingKnowledge::Sum),
        ("last", "The last one", JumpingKnowledge::Last),
    ]))]
    jumping: Option<JumpingKnowledge>,
}

/// A model of nodes.
pub(crate) enum NodeModel {
    Sage(SageConfig),
    Gcn(GcnConfig),
}

impl ModelArgs {
    /// The number of layers, the width and the dropout that were not given.
    pub(crate) fn defaults(&self, is_of_graphs: bool) -> Vec<(&'static str, String)> {
        let kind = self.kind.unwrap_or(if is_of_graphs { ModelKind::Gin } else { ModelKind::Sage });
        let kind = kind.to_possible_value().map(|kind| kind.get_name().to_owned()).unwrap_or_default();
        let hidden = self.hidden.unwrap_or(if is_of_graphs { 64 } else { 256 });
        let dropout = self.dropout.unwrap_or(0.5);
        vec![("model", kind), ("hidden", hidden.to_string()), ("dropout", dropout.to_string())]
    }

    /// Whether a GCN was asked for.
    pub(crate) fn is_gcn(&self) -> bool {
        self.kind == Some(ModelKind::Gcn)
    }

    /// A fanout for each layer: those given, or the only one given for every layer.
    pub(crate) fn fanouts(&self, given: &[Fanout]) -> anyhow::Result<Vec<Fanout>> {
        match (self.layers, given) {
            (Some(n_layers), [fanout]) => Ok(vec![*fanout; n_layers]),
            (Some(n_layers), fanouts) if fanouts.len() != n_layers => {
                bail!("{} fanouts for --layers {n_layers}: give one a layer, or one for all", fanouts.len())
            }
            _ => Ok(given.to_vec()),
        }
    }

    /// The model of nodes with these dimensions.
    pub(crate) fn of_nodes(
        &self,
        (d_in, n_classes): (usize, usize),
        n_layers: usize,
    ) -> anyhow::Result<NodeModel> {
        ensure!(
            !self.has_gin_flags(),
            "flags that shape a gin are for --model gin on graphs: leave them out"
        );
        let (hidden, dropout) = (self.hidden.unwrap_or(256), self.dropout.unwrap_or(0.5));
        let &Self { input_dropout, .. } = self;
        match self.kind.unwrap_or(ModelKind::Sage) {
            ModelKind::Sage => {
                let aggregate = Aggregate::Mean;
                Ok(NodeModel::Sage(SageConfig {
                    d_in,
                    hidden,
                    n_classes,
                    n_layers,
                    aggregate,
                    input_dropout,
                    dropout,
                }))
            }
            ModelKind::Gcn => {
                Ok(NodeModel::Gcn(GcnConfig { d_in, hidden, n_classes, n_layers, input_dropout, dropout }))
            }
            ModelKind::Gin | ModelKind::Simplified => {
                bail!("--model gin is for graphs: give --data a set of graphs")
            }
        }
    }

    /// The model of graphs with these dimensions.
    pub(crate) fn of_graphs(&self, (d_in, n_classes): (usize, usize)) -> anyhow::Result<GinConfig> {
        let has_shape = self.has_gin_flags() || self.layers.is_some() || self.hidden.is_some();
        match self.kind.unwrap_or(ModelKind::Gin) {
            ModelKind::Gin => {}
            ModelKind::Simplified => {
                ensure!(
                    !has_shape && self.dropout.is_none(),
                    "flags that shape the model are for --model gin: add it"
                );
                return Ok(GinConfig::simplified(d_in, n_classes, n_classes));
            }
            ModelKind::Sage | ModelKind::Gcn => {
                bail!("--model sage and gcn are for nodes: graphs take gin or simplified")
            }
        }
        let paper = GinConfig::paper(d_in, self.hidden.unwrap_or(64), n_classes);
        ensure!(self.layers != Some(1), "--layers 1: the input of a gin counts as a layer, give at least 2");
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
        let Self { mlp_layers, norm, learn_epsilon, readout, jumping, .. } = self;
        mlp_layers.is_some() || norm.is_some() || *learn_epsilon || readout.is_some() || jumping.is_some()
    }
}
