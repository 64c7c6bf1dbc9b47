//! Ops of layers with a matrix per relation, on blocks whose edges are grouped by relation.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::device::relation_groups::DeviceRelationGroups;
use crate::ops::aggregation::{Aggregation, OwnRow};
use crate::ops::backend::BlockOps;
use crate::ops::features::run_for_linear;
use crate::ops::gather_rows;
use crate::ops::half::widen;

/// Aggregates the rows of each segment of the groups: each destination's own row, and the rows of its sources by each
/// relation. It is one pass over the edges, and no rows are copied by relation. Like [`aggregate_f32`], it takes rows of
/// half precision; the result is f32.
///
/// Weights are one per entry ([`DeviceRelationGroups::weights`]).
///
/// # Shapes
/// `x` is `[n_src, d]`, the result `[n_segments, d]`.
///
/// # Panics
/// Panics if `x` does not have one row per source, and if the aggregation has own rows, which segments do not have. Also
/// panics as [`aggregate_f32`] does.
///
/// [`aggregate_f32`]: crate::ops::aggregate_f32
pub fn aggregate_groups(
    groups: &DeviceRelationGroups,
    x: Tensor<2>,
    aggregation: impl Into<Aggregation>,
) -> Tensor<2> {
    let aggregation = aggregation.into();
    let [n_rows, _] = x.dims();
    let n_src = groups.n_src();
    assert_eq!(n_rows, n_src, "x has {n_rows} rows, but the groups have {n_src} sources");
    let own = aggregation.own;
    assert!(own == OwnRow::Excluded, "segments have no own rows, but the aggregation has {own:?}");
    widen(run_for_linear(groups.adjacency(), x, aggregation))
}

/// Multiplies the rows of each destination's segments, side by side, by the matrix of the destination's type, and adds the
/// type's bias. The result has the destinations in the order of the block. It is one product per type.
///
/// The gradient of the matrix and the bias of a type without destinations in the block is 0.
///
/// # Shapes
/// `x` is `[n_segments, d_in]`; `bias` is `[n_types, d_out]`; `weight` has the matrices of all types one below the other,
/// `[s_t * d_in, d_out]` for a type whose destinations have `s_t` segments. The result is `[n_dst, d_out]`.
///
/// # Panics
/// Panics if the shapes do not match, or the element types differ.
pub fn grouped_linear(
    groups: &DeviceRelationGroups,
    bias: Tensor<2>,
    x: Tensor<2>,
    weight: Tensor<2>,
) -> Tensor<2> {
    let [n_rows, d_in] = x.dims();
    let [w_in, d_out] = weight.dims();
    let n_segments = groups.n_segments();
    let types = groups.types();
    assert_eq!(n_rows, n_segments, "x has {n_rows} rows, but the groups have {n_segments} segments");
    let expected = d_in * types.iter().map(|group| group.n_segments).sum::<usize>();
    assert_eq!(w_in, expected, "weight has {w_in} rows, expected {d_in} for each matrix: {expected}");
    assert_eq!(bias.dims(), [types.len(), d_out], "the bias should be [n_types, {d_out}]");
    for (other, name) in [(bias.dtype(), "bias"), (x.dtype(), "x")] {
        assert_eq!(other, weight.dtype(), "the element types of {name} and weight differ: cast one of them");
    }
    let types = Arc::clone(groups.shared_types());
    let bias = bias.into_dispatch();
    let x = x.into_dispatch();
    let weight = weight.into_dispatch();
    let rows = Tensor::from_dispatch(<Dispatch as BlockOps>::grouped_linear(types, bias, x, weight));
    match groups.order() {
        Some(order) => gather_rows(order, rows),
        None => rows,
    }
}

/// Multiplies the row of each destination by a matrix for each of its segments: the transposed product of
/// [`grouped_linear`].
///
/// # Shapes
/// `x` is `[n_dst, d]`, with the destinations in the order by type, which `aggregate_groups` of
/// [`DeviceRelationGroups::dsts`] returns; `weight` has the matrices of all types one below the other, `[s_t * d_out, d]` for
/// a type whose destinations have `s_t` segments. The result is `[n_segments, d_out]`.
///
/// # Panics
/// Panics if the shapes do not match, or the element types differ.
pub fn grouped_transposed(groups: &DeviceRelationGroups, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let [n_rows, width] = x.dims();
    let [w_rows, d] = weight.dims();
    let types = groups.types();
    assert_eq!(n_rows, groups.n_dst(), "x has {n_rows} rows, expected one per destination");
    assert_eq!(width, d, "x has {width} columns, but weight has {d}");
    let n_matrices: usize = types.iter().map(|group| group.n_segments).sum();
    assert!(w_rows.is_multiple_of(n_matrices), "weight has {w_rows} rows, for {n_matrices} equal matrices");
    assert_eq!(x.dtype(), weight.dtype(), "the element types of x and weight differ: cast one of them");
    let types = Arc::clone(groups.shared_types());
    let d_out = w_rows / n_matrices;
    let x = x.into_dispatch();
    let weight = weight.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::grouped_transposed(types, x, weight, d_out))
}

/// Computes the dot products of the rows of each entry's source and segment: for each head, of its range of columns.
///
/// # Shapes
/// `srcs` is `[n_src, n_heads * d]`, `segments` `[n_segments, n_heads * d]`, the result `[n_entries, n_heads]`.
///
/// # Panics
/// Panics if the shapes do not match, if the element types differ, or if there are no heads.
pub fn group_dots(
    groups: &DeviceRelationGroups,
    srcs: Tensor<2>,
    segments: Tensor<2>,
    n_heads: usize,
) -> Tensor<2> {
    let [n_src, width] = srcs.dims();
    let expected = [groups.n_segments(), srcs.dims()[1]];
    assert_eq!(n_src, groups.n_src(), "there are {n_src} rows of sources, expected {}", groups.n_src());
    assert_eq!(segments.dims(), expected, "the rows of segments do not match the groups and the sources");
    let is_divided = n_heads != 0 && width.is_multiple_of(n_heads);
    assert!(is_divided, "the rows have {width} columns, expected a multiple of the {n_heads} heads");
    assert_eq!(srcs.dtype(), segments.dtype(), "the element types of the rows differ: cast some of them");
    let srcs = srcs.into_dispatch();
    let segments = segments.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BlockOps>::edge_dots(groups.adjacency(), srcs, segments, n_heads))
}

/// The score of an own row, whose exponential is 0 beside any other score.
const LOWEST: f32 = -1e30;

/// Computes the softmax over the edges of each destination by all relations, column by column. The result of an own row is
/// 0, or 1 if the destination has no edges.
///
/// # Shapes
/// `scores` and the result are `[n_entries, n_heads]`.
///
/// # Panics
/// Panics if there is not one row per entry, or the groups lack those of nodes
/// ([`RelationGroups::with_nodes`](kiln_graph::RelationGroups::with_nodes)).
pub fn group_softmax(groups: &DeviceRelationGroups, scores: Tensor<2>) -> Tensor<2> {
    let [n_rows, _] = scores.dims();
    let n_entries = groups.n_entries();
    assert_eq!(n_rows, n_entries, "got {n_rows} rows for {n_entries} entries, expected one per entry");
    let (entries, own) = groups.entries_of_dsts();
    let own = if scores.device() == own.device() { own.clone() } else { Tensor::from_inner(own.clone()) };
    let scores = scores + own * LOWEST;
    Tensor::from_dispatch(<Dispatch as BlockOps>::edge_softmax(entries, scores.into_dispatch()))
}
