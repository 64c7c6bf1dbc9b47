use std::fmt;
use std::marker::PhantomData;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::kind::KindName;
use crate::{
    BlockModel, Error, ForwardContext, GraphMetadata, GraphRequirements, InputAggregation, InputEncoder,
    InputEncoderConfig, InputFormat, LayerSize, ModelConfig, Result, TypeOrder,
};

/// A model of the nodes of a heterogeneous graph: an encoder that computes rows of one width for nodes of all types, and a
/// model of their neighbourhoods.
#[derive(Module, Debug)]
pub struct HeteroModel<M: Module> {
    /// The layers of the input rows. `None` for a graph with one type of nodes with features, which the model reads as they
    /// are: its weights and outputs are those of the model alone.
    pub encoder: Option<InputEncoder>,
    /// The model of nodes.
    pub model: M,
}

impl<M: BlockModel> BlockModel for HeteroModel<M> {
    fn n_layers(&self) -> usize {
        self.model.n_layers()
    }

    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.model.layer(i, block, x, ctx)
    }

    fn input_format(&self) -> InputFormat {
        self.model.input_format()
    }

    fn uses_burn_rng(&self) -> bool {
        self.model.uses_burn_rng()
    }

    fn input_rows(&self, x: Tensor<2>) -> Tensor<2> {
        self.model.input_rows(x)
    }

    /// Runs the encoder: returns the input rows of the model of nodes, `[n_src of blocks[0], d_in]`.
    ///
    /// # Panics
    /// Panics as [`InputEncoder::forward`] does, or without an encoder as [`BlockModel::input`] of the model of nodes does.
    fn input(&self, rows: Vec<Tensor<2>>, order: &TypeOrder) -> Tensor<2> {
        match &self.encoder {
            Some(encoder) => encoder.forward(rows, order),
            None => self.model.input(rows, order),
        }
    }

    fn input_encoder(&self) -> Option<&InputEncoder> {
        self.encoder.as_ref()
    }

    fn forward(&self, blocks: &[DeviceBlock], x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.model.forward(blocks, x, ctx)
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
        self.model.forward_aggregated(blocks, rows, ctx)
    }
}

/// The configuration of a [`HeteroModel`], from that of its model of nodes. The number of feature columns of that model,
/// [`ModelConfig::d_in`], is the width of the encoder's rows and of trainable rows. If there is one type of nodes with
/// features, the model has no encoder, and must read their width.
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
}

impl<C: fmt::Debug> fmt::Debug for HeteroModelConfig<C> {
    /// Writes the name that checkpoints have: a run is resumed only if the text of its model is equal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { widths, model } = self;
        f.debug_struct("TypedModelConfig").field("widths", widths).field("model", model).finish()
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
        Self { widths: widths.into_iter().collect(), model }
    }

    /// Returns the configuration of the encoder; `None` for one type of nodes with features, which the model reads as they are.
    ///
    /// # Errors
    /// Returns [`Error::UnknownInputWidth`] if the model's configuration does not return its [`ModelConfig::d_in`], and
    /// [`Error::InputWidth`] if that is not the width of the only type with features.
    fn encoder(&self) -> Result<Option<InputEncoderConfig>> {
        let hidden = self.model.d_in().ok_or(Error::UnknownInputWidth { kind: C::KIND })?;
        match self.widths[..] {
            [Some(width)] if width == hidden => Ok(None),
            [Some(width)] => Err(Error::InputWidth { expected: hidden, got: width }),
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
        GraphRequirements { widths: Some(self.widths.clone()), ..self.model.requirements() }
    }

    fn for_graph(self, graph: &GraphMetadata) -> Self {
        Self { widths: graph.widths.clone().unwrap_or(self.widths), model: self.model.for_graph(graph) }
    }

    fn with_edge_features(self, graph: &GraphMetadata) -> Option<Self> {
        let Self { widths, model } = self;
        model.with_edge_features(graph).map(|model| Self { widths, model })
    }

    /// Creates a model with initial weights drawn from the key. Those of the model of nodes are the ones that it has alone.
    ///
    /// # Errors
    /// Returns the errors of [`InputEncoderConfig::init`] and of the model of nodes, [`Error::UnknownInputWidth`] if its
    /// configuration does not return its [`ModelConfig::d_in`], and [`Error::InputWidth`] if that is not the width of the only
    /// type of nodes with features.
    fn init(&self, key: RngKey, device: &Device) -> Result<HeteroModel<C::Model>> {
        let encoder = self.encoder()?.map(|encoder| encoder.init(key, device)).transpose()?;
        Ok(HeteroModel { encoder, model: self.model.init(key, device)? })
    }
}

struct HeteroKind<C>(PhantomData<C>);

impl<C: ModelConfig> HeteroKind<C> {
    const NAME: &'static KindName = &KindName::new("typed-", C::KIND);
}
