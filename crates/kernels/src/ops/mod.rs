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
//! - On Flex, f32 tensors are processed directly, on other devices f16 and bf16 ones too, added up in f32; other element
//!   types through the reference in stock tensor operations, which does make an `[n_edges, d]` tensor and is much
//!   slower. A tensor whose rows are not one after the other is copied first.
//! - `x` without a tracked gradient costs nothing but the forward pass.

pub(crate) mod adam;
pub(crate) mod aggregation;
mod autodiff;
pub(crate) mod backend;
pub(crate) mod keep;
pub(crate) mod reference;

use burn::backend::Dispatch;
use burn::tensor::{DType, Int, Tensor};
use kiln_sample::{KeyDomain, RngKey};

use crate::device::block::{Adjacency, DeviceBlock, upload};
use crate::device::graphs::{DeviceRows, DeviceSegments};
use crate::ops::aggregation::{Form, Weights};
use crate::ops::backend::BlockOps;
use crate::ops::keep::Keep;

pub use crate::ops::adam::AdamStep;
pub use crate::ops::aggregation::{Aggregation, OwnRow, Reduction};

/// Aggregates the rows of each destination's sources.
///
/// A [`Reduction`] alone is the aggregation without edge weights and without the destination's own row. With the own row the
/// result and its gradient take one pass over the edges, as without, in the memory of one tensor. A maximum of weighted
/// rows is the exception to the rule that no `[n_edges, d]` tensor is made: it runs the reference on every device.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
/// use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
/// use kiln_kernels::{DeviceBlock, to_vec_f32};
/// // 7 -> 2 and 9 -> 2, for the one destination 2.
/// let block = Block::new(BlockParts {
///     srcs: vec![NodeId(2), NodeId(7), NodeId(9)],
///     indptr: vec![0, 2],
///     indices: vec![LocalId(1), LocalId(2)],
///     edge_ids: vec![EdgeId(0), EdgeId(1)],
///     weights: None,
/// });
/// let device = Device::flex();
/// let block = DeviceBlock::upload(&block, &device);
/// let x = Tensor::<2>::from_data([[1.0], [2.0], [4.0]], &device);
/// let mean = ops::aggregate(&block, x.clone(), Reduction::Mean);
/// assert_eq!(to_vec_f32(mean), [3.0]);
/// let concat_self_mean = Aggregation { own: OwnRow::Concatenated, ..Reduction::Mean.into() };
/// assert_eq!(to_vec_f32(ops::aggregate(&block, x.clone(), concat_self_mean)), [1.0, 3.0]);
/// let weights = Tensor::from_data([0.5, 0.25], &device);
/// let weighted_sum = Aggregation { weights: Some(weights), ..Reduction::Sum.into() };
/// assert_eq!(to_vec_f32(ops::aggregate(&block, x, weighted_sum)), [2.0]);
/// ```
///
/// # Shapes
/// `x` is `[n_src, d]`, the weights are `[n_edges]` in block order, the result is `[n_dst, d]`, or `[n_dst, 2 d]` with
/// [`OwnRow::Concatenated`].
///
/// # Panics
/// When `x` has another number of rows than the block has sources, or the weights have another length than the block has
/// edges or another element type than `x`.
pub fn aggregate(block: &DeviceBlock, x: Tensor<2>, aggregation: impl Into<Aggregation>) -> Tensor<2> {
    let aggregation = aggregation.into();
    check_rows(block, &x);
    if let Some(weights) = &aggregation.weights {
        let n_weights = weights.dims()[0];
        assert_eq!(n_weights, block.n_edges(), "{n_weights} weights for {} edges", block.n_edges());
        assert_eq!(weights.dtype(), x.dtype(), "the element types of weights and rows differ: cast one");
    }
    run(block.adjacency(), x, aggregation)
}

/// Reduces the rows of each segment, in their order.
///
/// # Shapes
/// `x` is `[n_rows, d]`, the result `[n_segments, d]`.
///
/// # Panics
/// When `x` has another number of rows than the segments.
pub fn segment_reduce(segments: &DeviceSegments, x: Tensor<2>, reduce: Reduction) -> Tensor<2> {
    let [n_rows, _] = x.dims();
    assert_eq!(n_rows, segments.n_rows(), "{n_rows} rows for segments of {}", segments.n_rows());
    run(segments.adjacency(), x, reduce.into())
}

/// Each segment's row, once for each of the segment's rows. Its gradient is the sum of each segment, whose
/// gradient it is.
///
/// # Shapes
/// `x` is `[n_segments, d]`, the result `[n_rows, d]`.
///
/// # Panics
/// When `x` has another number of rows than there are segments.
pub fn broadcast_segments(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
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
    let largest = segment_reduce(segments, x.clone().detach(), Reduction::Max);
    let powers = (x - broadcast_segments(segments, largest)).exp();
    let sums = broadcast_segments(segments, segment_reduce(segments, powers.clone(), Reduction::Sum));
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
    run(rows.adjacency(), x, Reduction::Sum.into())
}

/// The destinations' own rows: the first `n_dst`. On Flex this is a view, not a copy.
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_dst, d]`.
///
/// # Panics
/// When `x` has another number of rows than the block has sources.
pub fn take_dst(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    Tensor::from_dispatch(<Dispatch as BlockOps>::take_dst(block.adjacency(), x.into_dispatch()))
}

/// Inverted dropout: each value becomes 0 with probability `p`, and is divided by `1 - p` otherwise.
///
/// Whether a value stays depends on (`key`, `layer`, its row's node, its column) alone: with the key
/// `key.fold_in(KeyDomain::Dropout, layer)`, column `c` of node `v` stays if word `c % 4` of
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
    let key = key.fold_in(KeyDomain::Dropout, layer as u64);
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
    let key = key.fold_in(KeyDomain::Dropout, layer as u64);
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

/// One step of Adam (Kingma and Ba 2015, algorithm 1, in the order of the remark at the end of its section 2): the
/// parameters, and the decayed means of the gradients and of their squares, which start as zeros.
///
/// On Flex each of the three arrays is passed over once, in place where nothing else refers to it. In stock tensor
/// operations it is a dozen passes.
///
/// # Panics
/// When the shapes or the element types differ.
pub fn adam<const D: usize>(
    values: Tensor<D>,
    gradient: Tensor<D>,
    moments: [Tensor<D>; 2],
    step: AdamStep,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let [means, mean_squares] = moments;
    for other in [&gradient, &means, &mean_squares] {
        assert_eq!(
            values.dims(),
            other.dims(),
            "the shapes of a parameter, its gradient and its moments differ"
        );
        assert_eq!(
            values.dtype(),
            other.dtype(),
            "the element types of a parameter and the others differ: cast"
        );
    }
    let gradient = gradient.into_dispatch();
    let means = <Dispatch as BlockOps>::decayed_mean(means.into_dispatch(), gradient.clone(), step.betas[0]);
    let mean_squares =
        <Dispatch as BlockOps>::decayed_mean_square(mean_squares.into_dispatch(), gradient, step.betas[1]);
    let values = <Dispatch as BlockOps>::adam_parameters(
        values.into_dispatch(),
        means.clone(),
        mean_squares.clone(),
        step,
    );
    let moments = [means, mean_squares].map(Tensor::from_dispatch);
    (Tensor::from_dispatch(values), moments)
}

/// An aggregation over the edges of a block, segments or numbers of rows.
fn run(edges: Adjacency<Dispatch>, x: Tensor<2>, aggregation: Aggregation) -> Tensor<2> {
    let Aggregation { reduce, weights, own } = aggregation;
    let weights = weights.map_or(Weights::Ones, |weights| Weights::PerEdge(weights.into_dispatch()));
    let form = Form { reduce, own };
    Tensor::from_dispatch(<Dispatch as BlockOps>::aggregate(edges, x.into_dispatch(), weights, form))
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
