//! Tests of the aggregation of feature rows that are read directly from a store: its results are bit-identical to those
//! of gathered rows.

use burn::tensor::{DType, Device, Tensor};
use half::{bf16, f16};
use kiln_feature::{DenseFeatures, Error, FeatureArray, FeatureStore};
use kiln_graph::{Block, BlockParts, NodeId};
use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
use kiln_kernels::testing::values;
use kiln_kernels::{BlockSize, DeviceBlock, FeatureAggregation, aggregate_features, gather_features};

use super::common::{block, six_nodes, weighted_sum, with_hub};

const AGGREGATIONS: [FeatureAggregation; 3] =
    [FeatureAggregation::ConcatSelfMean, FeatureAggregation::ConcatSelfSum, FeatureAggregation::WeightedSum];

fn bits(rows: Tensor<2>) -> Vec<u32> {
    assert_eq!(rows.dtype(), DType::F32);
    values(rows).into_iter().map(f32::to_bits).collect()
}

/// Returns features of three element types for all nodes of a block.
fn stores(block: &Block, dim: usize) -> [DenseFeatures; 3] {
    let n_rows =
        block.srcs().iter().map(|node| node.index() + 1).max().expect("the block should have sources");
    let values = (0..n_rows as u32 * dim as u32).map(|place| (place.wrapping_mul(2_654_435_769) >> 8) as f32);
    let arrays = [
        FeatureArray::from(values.clone().collect::<Vec<f32>>()),
        values.clone().map(|value| f16::from_f32(value / 1000.0)).collect::<Vec<_>>().into(),
        values.map(bf16::from_f32).collect::<Vec<_>>().into(),
    ];
    arrays.map(|array| DenseFeatures::new(array, dim).expect("the rows should be whole"))
}

/// Returns the rows that a layer computes from gathered rows.
fn expected(features: &DenseFeatures, block: &Block, aggregation: FeatureAggregation) -> Tensor<2> {
    let device = Device::flex();
    let x = gather_features(features, block.srcs(), &device).expect("all nodes should have rows");
    let block = DeviceBlock::upload(block, &device);
    let concat_self = |reduce: Reduction| Aggregation { own: OwnRow::Concatenated, ..reduce.into() };
    let aggregation = match aggregation {
        FeatureAggregation::ConcatSelfMean => concat_self(Reduction::Mean),
        FeatureAggregation::ConcatSelfSum => concat_self(Reduction::Sum),
        FeatureAggregation::WeightedSum => {
            weighted_sum(block.weights().expect("the block should have weights").clone())
        }
    };
    ops::aggregate_f32(&block, x, aggregation)
}

/// Returns a block whose aggregate of 128 columns is written with stores that bypass the caches.
fn large() -> Block {
    let in_srcs = (0..40_000).map(|dst| (0..dst % 5).map(|k| (dst * 7 + k * 411) % 41_000).collect());
    let parts = block(41_000, &in_srcs.collect::<Vec<_>>()).into_parts();
    // Features of fewer nodes are created faster.
    Block::new(BlockParts { srcs: (0..41_000).rev().map(NodeId).collect(), ..parts })
}

#[test]
fn aggregated_features_are_bit_identical_to_aggregates_of_gathered_rows() {
    for (block, dims) in [
        (six_nodes(), vec![1, 2, 7, 36, 100, 128, 200]),
        (with_hub(), vec![36]),
        (large(), vec![128]),
        (block(3, &[]), vec![4]),
    ] {
        for dim in dims {
            for features in stores(&block, dim) {
                for aggregation in AGGREGATIONS {
                    let got = aggregate_features(&features, &block, aggregation, &Device::flex());
                    let got = got.expect("all nodes should have rows");
                    let what =
                        format!("{aggregation:?}, {}, {:?}", features.dtype(), BlockSize::from(&block));
                    assert_eq!(got.dims(), [block.n_dst(), aggregation.width(dim)], "{what}");
                    let is_same = bits(got) == bits(expected(&features, &block, aggregation));
                    assert!(is_same, "{what}, {dim} columns");
                }
            }
        }
    }
}

#[test]
fn rejects_a_source_without_a_row() {
    let features = DenseFeatures::from_f32(vec![0.0; 2 * 135], 2).expect("the rows should be whole");
    for aggregation in AGGREGATIONS {
        let got = aggregate_features(&features, &six_nodes(), aggregation, &Device::flex());
        let Err(Error::NodeOutOfRange { node: NodeId(135), n_rows: 135 }) = got else { panic!("{got:?}") };
    }
}

#[test]
#[should_panic(expected = "a weighted sum should get a block with edge weights")]
fn panics_on_a_weighted_sum_without_edge_weights() {
    let mut parts = six_nodes().into_parts();
    parts.weights = None;
    let block = Block::new(parts);
    let [features, ..] = stores(&block, 2);
    let _ = aggregate_features(&features, &block, FeatureAggregation::WeightedSum, &Device::flex());
}
