//! Tests of models of `TransformerConv` layers. The values of a layer are compared with PyG's in `layer_values`.

use burn::module::{Module, Param};
use burn::tensor::{DType, Tensor};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::testing::{check_close, device, ramp, values};
use kiln_kernels::{DeviceBlock, is_cpu};
use kiln_nn::{
    BlockModel, ForwardContext, JumpingKnowledge, Linear, Mode, ModelConfig, Normalization,
    TransformerConfig, TransformerConvConfig,
};
use kiln_sample::RngKey;

use super::common::ctx;

const D_IN: usize = 5;
const N_CLASSES: usize = 3;

/// The tolerance for gradients by central differences of f32 outputs.
const DIFFERENCE_TOLERANCE: f32 = 2e-2;

fn config() -> TransformerConfig {
    TransformerConfig::new(D_IN, N_CLASSES).hidden(8).heads(2).layers(2)
}

/// Returns a block of three destinations, of which the last has no edges.
fn block() -> DeviceBlock {
    let indices = [3, 1, 4, 0, 0];
    let block = Block::new(BlockParts {
        srcs: [5, 7, 1, 9, 3].map(NodeId).to_vec(),
        indptr: vec![0, 3, 5, 5],
        indices: indices.map(LocalId).to_vec(),
        edge_ids: (0..5).map(EdgeId).collect(),
        ..BlockParts::default()
    });
    DeviceBlock::upload(&block, &device())
}

#[test]
fn errors_name_the_option_and_its_values() {
    let error = |config: TransformerConfig| {
        let model = config.init(RngKey::new(0), &device());
        model.expect_err("the configuration should be rejected").to_string()
    };
    let expected = "the hidden width is 8, expected a multiple of the 3 attention heads";
    assert_eq!(error(config().heads(3)), expected);
    let expected = "beta is true, expected false without root_weight for this kind of model";
    assert_eq!(error(config().root_weight(false).beta(true)), expected);
    assert!(error(config().heads(0)).starts_with("n_heads is 0, expected 1 to"));
    assert!(error(config().output_heads(0)).starts_with("n_heads is 0, expected 1 to"));
    let expected = "attention_dropout is 1, expected a probability of at least 0 and below 1";
    assert_eq!(error(config().attention_dropout(1.0)), expected);
    let expected = "norm is batch, expected none or layer for this kind of model";
    assert_eq!(error(config().norm(Normalization::Batch)), expected);
}

/// The bound leaves out vectors only, and a damaged file with huge values has a huge bound.
#[test]
fn min_parameters_count_the_matrices() {
    for jumping in [JumpingKnowledge::Direct, JumpingKnowledge::Cat] {
        for (n_layers, n_output_heads, root_weight) in [(1, 1, true), (1, 4, false), (3, 3, true)] {
            let config = config().jumping(jumping).layers(n_layers);
            let config = config.output_heads(n_output_heads).root_weight(root_weight);
            let model = config.init(RngKey::new(0), &device()).expect("the configuration should be valid");
            let (bound, n_parameters) = (config.min_parameters(), model.num_params() as u64);
            assert!(bound <= n_parameters && n_parameters < 2 * bound, "{config:?}: {bound} {n_parameters}");
        }
    }
    assert_eq!(config().output_heads(usize::MAX).min_parameters(), u64::MAX);
}

#[test]
fn layers_declare_their_widths_and_memory() {
    let model = config().output_heads(4).init(RngKey::new(0), &device());
    let model = model.expect("the configuration should be valid");
    let sizes = [0, 1].map(|i| model.layer_size(i).expect("the layers should know their sizes"));
    assert_eq!(sizes.map(|size| size.widths), [[5, 8], [8, 3]]);
    // Keys and values of two heads of 4 columns, and of four heads of 3 columns.
    assert_eq!(sizes.map(|size| size.memory.src_bytes), [64, 96]);
    assert_eq!(sizes.map(|size| size.memory.edge_bytes), [24, 48]);
}

/// With own rows of ones, the logit of the gate is the sum of its weights of the own rows.
#[test]
fn the_gate_weights_the_own_rows_and_the_sums() {
    let (device, ctx, x) = (device(), ctx(Mode::Eval), ramp([5, D_IN], &device()));
    let with_gate = TransformerConvConfig { beta: true, ..TransformerConvConfig::new(D_IN, 2, 2) };
    let mut layer = with_gate.init(RngKey::new(2), &device).expect("the configuration should be valid");
    let weight = Param::from_tensor(Tensor::zeros([D_IN, 4], &device));
    let bias = Param::from_tensor(Tensor::ones([4], &device));
    layer.skip = Some(Linear { weight, bias });
    let without = TransformerConvConfig { root_weight: false, beta: false, ..with_gate };
    let sums = without.init(RngKey::new(2), &device).expect("the configuration should be valid");
    let sums = values(sums.forward(0, &block(), x.clone(), &ctx));
    for (logit, expected) in [(50.0, vec![1.0; 12]), (-50.0, sums)] {
        let weights: Vec<f32> = [[0.0; 4], [logit; 4], [0.0; 4]].concat();
        let weights = Tensor::<1>::from_floats(weights.as_slice(), &device).reshape([12, 1]);
        layer.beta = Some(Param::from_tensor(weights));
        check_close(&values(layer.forward(0, &block(), x.clone(), &ctx)), &expected, 1e-6);
    }
}

/// The masks of attention weights are drawn in training only, from the key and the layer.
#[test]
fn dropout_of_attention_weights_depends_on_the_key_and_the_layer() {
    let conv = TransformerConvConfig { attention_dropout: 0.5, ..TransformerConvConfig::new(D_IN, 2, 3) };
    let layer = conv.init(RngKey::new(2), &device()).expect("the configuration should be valid");
    let run = |i: usize, mode: Mode, key: u64| {
        let ctx = ForwardContext { key: RngKey::new(key), mode };
        values(layer.forward(i, &block(), ramp([5, D_IN], &device()), &ctx))
    };
    let train = run(0, Mode::Train, 1);
    assert_eq!(train, run(0, Mode::Train, 1));
    assert_ne!(train, run(1, Mode::Train, 1));
    assert_ne!(train, run(0, Mode::Train, 2));
    assert_ne!(train, run(0, Mode::Eval, 1));
    assert_eq!(run(0, Mode::Eval, 1), run(1, Mode::Eval, 2));
    // The last destination has no edges, so its row has no mask.
    assert_eq!(train[12..], run(0, Mode::Eval, 1)[12..]);
}

/// Features of half precision give the outputs of the same features in f32, as `InputFormat::half_rows` promises.
#[test]
fn rows_of_half_precision_give_the_outputs_of_widened_rows() {
    if !is_cpu(&device()) {
        return;
    }
    let model = config().layers(1).beta(true).init(RngKey::new(4), &device());
    let model = model.expect("the configuration should be valid");
    let x: Tensor<2> = ramp([5, D_IN], &device());
    let half = x.cast(DType::BF16);
    assert!(model.input_format().half_rows);
    let outputs = |x: Tensor<2>| values(model.forward(&[block()], x, &ctx(Mode::Eval)));
    assert_eq!(outputs(half.clone()), outputs(half.cast(DType::F32)));
}

/// The gradient of the input of a whole model equals central differences of its outputs, in a few places.
#[test]
fn gradients_of_a_model_match_finite_differences() {
    let autodiff = device().autodiff();
    // One block for both layers: five sources that are all destinations.
    let host = Block::new(BlockParts {
        srcs: (0..5).map(NodeId).collect(),
        indptr: vec![0, 3, 5, 5, 6, 8],
        indices: [3, 1, 4, 0, 0, 2, 1, 3].map(LocalId).to_vec(),
        edge_ids: (0..8).map(EdgeId).collect(),
        ..BlockParts::default()
    });
    let blocks = [0, 1].map(|_| DeviceBlock::upload(&host, &autodiff));
    // Layer normalisation moves the rows away from the corner of the ReLU.
    let model = config().beta(true).norm(Normalization::Layer).output_heads(2).dropout(0.0);
    let model = model.init(RngKey::new(5), &autodiff).expect("the configuration should be valid");
    let loss = |x: Tensor<2>| {
        let outputs = model.forward(&blocks, x, &ctx(Mode::Train));
        (outputs.clone() * ramp(outputs.dims(), &autodiff)).sum()
    };
    let x: Tensor<2> = ramp([5, D_IN], &autodiff);
    let tracked = x.clone().require_grad();
    let grads = loss(tracked.clone()).backward();
    let got = values(tracked.grad(&grads).expect("x should have a gradient"));
    let moved = |i: usize, by: f32| {
        let mut rows = values(x.clone());
        rows[i] += by;
        let rows = Tensor::<1>::from_floats(rows.as_slice(), &autodiff).reshape([5, D_IN]);
        values(loss(rows).unsqueeze_dim::<2>(0))[0]
    };
    let step = 1e-2;
    let places = [0, 7, 13, 19, 24];
    let expected = places.map(|i| (moved(i, step) - moved(i, -step)) / (2.0 * step));
    check_close(&places.map(|i| got[i]), &expected, DIFFERENCE_TOLERANCE);
}
