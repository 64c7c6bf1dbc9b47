use std::fmt;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::error::check_size;
use crate::frame::frame_options;
use crate::model::dims_and_init;
use crate::stack::Activation;
use crate::{
    Conv, Error, ForwardContext, GatConv, GatConvConfig, GatV2Conv, GatV2ConvConfig, GraphMetadata,
    GraphRequirements, HeadOutput, InputFormat, JumpingKnowledge, LayerMemory, LayerSize, ModelConfig, Net,
    Normalization, Result,
};

/// The attention of a [`Gat`] model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// That of [`GatConv`].
    #[default]
    Gat,
    /// That of [`GatV2Conv`], without shared weights.
    GatV2,
}

/// The configuration of a [`Gat`] model.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatConfig {
    /// Width of the input features.
    pub d_in: usize,
    /// Width of the rows between layers, of all heads together: a multiple of `n_heads`.
    pub hidden: usize,
    /// Width of the output rows, one column per class.
    pub n_classes: usize,
    /// Number of layers, at least 1.
    pub n_layers: usize,
    /// The attention.
    #[serde(default)]
    pub attention: AttentionKind,
    /// Number of attention heads of each layer but the last. Their rows are concatenated.
    pub n_heads: usize,
    /// Number of attention heads of the last layer. Their rows are averaged. With jumping knowledge, the last layer has
    /// `n_heads` concatenated heads instead.
    pub n_output_heads: usize,
    /// The slope of the leaky ReLU of the scores below 0.
    pub negative_slope: f64,
    /// Probability that dropout zeroes an attention weight, in `[0, 1)`.
    pub attention_dropout: f64,
    /// Probability that dropout zeroes a value of the input features, in `[0, 1)`.
    pub input_dropout: f64,
    /// Probability that dropout zeroes a value between layers, in `[0, 1)`.
    pub dropout: f64,
    /// Normalisation of each layer's rows before the activation, except of the outputs: [`Normalization::None`] or
    /// [`Normalization::Layer`].
    #[serde(default)]
    pub norm: Normalization,
    /// True to add a node's own row to the result of each layer whose input and output have the hidden width (He,
    /// Zhang, Ren and Sun 2016), after activation and dropout. The outputs have no residual connection.
    #[serde(default)]
    pub residual: bool,
    /// The layers from which the outputs are computed: any but [`JumpingKnowledge::Sum`]. Except for
    /// [`JumpingKnowledge::Direct`], all layers have the hidden width, and a linear layer follows them.
    #[serde(default)]
    pub jumping: JumpingKnowledge,
    /// Number of columns of the edge features that the layers read; `None` if they read none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_features: Option<usize>,
}

impl GatConfig {
    /// Creates a configuration of three layers with a hidden width of 256, which are 4 heads of 64, one output head, and a
    /// dropout of 0.5 between layers.
    ///
    /// ```
    /// # use kiln_nn::GatConfig;
    /// // 4 heads of 64 columns in each layer but the last.
    /// let config = GatConfig::new(100, 47);
    /// assert_eq!((config.n_heads, config.hidden), (4, 256));
    /// ```
    pub fn new(d_in: usize, n_classes: usize) -> Self {
        Self {
            d_in,
            hidden: 256,
            n_classes,
            n_layers: 3,
            attention: AttentionKind::Gat,
            n_heads: 4,
            n_output_heads: 1,
            negative_slope: 0.2,
            attention_dropout: 0.0,
            input_dropout: 0.0,
            dropout: 0.5,
            norm: Normalization::None,
            residual: false,
            jumping: JumpingKnowledge::Direct,
            edge_features: None,
        }
    }

    /// Creates the configuration of the paper for Cora (section 3.3): two layers, 8 heads of 8 columns, one output head,
    /// and a dropout of 0.6 of the input features, between the layers and of the attention weights.
    ///
    /// ```
    /// # use kiln_nn::GatConfig;
    /// let config = GatConfig::cora(1_433, 7);
    /// assert_eq!((config.n_layers, config.n_heads, config.dropout), (2, 8, 0.6));
    /// ```
    pub fn cora(d_in: usize, n_classes: usize) -> Self {
        let hidden = 64;
        let n_layers = 2;
        let n_heads = 8;
        let n_output_heads = 1;
        let attention_dropout = 0.6;
        let input_dropout = 0.6;
        let dropout = 0.6;
        let new = Self::new(d_in, n_classes);
        Self { hidden, n_layers, n_heads, n_output_heads, attention_dropout, input_dropout, dropout, ..new }
    }

    /// Sets the attention.
    ///
    /// ```
    /// # use kiln_nn::{AttentionKind, GatConfig};
    /// // With GATv2, the neighbour with the largest weight may differ between destinations.
    /// let config = GatConfig::new(100, 47).attention(AttentionKind::GatV2);
    /// ```
    #[must_use]
    pub fn attention(self, attention: AttentionKind) -> Self {
        Self { attention, ..self }
    }

    /// Sets the number of heads of each layer but the last.
    ///
    /// ```
    /// # use kiln_nn::GatConfig;
    /// // 8 heads of 32 columns: the number of heads divides the hidden width.
    /// let config = GatConfig::new(100, 47).hidden(256).heads(8);
    /// ```
    #[must_use]
    pub fn heads(self, n_heads: usize) -> Self {
        Self { n_heads, ..self }
    }

    /// Sets the number of heads of the last layer.
    ///
    /// ```
    /// # use kiln_nn::GatConfig;
    /// // As in the paper for PubMed, the scores are the mean of those of 8 heads.
    /// let config = GatConfig::cora(500, 3).output_heads(8);
    /// ```
    #[must_use]
    pub fn output_heads(self, n_output_heads: usize) -> Self {
        Self { n_output_heads, ..self }
    }

    /// Sets the dropout of the attention weights.
    ///
    /// ```
    /// # use kiln_nn::GatConfig;
    /// // In a training step, an attention weight is 0 with a probability of 0.4.
    /// let config = GatConfig::new(100, 47).attention_dropout(0.4);
    /// ```
    #[must_use]
    pub fn attention_dropout(self, attention_dropout: f64) -> Self {
        Self { attention_dropout, ..self }
    }

    /// Sets the number of columns of the edge features that the layers read, which are a part of the scores of [`AttentionKind::GatV2`]. Loaders need `edge_features`.
    ///
    /// ```
    /// # use kiln_nn::{AttentionKind, GatConfig};
    /// // The edges have 5 feature columns.
    /// let config = GatConfig::new(100, 47).attention(AttentionKind::GatV2).edge_features(5);
    /// # assert_eq!(config.edge_features, Some(5));
    /// ```
    #[must_use]
    pub fn edge_features(self, d_edge: usize) -> Self {
        Self { edge_features: Some(d_edge), ..self }
    }

    /// Creates a model with initial weights drawn from the key; layer `i` uses `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// ```
    /// # use kiln_nn::{BlockModel, GatConfig};
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// let config = GatConfig::new(8, 3).layers(2).hidden(16).heads(2);
    /// let model = config.init(RngKey::new(0), &Device::flex())?;
    /// assert_eq!(model.n_layers(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a width, a number of heads or the number of layers is 0 or too large, if the hidden width is not
    /// a multiple of the number of heads, if a dropout is not in `[0, 1)`, if `norm` or `jumping` has a value for another
    /// kind of model, or if no layer could have a residual connection.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Gat> {
        Net::init(&self.frame(), key, device, |i, widths, key| self.layer(i, widths, key, device))
    }

    fn layer(&self, i: usize, [d_in, d_out]: [usize; 2], key: RngKey, device: &Device) -> Result<GatLayer> {
        let &Self { negative_slope, attention_dropout, .. } = self;
        let gives_scores = self.jumping == JumpingKnowledge::Direct && i + 1 == self.n_layers;
        let (n_heads, d_head, output) = if gives_scores {
            (self.n_output_heads, d_out, HeadOutput::Mean)
        } else {
            check_size("n_heads", self.n_heads)?;
            if !d_out.is_multiple_of(self.n_heads) {
                return Err(Error::HeadWidth { hidden: d_out, n_heads: self.n_heads });
            }
            (self.n_heads, d_out / self.n_heads, HeadOutput::Concat)
        };
        Ok(match self.attention {
            AttentionKind::Gat if self.edge_features.is_some() => {
                let expected =
                    "none with the attention gat, which reads no edge features, or the attention gat_v2,";
                return Err(Error::OtherModel { name: "edge_features", got: "a width", expected });
            }
            AttentionKind::Gat => {
                let config =
                    GatConvConfig { d_in, d_head, n_heads, output, negative_slope, attention_dropout };
                GatLayer::Gat(config.init(key, device)?)
            }
            AttentionKind::GatV2 => {
                let new = GatV2ConvConfig::new(d_in, d_head, n_heads);
                let edge_features = self.edge_features;
                let config =
                    GatV2ConvConfig { output, negative_slope, attention_dropout, edge_features, ..new };
                GatLayer::GatV2(config.init(key, device)?)
            }
        })
    }
}

/// The text identifies a run with its settings, so a default that older versions do not have is not a part of it.
impl fmt::Debug for GatConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("GatConfig");
        text.field("d_in", &self.d_in);
        text.field("hidden", &self.hidden);
        text.field("n_classes", &self.n_classes);
        text.field("n_layers", &self.n_layers);
        text.field("attention", &self.attention);
        text.field("n_heads", &self.n_heads);
        text.field("n_output_heads", &self.n_output_heads);
        text.field("negative_slope", &self.negative_slope);
        text.field("attention_dropout", &self.attention_dropout);
        text.field("input_dropout", &self.input_dropout);
        text.field("dropout", &self.dropout);
        text.field("norm", &self.norm);
        text.field("residual", &self.residual);
        text.field("jumping", &self.jumping);
        if let Some(d_edge) = &self.edge_features {
            text.field("edge_features", d_edge);
        }
        text.finish()
    }
}

frame_options!(GatConfig, Activation::Elu);

impl ModelConfig for GatConfig {
    const KIND: &'static str = "gat";
    type Model = Gat;
    dims_and_init!();

    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes)
    }

    fn min_parameters(&self) -> u64 {
        let &Self { hidden, n_classes, n_output_heads, n_layers, d_in, .. } = self;
        // The last layer has a matrix of `n_classes` columns for each output head; the frame counts one of them.
        let d_last = if n_layers == 1 { d_in } else { hidden };
        let of_heads = match self.jumping {
            JumpingKnowledge::Direct => (d_last as u64)
                .saturating_mul(n_classes as u64)
                .saturating_mul((n_output_heads as u64).saturating_sub(1)),
            _ => 0,
        };
        self.frame().n_weights(1).saturating_add(of_heads)
    }

    fn requirements(&self) -> GraphRequirements {
        let d_edge = self.edge_features.filter(|_| self.attention == AttentionKind::GatV2);
        GraphRequirements { self_loops: true, d_edge, ..GraphRequirements::default() }
    }

    /// Returns `None` for [`AttentionKind::Gat`], which reads no edge features.
    fn with_edge_features(self, graph: &GraphMetadata) -> Option<Self> {
        let d_edge = graph.d_edge.filter(|_| self.attention == AttentionKind::GatV2)?;
        Some(self.edge_features(d_edge))
    }
}

/// A graph attention network (Veličković et al. 2018; with [`AttentionKind::GatV2`] Brody et al. 2022): attention layers, with
/// ELU and then dropout after each but the last, and dropout of the input features and of the attention weights.
///
/// The dropout mask of an attention weight is a function of its edge's id, the layer and the key of the step.
pub type Gat = Net<GatLayer>;

/// A layer of a [`Gat`] model.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "a model has a few layers, all of the same kind")]
pub enum GatLayer {
    /// A layer with [`AttentionKind::Gat`].
    Gat(GatConv),
    /// A layer with [`AttentionKind::GatV2`].
    GatV2(GatV2Conv),
}

impl GatLayer {
    fn edge_feature_bytes(&self) -> u64 {
        match self {
            Self::Gat(_) => 0,
            Self::GatV2(conv) => conv.edge_feature_bytes(),
        }
    }

    /// The number of heads, and the width of the rows of all heads together.
    fn heads(&self) -> [usize; 2] {
        match self {
            Self::Gat(conv) => [conv.attention_src.dims()[0], conv.weight.dims()[1]],
            Self::GatV2(conv) => [conv.attention.dims()[0], conv.weight_src.dims()[1]],
        }
    }
}

impl Conv for GatLayer {
    fn forward(&self, layer: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        match self {
            Self::Gat(conv) => conv.forward(layer, block, x, ctx),
            Self::GatV2(conv) => conv.forward(layer, block, x, ctx),
        }
    }

    fn input_format(&self) -> InputFormat {
        InputFormat { half_rows: true, ..InputFormat::default() }
    }

    fn uses_burn_rng(&self) -> bool {
        false
    }

    /// The memory is that of the rows of all heads: those of the sources, and those of the destinations before they are
    /// averaged. Each edge has a score and a weight for each head.
    fn size(&self) -> Option<LayerSize> {
        let widths = match self {
            Self::Gat(conv) => conv.widths(),
            Self::GatV2(conv) => conv.widths(),
        };
        let [n_heads, width] = self.heads();
        let rows = 4 * width as u64;
        let memory = LayerMemory {
            dst_bytes: 2 * rows,
            src_bytes: rows + 8 * n_heads as u64,
            edge_bytes: 12 * n_heads as u64 + self.edge_feature_bytes(),
        };
        Some(LayerSize { widths, memory })
    }
}
