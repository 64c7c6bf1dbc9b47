//! Differentiable ops of a layer: aggregation over the edges of a block or over segments of rows, gathering, dropout,
//! dense layers, the cross entropy and Adam.
//!
//! Common properties:
//!
//! - An op returns a new tensor. It writes to the memory of an input only if no other tensor refers to that memory.
//! - The sum, mean or maximum of a destination without edges, or of a segment without rows, is a row of zeros. Each of
//!   several parallel edges counts.
//! - On Flex, no `[n_edges, d]` tensor is created, except for maxima with edge weights. Time and memory traffic grow
//!   with `n_edges * d`; memory grows with the output and the data saved for the gradient (the edges of maxima, the
//!   inputs of a product). The gradient iterates over the edges by source, so it needs no atomics.
//! - Results and gradients are bit-identical for any number of threads, and in every run on the same device. The edges
//!   of a row are added in block order, and so are those of a source in the gradient. On devices other than Flex,
//!   aggregations add rows with more than 512 edges in chunks at fixed positions.
//! - On Flex, f32 tensors are processed directly; on other devices f16 and bf16 tensors are, too, with sums in f32.
//!   Other element types use the reference in Burn's tensor operations, which creates an `[n_edges, d]` tensor and is
//!   much slower. A tensor whose rows are not contiguous is copied first.
//! - The ops that read features, [`aggregate_f32`] and [`linear`], also take f16 and bf16 rows in a model of f32 weights.
//!   On Flex, they widen the rows as they read them.
//! - If no input requires a gradient, only the forward pass runs and nothing is saved.

pub(crate) mod adam;
pub(crate) mod aggregation;
pub(crate) mod attention;
mod autodiff;
pub(crate) mod backend;
pub(crate) mod batch_norm;
mod columns;
pub(crate) mod cross_entropy;
mod edge_messages;
pub(crate) mod edge_rows;
pub(crate) mod edges;
mod features;
pub(crate) mod half;
pub(crate) mod keep;
mod layer_norm;
pub(crate) mod precision;
pub(crate) mod range_sums;
pub(crate) mod ranges;
pub(crate) mod reference;
mod relation_groups;
pub(crate) mod relations;
pub(crate) mod run;
pub(crate) mod type_products;

use burn::backend::Dispatch;
use burn::tensor::{DType, Int, Tensor};
use kiln_sample::{KeyDomain, RngKey};

use crate::device::block::{DeviceBlock, upload};
use crate::device::devices::is_cpu;
use crate::device::graphs::{DeviceRows, DeviceSegments};
use crate::ops::adam::AdamState;
use crate::ops::backend::BlockOps;
use crate::ops::half::reads_half_rows;
use crate::ops::keep::Keep;
use crate::ops::run::{check_rows, run};

pub use crate::ops::adam::AdamStep;
pub use crate::ops::aggregation::{Aggregation, MessageWeights, OwnRow, Reduction};
pub use crate::ops::attention::{attention_scores, edge_dropout, edge_softmax};
pub use crate::ops::columns::{BatchNorm, BatchNormOutput, add_row, batch_norm, column_sums, mul_row};
pub use crate::ops::edge_messages::{aggregate_edges, edge_row_dots, edge_row_scores, source_rows};
pub use crate::ops::features::{aggregate_f32, aggregate_for_linear};
pub use crate::ops::half::{narrow, widen};
pub use crate::ops::layer_norm::layer_norm;
pub use crate::ops::precision::{
    MatmulPrecision, has_bf16_products, matmul_precision_on, set_matmul_precision, set_trained_precision,
};
pub use crate::ops::ranges::{log_softmax, mean_of_ranges, mul_column, range_sums, repeat_columns};
pub use crate::ops::relation_groups::{
    aggregate_groups, group_dots, group_softmax, grouped_linear, grouped_transposed,
};
pub use crate::ops::relations::{
    edge_shares, edge_type_rows, group_shares, relation_shares, relation_weights,
};

/// Aggregates the rows of each destination's sources.
///
/// A [`Reduction`] alone is the aggregation without edge weights and without the destination's own row. The own row
/// costs no additional pass over the edges and no temporary tensor. On the CPU, a maximum with edge weights runs the
/// reference implementation, which creates an `[n_edges, d]` tensor.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
/// use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
/// use kiln_kernels::{DeviceBlock, to_vec_f32};
/// // The edges 7 -> 2 and 9 -> 2 of the destination 2.
/// let block = Block::new(BlockParts {
///     srcs: vec![NodeId(2), NodeId(7), NodeId(9)],
///     indptr: vec![0, 2],
///     indices: vec![LocalId(1), LocalId(2)],
///     edge_ids: vec![EdgeId(0), EdgeId(1)],
///     ..BlockParts::default()
/// });
/// let device = Device::flex();
/// let block = DeviceBlock::upload(&block, &device);
/// let x = Tensor::<2>::from_data([[1.0], [2.0], [4.0]], &device);
/// let mean = ops::aggregate(&block, x.clone(), Reduction::Mean);
/// assert_eq!(to_vec_f32(mean), [3.0]);
/// let concat_self_mean = Aggregation { own: OwnRow::Concatenated, ..Reduction::Mean.into() };
/// assert_eq!(to_vec_f32(ops::aggregate(&block, x.clone(), concat_self_mean)), [1.0, 3.0]);
/// let weights = Tensor::<1>::from_data([0.5, 0.25], &device);
/// let weighted_sum = Aggregation { weights: Some(weights.into()), ..Reduction::Sum.into() };
/// assert_eq!(to_vec_f32(ops::aggregate(&block, x, weighted_sum)), [2.0]);
/// ```
///
/// # Shapes
/// `x` is `[n_src, d]`. The aggregate is `[n_dst, d]`, or `[n_dst, n_bases * d]` with [`MessageWeights::PerBasis`].
/// [`OwnRow::Concatenated`] puts `d` columns in front of it.
///
/// # Panics
/// Panics if `x` does not have one row per source of the block; if there are not weights for each edge; if the weights
/// and `x` differ in element type; if the width of `x` is not a multiple of the number of heads; for the maximum of rows
/// with more than one weight per edge; and if own rows are added to the sums of several bases.
pub fn aggregate(block: &DeviceBlock, x: Tensor<2>, aggregation: impl Into<Aggregation>) -> Tensor<2> {
    let aggregation = aggregation.into();
    check_rows(block, &x);
    aggregation.check(block.n_edges(), &x, x.dtype());
    run(block.adjacency(), x, aggregation)
}

/// Reduces the rows of each segment in their order.
///
/// # Shapes
/// `x` is `[n_rows, d]`, the result `[n_segments, d]`.
///
/// # Panics
/// Panics if `x` does not have one row per row of the segments.
pub fn segment_reduce(segments: &DeviceSegments, x: Tensor<2>, reduce: Reduction) -> Tensor<2> {
    let [n_rows, _] = x.dims();
    assert_eq!(n_rows, segments.n_rows(), "x has {n_rows} rows, but the segments have {}", segments.n_rows());
    run(segments.adjacency(), x, reduce.into())
}

/// Repeats each segment's row once for each row of the segment. Its gradient is the sum over each segment, and the
/// gradient of that sum is this op.
///
/// # Shapes
/// `x` is `[n_segments, d]`, the result `[n_rows, d]`.
///
/// # Panics
/// Panics if `x` does not have one row per segment.
pub fn broadcast_segments(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    let [n_rows, _] = x.dims();
    let n_segments = segments.n_segments();
    assert_eq!(n_rows, n_segments, "x has {n_rows} rows, expected one for each of {n_segments} segments");
    Tensor::from_dispatch(<Dispatch as BlockOps>::expand(segments.adjacency(), x.into_dispatch()))
}

/// Computes the softmax over the rows of each segment, column by column. For the edges of a block
/// there is [`edge_softmax`], which takes one pass.
///
/// The op is composed of the other segment ops, which also provide its gradient. `[n_rows, d]` tensors are read and
/// written about ten times, which is acceptable because attention scores have few columns.
///
/// # Shapes
/// `x` and the result are `[n_rows, d]`.
///
/// # Panics
/// Panics if `x` does not have one row per row of the segments.
pub fn segment_softmax(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    // Subtracting the maximum does not change the result, so no gradient needs to flow through it.
    let largest = segment_reduce(segments, x.clone().detach(), Reduction::Max);
    let powers = (x - broadcast_segments(segments, largest)).exp();
    let sums = broadcast_segments(segments, segment_reduce(segments, powers.clone(), Reduction::Sum));
    powers / sums
}

/// Gathers rows of a matrix by index; an index may occur several times. The gradient of a row is the sum of the
/// gradients of its copies, in their order.
///
/// # Shapes
/// `x` is `[n, d]`, the result `[rows.len(), d]`.
///
/// # Panics
/// Panics if `x` does not have the number of rows that `rows` was created for.
pub fn gather_rows(rows: &DeviceRows, x: Tensor<2>) -> Tensor<2> {
    let [n_rows, _] = x.dims();
    let expected = rows.n_rows();
    assert_eq!(n_rows, expected, "x has {n_rows} rows, but the row indices are for {expected}");
    run(rows.adjacency(), x, Reduction::Sum.into())
}

/// Sums messages with one row per edge (Hu et al. 2020, equation 4.1 of GINE): `out[v] = sum of relu(x[u] + rows[e])` over
/// the edges `e` from `u` to `v`.
///
/// Messages are never stored, except on the CPU for other element types than f32: there, the op is composed of others.
///
/// # Shapes
/// `x` is `[n_src, d]`, `rows` `[n_edges, d]` in block order, the result `[n_dst, d]`.
///
/// # Panics
/// Panics if the shapes do not match, or the element types differ.
pub fn edge_relu_sum(block: &DeviceBlock, x: Tensor<2>, rows: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    let [n_src, width] = x.dims();
    let n_edges = block.n_edges();
    assert_eq!(
        rows.dims(),
        [n_edges, width],
        "the rows of the edges should be [n_edges, {width}], as wide as x"
    );
    assert_eq!(rows.dtype(), x.dtype(), "the element types of x and the rows differ: cast one of them");
    if is_cpu(&x.device()) && x.dtype() != DType::F32 {
        let of_sources = DeviceRows::of_indices(block.sources().clone(), n_src);
        let gathered = run(of_sources.adjacency(), x, Reduction::Sum.into());
        return run(block.rows_of_dsts().adjacency(), relu(gathered + rows), Reduction::Sum.into());
    }
    let sums =
        <Dispatch as BlockOps>::edge_relu_sum(block.adjacency(), x.into_dispatch(), rows.into_dispatch());
    Tensor::from_dispatch(sums)
}

/// Computes the dot products of the rows of each edge's source and destination: for each head, of its range of columns
/// (DGL's `u_dot_v`). With keys and queries, these are the scores of dot-product attention (Vaswani et al. 2017, equation 1)
/// before they are scaled.
///
/// No `[n_edges, n_heads * d]` tensor is created. The gradients of the rows are sums over a node's edges in their order.
///
/// # Shapes
/// `srcs` is `[n_src, n_heads * d]`, `dsts` `[n_dst, n_heads * d]`, the result `[n_edges, n_heads]`, in block order.
///
/// # Panics
/// Panics if the shapes do not match, if the element types differ, or if there are no heads.
pub fn edge_dots(block: &DeviceBlock, srcs: Tensor<2>, dsts: Tensor<2>, n_heads: usize) -> Tensor<2> {
    check_rows(block, &srcs);
    let [_, width] = srcs.dims();
    let n_dst = block.n_dst();
    assert_eq!(
        dsts.dims(),
        [n_dst, width],
        "the rows of destinations should be [n_dst, {width}], as wide as those of sources"
    );
    let is_divided = n_heads != 0 && width.is_multiple_of(n_heads);
    assert!(is_divided, "the rows have {width} columns, expected a multiple of the {n_heads} heads");
    assert_eq!(srcs.dtype(), dsts.dtype(), "the element types of the rows differ: cast some of them");
    let srcs = srcs.into_dispatch();
    let dsts = dsts.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::edge_dots(block.adjacency(), srcs, dsts, n_heads))
}

/// Returns the rows of the destinations, which are the first `n_dst` of the sources' rows. On Flex this is a view, not
/// a copy.
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_dst, d]`.
///
/// # Panics
/// Panics if `x` does not have one row per source of the block.
pub fn take_dst(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    Tensor::from_dispatch(<Dispatch as BlockOps>::take_dst(block.adjacency(), x.into_dispatch()))
}

/// Applies inverted dropout: sets each value to 0 with probability `p`, and otherwise divides it by `1 - p`.
///
/// The mask depends only on `key`, `layer`, the row's node and the column: with the key
/// `key.fold_in(KeyDomain::Dropout, layer)`, column `c` of node `v` is kept if word `c % 4` of `draw4(0, v, c / 4)` is
/// at least `round(p * 2^32)`. A node therefore has the same mask in every block of the layer and on every rank. The
/// backward pass draws the mask again instead of storing it.
///
/// # Shapes
/// `x` is `[n, d]`, `nodes` `[n]`: the global ids of the rows, from [`DeviceBlock::dst_nodes`] or
/// [`DeviceBlock::src_nodes`]. The result is `[n, d]`.
///
/// # Panics
/// Panics if `p` is not in `[0, 1)`, the numbers of rows and nodes differ, or the nodes are not u32.
pub fn dropout(x: Tensor<2>, nodes: &Tensor<1, Int>, key: RngKey, layer: usize, p: f64) -> Tensor<2> {
    check_dropout(&x, nodes, p);
    if p == 0.0 {
        return x;
    }
    let key = key.fold_in(KeyDomain::Dropout, layer as u64);
    let nodes = nodes.clone().into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::dropout(x.into_dispatch(), nodes, key, Keep::new(p)))
}

/// Applies ReLU and then [`dropout`], in one pass over `x`. If `p` is 0, applies only the ReLU. NaN values stay
/// NaN.
///
/// The backward pass derives the mask from the result, so it is drawn only once per step. On Flex, the result reuses
/// the memory of `x` if no other tensor refers to it.
///
/// # Shapes
/// Same as [`dropout`].
///
/// # Panics
/// Same as [`dropout`].
pub fn relu_dropout(x: Tensor<2>, nodes: &Tensor<1, Int>, key: RngKey, layer: usize, p: f64) -> Tensor<2> {
    check_dropout(&x, nodes, p);
    let key = key.fold_in(KeyDomain::Dropout, layer as u64);
    let nodes = nodes.clone().into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::relu_dropout(x.into_dispatch(), nodes, key, Keep::new(p)))
}

/// Applies ReLU. NaN values stay NaN. On Flex, the result reuses the memory of `x` if no other tensor refers to it, and
/// the backward pass reuses the memory of the gradient.
///
/// # Shapes
/// `x` and the result are `[n, d]`.
pub fn relu(x: Tensor<2>) -> Tensor<2> {
    let no_nodes = upload(Vec::<u32>::new(), DType::U32, &x.device().inner()).into_dispatch();
    let key = RngKey::new(0);
    let keep = Keep::new(0.0);
    Tensor::from_dispatch(<Dispatch as BlockOps>::relu_dropout(x.into_dispatch(), no_nodes, key, keep))
}

/// Adds a bias to all rows, applies ReLU if `relu` is true, and then [`dropout`]: the end of a dense layer whose product is
/// [`product`]. NaN values stay NaN. On a GPU, it is one pass over `x`; on the CPU, [`linear`] and [`relu_dropout`] are faster. The
/// backward pass draws the mask again, or derives it from the result of the ReLU.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_kernels::{ops, to_vec_f32};
/// use kiln_sample::RngKey;
/// let device = Device::flex();
/// let x = Tensor::<2>::from_data([[1.0, -3.0]], &device);
/// let bias = Tensor::<1>::from_data([0.5, 1.0], &device);
/// let nodes = Tensor::from_data(burn::tensor::TensorData::from([7_u32]), (&device, burn::tensor::DType::U32));
/// let rows = ops::bias_dropout(x, bias, true, &nodes, RngKey::new(0), 0, 0.0);
/// assert_eq!(to_vec_f32(rows), [1.5, 0.0]);
/// ```
///
/// # Shapes
/// Those of [`dropout`]; `bias` is `[d]`.
///
/// # Panics
/// Those of [`dropout`], and panics if the bias does not have a value for each column, or another element type.
pub fn bias_dropout(
    x: Tensor<2>,
    bias: Tensor<1>,
    relu: bool,
    nodes: &Tensor<1, Int>,
    key: RngKey,
    layer: usize,
    p: f64,
) -> Tensor<2> {
    check_dropout(&x, nodes, p);
    let [_, width] = x.dims();
    assert_eq!(bias.dims(), [width], "the bias should have a value for each of {width} columns");
    assert_eq!(x.dtype(), bias.dtype(), "the element types of x and bias differ: cast one of them");
    let key = key.fold_in(KeyDomain::Dropout, layer as u64);
    let nodes = nodes.clone().into_dispatch();
    let keep = Keep::new(p);
    let bias = bias.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::bias_dropout(
        x.into_dispatch(),
        bias,
        nodes,
        key,
        keep,
        relu,
    ))
}

/// Applies the exponential linear unit (Clevert, Unterthiner and Hochreiter 2016) with `alpha = 1`: `x`, or `exp(x) - 1`
/// below 0. On Flex, the result reuses the memory of `x` if no other tensor refers to it, and the backward pass reuses the
/// memory of the gradient.
///
/// # Shapes
/// `x` and the result are `[n, d]`.
pub fn elu(x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as BlockOps>::elu(x.into_dispatch()))
}

/// Computes a dense layer, `base + x weight`. `base` is the bias, or the result of another layer. On Flex, if `base`
/// has `n` rows and no other tensor refers to its memory, the product is added in place.
///
/// `x` may be features of half precision in a layer of f32 weights. The result is f32 then, and bit-identical to that of
/// `x.cast(F32)`. On Flex, ranges of rows are widened one after the other, so no f32 copy of `x` is created, except if
/// `x` requires a gradient.
///
/// # Shapes
/// `x` is `[n, d_in]`, `weight` `[d_in, d_out]`, `base` `[n, d_out]`, or `[1, d_out]` to add the same row to all; the
/// result is `[n, d_out]`.
///
/// # Panics
/// Panics if the shapes do not match, or the element types differ otherwise.
pub fn linear(base: Tensor<2>, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let [n_rows, d_in] = x.dims();
    let [w_in, d_out] = weight.dims();
    let [base_rows, base_width] = base.dims();
    assert_eq!(d_in, w_in, "x has {d_in} columns, but weight has {w_in} rows");
    assert_eq!(base_width, d_out, "base has {base_width} columns, but weight has {d_out}");
    assert!(base_rows == n_rows || base_rows == 1, "base has {base_rows} rows, expected 1 or {n_rows}");
    let x = match (x.dtype(), weight.dtype()) {
        (DType::F16 | DType::BF16, DType::F32) if !reads_half_rows(&x) => widen(x),
        (DType::F16 | DType::BF16, DType::F32) => x,
        (of_x, of_weight) => {
            assert_eq!(of_x, of_weight, "the element types of x and weight differ: cast one of them");
            x
        }
    };
    assert_eq!(base.dtype(), weight.dtype(), "the element types of base and weight differ: cast one of them");
    let sum =
        <Dispatch as BlockOps>::add_linear(base.into_dispatch(), x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(sum)
}

/// Computes the matrix product `x weight`: [`linear`] without a base. On the CPU it is [`linear`] with a base of zeros, which is
/// faster than Burn's matrix product, because that copies its result to memory of another alignment.
///
/// # Shapes
/// `x` is `[n, d_in]`, `weight` `[d_in, d_out]`, the result `[n, d_out]`.
///
/// # Panics
/// Same as [`linear`].
pub fn product(x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let [_, d_in] = x.dims();
    let [w_in, d_out] = weight.dims();
    if is_cpu(&x.device()) {
        return linear(Tensor::zeros([1, d_out], (&x.device(), weight.dtype())), x, weight);
    }
    assert_eq!(d_in, w_in, "x has {d_in} columns, but weight has {w_in} rows");
    let x = if weight.dtype() == DType::F32 && !reads_half_rows(&x) { widen(x) } else { x };
    let is_read = x.dtype() == weight.dtype() || weight.dtype() == DType::F32 && reads_half_rows(&x);
    assert!(is_read, "the element types of x and weight differ: cast one of them");
    Tensor::from_dispatch(<Dispatch as BlockOps>::product(x.into_dispatch(), weight.into_dispatch()))
}

/// Puts the rows of two matrices one below the other. On a GPU it is one launch, and the gradients are views.
///
/// # Shapes
/// `first` is `[n, d]`, `second` `[m, d]`, the result `[n + m, d]`.
///
/// # Panics
/// Panics if the widths or the element types differ.
pub fn stack_rows(first: Tensor<2>, second: Tensor<2>) -> Tensor<2> {
    assert_eq!(first.dims()[1], second.dims()[1], "the widths of stacked rows differ");
    assert_eq!(first.dtype(), second.dtype(), "the element types of stacked rows differ: cast one of them");
    if is_cpu(&first.device()) {
        return Tensor::cat(vec![first, second], 0);
    }
    Tensor::from_dispatch(<Dispatch as BlockOps>::stack_rows(first.into_dispatch(), second.into_dispatch()))
}

/// Computes the cross entropy of the rows' classes, summed over the rows:
/// `log(sum over c of exp(x[i, c])) - x[i, labels[i]]` for each row `i`.
///
/// On devices other than the CPU, the loss takes two launches for up to 8,192 rows and its gradient one, besides conversions
/// of other types to f32, and the losses are added in a fixed order. On the CPU, the op is composed of Burn's operations.
///
/// # Shapes
/// `x` is `[n, n_classes]`, `labels` has `n` classes, the result is `[1]`.
///
/// # Panics
/// Panics if there is not one class per row, or if a class has no column.
pub fn cross_entropy(x: Tensor<2>, labels: &[i32]) -> Tensor<1> {
    let [n_rows, n_classes] = x.dims();
    assert_eq!(labels.len(), n_rows, "{} classes for {n_rows} rows, expected one per row", labels.len());
    let has_column = |label: &i32| usize::try_from(*label).is_ok_and(|class| class < n_classes);
    if let Some(label) = labels.iter().find(|label| !has_column(label)) {
        panic!("a row has class {label}, but x has {n_classes} columns, expected one per class");
    }
    let classes = upload(labels.to_vec(), DType::I32, &x.device().inner());
    if is_cpu(&x.device()) {
        return log_softmax(x).gather(1, classes.unsqueeze_dim(1)).sum().neg();
    }
    let dtype = x.dtype();
    let x = x.cast(DType::F32).into_dispatch();
    let loss = <Dispatch as BlockOps>::cross_entropy(x, classes.into_dispatch());
    Tensor::<1>::from_dispatch(loss).cast(dtype)
}

/// Runs one step of Adam (Kingma and Ba 2015, algorithm 1, in the order of the remark at the end of its section 2).
/// Takes and returns the parameters and the `moments`: the decayed means of the gradients and of their squares, which
/// start as zeros.
///
/// On Flex, each of the three arrays is read and written once, in place if no other tensor refers to it. On a GPU, the
/// step is one launch, or a part of one ([`adam_together`]). Burn's tensor operations would take about a dozen passes.
///
/// # Panics
/// Panics if the shapes or the element types differ.
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
            "the element types of a parameter, its gradient and its moments differ"
        );
    }
    let state = AdamState {
        values: values.into_dispatch(),
        means: means.into_dispatch(),
        mean_squares: mean_squares.into_dispatch(),
    };
    let AdamState { values, means, mean_squares } =
        <Dispatch as BlockOps>::adam(state, gradient.into_dispatch(), step);
    (Tensor::from_dispatch(values), [means, mean_squares].map(Tensor::from_dispatch))
}

/// Runs `updates` and, on a GPU, launches all calls of [`adam()`] in it together: one launch for up to 16 parameters. The
/// results of these calls are undefined until this function returns, so `updates` must not read them. Calls may be nested.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_kernels::{ops, to_vec_f32};
/// let device = Device::flex();
/// let ones = || Tensor::<1>::ones([1], &device);
/// let zeros = || [(); 2].map(|()| Tensor::zeros([1], &device));
/// let step =
///     ops::AdamStep { time: 1, learning_rate: 0.5, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.0 };
/// let [first, second] = ops::adam_together(|| [1.0, 3.0].map(|value| ops::adam(ones() * value, ones(), zeros(), step).0));
/// assert_eq!([to_vec_f32(first), to_vec_f32(second)], [[0.5], [2.5]]);
/// ```
pub fn adam_together<T>(updates: impl FnOnce() -> T) -> T {
    #[cfg(feature = "cube")]
    let result = crate::cube::adam::together(updates);
    #[cfg(not(feature = "cube"))]
    let result = updates();
    result
}

fn check_dropout(x: &Tensor<2>, nodes: &Tensor<1, Int>, p: f64) {
    assert!((0.0..1.0).contains(&p), "the dropout probability is {p}, expected 0 <= p < 1");
    let [n_rows, _] = x.dims();
    assert_eq!(nodes.dims()[0], n_rows, "{} nodes for {n_rows} rows, expected one per row", nodes.dims()[0]);
    assert_eq!(nodes.dtype(), DType::U32, "node ids must be u32, as `DeviceBlock` returns them");
}
