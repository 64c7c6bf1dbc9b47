use std::marker::PhantomData;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::kind::KindName;
use crate::{
    BlockModel, EdgeDims, Error, ForwardContext, GraphMetadata, GraphRequirements, LinkDecoder,
    LinkDecoderConfig, LinkPairs, ModelConfig, Result,
};

/// A model of link prediction: an encoder that computes a row for each node from its sampled neighbourhood, and a
/// decoder that scores pairs of rows.
#[derive(Module, Debug)]
pub struct LinkModel<M: Module> {
    /// The model of nodes.
    pub encoder: M,
    /// The scores of pairs.
    pub decoder: LinkDecoder,
}

impl<M: BlockModel> LinkModel<M> {
    /// Runs the encoder on the blocks of a batch, and scores pairs of its output rows.
    ///
    /// # Shapes
    /// `x` is `[n_src of blocks[0], d_0]`, the result `[n_pairs]`.
    ///
    /// # Panics
    /// Panics as [`BlockModel::forward`] and [`LinkDecoder::score_pairs`] do.
    pub fn forward(
        &self,
        blocks: &[DeviceBlock],
        x: Tensor<2>,
        pairs: &LinkPairs,
        ctx: &ForwardContext,
    ) -> Tensor<1> {
        self.decoder.score_pairs(self.encoder.forward(blocks, x, ctx), pairs, ctx)
    }
}

/// The configuration of a [`LinkModel`], from that of its encoder. The number of outputs of the encoder is the width of
/// the rows that the decoder reads.
///
/// ```
/// use burn::tensor::Device;
/// use kiln_nn::{LinkDecoderConfig, LinkModelConfig, ModelConfig, SageConfig};
/// use kiln_sample::RngKey;
/// let (d_in, width) = (128, 64);
/// let decoder = LinkDecoderConfig::Mlp { hidden: 64, n_layers: 3, dropout: 0.0 };
/// let config = LinkModelConfig { encoder: SageConfig::new(d_in, width).layers(2), decoder };
/// let model = config.init(RngKey::new(0), &Device::flex())?;
/// assert_eq!(model.decoder.linears.len(), 3);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkModelConfig<C> {
    /// The configuration of the encoder.
    pub encoder: C,
    /// The configuration of the decoder.
    pub decoder: LinkDecoderConfig,
}

impl<C: ModelConfig> ModelConfig for LinkModelConfig<C> {
    /// `link-` and the kind of the encoder, such as `link-sage`.
    const KIND: &'static str = LinkKind::<C>::NAME.as_str();
    type Model = LinkModel<C::Model>;

    /// Returns the default configuration of the encoder, with rows of `width` columns, and the dot product.
    fn for_dims(d_in: usize, width: usize) -> Self {
        Self { encoder: C::for_dims(d_in, width), decoder: LinkDecoderConfig::default() }
    }

    fn n_layers(&self) -> usize {
        self.encoder.n_layers()
    }

    fn min_parameters(&self) -> u64 {
        let of_decoder = self.decoder.min_parameters(self.encoder.d_out().unwrap_or(0));
        self.encoder.min_parameters().saturating_add(of_decoder)
    }

    fn d_in(&self) -> Option<usize> {
        self.encoder.d_in()
    }

    fn requirements(&self) -> GraphRequirements {
        self.encoder.requirements()
    }

    fn edge_dims(&self) -> Option<EdgeDims> {
        self.decoder.edge_dims()
    }

    fn for_graph(self, graph: &GraphMetadata) -> Self {
        Self { encoder: self.encoder.for_graph(graph), ..self }
    }

    fn with_edge_features(self, graph: &GraphMetadata) -> Option<Self> {
        let Self { encoder, decoder } = self;
        encoder.with_edge_features(graph).map(|encoder| Self { encoder, decoder })
    }

    /// Creates a model with initial weights drawn from the key. The encoder's are those of the encoder alone.
    ///
    /// # Errors
    /// Returns the errors of the encoder and of [`LinkDecoderConfig::init`], and [`Error::UnknownWidth`] if the decoder
    /// has parameters and the encoder's configuration does not return its [`ModelConfig::d_out`].
    fn init(&self, key: RngKey, device: &Device) -> Result<LinkModel<C::Model>> {
        let encoder = self.encoder.init(key, device)?;
        let width = match self.encoder.d_out() {
            Some(width) => width,
            None if self.decoder.has_parameters() => return Err(Error::UnknownWidth { kind: C::KIND }),
            // The dot product is defined for any width.
            None => 1,
        };
        Ok(LinkModel { encoder, decoder: self.decoder.init(width, key, device)? })
    }
}

/// The name of the model with the encoder `C`.
struct LinkKind<C>(PhantomData<C>);

impl<C: ModelConfig> LinkKind<C> {
    const NAME: &'static KindName = &KindName::new("link-", C::KIND);
}
