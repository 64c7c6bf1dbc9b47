use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use crate::device::block::Adjacency;

/// The inputs of the attention scores, as tensors of a backend.
#[derive(Debug, Clone)]
pub(crate) struct Attention<B: Backend> {
    pub(crate) block: Adjacency<B>,
    /// The rows of the sources, `[n_src, n_heads * d]`.
    pub(crate) src: FloatTensor<B>,
    /// The rows of the destinations, `[n_dst, n_heads * d]`.
    pub(crate) dst: FloatTensor<B>,
    /// The attention weights, `[n_heads, d]`.
    pub(crate) weights: FloatTensor<B>,
    /// The slope of the leaky ReLU below 0.
    pub(crate) slope: f32,
}

/// The input of the attention scores that a gradient is computed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttentionInput {
    Src,
    Dst,
    Weights,
}
