//! The messages of edges, in Burn's tensor operations for any backend.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Shape;

use super::{Sums, Weights};
use crate::device::block::Adjacency;

/// `[n_edges, d]` or `[n_edges, n_bases * d]`: for each edge, its source row times its weights.
pub(super) fn edge_rows<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    weights: &Weights<B>,
    sums: Sums,
) -> FloatTensor<B> {
    let rows = repeated::<B>(B::float_select(x, 0, block.indices.clone()), sums);
    weighted(block, rows, weights, sums.n_weights())
}

/// Repeats each row once for each basis, `[n, d] -> [n, n_bases * d]`.
pub(super) fn repeated<B: Backend>(rows: FloatTensor<B>, sums: Sums) -> FloatTensor<B> {
    match sums {
        Sums::One | Sums::PerHead(_) => rows,
        Sums::PerBasis(n_bases) => B::float_cat(vec![rows; n_bases], 1),
    }
}

/// Multiplies each of the `n_weights` equal ranges of columns of an edge's row by the edge's weight for that range.
pub(super) fn weighted<B: Backend>(
    block: &Adjacency<B>,
    rows: FloatTensor<B>,
    weights: &Weights<B>,
    n_weights: usize,
) -> FloatTensor<B> {
    let Weights::Tensor(weights) = weights else { return rows };
    let shape = rows.shape();
    let ranges = Shape::new([block.n_edges, n_weights, shape[1] / n_weights]);
    let weights = B::float_reshape(weights.clone(), Shape::new([block.n_edges, n_weights, 1]));
    B::float_reshape(B::float_mul(B::float_reshape(rows, ranges), weights), shape)
}
