//! Aggregation of rows: of a node's neighbours, and of a graph's nodes.

use burn::tensor::Tensor;
use kiln_kernels::DeviceSegments;
use kiln_kernels::ops::{self, Reduction};
use serde::{Deserialize, Serialize};

/// The aggregation of a node's neighbours into one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// The mean: `"mean"` in DGL and PyG.
    Mean,
    /// The maximum of each column: `"max"` in PyG. DGL's `"pool"` differs: it runs a dense layer first.
    Max,
    /// The sum: `"sum"` in PyG.
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

/// The pooling of a graph's nodes into one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readout {
    /// The sum: DGL's `SumPooling`, PyG's `global_add_pool`.
    Sum,
    /// The mean.
    Mean,
    /// The maximum of each column.
    Max,
}

impl Readout {
    /// Pools the rows of each graph, `[n_nodes, d] -> [n_graphs, d]`. A graph without nodes gets a row of zeros.
    ///
    /// # Panics
    /// Panics if the number of rows of `x` differs from that of the segments.
    pub fn pool(self, segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
        let reduce = match self {
            Self::Sum => Reduction::Sum,
            Self::Mean => Reduction::Mean,
            Self::Max => Reduction::Max,
        };
        ops::segment_reduce(segments, x, reduce)
    }
}
