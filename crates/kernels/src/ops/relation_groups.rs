//! Ops of layers with a matrix per relation, on blocks whose edges are grouped by relation.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::device::relation_groups::DeviceRelationGroups;
use crate::ops::aggregation::{Aggregation, OwnRow};
use crate::ops::backend::BlockOps;
use crate::ops::features::run_f32;
use crate::ops::gather_rows;

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
    let ([n_rows, _], n_src) = (x.dims(), groups.n_src());
    assert_eq!(n_rows, n_src, "x has {n_rows} rows, but the groups have {n_src} sources");
    let own = aggregation.own;
    assert!(own == OwnRow::Excluded, "segments have no own rows, but the aggregation has {own:?}");
    run_f32(groups.adjacency(), x, aggregation)
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
    let ([n_rows, d_in], [w_in, d_out]) = (x.dims(), weight.dims());
    let (n_segments, types) = (groups.n_segments(), groups.types());
    assert_eq!(n_rows, n_segments, "x has {n_rows} rows, but the groups have {n_segments} segments");
    let expected = d_in * types.iter().map(|group| group.n_segments).sum::<usize>();
    assert_eq!(w_in, expected, "weight has {w_in} rows, expected {d_in} for each matrix: {expected}");
    assert_eq!(bias.dims(), [types.len(), d_out], "the bias should be [n_types, {d_out}]");
    for (other, name) in [(bias.dtype(), "bias"), (x.dtype(), "x")] {
        assert_eq!(other, weight.dtype(), "the element types of {name} and weight differ: cast one of them");
    }
    let types = Arc::clone(groups.shared_types());
    let (bias, x, weight) = (bias.into_dispatch(), x.into_dispatch(), weight.into_dispatch());
    let rows = Tensor::from_dispatch(<Dispatch as BlockOps>::grouped_linear(types, bias, x, weight));
    match groups.order() {
        Some(order) => gather_rows(order, rows),
        None => rows,
    }
}
