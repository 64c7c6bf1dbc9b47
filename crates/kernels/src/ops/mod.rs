//! Aggregation over a block or over segments of rows, and the other per-node operations of a layer, with
//! gradients.
//!
//! What all of them share:
//!
//! - The result is a new tensor; nothing is added to an existing one.
//! - A destination without edges, or a segment without rows, gets zeros. Parallel edges count as often as
//!   they stand in the block.
//! - No `[n_edges, d]` tensor is ever made on Flex: time and memory traffic grow with `n_edges * d`, memory
//!   with the output and with what the gradient needs (the edges of the maxima, the inputs of a product).
//!   The gradient walks the edges by source, so it needs no atomics.
//! - Results and gradients have the same bits for any number of threads, and in every run on a device: a row's
//!   edges are added in block order, and in the gradient in block order for each source; on other devices than
//!   Flex, more than 512 of them in chunks at fixed places.
//! - On Flex, f32 tensors are processed directly, on other devices f16 and bf16 ones too, added up in f32; other element types through the reference in stock
//!   tensor operations, which does make an `[n_edges, d]` tensor and is much slower. A tensor whose rows
//!   are not one after the other is copied first.
//! - `x` without a tracked gradient costs nothing but the forward pass.

pub(crate) mod adam;
pub(crate) mod adjoint;
mod autodiff;
pub(crate) mod backend;
pub(crate) mod reference;

use burn::backend::Dispatch;
use burn::tensor::{DType, Int, Tensor};
use kiln_graph::NodeId;
use kiln_sample::{Domain, RngKey};

use crate::device::block::{DeviceBlock, upload};
use crate::device::graphs::{DeviceRows, DeviceSegments};
use crate::ops::backend::BlockOps;

pub use crate::ops::adam::{AdamStep, adam};

/// Each destination's sum of its sources' rows.
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_dst, d]`.
///
/// # Panics
/// When `x` has another number of rows than the block has sources.
pub fn neighbor_sum(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    Tensor::from_dispatch(<Dispatch as BlockOps>::neighbor_sum(block.adjacency(), x.into_dispatch()))
}

/// Each destination's sum of its sources' rows, each multiplied by its edge's weight. Gradients flow to
/// the rows and to the weights.
///
/// # Shapes
/// `x` is `[n_src, d]`, `weights` `[n_edges]` in block order, the result `[n_dst, d]`.
///
/// # Panics
/// When `x` has another number of rows than the block has sources, or `weights` another length than the
/// block has edges.
pub fn neighbor_weighted_sum(block: &DeviceBlock, x: Tensor<2>, weights: Tensor<1>) -> Tensor<2> {
    check_rows(block, &x);
    let n_weights = weights.dims()[0];
    assert_eq!(n_weights, block.n_edges(), "{n_weights} weights for {} edges", block.n_edges());
    assert_eq!(weights.dtype(), x.dtype(), "the element types of weights and rows differ: cast one");
    let sum = <Dispatch as BlockOps>::neighbor_weighted_sum(
        block.adjacency(),
        x.into_dispatch(),
        weights.into_dispatch(),
    );
    Tensor::from_dispatch(sum)
}

/// Each destination's mean of its sources' rows: [`neighbor_sum`] divided by the number of edges.
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_dst, d]`.
///
/// # Panics
/// When `x` has another number of rows than the block has sources.
pub fn neighbor_mean(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    Tensor::from_dispatch(<Dispatch as BlockOps>::neighbor_mean(block.adjacency(), x.into_dispatch()))
}

/// Each destination's largest value of its sources' rows, column by column.
///
/// Of equal values the first edge in block order gives the result, and it alone gets the gradient. If
/// one of the values is not a number, neither is the result.
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_dst, d]`.
///
/// # Panics
/// When `x` has another number of rows than the block has sources.
pub fn neighbor_max(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    Tensor::from_dispatch(<Dispatch as BlockOps>::neighbor_max(block.adjacency(), x.into_dispatch()))
}

/// Each destination's own row beside its [`neighbor_mean`]: what a layer multiplies by two weights, in the
/// memory of one. The gradient comes in one pass over the sources, own rows and neighbours together.
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_dst, 2 d]`: own rows in the first `d` columns, means in the others.
///
/// # Panics
/// When `x` has another number of rows than the block has sources.
pub fn own_beside_mean(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    own_beside(block, x, Reduce::Mean)
}

/// Each destination's own row beside its [`neighbor_sum`]; otherwise [`own_beside_mean`].
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_dst, 2 d]`: own rows in the first `d` columns, sums in the others.
///
/// # Panics
/// When `x` has another number of rows than the block has sources.
pub fn own_beside_sum(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    own_beside(block, x, Reduce::Sum)
}

/// Each destination's own row times `own_weight`, plus its [`neighbor_sum`]. The gradient comes in one pass
/// over the sources, own rows and neighbours together.
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_dst, d]`.
///
/// # Panics
/// When `x` has another number of rows than the block has sources.
pub fn own_plus_sum(block: &DeviceBlock, x: Tensor<2>, own_weight: f32) -> Tensor<2> {
    check_rows(block, &x);
    let sum = <Dispatch as BlockOps>::own_plus_sum(block.adjacency(), x.into_dispatch(), own_weight);
    Tensor::from_dispatch(sum)
}

/// The sum of each segment's rows, added in their order.
///
/// # Shapes
/// `x` is `[n_rows, d]`, the result `[n_segments, d]`.
///
/// # Panics
/// When `x` has another number of rows than the segments.
pub fn segment_sum(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    check_segmented(segments, &x);
    Tensor::from_dispatch(<Dispatch as BlockOps>::neighbor_sum(segments.adjacency(), x.into_dispatch()))
}

/// The mean of each segment's rows: [`segment_sum`] divided by the number of rows.
///
/// # Shapes
/// `x` is `[n_rows, d]`, the result `[n_segments, d]`.
///
/// # Panics
/// When `x` has another number of rows than the segments.
pub fn segment_mean(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    check_segmented(segments, &x);
    Tensor::from_dispatch(<Dispatch as BlockOps>::neighbor_mean(segments.adjacency(), x.into_dispatch()))
}

/// The largest value of each segment's rows, column by column.
///
/// Of equal values the first row gives the result, and it alone gets the gradient. If one of the values
/// is not a number, neither is the result.
///
/// # Shapes
/// `x` is `[n_rows, d]`, the result `[n_segments, d]`.
///
/// # Panics
/// When `x` has another number of rows than the segments.
pub fn segment_max(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    check_segmented(segments, &x);
    Tensor::from_dispatch(<Dispatch as BlockOps>::neighbor_max(segments.adjacency(), x.into_dispatch()))
}

/// Each segment's row, once for each of the segment's rows. Its gradient is [`segment_sum`], whose gradient it is.
///
/// # Shapes
/// `x` is `[n_segments, d]`, the result `[n_rows, d]`.
///
/// # Panics
/// When `x` has another number of rows than there are segments.
pub fn expand_segments(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    let ([n_rows, _], n_segments) = (x.dims(), segments.n_segments());
    assert_eq!(n_rows, n_segments, "{n_rows} rows for {n_segments} segments");
    Tensor::from_dispatch(<Dispatch as BlockOps>::expand(segments.adjacency(), x.into_dispatch()))
}

/// Softmax over each segment's rows, column by column: what attention weighs a destination's edges with, where
/// [`DeviceSegments`] are made of a block's `indptr` and a column is a head.
///
/// It is composed of the other ops on segments, so that its gradient is theirs: `[n_rows, d]` tensors of scores, which
/// are narrow, are passed over some ten times.
///
/// # Shapes
/// `x` and the result are `[n_rows, d]`.
///
/// # Panics
/// When `x` has another number of rows than the segments.
pub fn segment_softmax(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    // What is taken away does not change the result, so that no gradient flows through it.
    let largest = segment_max(segments, x.clone().detach());
    let powers = (x - expand_segments(segments, largest)).exp();
    let sums = expand_segments(segments, segment_sum(segments, powers.clone()));
    powers / sums
}

/// Rows of a matrix by number, some perhaps several times. The gradient adds up, for each row, what flows back to its
/// copies, in their order.
///
/// # Shapes
/// `x` is `[n, d]`, the result `[rows.len(), d]`.
///
/// # Panics
/// When `x` has another number of rows than the numbers were made for.
pub fn gather_rows(rows: &DeviceRows, x: Tensor<2>) -> Tensor<2> {
    let ([n_rows, _], expected) = (x.dims(), rows.n_rows());
    assert_eq!(n_rows, expected, "{n_rows} rows for numbers of {expected}");
    Tensor::from_dispatch(<Dispatch as BlockOps>::neighbor_sum(rows.adjacency(), x.into_dispatch()))
}

/// The destinations' own rows: the first `n_dst`. On Flex this is a view, not a copy.
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_dst, d]`.
///
/// # Panics
/// When `x` has another number of rows than the block has sources.
pub fn dst_rows(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    Tensor::from_dispatch(<Dispatch as BlockOps>::dst_rows(block.adjacency(), x.into_dispatch()))
}

/// Inverted dropout: each value becomes 0 with probability `p`, and is divided by `1 - p` otherwise.
///
/// Whether a value stays depends on (`key`, `layer`, its row's node, its column) alone: with the key
/// `key.fold(Domain::Dropout, layer)`, column `c` of node `v` stays if word `c % 4` of
/// `draw4(0, v, c / 4)` is at least `round(p * 2^32)`. So a node that stands in two blocks, or on two
/// ranks, has one mask. The mask is drawn again for the gradient, not kept.
///
/// # Shapes
/// `x` is `[n, d]`, `nodes` `[n]`: the global ids of the rows, from [`DeviceBlock::dst_nodes`] or
/// [`DeviceBlock::src_nodes`]. The result is `[n, d]`.
///
/// # Panics
/// When `p` is not in `[0, 1)`, the numbers of rows and nodes differ, or the nodes are not u32.
pub fn dropout(x: Tensor<2>, nodes: &Tensor<1, Int>, key: RngKey, layer: usize, p: f64) -> Tensor<2> {
    check_dropout(&x, nodes, p);
    if p == 0.0 {
        return x;
    }
    let key = key.fold(Domain::Dropout, layer as u64);
    let nodes = nodes.clone().into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::dropout(x.into_dispatch(), nodes, key, Keep::new(p)))
}

/// ReLU and then [`dropout`], in one pass; with `p = 0` the ReLU alone. What is not a number stays so.
///
/// The result says where the gradient passes, so that the mask is drawn once a step. On Flex it takes the
/// place of `x` in memory where nothing else refers to that.
///
/// # Shapes
/// As [`dropout`].
///
/// # Panics
/// As [`dropout`].
pub fn relu_dropout(x: Tensor<2>, nodes: &Tensor<1, Int>, key: RngKey, layer: usize, p: f64) -> Tensor<2> {
    check_dropout(&x, nodes, p);
    let key = key.fold(Domain::Dropout, layer as u64);
    let nodes = nodes.clone().into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::relu_dropout(x.into_dispatch(), nodes, key, Keep::new(p)))
}

/// ReLU. On Flex it takes the place of `x` in memory where nothing else refers to that, and of the gradient in the
/// backward pass. What is not a number stays so.
///
/// # Shapes
/// `x` and the result are `[n, d]`.
pub fn relu(x: Tensor<2>) -> Tensor<2> {
    let no_nodes = upload(Vec::<u32>::new(), DType::U32, &x.device().inner()).into_dispatch();
    let (key, keep) = (RngKey::new(0), Keep::new(0.0));
    Tensor::from_dispatch(<Dispatch as BlockOps>::relu_dropout(x.into_dispatch(), no_nodes, key, keep))
}

/// `base + x weight`: a dense layer, `base` being its bias, or what another layer gave, to which this one
/// adds. On Flex the sum takes the place of a `base` of whole rows in memory where nothing else refers to
/// that, and the product is added there.
///
/// # Shapes
/// `x` is `[n, d_in]`, `weight` `[d_in, d_out]`, `base` `[n, d_out]`, or `[1, d_out]` for all rows alike; the
/// result is `[n, d_out]`.
///
/// # Panics
/// When the shapes do not fit, or the element types differ.
pub fn linear(base: Tensor<2>, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let ([n_rows, d_in], [w_in, d_out], [base_rows, base_width]) = (x.dims(), weight.dims(), base.dims());
    assert_eq!(d_in, w_in, "rows of {d_in} values for a weight of {w_in} rows");
    assert_eq!(base_width, d_out, "a base of width {base_width} for a weight of width {d_out}");
    assert!(base_rows == n_rows || base_rows == 1, "a base of {base_rows} rows for {n_rows} rows");
    assert_eq!(x.dtype(), weight.dtype(), "the element types of rows and weight differ: cast one");
    assert_eq!(x.dtype(), base.dtype(), "the element types of rows and base differ: cast one");
    let sum =
        <Dispatch as BlockOps>::add_linear(base.into_dispatch(), x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(sum)
}

fn own_beside(block: &DeviceBlock, x: Tensor<2>, reduce: Reduce) -> Tensor<2> {
    let beside = <Dispatch as BlockOps>::own_beside(block.adjacency(), x.into_dispatch(), reduce);
    Tensor::from_dispatch(beside)
}

fn check_dropout(x: &Tensor<2>, nodes: &Tensor<1, Int>, p: f64) {
    assert!((0.0..1.0).contains(&p), "dropout probability {p}, expected 0 <= p < 1");
    let [n_rows, _] = x.dims();
    assert_eq!(nodes.dims()[0], n_rows, "{} nodes for {n_rows} rows", nodes.dims()[0]);
    assert_eq!(nodes.dtype(), DType::U32, "node ids are u32, as `DeviceBlock` gives them");
}

fn check_rows(block: &DeviceBlock, x: &Tensor<2>) {
    let [n_rows, _] = x.dims();
    assert_eq!(n_rows, block.n_src(), "{n_rows} rows for a block of {} sources", block.n_src());
}

fn check_segmented(segments: &DeviceSegments, x: &Tensor<2>) {
    let [n_rows, _] = x.dims();
    assert_eq!(n_rows, segments.n_rows(), "{n_rows} rows for segments of {}", segments.n_rows());
}

/// How neighbours' rows become the half of a row that stands beside a destination's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Sum,
    Mean,
}

/// Which draws keep a value, and what it is then multiplied by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    /// The smallest 32-bit draw that keeps.
    threshold: u32,
    scale: f32,
}

impl Keep {
    /// `p` is in `[0, 1)`. So close to 1 that no draw could keep, the scale is 0.
    pub(crate) fn new(p: f64) -> Self {
        match u32::try_from((p * 4_294_967_296.0).round() as u64) {
            Ok(threshold) => Self { threshold, scale: (1.0 / (1.0 - p)) as f32 },
            Err(_) => Self { threshold: u32::MAX, scale: 0.0 },
        }
    }

    /// The smallest draw that keeps a value.
    #[cfg(feature = "cube")]
    pub(crate) fn threshold(self) -> u32 {
        self.threshold
    }

    /// What a value that is kept is multiplied by.
    pub(crate) fn scale(self) -> f32 {
        self.scale
    }

    /// Whether nothing is dropped, so that nothing need be drawn.
    pub(crate) fn is_everything(self) -> bool {
        self.threshold == 0
    }

    /// What a value with this draw is multiplied by.
    #[inline(always)]
    pub(crate) fn scale_of(self, word: u32) -> f32 {
        if self.threshold <= word { self.scale } else { 0.0 }
    }

    /// What the value of a node's column is multiplied by.
    pub(crate) fn factor(self, key: RngKey, node: NodeId, column: u32) -> f32 {
        self.scale_of(key.draw4(0, node.0, column / 4)[column as usize % 4])
    }
}
