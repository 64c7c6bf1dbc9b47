//! Ops of messages that are rows of edges, such as their features: DGL's `copy_u`, `copy_e`, `e_dot_v` and the scores of an
//! attention layer that reads rows of edges. Each runs the op of blocks over the edges, as if every edge were a source of
//! its own.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::device::block::DeviceBlock;
use crate::device::graphs::DeviceRows;
use crate::ops::aggregation::{Aggregation, OwnRow, Reduction};
use crate::ops::attention::scores_of;
use crate::ops::backend::BlockOps;
use crate::ops::features::run_for_linear;
use crate::ops::half::widen;
use crate::ops::run::{check_rows, run};

/// Returns the row of each edge's source (DGL's `copy_u`). The gradient of a row is the sum over the edges of its source in
/// their order.
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_edges, d]`, in block order.
///
/// # Panics
/// Panics if `x` does not have one row per source of the block.
pub fn source_rows(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    let rows = DeviceRows::of_indices(block.sources().clone(), block.n_src());
    run(rows.adjacency(), x, Reduction::Sum.into())
}

/// Aggregates rows of edges by destination (DGL's `copy_e`). Like [`aggregate_f32`](crate::ops::aggregate_f32), it takes
/// rows of half precision; the result is f32.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
/// use kiln_kernels::ops::{self, Reduction};
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
/// let amounts = Tensor::<2>::from_data([[10.0], [4.0]], &device);
/// let block = DeviceBlock::upload(&block, &device);
/// assert_eq!(to_vec_f32(ops::aggregate_edges(&block, amounts, Reduction::Mean)), [7.0]);
/// ```
///
/// # Shapes
/// `rows` is `[n_edges, d]` in block order. The result is `[n_dst, d]`, or `[n_dst, n_bases * d]` with
/// [`MessageWeights::PerBasis`](crate::ops::MessageWeights::PerBasis).
///
/// # Panics
/// Panics if there is not one row per edge, if the aggregation has own rows, which edges do not have, and as
/// [`aggregate_f32`](crate::ops::aggregate_f32) does.
pub fn aggregate_edges(
    block: &DeviceBlock,
    rows: Tensor<2>,
    aggregation: impl Into<Aggregation>,
) -> Tensor<2> {
    let aggregation = aggregation.into();
    check_edge_rows(block, &rows);
    let own = aggregation.own;
    assert!(own == OwnRow::Excluded, "edges have no own rows, but the aggregation has {own:?}");
    widen(run_for_linear(block.rows_of_dsts().adjacency(), rows, aggregation))
}

/// Computes the dot products of each edge's row and its destination's row: for each head, of its range of columns (DGL's
/// `e_dot_v`).
///
/// # Shapes
/// `rows` is `[n_edges, n_heads * d]`, `dsts` `[n_dst, n_heads * d]`, the result `[n_edges, n_heads]`, in block order.
///
/// # Panics
/// Panics if the shapes do not match, if the element types differ, or if there are no heads.
pub fn edge_row_dots(block: &DeviceBlock, rows: Tensor<2>, dsts: Tensor<2>, n_heads: usize) -> Tensor<2> {
    check_edge_rows(block, &rows);
    let [_, width] = rows.dims();
    let n_dst = block.n_dst();
    assert_eq!(
        dsts.dims(),
        [n_dst, width],
        "the rows of destinations should be [n_dst, {width}], as wide as those of edges"
    );
    let is_divided = n_heads != 0 && width.is_multiple_of(n_heads);
    assert!(is_divided, "the rows have {width} columns, expected a multiple of the {n_heads} heads");
    assert_eq!(rows.dtype(), dsts.dtype(), "the element types of the rows differ: cast some of them");
    let edges = block.rows_of_dsts().adjacency();
    let rows = rows.into_dispatch();
    let dsts = dsts.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::edge_dots(edges, rows, dsts, n_heads))
}

/// Computes attention scores like [`attention_scores`](crate::ops::attention_scores), but from a row of each edge
/// instead of its source's: `out[e, h] = sum over c of weights[h, c] * leaky_relu(rows[e, h d + c] + dst[v, h d + c])` for
/// each edge `e` into `v`. The row may be the sum of the source's row ([`source_rows`]) and that of the edge's features, as
/// in PyG's `GATv2Conv` with `edge_dim`.
///
/// # Shapes
/// `rows` is `[n_edges, n_heads * d]` in block order, `dst` `[n_dst, n_heads * d]`, `weights` `[n_heads, d]`, the result
/// `[n_edges, n_heads]`.
///
/// # Panics
/// Panics if the shapes do not match, if there are no heads, or if the element types differ.
pub fn edge_row_scores(
    block: &DeviceBlock,
    rows: Tensor<2>,
    dst: Tensor<2>,
    weights: Tensor<2>,
    negative_slope: f32,
) -> Tensor<2> {
    check_edge_rows(block, &rows);
    scores_of(block.rows_of_dsts().adjacency(), rows, dst, weights, negative_slope)
}

fn check_edge_rows(block: &DeviceBlock, rows: &Tensor<2>) {
    let [n_rows, _] = rows.dims();
    let n_edges = block.n_edges();
    assert_eq!(n_rows, n_edges, "got {n_rows} rows for {n_edges} edges, expected one per edge");
}
