//! Aggregation of feature rows that are read directly from the array of a store.

use burn::tensor::{DType, Device, Tensor, TensorData};
use bytemuck::cast_slice;
use kiln_feature::{DenseFeatures, Error, FeatureArray, FeatureStore, Result};
use kiln_graph::Block;

use crate::cpu::row_value::RowValue;
use crate::cpu::rows::{Rows, Segments};
use crate::cpu::sum::{Own, Sum, one, weight_of_edge};
use crate::device::block::check_limit;
use crate::device::devices::is_cpu;

/// An aggregation of feature rows by [`aggregate_features`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureAggregation {
    /// The own row of each destination, followed by the mean of the rows of its sources, `[n_dst, 2 * dim]`.
    ConcatSelfMean,
    /// The own row of each destination, followed by the sum of the rows of its sources, `[n_dst, 2 * dim]`.
    ConcatSelfSum,
    /// The sum of the rows of each destination's sources, multiplied by the block's edge weights, `[n_dst, dim]`.
    WeightedSum,
}

impl FeatureAggregation {
    /// The maximum number of rows of a store, because the loops index rows by i32.
    pub const MAX_ROWS: usize = 1 << 31;

    /// Returns the number of columns of the result, given that of the features.
    pub fn width(self, dim: usize) -> usize {
        match self {
            Self::ConcatSelfMean | Self::ConcatSelfSum => 2 * dim,
            Self::WeightedSum => dim,
        }
    }
}

/// Aggregates the feature rows of a block's sources without gathering them: reads them directly from the array of a
/// store, and widens rows of half precision as it reads them. The result is f32 and bit-identical to that of
/// [`gather_features`](crate::gather_features) and [`ops::aggregate_f32`](crate::ops::aggregate_f32) for the same block.
///
/// It runs in the calling thread, because threads of a loader must not wait for rayon's. Time and memory traffic grow with
/// `(n_edges + n_dst) * dim`; besides the result, it allocates four bytes per edge.
///
/// ```
/// use burn::tensor::Device;
/// use kiln_feature::DenseFeatures;
/// use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
/// use kiln_kernels::{FeatureAggregation, aggregate_features, to_vec_f32};
/// // The edges 0 -> 2 and 1 -> 2 of the destination 2.
/// let block = Block::new(BlockParts {
///     srcs: vec![NodeId(2), NodeId(0), NodeId(1)],
///     indptr: vec![0, 2],
///     indices: vec![LocalId(1), LocalId(2)],
///     edge_ids: vec![EdgeId(0), EdgeId(1)],
///     ..BlockParts::default()
/// });
/// let features = DenseFeatures::from_f32(vec![2.0, 4.0, 1.0], 1)?;
/// let rows = aggregate_features(&features, &block, FeatureAggregation::ConcatSelfMean, &Device::flex())?;
/// assert_eq!(to_vec_f32(rows), [1.0, 3.0]);
/// # Ok::<(), kiln_feature::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::NodeOutOfRange`] if a source has no row.
///
/// # Panics
/// Panics if the device is not the CPU, if the block has 2^31 or more edges, if there are more than [`MAX_ROWS`] rows, or if a
/// weighted sum gets a block without edge weights.
///
/// [`MAX_ROWS`]: FeatureAggregation::MAX_ROWS
pub fn aggregate_features(
    features: &DenseFeatures,
    block: &Block,
    aggregation: FeatureAggregation,
    device: &Device,
) -> Result<Tensor<2>> {
    assert!(is_cpu(device), "features are aggregated on the CPU, but the device is {device:?}");
    let n_rows = features.n_rows();
    let dim = features.dim();
    let max = FeatureAggregation::MAX_ROWS;
    assert!(n_rows <= max, "there are {n_rows} feature rows, expected at most {max}: gather the rows");
    check_limit(block.n_edges(), "edges");
    if let Some(&node) = block.srcs().iter().find(|node| n_rows <= node.index()) {
        return Err(Error::NodeOutOfRange { node, n_rows });
    }
    let values = match features.rows() {
        FeatureArray::F32(values) => aggregate(values, dim, block, aggregation),
        FeatureArray::F16(values) => aggregate(values, dim, block, aggregation),
        FeatureArray::BF16(values) => aggregate(values, dim, block, aggregation),
        other => panic!("the element type {} of the feature rows has no loop", other.dtype()),
    };
    let data = TensorData::new(values, [block.n_dst(), aggregation.width(dim)]);
    Ok(Tensor::from_data(data, (&device.clone().inner(), DType::F32)))
}

fn aggregate<E: RowValue>(
    values: &[E],
    dim: usize,
    block: &Block,
    aggregation: FeatureAggregation,
) -> Vec<f32> {
    let srcs: &[i32] = cast_slice(block.srcs());
    let items: Vec<i32> = block.indices().iter().map(|src| srcs[src.index()]).collect();
    let segments = Segments { indptr: cast_slice(block.indptr()), items: &items };
    let rows = Rows::of_store(values, dim);
    let own = Own::BesideOf { rows, items: srcs };
    match aggregation {
        FeatureAggregation::ConcatSelfMean => {
            Sum { mean: true, own, ..Sum::new(segments, rows, one) }.run_alone()
        }
        FeatureAggregation::ConcatSelfSum => Sum { own, ..Sum::new(segments, rows, one) }.run_alone(),
        FeatureAggregation::WeightedSum => {
            let weights = block.weights().expect("a weighted sum should get a block with edge weights");
            Sum::new(segments, rows, weight_of_edge(weights)).run_alone()
        }
    }
}
