//! Sets of graphs, and the networks that classify them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use kiln_data::{GraphDataset, Kind};
use kiln_feature::FeatureSource;
use kiln_graph::NodeId;
use kiln_loader::{GraphFetch, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig};
use kiln_nn::{Epsilon, GinConfig, Jumping, Norm, Readout};

use crate::{flags, say};

/// Where a set of graphs comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GraphSource {
    /// 188 molecules, built in.
    Mutag,
    /// A file of DGL's `GINDataset`, or a folder of the TU collection.
    Path(PathBuf),
}

/// What a node's features are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NodeFeatures {
    /// Those of the data, else its nodes' labels, else a constant.
    Auto,
    /// Those of the data.
    Data,
    /// A column for each label of the data's nodes.
    Labels,
    /// A column for each degree that occurs.
    Degrees,
    /// The number 1.
    Constant,
}

/// Which graphs.
#[derive(Debug, Args)]
pub struct GraphArgs {
    /// Graphs: `mutag` (built in), or the path of a file of DGL's GIN collection or of a folder of the TU collection.
    #[arg(long, value_parser = flags::graphs, default_value = "mutag")]
    data: GraphSource,
    /// Features of the nodes.
    #[arg(long, value_enum, default_value = "auto")]
    node_features: NodeFeatures,
}

/// A set of graphs with features.
#[derive(Debug)]
pub struct Graphs {
    /// The graphs and their classes.
    pub set: GraphDataset,
    /// What the model reads of each node.
    pub features: Arc<dyn FeatureSource>,
}

impl GraphArgs {
    /// Opens the set and says what it took and noticed.
    ///
    /// # Errors
    /// What the data crate says, and features that the set does not have.
    pub fn open(&self) -> anyhow::Result<Graphs> {
        let set = self.load()?;
        say(&set);
        for note in &set.notes {
            say(format_args!("note: {note}"));
        }
        let features = match (self.node_features, set.features(), set.node_labels()) {
            (NodeFeatures::Auto | NodeFeatures::Data, Some(features), _) => features.clone(),
            (NodeFeatures::Data, None, _) => {
                bail!("{} has no node features: choose --node-features", set.name)
            }
            (NodeFeatures::Labels, _, _) | (NodeFeatures::Auto, None, Some(_)) => {
                set.one_hot_node_labels()?
            }
            (NodeFeatures::Degrees, _, _) => set.one_hot_degrees()?,
            (NodeFeatures::Constant, _, _) | (NodeFeatures::Auto, None, None) => set.constant_features()?,
        };
        Ok(Graphs { set, features })
    }

    fn load(&self) -> anyhow::Result<GraphDataset> {
        let GraphSource::Path(path) = &self.data else {
            return kiln_data::mutag().context("loading mutag");
        };
        let started = Instant::now();
        let kind = kiln_data::recognize(path)?;
        let set = match kind {
            Kind::Gin => kiln_data::gin::read(path)?,
            Kind::Tu => kiln_data::tu::read(path)?,
            _ => bail!("{} is {kind}: expected a set of graphs", path.display()),
        };
        let ms = started.elapsed().as_secs_f64() * 1e3;
        say(format_args!("{} is {kind}, opened in {ms:.0} ms", path.display()));
        Ok(set)
    }
}

impl Graphs {
    /// Batches of these graphs.
    ///
    /// # Errors
    /// What the loader says.
    pub fn loader(
        &self,
        graphs: &[NodeId],
        items: ItemSamplerConfig,
        config: LoaderConfig,
    ) -> kiln_loader::Result<Loader<GraphFetch<dyn FeatureSource>>> {
        let Self { set, features } = self;
        let offsets = set.node_offsets().clone();
        let fetch = GraphFetch::new(set.graph().clone(), offsets, features.clone(), set.labels().clone());
        Loader::new(ItemSampler::new(graphs, items)?, fetch, config)
    }
}

/// Kind of model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GraphModel {
    /// Two layers of one product each and a sum over each graph's nodes: that of DGL's tutorial.
    Simplified,
    /// As in the GIN paper.
    Gin,
}

/// How nodes become a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pooling {
    /// By their sum.
    Sum,
    /// By their mean.
    Mean,
    /// By their largest values.
    Max,
}

/// Whether batches are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Normalisation {
    /// By their own statistics.
    Batch,
    /// Not at all.
    None,
}

/// Which layers are read out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layers {
    /// The input and all layers, as in the paper.
    All,
    /// The last one.
    Last,
}

/// Which model of graphs. All but the kind are for `--model gin`.
#[derive(Debug, Args)]
pub struct GinArgs {
    /// Kind of model.
    #[arg(long = "model", id = "model", value_enum, default_value = "simplified")]
    kind: GraphModel,
    /// Number of layers, the input counted as one, as in the paper.
    #[arg(long, value_parser = flags::gin_layers, default_value = "5")]
    layers: usize,
    /// Width of the layers.
    #[arg(long, value_parser = flags::size, default_value = "64")]
    hidden: usize,
    /// Products in a layer.
    #[arg(long, value_parser = flags::layers, default_value = "2")]
    mlp_layers: usize,
    /// Normalisation.
    #[arg(long, value_enum, default_value = "batch")]
    norm: Normalisation,
    /// Learns by how much a node's own row weighs more than a neighbour's (GIN-eps); 0 otherwise (GIN-0).
    #[arg(long)]
    learn_epsilon: bool,
    /// How a graph's nodes are put together.
    #[arg(long, value_enum, default_value = "sum")]
    readout: Pooling,
    /// Layers that are read out.
    #[arg(long, value_enum, default_value = "all")]
    jumping: Layers,
    /// Fraction of the scores that is dropped in training.
    #[arg(long, value_parser = flags::rate, default_value = "0.5")]
    dropout: f64,
}

impl GinArgs {
    /// The model for these graphs.
    pub fn config(&self, graphs: &Graphs) -> GinConfig {
        let (d_in, n_classes) = (graphs.features.dim(), graphs.set.labels().n_classes());
        if self.kind == GraphModel::Simplified {
            return GinConfig::simplified(d_in, n_classes, n_classes);
        }
        GinConfig {
            n_layers: self.layers - 1,
            mlp_layers: self.mlp_layers,
            norm: match self.norm {
                Normalisation::Batch => Norm::Batch,
                Normalisation::None => Norm::None,
            },
            epsilon: if self.learn_epsilon { Epsilon::Learnable(0.0) } else { Epsilon::Fixed(0.0) },
            readout: match self.readout {
                Pooling::Sum => Readout::Sum,
                Pooling::Mean => Readout::Mean,
                Pooling::Max => Readout::Max,
            },
            jumping: match self.jumping {
                Layers::All => Jumping::Sum,
                Layers::Last => Jumping::Last,
            },
            dropout: self.dropout,
            ..GinConfig::paper(d_in, self.hidden, n_classes)
        }
    }
}
