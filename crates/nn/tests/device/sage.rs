//! Tests of the GraphSAGE layer and model.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Reduction};
use kiln_kernels::testing::{check_close, check_layer, device, on_cpu, ramp, values};
use kiln_nn::{
    Aggregate, BlockModel, EdgeWeighting, Error, ForwardContext, Mode, Sage, SageConfig, SageConv,
    SageConvConfig, WeightInit,
};
use kiln_sample::RngKey;

use super::common::glorot::check_initial_range;
use super::common::{ctx, parameters};

const AGGREGATES: [Aggregate; 3] = [Aggregate::Mean, Aggregate::Max, Aggregate::Sum];

/// The tolerance for a product and a sum of a few numbers of about 1, computed in different orders.
const TOLERANCE: f32 = 1e-5;

fn block(srcs: Vec<u32>, in_srcs: &[&[u32]]) -> Block {
    let ends = in_srcs.iter().scan(0, |end, srcs| {
        *end += srcs.len() as u32;
        Some(*end)
    });
    let indices: Vec<LocalId> = in_srcs.concat().into_iter().map(LocalId).collect();
    Block::new(BlockParts {
        srcs: srcs.into_iter().map(NodeId).collect(),
        indptr: std::iter::once(0).chain(ends).collect(),
        edge_ids: (0..indices.len() as u64).map(EdgeId).collect(),
        indices,
        ..BlockParts::default()
    })
}

/// Returns a block of six sources and three destinations. One destination has no edges, and one has parallel edges.
fn wide() -> Block {
    block(vec![10, 11, 12, 13, 14, 15], &[&[3, 4, 5, 1], &[], &[2, 5, 5]])
}

/// Returns a block whose destinations are the first two destinations of [`wide`], and whose sources are all three.
fn narrow() -> Block {
    block(vec![10, 11, 12], &[&[2, 1], &[0]])
}

fn config(aggregate: Aggregate) -> SageConfig {
    SageConfig {
        d_in: 5,
        hidden: 7,
        n_classes: 3,
        n_layers: 2,
        aggregate,
        input_dropout: 0.0,
        dropout: 0.5,
        ..SageConfig::new(5, 3)
    }
}

fn model(aggregate: Aggregate, seed: u64, device: &Device) -> Sage {
    config(aggregate).init(RngKey::new(seed), device).expect("the configuration should be valid")
}

#[test]
fn a_sage_layer_computes_its_formula() {
    let device = device();
    let x: Tensor<2> = ramp([6, 4], &device);
    let block = DeviceBlock::upload(&wide(), &device);
    for aggregate in AGGREGATES {
        let mut conv = SageConvConfig { d_in: 4, d_out: 6, aggregate, edge_weighting: EdgeWeighting::None }
            .init(RngKey::new(1), &device)
            .expect("the configuration should be valid");
        conv.bias = Param::from_tensor(ramp([6], &device));
        let gathered = match aggregate {
            Aggregate::Mean => ops::aggregate(&block, x.clone(), Reduction::Mean),
            Aggregate::Max => ops::aggregate(&block, x.clone(), Reduction::Max),
            Aggregate::Sum => ops::aggregate(&block, x.clone(), Reduction::Sum),
        };
        let own = values(x.clone().slice([0..3, 0..4]));
        let [gathered, w_self, w_neigh, bias] = [
            values(gathered),
            values(conv.weight_self.val()),
            values(conv.weight_neigh.val()),
            values(conv.bias.val()),
        ];
        let mut expected = Vec::new();
        for dst in 0..3 {
            for column in 0..6 {
                let terms = (0..4).map(|k| {
                    own[dst * 4 + k] * w_self[k * 6 + column]
                        + gathered[dst * 4 + k] * w_neigh[k * 6 + column]
                });
                expected.push(terms.sum::<f32>() + bias[column]);
            }
        }
        check_close(&values(conv.forward(&block, x.clone())), &expected, TOLERANCE);
    }
}

#[test]
fn projecting_before_the_aggregation_differs_only_by_rounding() {
    let device = device();
    // All nodes are destinations, so it is cheaper to project to a narrower output first.
    let full = DeviceBlock::upload(&block(vec![0, 1, 2, 3], &[&[1, 2], &[0], &[], &[1, 3, 3]]), &device);
    let x: Tensor<2> = ramp([4, 8], &device);
    for aggregate in [Aggregate::Mean, Aggregate::Sum] {
        let conv = SageConvConfig { d_in: 8, d_out: 2, aggregate, edge_weighting: EdgeWeighting::None }
            .init(RngKey::new(1), &device)
            .expect("the configuration should be valid");
        let gathered = match aggregate {
            Aggregate::Mean => ops::aggregate(&full, x.clone(), Reduction::Mean),
            _ => ops::aggregate(&full, x.clone(), Reduction::Sum),
        };
        let product =
            |input: &Tensor<2>, weight: &Param<Tensor<2>>| on_cpu(input).matmul(on_cpu(&weight.val()));
        let expected = product(&x, &conv.weight_self) + product(&gathered, &conv.weight_neigh);
        check_close(&values(conv.forward(&full, x.clone())), &values(expected), TOLERANCE);
    }
}

#[test]
fn layers_ignore_the_edge_order_and_have_correct_shapes_and_input_gradients() {
    let device = device();
    for aggregate in AGGREGATES {
        for (d_in, d_out) in [(4, 6), (6, 2)] {
            let config = SageConvConfig { d_in, d_out, aggregate, edge_weighting: EdgeWeighting::None };
            let conv = config
                .init(RngKey::new(4), &device.clone().autodiff())
                .expect("the configuration should be valid");
            check_layer(&wide(), d_in, d_out, &device.clone().autodiff(), |block, x| conv.forward(block, x));
        }
    }
}

#[test]
fn gradients_of_parameters_match_their_closed_form() {
    let device = device().autodiff();
    let block = DeviceBlock::upload(&wide(), &device);
    let x: Tensor<2> = ramp([6, 4], &device);
    for aggregate in AGGREGATES {
        let conv = SageConvConfig { d_in: 4, d_out: 3, aggregate, edge_weighting: EdgeWeighting::None }
            .init(RngKey::new(4), &device)
            .expect("the configuration should be valid");
        let result = conv.forward(&block, x.clone());
        let factors: Tensor<2> = ramp([3, 3], &device);
        let grads = (result * factors.clone()).sum().backward();
        let gathered = match aggregate {
            Aggregate::Mean => ops::aggregate(&block, x.clone(), Reduction::Mean),
            Aggregate::Max => ops::aggregate(&block, x.clone(), Reduction::Max),
            Aggregate::Sum => ops::aggregate(&block, x.clone(), Reduction::Sum),
        };
        // The layer is linear in its parameters, so their gradients have a closed form.
        let of = |input: Tensor<2>| values(on_cpu(&input).swap_dims(0, 1).matmul(on_cpu(&factors)));
        let own = x.clone().slice([0..3, 0..4]);
        check_close(
            &values(conv.weight_self.grad(&grads).expect("the parameter should have a gradient")),
            &of(own),
            TOLERANCE,
        );
        check_close(
            &values(conv.weight_neigh.grad(&grads).expect("the parameter should have a gradient")),
            &of(gathered),
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
    let device = device();
    let blocks = [DeviceBlock::upload(&wide(), &device), DeviceBlock::upload(&narrow(), &device)];
    for aggregate in AGGREGATES {
        let model = model(aggregate, 0, &device);
        let hidden = model.layer(0, &blocks[0], ramp([6, 5], &device), &ctx(Mode::Train));
        assert_eq!(hidden.dims(), [3, 7]);
        assert_eq!(model.forward(&blocks, ramp([6, 5], &device), &ctx(Mode::Eval)).dims(), [2, 3]);
    }
}

#[test]
#[should_panic(expected = "got 1 blocks, expected one per layer: 2")]
fn forward_panics_on_a_missing_block() {
    let device = device();
    let blocks = [DeviceBlock::upload(&wide(), &device)];
    let _ = model(Aggregate::Mean, 0, &device).forward(&blocks, ramp([6, 5], &device), &ctx(Mode::Eval));
}

#[test]
fn dropout_is_applied_in_training_only() {
    let device = device();
    let block = DeviceBlock::upload(&wide(), &device);
    let model = model(Aggregate::Mean, 0, &device);
    let run = |ctx: &ForwardContext| values(model.layer(0, &block, ramp([6, 5], &device), ctx));
    let eval = run(&ctx(Mode::Eval));
    assert_eq!(eval, run(&ForwardContext { key: RngKey::new(5), mode: Mode::Eval }));
    let train = run(&ctx(Mode::Train));
    let mask =
        values(ops::dropout(Tensor::ones([3, 7], &device), block.dst_nodes(), RngKey::new(77), 0, 0.5));
    assert_eq!(train, eval.iter().zip(&mask).map(|(value, factor)| value * factor).collect::<Vec<f32>>());
    assert_ne!(train, run(&ForwardContext { key: RngKey::new(5), mode: Mode::Train }));
}

#[test]
fn input_dropout_masks_the_features_of_the_first_layer() {
    let device = device();
    let block = DeviceBlock::upload(&wide(), &device);
    let plain = SageConfig { dropout: 0.0, ..config(Aggregate::Mean) };
    let masked = SageConfig { input_dropout: 0.25, ..plain.clone() };
    let init = |config: &SageConfig| {
        config.init(RngKey::new(0), &device).expect("the configuration should be valid")
    };
    let (plain, masked) = (init(&plain), init(&masked));
    let x: Tensor<2> = ramp([6, 5], &device);
    let inputs = u32::MAX as usize;
    let dropped = ops::dropout(x.clone(), block.src_nodes(), RngKey::new(77), inputs, 0.25);
    let expected = values(plain.layer(0, &block, dropped, &ctx(Mode::Train)));
    assert_eq!(values(masked.layer(0, &block, x.clone(), &ctx(Mode::Train))), expected);
    assert_ne!(values(plain.layer(0, &block, x.clone(), &ctx(Mode::Train))), expected);
    let eval = values(plain.layer(0, &block, x.clone(), &ctx(Mode::Eval)));
    assert_eq!(values(masked.layer(0, &block, x, &ctx(Mode::Eval))), eval);
}

#[test]
fn the_last_layer_has_neither_relu_nor_dropout() {
    let device = device();
    let block = DeviceBlock::upload(&narrow(), &device);
    let model = model(Aggregate::Mean, 0, &device);
    let x: Tensor<2> = ramp([3, 7], &device);
    let result = values(model.layer(1, &block, x.clone(), &ctx(Mode::Train)));
    assert_eq!(result, values(model.layers[1].forward(&block, x)));
    assert!(result.iter().any(|value| *value < 0.0));
}

#[test]
fn initial_weights_depend_on_the_key_alone() {
    let device = device();
    let one = parameters(&model(Aggregate::Mean, 3, &device));
    assert_eq!(one, parameters(&model(Aggregate::Mean, 3, &device.clone().autodiff())));
    assert_ne!(one, parameters(&model(Aggregate::Mean, 4, &device)));
    let matrices: Vec<&Vec<f32>> =
        one.iter().filter(|(name, _)| name.contains("weight")).map(|(_, all)| all).collect();
    assert_ne!(matrices[0], matrices[1], "each parameter should have its own random stream");
    check_initial_range(&one, 2.0_f32.sqrt());
}

/// Checks the test vectors of `docs/rng.md`, which another program computed.
#[test]
fn initial_weights_are_as_documented() {
    let config = SageConfig { d_in: 128, hidden: 256, n_classes: 49, n_layers: 3, ..config(Aggregate::Mean) };
    let model = config.init(RngKey::new(0), &device()).expect("the configuration should be valid");
    let first = values(model.layers[0].weight_self.val());
    assert_eq!(first[..4], [0.078_525_186, -0.159_985_42, -0.100_992_59, 0.101_944_65]);
    let last = values(model.layers[2].weight_neigh.val());
    assert_eq!(last[..3], [0.157_211_4, -0.018_044_947, -0.093_659_565]);
}

/// The numbers are those of a dense layer with this width.
#[test]
fn initial_weights_of_pyg_are_uniform_within_the_inverse_root_of_the_width() {
    let config = SageConfig { d_in: 100, hidden: 256, n_classes: 49, ..config(Aggregate::Mean) };
    let config = config.weight_init(WeightInit::Pyg);
    assert!(format!("{config:?}").contains("weight_init: Pyg"), "{config:?}");
    let model = config.init(RngKey::new(0), &device()).expect("the configuration should be valid");
    let all = |layer: &SageConv| {
        [values(layer.weight_self.val()), values(layer.weight_neigh.val()), values(layer.bias.val())]
    };
    let last = model.layers.len() - 1;
    for (layer, bound) in [(0, 0.1), (last, 1.0 / 16.0)] {
        let parameters = all(&model.layers[layer]);
        for values in &parameters {
            let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            assert!(0.8 * bound < largest && largest <= bound, "{largest}, expected almost {bound}");
        }
        assert_ne!(parameters[0], parameters[1], "each parameter should have numbers of its own");
    }
    // Xavier's range is larger by a factor, and draws the same numbers.
    let xavier = SageConfig { weight_init: WeightInit::Dgl, ..config }.init(RngKey::new(0), &device());
    let xavier = values(xavier.expect("the configuration should be valid").layers[0].weight_self.val());
    let factor = (2.0_f32 * 6.0 / 356.0).sqrt() / 0.1;
    let scaled: Vec<f32> = all(&model.layers[0])[0].iter().map(|value| value * factor).collect();
    check_close(&scaled, &xavier, 1e-6);
}

#[test]
fn parameter_names_and_their_order_do_not_change() {
    let all = parameters(&model(Aggregate::Max, 0, &device()));
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "layers.0.weight_self",
        "layers.0.weight_neigh",
        "layers.0.bias",
        "layers.1.weight_self",
        "layers.1.weight_neigh",
        "layers.1.bias",
    ];
    assert_eq!(names, expected);
}

#[test]
fn rejects_invalid_configurations() {
    let device = device();
    let good = config(Aggregate::Mean);
    let cases = [
        (SageConfig { d_in: 0, ..good.clone() }, "d_in is 0, expected 1 to 1048576"),
        (SageConfig { hidden: 0, ..good.clone() }, "hidden is 0, expected 1 to 1048576"),
        (SageConfig { n_classes: 0, ..good.clone() }, "n_classes is 0, expected 1 to 1048576"),
        (SageConfig { n_layers: 0, ..good.clone() }, "n_layers is 0, expected 1 to 1048576"),
        (SageConfig { hidden: 1 << 40, ..good.clone() }, "hidden is 1099511627776, expected 1 to 1048576"),
        (
            SageConfig { hidden: 1_000_000, n_layers: 3, ..good.clone() },
            "a weight of 1000000 x 1000000 values is too large, expected at most 1073741824 values: use smaller \
             widths",
        ),
        (
            SageConfig { dropout: 1.0, ..good.clone() },
            "dropout is 1, expected a probability of at least 0 and below 1",
        ),
        (
            SageConfig { dropout: f64::NAN, ..good.clone() },
            "dropout is NaN, expected a probability of at least 0 and below 1",
        ),
        (
            SageConfig { input_dropout: -0.5, ..good },
            "input_dropout is -0.5, expected a probability of at least 0 and below 1",
        ),
    ];
    for (config, message) in cases {
        let error: Error =
            config.init(RngKey::new(0), &device).expect_err("the configuration should be rejected");
        assert_eq!(error.to_string(), message);
    }
}

/// Returns the output and gradients of a layer, on a block large enough that every product and sum may use all threads.
fn gradient_bits(n_threads: usize) -> Vec<u32> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().expect("the pool should start");
    pool.install(|| {
        let device = device().autodiff();
        let n_dst = 40_000_u32;
        let in_srcs: Vec<Vec<u32>> =
            (0..n_dst).map(|dst| (0..dst % 5).map(|k| (dst * 7 + k * 31) % 50_000).collect()).collect();
        let in_srcs: Vec<&[u32]> = in_srcs.iter().map(Vec::as_slice).collect();
        let big = DeviceBlock::upload(&block((0..50_000).collect(), &in_srcs), &device);
        let config = SageConfig {
            d_in: 8,
            hidden: 128,
            n_classes: 4,
            n_layers: 2,
            aggregate: Aggregate::Mean,
            input_dropout: 0.0,
            dropout: 0.5,
            ..SageConfig::new(8, 4)
        };
        let model = config.init(RngKey::new(0), &device).expect("the configuration should be valid");
        let hidden = model.layer(0, &big, ramp([50_000, 8], &device), &ctx(Mode::Train));
        let grads = (hidden.clone() * ramp(hidden.dims(), &device)).sum_dim(1).sum().backward();
        let layer = &model.layers[0];
        let gradients = [
            values(layer.weight_self.grad(&grads).expect("the parameter should have a gradient")),
            values(layer.weight_neigh.grad(&grads).expect("the parameter should have a gradient")),
            values(layer.bias.grad(&grads).expect("the parameter should have a gradient")),
            values(hidden),
        ];
        gradients.concat().into_iter().map(f32::to_bits).collect()
    })
}

#[test]
fn a_step_is_bit_identical_for_any_number_of_threads() {
    let one = gradient_bits(1);
    for n_threads in [2, 5] {
        assert!(one == gradient_bits(n_threads), "{n_threads} threads");
    }
}

#[test]
fn layer_wise_evaluation_matches_the_whole_graph() {
    // Evaluating a layer on two halves of the nodes gives the same rows as on one block of all nodes.
    let device = device();
    let model = model(Aggregate::Sum, 2, &device);
    let x = values(ramp::<2>([4, 5], &device));
    let rows = |nodes: &[usize]| {
        let rows: Vec<f32> = nodes.iter().flat_map(|node| x[node * 5..node * 5 + 5].to_vec()).collect();
        Tensor::<2>::from_data(TensorData::new(rows, [nodes.len(), 5]), &device)
    };
    let run = |block: &Block, nodes: &[usize]| {
        values(model.layer(0, &DeviceBlock::upload(block, &device), rows(nodes), &ctx(Mode::Eval)))
    };
    let whole = run(&block(vec![0, 1, 2, 3], &[&[1, 2], &[0], &[3], &[]]), &[0, 1, 2, 3]);
    let first = run(&block(vec![0, 1, 2], &[&[1, 2], &[0]]), &[0, 1, 2]);
    let second = run(&block(vec![2, 3], &[&[1], &[]]), &[2, 3]);
    check_close(&[first, second].concat(), &whole, TOLERANCE);
}
