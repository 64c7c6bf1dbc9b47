//! What ops on blocks, segments and rows share.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::device::block::{Adjacency, DeviceBlock};
use crate::ops::aggregation::Aggregation;
use crate::ops::backend::BlockOps;

/// Runs an aggregation over an adjacency: that of a block, of segments or of row indices.
pub(crate) fn run(edges: Adjacency<Dispatch>, x: Tensor<2>, aggregation: Aggregation) -> Tensor<2> {
    let (weights, form) = aggregation.into_parts();
    Tensor::from_dispatch(<Dispatch as BlockOps>::aggregate(edges, x.into_dispatch(), weights, form))
}

pub(crate) fn check_rows(block: &DeviceBlock, x: &Tensor<2>) {
    let [n_rows, _] = x.dims();
    assert_eq!(n_rows, block.n_src(), "x has {n_rows} rows, but the block has {} sources", block.n_src());
}
