//! How rows become one: those of a node's neighbours, and those of a graph's nodes.

use burn::tensor::Tensor;
use kiln_kernels::{DeviceBlock, DeviceSegments, ops};

/// How a node's neighbours become one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// The mean; DGL's and PyG's `"mean"`.
    Mean,
    /// The largest value of each column: PyG's `"max"`. DGL's `"pool"` runs a dense layer first, this
    /// does not.
    Max,
    /// The sum; PyG's `"sum"`.
    Sum,
}

impl Aggregate {
    /// Each destination's row, `[n_src, d] -> [n_dst, d]`.
    pub(crate) fn gather(self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Mean => ops::neighbor_mean(block, x),
            Self::Max => ops::neighbor_max(block, x),
            Self::Sum => ops::neighbor_sum(block, x),
        }
    }
}

/// How a graph's nodes become one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readout {
    /// The sum: DGL's `SumPooling`, PyG's `global_add_pool`.
    Sum,
    /// The mean.
    Mean,
    /// The largest value of each column.
    Max,
}

impl Readout {
    /// Each graph's row, `[n_nodes, d] -> [n_graphs, d]`; zeros for a graph without nodes.
    ///
    /// # Panics
    /// When `x` has another number of rows than the segments.
    pub fn pool(self, segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Sum => ops::segment_sum(segments, x),
            Self::Mean => ops::segment_mean(segments, x),
            Self::Max => ops::segment_max(segments, x),
        }
    }
}
