//! How rows become one: those of a node's neighbours, and those of a graph's nodes.

use burn::tensor::Tensor;
use kiln_kernels::DeviceSegments;
use kiln_kernels::ops::{self, Reduction};

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

impl From<Aggregate> for Reduction {
    fn from(aggregate: Aggregate) -> Self {
        match aggregate {
            Aggregate::Mean => Self::Mean,
            Aggregate::Max => Self::Max,
            Aggregate::Sum => Self::Sum,
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
        let reduce = match self {
            Self::Sum => Reduction::Sum,
            Self::Mean => Reduction::Mean,
            Self::Max => Reduction::Max,
        };
        ops::segment_reduce(segments, x, reduce)
    }
}
