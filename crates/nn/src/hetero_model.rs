use std::fmt;
use std::marker::PhantomData;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::kind::KindName;
use crate::{
    AgeEncoder, AgeEncoderConfig, BlockModel, Error, ForwardContext, GraphMetadata, GraphRequirements,
    InputAggregation, InputEncoder, InputEncoderConfig, InputFormat, LayerSize, ModelConfig, Result,
    TimeEncoderConfig, TypeOrder,
};

/// A model of the nodes of a heterogeneous graph: an encoder that computes rows of one width for nodes of all types, and a
/// model of their neighbourhoods.
#[derive(Module, Debug)]
pub struct HeteroModel<M: Module> {
    /// The layers of the input rows. `None` for a graph with one type of nodes with features, which a model without ages reads as
    /// they are: its weights and outputs are those of the model alone.
    pub encoder: Option<InputEncoder>,
    /// The part that reads the ages of nodes and edges; `None` without it, which changes no weights.
    pub ages: Option<AgeEncoder>,
    /// The model of nodes.
    pub model: M,
}

impl<M: BlockModel> BlockModel for HeteroModel<M> {
    fn n_layers(&self) -> usize {
        self.model.n_layers()
    }

    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        match self.encode_edges(block, ctx) {
            Some(block) => self.model.layer(i, &block, x, ctx),
            None => self.model.layer(i, block, x, ctx),
        }
    }

    fn input_format(&self) -> InputFormat {
        let edge_ages = self.ages.as_ref().is_some_and(AgeEncoder::reads_edges);
        InputFormat { edge_ages, ..self.model.input_format() }
    }

    fn uses_burn_rng(&self) -> bool {
        self.model.uses_burn_rng()
    }

    fn input_rows(&self, x: Tensor<2>) -> Tensor<2> {
        self.model.input_rows(x)
    }

    /// Runs the encoder: returns the input rows of the model of nodes, `[n_src of blocks[0], d_in]`. The rows of types whose ages
    /// the model reads have them as their last column.
    ///
    /// # Panics
    /// Panics as [`InputEncoder::forward`] does, or without an encoder as [`BlockModel::input`] of the model of nodes does.
    fn input(&self, rows: Vec<Tensor<2>>, order: &TypeOrder) -> Tensor<2> {
        match (&self.encoder, &self.ages) {
            (Some(encoder), Some(ages)) => {
                let (rows, added) = ages.split(rows);
                encoder.forward_with(rows, added, order)
            }
            (Some(encoder), None) => encoder.forward(rows, order),
            (None, _) => self.model.input(rows, order),
        }
    }

    fn input_encoder(&self) -> Option<&InputEncoder> {
        self.encoder.as_ref()
    }

    fn forward(&self, blocks: &[DeviceBlock], x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        match self.encode_blocks(blocks, ctx) {
            Some(blocks) => self.model.forward(&blocks, x, ctx),
            None => self.model.forward(blocks, x, ctx),
        }
    }

    fn layer_size(&self, i: usize) -> Option<LayerSize> {
        self.model.layer_size(i)
    }

    /// Returns `None` if there is an encoder, which reads the input rows.
    fn input_aggregation(&self) -> Option<InputAggregation> {
        match &self.encoder {
            Some(_) => None,
            None => self.model.input_aggregation(),
        }
    }

    fn forward_aggregated(&self, blocks: &[DeviceBlock], rows: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        assert!(
            self.encoder.is_none(),
            "got aggregated input rows, but the encoder reads those of each node"
        );
        match self.encode_blocks(blocks, ctx) {
            Some(blocks) => self.model.forward_aggregated(&blocks, rows, ctx),
            None => self.model.forward_aggregated(blocks, rows, ctx),
        }
    }
}

impl<M: Module> HeteroModel<M> {
    /// Returns the block that the model of nodes reads if it reads ages of edges, which are then a part of their features.
    fn encode_edges(&self, block: &DeviceBlock, ctx: &ForwardContext) -> Option<DeviceBlock> {
        self.ages.as_ref()?.encode_edges(block, ctx)
    }

    /// Returns the blocks of [`HeteroModel::encode_edges`].
    fn encode_blocks(&self, blocks: &[DeviceBlock], ctx: &ForwardContext) -> Option<Vec<DeviceBlock>> {
        blocks.iter().map(|block| self.encode_edges(block, ctx)).collect()
    }
}

/// The configuration of a [`HeteroModel`], from that of its model of nodes. The number of feature columns of that model,
/// [`ModelConfig::d_in`], is the width of the encoder's rows and of trainable rows. If there is one type of nodes with
/// features, a model without ages ([`HeteroModelConfig::time_encoding`]) has no encoder, and must read their width.
///
/// ```
/// use burn::tensor::Device;
/// use kiln_nn::{ModelConfig, RgcnConfig, HeteroModelConfig};
/// use kiln_sample::RngKey;
/// // Type 0 has 128 feature columns, type 1 has trainable rows.
/// let (n_classes, n_relations) = (10, 4);
/// let config = HeteroModelConfig::new([Some(128), None], RgcnConfig::new(64, n_classes, n_relations).layers(2));
/// let encoder = config.init(RngKey::new(0), &Device::flex())?.encoder.expect("two types need an encoder");
/// assert!(encoder.layers[0].is_some() && encoder.layers[1].is_none());
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeteroModelConfig<C> {
    /// The number of feature columns of each type of nodes; `None` for a type without features, whose rows are trainable.
    pub widths: Vec<Option<usize>>,
    /// The configuration of the model of nodes.
    pub model: C,
    /// The configuration of the part that reads ages; `None`, the default, for a model that reads none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ages: Option<AgeEncoderConfig>,
}

impl<C: fmt::Debug> fmt::Debug for HeteroModelConfig<C> {
    /// Writes the name that checkpoints have: a run is resumed only if the text of its model is equal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { widths, model, ages } = self;
        let mut text = f.debug_struct("TypedModelConfig");
        text.field("widths", widths).field("model", model);
        if let Some(ages) = ages {
            text.field("ages", ages);
        }
        text.finish()
    }
}

impl<C: ModelConfig> HeteroModelConfig<C> {
    /// Creates a configuration for types with these numbers of feature columns.
    ///
    /// ```
    /// # use kiln_nn::{HeteroModelConfig, RsageConfig};
    /// // Papers have 128 feature columns, authors have trainable rows. R-SAGE reads rows of 64 columns of both.
    /// let config = HeteroModelConfig::new([Some(128), None], RsageConfig::new(64, 10).layers(2));
    /// assert_eq!(config.widths.len(), 2);
    /// ```
    pub fn new(widths: impl IntoIterator<Item = Option<usize>>, model: C) -> Self {
        Self { widths: widths.into_iter().collect(), model, ages: None }
    }

    /// Makes the model read the ages of nodes and edges, encoded by `times`. `graph` has the types of nodes and the relations with
    /// times ([`GraphMetadata::timed`]), as a loader that carries ages returns them. The encoded age of a node, multiplied by a
    /// matrix of its type, is added to its input row. That of an edge is a part of its features, for a model that can read them
    /// ([`ModelConfig::with_edge_features`]); a model that reads types of edges instead of features keeps the types.
    ///
    /// It is also for graphs with one type of nodes, whose features then have a linear layer in front of the model.
    ///
    /// Returns `None` if neither nodes nor edges that the model reads have times.
    ///
    /// ```
    /// use kiln_nn::{GraphMetadata, HeteroModelConfig, ModelConfig, TimeEncoderConfig, TimedParts, TransformerConfig};
    /// // One type of nodes with 100 feature columns. Nodes and edges have times.
    /// let timed = TimedParts { node_types: vec![true], relations: vec![true] };
    /// let graph = GraphMetadata { timed: Some(timed.clone()), ..GraphMetadata::default() };
    /// let config = HeteroModelConfig::new([Some(100)], TransformerConfig::new(64, 10));
    /// let config = config.time_encoding(TimeEncoderConfig::learned(16), &graph).expect("the graph has times");
    /// assert_eq!(config.requirements().ages, Some(timed));
    /// ```
    #[must_use]
    pub fn time_encoding(self, times: TimeEncoderConfig, graph: &GraphMetadata) -> Option<Self> {
        let timed = graph.timed.clone()?;
        let is_heterogeneous = graph.metagraph.is_some() || graph.widths.is_some();
        let (ages, with_ages) = AgeEncoderConfig::encode_model(times, timed, is_heterogeneous, &self.model);
        let reads_ages = ages.reads_nodes() || ages.reads_edges();
        let model = with_ages.unwrap_or(self.model);
        reads_ages.then_some(Self { widths: self.widths, model, ages: Some(ages) })
    }

    /// Returns the configuration of the encoder; `None` for one type of nodes with features, which a model without ages reads as
    /// they are.
    ///
    /// # Errors
    /// Returns [`Error::UnknownInputWidth`] if the model's configuration does not return its [`ModelConfig::d_in`], and
    /// [`Error::InputWidth`] if that is not the width of the only type with features.
    fn encoder(&self) -> Result<Option<InputEncoderConfig>> {
        let hidden = self.model.d_in().ok_or(Error::UnknownInputWidth { kind: C::KIND })?;
        match self.widths[..] {
            [Some(width)] if self.ages.is_none() && width == hidden => Ok(None),
            [Some(width)] if self.ages.is_none() => Err(Error::InputWidth { expected: hidden, got: width }),
            _ => Ok(Some(InputEncoderConfig::new(self.widths.iter().copied(), hidden))),
        }
    }
}

impl<C: ModelConfig<Model: BlockModel>> ModelConfig for HeteroModelConfig<C> {
    /// `typed-` and the kind of the model of nodes, such as `typed-rgcn`.
    const KIND: &'static str = HeteroKind::<C>::NAME.as_str();
    type Model = HeteroModel<C::Model>;

    /// Returns the default configuration for one type of nodes with `d_in` feature columns.
    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new([Some(d_in)], C::for_dims(d_in, n_classes))
    }

    /// Returns the number of feature columns of the only type of nodes; `None` for several types.
    fn d_in(&self) -> Option<usize> {
        match self.widths[..] {
            [width] => width,
            _ => None,
        }
    }

    fn n_layers(&self) -> usize {
        self.model.n_layers()
    }

    fn d_out(&self) -> Option<usize> {
        self.model.d_out()
    }

    fn min_parameters(&self) -> u64 {
        let hidden = self.model.d_in().unwrap_or(0) as u64;
        let of_types = match self.encoder() {
            Ok(Some(encoder)) => encoder.widths,
            _ => Vec::new(),
        };
        let of_encoder = of_types
            .iter()
            .flatten()
            .map(|width: &usize| hidden.saturating_mul(*width as u64))
            .fold(0, u64::saturating_add);
        self.model.min_parameters().saturating_add(of_encoder)
    }

    fn requirements(&self) -> GraphRequirements {
        let of_model = self.model.requirements();
        let requirements = match &self.ages {
            Some(ages) => ages.decoded(of_model),
            None => of_model,
        };
        GraphRequirements { widths: Some(self.widths.clone()), ..requirements }
    }

    fn for_graph(self, graph: &GraphMetadata) -> Self {
        let model = self.model.for_graph(&encoded(&self.ages, graph));
        Self { widths: graph.widths.clone().unwrap_or(self.widths), model, ages: self.ages }
    }

    fn with_edge_features(self, graph: &GraphMetadata) -> Option<Self> {
        let Self { widths, model, ages } = self;
        model.with_edge_features(&encoded(&ages, graph)).map(|model| Self { widths, model, ages })
    }

    /// Creates a model with initial weights drawn from the key. Those of the model of nodes are the ones that it has alone.
    ///
    /// # Errors
    /// Returns the errors of [`InputEncoderConfig::init`] and of the model of nodes, [`Error::UnknownInputWidth`] if its
    /// configuration does not return its [`ModelConfig::d_in`], and [`Error::InputWidth`] if that is not the width of the only
    /// type of nodes with features.
    fn init(&self, key: RngKey, device: &Device) -> Result<HeteroModel<C::Model>> {
        let encoder = self.encoder()?.map(|encoder| encoder.init(key, device)).transpose()?;
        let hidden = self.model.d_in().unwrap_or(0);
        let ages =
            self.ages.as_ref().map(|ages| ages.init(self.widths.len(), hidden, key, device)).transpose()?;
        Ok(HeteroModel { encoder, ages, model: self.model.init(key, device)? })
    }
}

/// Returns the properties of a graph with the edge features that the model of nodes reads.
fn encoded(ages: &Option<AgeEncoderConfig>, graph: &GraphMetadata) -> GraphMetadata {
    ages.as_ref().map_or_else(|| graph.clone(), |ages| ages.encoded(graph))
}

struct HeteroKind<C>(PhantomData<C>);

impl<C: ModelConfig> HeteroKind<C> {
    const NAME: &'static KindName = &KindName::new("typed-", C::KIND);
}
