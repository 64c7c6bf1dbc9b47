//! Models and losses of link prediction: an encoder that computes a row per node, and a decoder that scores pairs of
//! rows, or computes the outputs of edges between them.

mod decoder;
mod edge_dims;
mod loss;
mod model;
mod pairs;

pub use decoder::{LinkDecoder, LinkDecoderConfig};
pub use edge_dims::EdgeDims;
pub use loss::LinkLoss;
pub use model::{LinkModel, LinkModelConfig};
pub use pairs::LinkPairs;
