//! Tests of models that run from the result of their first layer's aggregation.

use burn::tensor::{Device, Tensor};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
use kiln_kernels::testing::{device, ramp, values};
use kiln_kernels::{BlockSize, DeviceBlock, FeatureAggregation};
use kiln_nn::{
    Aggregate, BlockModel, GatConfig, GcnConfig, InputAggregation, JumpingKnowledge, Mode, ModelConfig,
    Normalization, SageConfig,
};
use kiln_sample::RngKey;

use super::common::ctx;

/// Returns a block with edge weights. The sources of destination `v` are `v + 1` and `v + 2`, modulo `n_src`.
fn block(n_src: u32, n_dst: u32, device: &Device) -> DeviceBlock {
    let srcs = (0..n_dst).flat_map(|dst| [(dst + 1) % n_src, (dst + 2) % n_src]);
    let parts = BlockParts {
        srcs: (10..10 + n_src).map(NodeId).collect(),
        indptr: (0..=n_dst).map(|dst| 2 * dst).collect(),
        indices: srcs.map(LocalId).collect(),
        edge_ids: (0..2 * u64::from(n_dst)).map(EdgeId).collect(),
        weights: Some((0..2 * n_dst).map(|edge| 0.25 + edge as f32).collect()),
        edge_types: None,
    };
    DeviceBlock::new(Block::new(parts), device)
}

fn aggregated(block: &DeviceBlock, x: Tensor<2>, aggregation: FeatureAggregation) -> Tensor<2> {
    let concat_self = |reduce: Reduction| Aggregation { own: OwnRow::Concatenated, ..reduce.into() };
    let aggregation = match aggregation {
        FeatureAggregation::ConcatSelfMean => concat_self(Reduction::Mean),
        FeatureAggregation::ConcatSelfSum => concat_self(Reduction::Sum),
        FeatureAggregation::WeightedSum => {
            let weights = block.weights().expect("the block should have weights").clone();
            Aggregation { weights: Some(weights.into()), ..Reduction::Sum.into() }
        }
    };
    ops::aggregate_f32(block, x, aggregation)
}

/// Checks that outputs of a model from aggregated rows are bit-identical to those from the rows of all sources.
fn check<C: ModelConfig<Model: BlockModel>>(config: &C) {
    let device = device().autodiff();
    let model = config.init(RngKey::new(3), &device).expect("the configuration should be valid");
    let blocks = [block(9, 6, &device), block(6, 4, &device)];
    let input = model.input_aggregation().expect("the model should have an input aggregation");
    assert_eq!(input.d_in, 5);
    assert!(input.is_first(BlockSize::from(&blocks[0])));
    let x = ramp([9, 5], &device);
    for mode in [Mode::Train, Mode::Eval] {
        let rows = aggregated(&blocks[0], x.clone(), input.aggregation);
        let got = values(model.forward_aggregated(&blocks, rows, &ctx(mode)));
        let expected = values(model.forward(&blocks, x.clone(), &ctx(mode)));
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got), bits(&expected), "{config:?}, {mode:?}");
        assert!(expected.iter().any(|value| *value != 0.0));
    }
}

fn sage() -> SageConfig {
    SageConfig::new(5, 3).hidden(10).layers(2)
}

fn gcn() -> GcnConfig {
    GcnConfig::new(5, 3).hidden(7).layers(2)
}

#[test]
fn models_compute_identical_outputs_from_aggregated_rows() {
    check(&sage());
    check(&sage().aggregate(Aggregate::Sum));
    check(&sage().norm(Normalization::Layer).jumping(JumpingKnowledge::Cat));
    check(&gcn());
    check(&gcn().jumping(JumpingKnowledge::Max));
}

fn input_aggregation<C: ModelConfig<Model: BlockModel>>(config: &C) -> Option<InputAggregation> {
    config
        .init(RngKey::new(3), &Device::flex())
        .expect("the configuration should be valid")
        .input_aggregation()
}

#[test]
fn models_that_read_input_rows_otherwise_have_no_input_aggregation() {
    assert_eq!(input_aggregation(&sage().aggregate(Aggregate::Max)), None);
    assert_eq!(input_aggregation(&sage().input_dropout(0.1)), None);
    assert_eq!(input_aggregation(&sage().layers(3).residual(true)), None);
    assert_eq!(input_aggregation(&gcn().input_dropout(0.1)), None);
    assert_eq!(input_aggregation(&GatConfig::new(5, 3)), None);
}

#[test]
fn a_layer_that_narrows_rows_of_few_sources_multiplies_first() {
    let config = SageConfig::new(100, 3).hidden(10).layers(2);
    let input = input_aggregation(&config).expect("the model should have an input aggregation");
    assert_eq!((input.d_in, input.d_out), (100, 10));
    assert!(!input.is_first(BlockSize { n_src: 110, n_dst: 100, n_edges: 5000 }));
    assert!(input.is_first(BlockSize { n_src: 50_000, n_dst: 100, n_edges: 5000 }));
}

#[test]
#[should_panic(expected = "got aggregated input rows [6, 10], but the model has no input aggregation")]
fn panics_on_aggregated_rows_of_another_model() {
    let device = Device::flex();
    let model =
        GatConfig::new(5, 3).init(RngKey::new(3), &device).expect("the configuration should be valid");
    let _ = model.forward_aggregated(&[], Tensor::zeros([6, 10], &device), &ctx(Mode::Eval));
}
