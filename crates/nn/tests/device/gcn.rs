//! Tests of the graph convolution (GCN) layer and model.

use burn::module::Param;
use burn::tensor::{Device, Tensor};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, Reduction};
use kiln_kernels::testing::{check_close, check_layer, device, on_cpu, ramp, values};
use kiln_nn::{BlockModel, ForwardContext, Gcn, GcnConfig, GcnConv, GcnConvConfig, Mode};
use kiln_sample::RngKey;

use super::common::glorot::check_initial_range;
use super::common::{ctx, parameters};

/// The tolerance for a product and a sum of a few numbers of about 1, computed in different orders.
const TOLERANCE: f32 = 1e-5;

/// Returns a block from each destination's sources and edge weights.
fn block(srcs: Vec<u32>, edges: &[&[(u32, f32)]]) -> Block {
    let ends = edges.iter().scan(0, |end, edges| {
        *end += edges.len() as u32;
        Some(*end)
    });
    let (indices, weights): (Vec<u32>, Vec<f32>) = edges.concat().into_iter().unzip();
    Block::new(BlockParts {
        srcs: srcs.into_iter().map(NodeId).collect(),
        indptr: std::iter::once(0).chain(ends).collect(),
        edge_ids: (0..indices.len() as u64).map(EdgeId).collect(),
        indices: indices.into_iter().map(LocalId).collect(),
        weights: Some(weights),
        edge_types: None,
    })
}

/// Returns a block of six sources and three destinations. One destination has no edges, one has parallel edges, and two
/// have self-loops.
fn wide() -> Block {
    block(
        vec![10, 11, 12, 13, 14, 15],
        &[&[(0, 0.5), (3, 0.25), (4, -1.0), (5, 0.125)], &[], &[(2, 0.5), (5, 2.0), (5, 0.75)]],
    )
}

/// Returns a block whose destinations are the first two destinations of [`wide`], and whose sources are all three.
fn narrow() -> Block {
    block(vec![10, 11, 12], &[&[(2, 0.5), (1, 1.5)], &[(0, 0.25), (1, 0.5)]])
}

fn config() -> GcnConfig {
    GcnConfig {
        d_in: 5,
        hidden: 7,
        n_classes: 3,
        n_layers: 2,
        input_dropout: 0.0,
        dropout: 0.5,
        ..GcnConfig::new(5, 3)
    }
}

fn model(config: &GcnConfig, seed: u64, device: &Device) -> Gcn {
    config.init(RngKey::new(seed), device).expect("the configuration should be valid")
}

fn conv(d_in: usize, d_out: usize, device: &Device) -> GcnConv {
    GcnConvConfig { d_in, d_out }.init(RngKey::new(4), device).expect("the configuration should be valid")
}

#[test]
fn a_gcn_layer_computes_its_formula() {
    let device = device();
    let mut conv = conv(2, 3, &device);
    conv.weight = Param::from_tensor(Tensor::from_data([[1.0, 0.0, 2.0], [0.0, -1.0, 4.0]], &device));
    conv.bias = Param::from_tensor(Tensor::from_data([0.5, 0.0, -1.0], &device));
    let x = Tensor::from_data([[1.0, 2.0], [3.0, 5.0], [-2.0, 8.0]], &device);
    let result = conv.forward(&DeviceBlock::upload(&narrow(), &device), x);
    // The weighted sums are 0.5 [-2, 8] + 1.5 [3, 5] = [3.5, 11.5] and 0.25 [1, 2] + 0.5 [3, 5] = [1.75, 3].
    assert_eq!(values(result), [4.0, -11.5, 52.0, 2.25, -3.0, 14.5]);
}

#[test]
fn a_destination_without_edges_gets_the_bias() {
    let device = device();
    let mut conv = conv(4, 3, &device);
    conv.bias = Param::from_tensor(Tensor::from_data([0.5, 0.0, -1.0], &device));
    let result = values(conv.forward(&DeviceBlock::upload(&wide(), &device), ramp([6, 4], &device)));
    assert_eq!(result[3..6], [0.5, 0.0, -1.0]);
}

#[test]
fn projecting_before_the_aggregation_differs_only_by_rounding() {
    let device = device();
    // All nodes are destinations, so it is cheaper to project to a narrower output first.
    let full = block(vec![0, 1, 2], &[&[(1, 0.5), (2, 2.0)], &[(0, -1.5)], &[(1, 1.0), (2, 0.5)]]);
    let full = DeviceBlock::upload(&full, &device);
    let x: Tensor<2> = ramp([3, 8], &device);
    let conv = conv(8, 2, &device);
    let weights = full.weights().expect("the block should have weights").clone();
    let weighted_sum = Aggregation { weights: Some(weights.into()), ..Reduction::Sum.into() };
    let sums = ops::aggregate(&full, x.clone(), weighted_sum);
    let expected = on_cpu(&sums).matmul(on_cpu(&conv.weight.val()));
    check_close(&values(conv.forward(&full, x)), &values(expected), TOLERANCE);
}

#[test]
fn layers_ignore_the_edge_order_and_have_correct_shapes_and_input_gradients() {
    let device = device().autodiff();
    for (d_in, d_out) in [(4, 6), (6, 2)] {
        let conv = conv(d_in, d_out, &device);
        check_layer(&wide(), d_in, d_out, &device, |block, x| conv.forward(block, x));
    }
}

#[test]
fn gradients_of_parameters_match_their_closed_form() {
    let device = device().autodiff();
    let block = DeviceBlock::upload(&wide(), &device);
    let x: Tensor<2> = ramp([6, 4], &device);
    let weights = block.weights().expect("the block should have weights").clone();
    for d_out in [3, 5] {
        let conv = conv(4, d_out, &device);
        let factors: Tensor<2> = ramp([3, d_out], &device);
        let grads = (conv.forward(&block, x.clone()) * factors.clone()).sum().backward();
        // The layer is linear in its parameters, so their gradients have a closed form.
        let of = |input: Tensor<2>| values(on_cpu(&input).swap_dims(0, 1).matmul(on_cpu(&factors)));
        let weighted_sum = Aggregation { weights: Some(weights.clone().into()), ..Reduction::Sum.into() };
        let sums = ops::aggregate(&block, x.clone(), weighted_sum);
        check_close(
            &values(conv.weight.grad(&grads).expect("the parameter should have a gradient")),
            &of(sums),
            TOLERANCE,
        );
        let ones = Tensor::<2>::ones([3, 1], &device);
        check_close(
            &values(conv.bias.grad(&grads).expect("the parameter should have a gradient")),
            &of(ones),
            TOLERANCE,
        );
    }
}

#[test]
fn model_outputs_have_the_configured_shapes() {
    fn outputs(model: &impl BlockModel, blocks: &[DeviceBlock], device: &Device) -> Vec<[usize; 2]> {
        let hidden = model.layer(0, &blocks[0], ramp([6, 5], device), &ctx(Mode::Train));
        vec![hidden.dims(), model.forward(blocks, ramp([6, 5], device), &ctx(Mode::Eval)).dims()]
    }
    let device = device();
    let blocks = [DeviceBlock::upload(&wide(), &device), DeviceBlock::upload(&narrow(), &device)];
    assert_eq!(outputs(&model(&config(), 0, &device), &blocks, &device), [[3, 7], [2, 3]]);
}

#[test]
#[should_panic(expected = "a GCN needs a block with the edge weights of kiln_graph::gcn_norm")]
fn forward_panics_on_a_block_without_weights() {
    let device = device();
    let block = Block::new(BlockParts { weights: None, ..narrow().into_parts() });
    let _ = conv(4, 3, &device).forward(&DeviceBlock::upload(&block, &device), ramp([3, 4], &device));
}

#[test]
#[should_panic(expected = "got 1 blocks, expected one per layer: 2")]
fn forward_panics_on_a_missing_block() {
    let device = device();
    let blocks = [DeviceBlock::upload(&wide(), &device)];
    let _ = model(&config(), 0, &device).forward(&blocks, ramp([6, 5], &device), &ctx(Mode::Eval));
}

#[test]
fn the_last_layer_has_neither_relu_nor_dropout() {
    let device = device();
    let block = DeviceBlock::upload(&narrow(), &device);
    let model = model(&config(), 0, &device);
    let x: Tensor<2> = ramp([3, 7], &device);
    let result = values(model.layer(1, &block, x.clone(), &ctx(Mode::Train)));
    assert_eq!(result, values(model.layers[1].forward(&block, x)));
    assert!(result.iter().any(|value| *value < 0.0));
}

#[test]
fn hidden_dropout_is_keyed_by_step_and_node() {
    let device = device();
    let block = DeviceBlock::upload(&wide(), &device);
    let model = model(&config(), 0, &device);
    let run = |ctx: &ForwardContext| values(model.layer(0, &block, ramp([6, 5], &device), ctx));
    let eval = run(&ctx(Mode::Eval));
    assert!(eval.iter().all(|value| 0.0 <= *value), "a ReLU should follow the layer");
    let train = run(&ctx(Mode::Train));
    let mask =
        values(ops::dropout(Tensor::ones([3, 7], &device), block.dst_nodes(), RngKey::new(77), 0, 0.5));
    assert_eq!(train, eval.iter().zip(&mask).map(|(value, factor)| value * factor).collect::<Vec<f32>>());
    assert_ne!(train, run(&ForwardContext { key: RngKey::new(5), mode: Mode::Train }));
}

#[test]
fn input_dropout_is_keyed_by_step_and_node_and_off_in_evaluation() {
    let device = device();
    let block = DeviceBlock::upload(&wide(), &device);
    let plain = model(&GcnConfig { dropout: 0.0, ..config() }, 0, &device);
    let masked = model(&GcnConfig { dropout: 0.0, input_dropout: 0.25, ..config() }, 0, &device);
    let x: Tensor<2> = ramp([6, 5], &device);
    let inputs = u32::MAX as usize;
    let dropped = ops::dropout(x.clone(), block.src_nodes(), RngKey::new(77), inputs, 0.25);
    let expected = values(plain.layer(0, &block, dropped, &ctx(Mode::Train)));
    assert_eq!(values(masked.layer(0, &block, x.clone(), &ctx(Mode::Train))), expected);
    let other_step = ForwardContext { key: RngKey::new(5), mode: Mode::Train };
    assert_ne!(values(masked.layer(0, &block, x.clone(), &other_step)), expected);
    let eval = values(plain.layer(0, &block, x.clone(), &ctx(Mode::Eval)));
    assert_eq!(values(masked.layer(0, &block, x, &ctx(Mode::Eval))), eval);
    // Later layers have no input features to drop.
    let hidden: Tensor<2> = ramp([6, 7], &device);
    let second = values(plain.layer(1, &block, hidden.clone(), &ctx(Mode::Train)));
    assert_eq!(values(masked.layer(1, &block, hidden, &ctx(Mode::Train))), second);
}

#[test]
fn initial_weights_depend_on_the_key_alone_and_have_no_gain() {
    let device = device();
    let one = parameters(&model(&config(), 3, &device));
    assert_eq!(one, parameters(&model(&config(), 3, &device.clone().autodiff())));
    assert_ne!(one, parameters(&model(&config(), 4, &device)));
    let names: Vec<&str> = one.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]);
    check_initial_range(&one, 1.0);
}

/// Checks the test vector of `docs/rng.md`, which another program computed.
#[test]
fn initial_weights_are_as_documented() {
    let model = model(&GcnConfig { d_in: 128, hidden: 256, ..config() }, 0, &device());
    let first = values(model.layers[0].weight.val());
    assert_eq!(first[..4], FIRST_WEIGHTS);
}

const FIRST_WEIGHTS: [f32; 4] = [0.055_525_69, -0.113_126_785, -0.071_412_55, 0.072_085_75];

#[test]
fn rejects_invalid_configurations() {
    let device = device();
    let cases = [
        (GcnConfig { d_in: 0, ..config() }, "d_in is 0, expected 1 to 1048576"),
        (GcnConfig { hidden: 1 << 40, ..config() }, "hidden is 1099511627776, expected 1 to 1048576"),
        (GcnConfig { n_classes: 0, ..config() }, "n_classes is 0, expected 1 to 1048576"),
        (GcnConfig { n_layers: 0, ..config() }, "n_layers is 0, expected 1 to 1048576"),
        (
            GcnConfig { hidden: 1_000_000, n_layers: 3, ..config() },
            "a weight of 1000000 x 1000000 values is too large, expected at most 1073741824 values: use smaller \
             widths",
        ),
        (
            GcnConfig { dropout: 1.0, ..config() },
            "dropout is 1, expected a probability of at least 0 and below 1",
        ),
        (
            GcnConfig { input_dropout: f64::NAN, ..config() },
            "input_dropout is NaN, expected a probability of at least 0 and below 1",
        ),
    ];
    for (config, message) in cases {
        let error = config.init(RngKey::new(0), &device).expect_err("the configuration should be rejected");
        assert_eq!(error.to_string(), message);
    }
}
