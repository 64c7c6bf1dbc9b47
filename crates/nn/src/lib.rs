//! Graph neural network layers, models and losses on blocks.
//!
//! A layer depends only on one block and its input, not on a graph, a sampler or other layers. A model of nodes is a
//! stack of layers of one type ([`Net`]). All randomness comes from the [`RngKey`](kiln_sample::RngKey)s that callers
//! pass; no layer draws from Burn's global generator.
//!
//! ```
//! use burn::tensor::Device;
//! use kiln_nn::{Aggregate, BlockModel, SageConfig};
//! use kiln_sample::RngKey;
//! let aggregate = Aggregate::Mean;
//! let (d_in, hidden, n_classes, n_layers) = (100, 256, 47, 3);
//! let input_dropout = 0.1;
//! let config = SageConfig { hidden, n_layers, aggregate, input_dropout, ..SageConfig::new(d_in, n_classes) };
//! let model = config.init(RngKey::new(0), &Device::flex())?;
//! assert_eq!(model.n_layers(), 3);
//! # Ok::<(), kiln_nn::Error>(())
//! ```

mod age_encoder;
mod aggregate;
mod attention;
mod conv;
mod edge_features;
mod edge_weighting;
mod error;
mod frame;
mod gat;
mod gat_conv;
mod gatv2_conv;
mod gcn;
mod gcn_conv;
mod gin;
mod gin_conv;
mod gine;
mod gine_conv;
mod hetero_model;
mod hgt;
mod hgt_conv;
mod init;
mod input_encoder;
mod kind;
mod linear;
mod link;
mod loss;
mod mlp;
mod model;
mod net;
mod normalization;
mod order;
mod requirements;
mod rgcn;
mod rgcn_conv;
mod rsage;
mod rsage_conv;
mod sage;
mod sage_conv;
mod stack;
mod time_encoder;
mod transformer_conv;
mod weights;

pub use age_encoder::{AgeEncoder, AgeEncoderConfig};
pub use aggregate::{Aggregate, Readout};
pub use attention::HeadOutput;
pub use conv::{BiasedRows, Conv};
pub use edge_features::RelationEdgeLinear;
pub use edge_weighting::EdgeWeighting;
pub use error::{Error, LossError, TensorNames, WeightsError};
pub use frame::Frame;
pub use gat::{AttentionKind, Gat, GatConfig, GatLayer};
pub use gat_conv::{GatConv, GatConvConfig};
pub use gatv2_conv::{GatV2Conv, GatV2ConvConfig};
pub use gcn::{Gcn, GcnConfig};
pub use gcn_conv::{GcnConv, GcnConvConfig};
pub use gin::{Gin, GinConfig, GinLayer, JumpingKnowledge};
pub use gin_conv::{Epsilon, GinConv};
pub use gine::{EdgeInput, Gine, GineConfig};
pub use gine_conv::GineConv;
pub use hetero_model::{HeteroModel, HeteroModelConfig};
pub use hgt::{Hgt, HgtConfig};
pub use hgt_conv::{HgtConv, HgtConvConfig, TypedLinear};
pub use init::WeightInit;
pub use input_encoder::{InputEncoder, InputEncoderConfig, TypeOrder};
pub use linear::Linear;
pub use link::{EdgeDims, LinkDecoder, LinkDecoderConfig, LinkLoss, LinkModel, LinkModelConfig, LinkPairs};
pub use loss::{ClassLoss, LossSum, TargetLoss};
pub use mlp::{Mlp, MlpConfig, NodeModule};
pub use model::{
    BlockModel, ForwardContext, GraphModel, InputFormat, LayerMemory, LayerSize, Mode, ModelConfig,
};
pub use net::Net;
pub use normalization::Normalization;
pub use order::InputAggregation;
pub use requirements::{GraphMetadata, GraphRequirements, TimedParts};
pub use rgcn::{Rgcn, RgcnConfig};
pub use rgcn_conv::{RgcnConv, RgcnConvConfig};
pub use rsage::{Rsage, RsageConfig};
pub use rsage_conv::{RsageConv, RsageConvConfig};
pub use sage::{Sage, SageConfig};
pub use sage_conv::{SageConv, SageConvConfig};
pub use time_encoder::{Frequencies, TimeEncoder, TimeEncoderConfig};
pub use transformer_conv::{Transformer, TransformerConfig, TransformerConv, TransformerConvConfig};
pub use weights::{PortableWeights, WeightFormat, load_safetensors, to_safetensors};

/// The configurations of models and the types of their options, which `kiln::prelude` contains.
pub mod prelude {
    pub use crate::{
        Aggregate, AttentionKind, EdgeInput, EdgeWeighting, GatConfig, GcnConfig, GinConfig, GineConfig,
        HeteroModelConfig, HgtConfig, JumpingKnowledge, LinkDecoderConfig, LinkLoss, LinkModelConfig,
        ModelConfig, Normalization, RgcnConfig, RsageConfig, SageConfig, TimeEncoderConfig,
        TransformerConfig, WeightInit,
    };
}

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The example in the README, compiled and run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
