//! The ops of attention layers: scores of edges, their softmax and dropout, one value per edge and head. The reference
//! implementations are in `reference`.

mod inputs;
pub(crate) mod reference;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use kiln_sample::{KeyDomain, RngKey};

use crate::device::block::{Adjacency, DeviceBlock};
use crate::ops::backend::BlockOps;
use crate::ops::keep::Keep;
use crate::ops::run::check_rows;

pub(crate) use inputs::{Attention, AttentionInput};

/// Computes the attention scores of a block's edges (Brody, Alon and Yahav 2022, equation 7):
/// `out[e, h] = sum over c of weights[h, c] * leaky_relu(src[u, h d + c] + dst[v, h d + c])` for each edge `e` from `u` to
/// `v` and each head `h`. With `d = 1` and weights of 1, these are the scores of the first attention layer (Veličković et
/// al. 2018, equation 3), if the rows are its products of rows and attention vectors.
///
/// No `[n_edges, n_heads * d]` tensor is created. The gradients of the rows are sums over a node's edges in their order,
/// that of the weights is the sum of such sums over the destinations.
///
/// # Shapes
/// `src` is `[n_src, n_heads * d]`, `dst` `[n_dst, n_heads * d]`, `weights` `[n_heads, d]`, the result
/// `[n_edges, n_heads]`.
///
/// # Panics
/// Panics if the shapes do not match, if there are no heads, or if the element types differ.
pub fn attention_scores(
    block: &DeviceBlock,
    src: Tensor<2>,
    dst: Tensor<2>,
    weights: Tensor<2>,
    negative_slope: f32,
) -> Tensor<2> {
    check_rows(block, &src);
    scores_of(block.adjacency(), src, dst, weights, negative_slope)
}

/// Computes the scores of edges whose sources have the rows `src`, after checks of the other shapes.
pub(crate) fn scores_of(
    edges: Adjacency<Dispatch>,
    src: Tensor<2>,
    dst: Tensor<2>,
    weights: Tensor<2>,
    negative_slope: f32,
) -> Tensor<2> {
    let [n_rows, dst_width] = dst.dims();
    let [_, src_width] = src.dims();
    let [n_heads, d] = weights.dims();
    let n_dst = edges.n_dst;
    assert_eq!(n_rows, n_dst, "dst has {n_rows} rows, but the block has {n_dst} destinations");
    assert_ne!(n_heads, 0, "the weights have no rows, expected one per head");
    for (name, width) in [("src", src_width), ("dst", dst_width)] {
        assert_eq!(
            width,
            n_heads * d,
            "{name} has {width} columns, expected {d} for each of {n_heads} heads"
        );
    }
    let same_type = src.dtype() == dst.dtype() && src.dtype() == weights.dtype();
    assert!(same_type, "the element types of src, dst and weights differ: cast them");
    let src = src.into_dispatch();
    let dst = dst.into_dispatch();
    let weights = weights.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::attention_scores(edges, src, dst, weights, negative_slope))
}

/// Computes the softmax over the edges of each destination, column by column: the attention weights of the edges from
/// their scores. A destination's largest score is subtracted first, so that no exponential overflows.
///
/// # Shapes
/// `scores` and the result are `[n_edges, n_heads]`, in block order.
///
/// # Panics
/// Panics if there is not one row per edge.
pub fn edge_softmax(block: &DeviceBlock, scores: Tensor<2>) -> Tensor<2> {
    check_edges(block, &scores);
    Tensor::from_dispatch(<Dispatch as BlockOps>::edge_softmax(block.adjacency(), scores.into_dispatch()))
}

/// Applies inverted dropout to one row per edge: sets each value to 0 with probability `p`, and otherwise divides it by
/// `1 - p`.
///
/// The mask depends only on `key`, `layer`, the edge's id in the graph and the column: with the key
/// `key.fold_in(KeyDomain::EdgeDropout, layer)`, column `c` of edge `e` is kept if word `c % 4` of
/// `draw4(e >> 32, e mod 2^32, c / 4)` is at least `round(p * 2^32)`. The backward pass draws the mask again.
///
/// # Shapes
/// `x` and the result are `[n_edges, d]`, in block order.
///
/// # Panics
/// Panics if there is not one row per edge, or `p` is not in `[0, 1)`.
pub fn edge_dropout(block: &DeviceBlock, x: Tensor<2>, key: RngKey, layer: usize, p: f64) -> Tensor<2> {
    check_edges(block, &x);
    assert!((0.0..1.0).contains(&p), "the dropout probability is {p}, expected 0 <= p < 1");
    let keep = Keep::new(p);
    if keep.is_everything() {
        return x;
    }
    let key = key.fold_in(KeyDomain::EdgeDropout, layer as u64);
    let ids = block.edge_ids().clone().into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::edge_dropout(x.into_dispatch(), ids, key, keep))
}

fn check_edges(block: &DeviceBlock, x: &Tensor<2>) {
    let [n_rows, _] = x.dims();
    let n_edges = block.n_edges();
    assert_eq!(n_rows, n_edges, "got {n_rows} rows for {n_edges} edges, expected one per edge");
}
