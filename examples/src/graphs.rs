//! Sets of graphs, and the networks that classify them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use kiln_data::{DatasetFormat, GraphDataset};
use kiln_feature::FeatureStore;
use kiln_graph::NodeId;
use kiln_loader::{GraphBatcher, Loader};
use kiln_nn::{Epsilon, Gin, GinConfig, JumpingKnowledge, Normalization, Readout};
use kiln_train::{DeviceBatcher, GraphClassification, Trainer};

use crate::run::RunArgs;
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
    pub features: Arc<dyn FeatureStore>,
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
        let labels = set.node_labels().filter(|labels| 0 < labels.n_classes());
        let features = match (self.node_features, set.features(), labels) {
            (NodeFeatures::Auto | NodeFeatures::Data, Some(features), _) => features.clone(),
            (NodeFeatures::Data, None, _) => {
                bail!("{} has no node features: choose --node-features", set.name)
            }
            (NodeFeatures::Labels, _, _) | (NodeFeatures::Auto, None, Some(_)) => {
                set.one_hot_node_labels()?
            }
            (NodeFeatures::Degrees, _, _) => set.one_hot_degrees()?,
            (NodeFeatures::Constant, _, _) | (NodeFeatures::Auto, None, None) => set.constant_features(),
        };
        Ok(Graphs { set, features })
    }

    fn load(&self) -> anyhow::Result<GraphDataset> {
        let GraphSource::Path(path) = &self.data else {
            return kiln_data::mutag().context("loading mutag");
        };
        let started = Instant::now();
        let kind = kiln_data::detect_format(path)?;
        let set = match kind {
            DatasetFormat::Gin => kiln_data::gin::read(path)?,
            DatasetFormat::Tu => kiln_data::tu::read(path)?,
            _ => bail!("{} is {kind}: expected a set of graphs", path.display()),
        };
        let ms = started.elapsed().as_secs_f64() * 1e3;
        say(format_args!("{} is {kind}, opened in {ms:.0} ms", path.display()));
        Ok(set)
    }
}

/// What makes the batches of a program on graphs.
pub type GraphLoader = Loader<DeviceBatcher<GraphBatcher<dyn FeatureStore>>>;

/// What such a program learns.
pub type GinTask = GraphClassification<Gin>;

impl Graphs {
    /// A rank's batches of these graphs.
    ///
    /// # Errors
    /// The errors of the loader.
    pub fn loader(
        &self,
        trainer: &Trainer<GinTask>,
        graphs: &[NodeId],
        run: &RunArgs,
    ) -> kiln_train::Result<GraphLoader> {
        trainer.loader(trainer.items(graphs, run.batches())?, self.batcher(), run.loader())
    }

    fn batcher(&self) -> GraphBatcher<dyn FeatureStore> {
        let Self { set, features } = self;
        GraphBatcher::new(
            set.graph().clone(),
            set.node_offsets().clone(),
            features.clone(),
            set.labels().clone(),
        )
    }
}

/// Kind of model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Network {
    /// Two layers of one product each and a sum over each graph's nodes: that of DGL's tutorial.
    Simplified,
    /// As in the GIN paper.
    Gin,
}

/// How nodes become a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReadoutKind {
    /// By their sum.
    Sum,
    /// By their mean.
    Mean,
    /// By their largest values.
    Max,
}

/// Whether batches are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NormKind {
    /// By their own statistics.
    Batch,
    /// Not at all.
    None,
}

/// Which layers are read out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum JumpingKind {
    /// The input and all layers, as in the paper.
    All,
    /// The last one.
    Last,
}

/// Which model of graphs.
#[derive(Debug, Args)]
pub struct GinArgs {
    /// Kind of model.
    #[arg(long = "model", id = "model", value_enum, default_value = "simplified")]
    kind: Network,
    #[command(flatten)]
    gin: PaperArgs,
}

/// Which network of the GIN paper. Flags that are not given are the paper's.
#[derive(Debug, Clone, PartialEq, Args)]
struct PaperArgs {
    /// With `--model gin`: number of layers, the input counted as one, as in the paper; 5 if not given.
    #[arg(long, value_parser = flags::gin_layers)]
    layers: Option<usize>,
    /// With `--model gin`: width of the layers; 64 if not given.
    #[arg(long, value_parser = flags::size)]
    hidden: Option<usize>,
    /// With `--model gin`: products in a layer; 2 if not given.
    #[arg(long, value_parser = flags::layers)]
    mlp_layers: Option<usize>,
    /// With `--model gin`: normalisation; batch if not given.
    #[arg(long, value_enum)]
    norm: Option<NormKind>,
    /// With `--model gin`: learns by how much a node's own row weighs more than a neighbour's (GIN-eps); 0 if not given (GIN-0).
    #[arg(long)]
    learn_epsilon: bool,
    /// With `--model gin`: how a graph's nodes are put together; sum if not given.
    #[arg(long, value_enum)]
    readout: Option<ReadoutKind>,
    /// With `--model gin`: layers that are read out; all if not given.
    #[arg(long, value_enum)]
    jumping: Option<JumpingKind>,
    /// With `--model gin`: fraction of the scores that is dropped in training; 0.5 if not given.
    #[arg(long, value_parser = flags::rate)]
    dropout: Option<f64>,
}

impl GinArgs {
    /// The model for these graphs.
    ///
    /// # Errors
    /// For flags of another model.
    pub fn config(&self, graphs: &Graphs) -> anyhow::Result<GinConfig> {
        let (d_in, n_classes) = (graphs.features.dim(), graphs.set.labels().n_classes());
        match self.kind {
            Network::Gin => Ok(self.gin.config(d_in, n_classes)),
            Network::Simplified => {
                ensure!(
                    self.gin == PaperArgs::NONE,
                    "flags that shape the model are for --model gin: add it"
                );
                Ok(GinConfig::simplified(d_in, n_classes, n_classes))
            }
        }
    }
}

impl PaperArgs {
    const NONE: Self = Self {
        layers: None,
        hidden: None,
        mlp_layers: None,
        norm: None,
        learn_epsilon: false,
        readout: None,
        jumping: None,
        dropout: None,
    };

    fn config(&self, d_in: usize, n_classes: usize) -> GinConfig {
        let paper = GinConfig::paper(d_in, self.hidden.unwrap_or(64), n_classes);
        GinConfig {
            n_layers: self.layers.map_or(paper.n_layers, |n_layers| n_layers - 1),
            mlp_layers: self.mlp_layers.unwrap_or(paper.mlp_layers),
            norm: match self.norm {
                Some(NormKind::None) => Normalization::None,
                Some(NormKind::Batch) | None => Normalization::Batch,
            },
            epsilon: if self.learn_epsilon { Epsilon::Learnable(0.0) } else { Epsilon::Fixed(0.0) },
            readout: match self.readout {
                Some(ReadoutKind::Mean) => Readout::Mean,
                Some(ReadoutKind::Max) => Readout::Max,
                Some(ReadoutKind::Sum) | None => Readout::Sum,
            },
            jumping: match self.jumping {
                Some(JumpingKind::Last) => JumpingKnowledge::Last,
                Some(JumpingKind::All) | None => JumpingKnowledge::Sum,
            },
            dropout: self.dropout.unwrap_or(paper.dropout),
            ..paper
        }
    }
}
