//! Tests of the graph isomorphism (GIN) layer and model.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::GraphId;
use kiln_kernels::ops::{self, Reduction};
use kiln_kernels::testing::{check_close, check_gradient, check_layer, device, ramp, values};
use kiln_kernels::{DeviceBlock, DeviceGraphs, is_cpu};
use kiln_nn::{
    Aggregate, Epsilon, ForwardContext, Gin, GinConfig, GinConv, GraphModel, JumpingKnowledge, Mlp,
    MlpConfig, Mode, NodeModule, Normalization, Readout,
};
use kiln_sample::RngKey;

use super::common::graphs::{Graph, PlainGin, block_diagonal, five, upload};
use super::common::{ctx, parameters};

const AGGREGATES: [Aggregate; 3] = [Aggregate::Mean, Aggregate::Max, Aggregate::Sum];
const READOUTS: [Readout; 3] = [Readout::Mean, Readout::Max, Readout::Sum];
const JUMPINGS: [JumpingKnowledge; 3] =
    [JumpingKnowledge::Direct, JumpingKnowledge::Last, JumpingKnowledge::Sum];
const NORMS: [Normalization; 2] = [Normalization::None, Normalization::Batch];

/// The tolerance between f32 and f64 for a few layers of products of numbers of about 1, with normalisation.
const TOLERANCE: f32 = 2e-5;

fn config() -> GinConfig {
    let paper = GinConfig::paper(5, 7, 3);
    GinConfig { n_layers: 3, epsilon: Epsilon::Learnable(0.25), dropout: 0.0, ..paper }
}

fn init(config: &GinConfig, device: &Device) -> Gin {
    config.init(RngKey::new(3), device).expect("the configuration should be valid")
}

/// Returns each graph's scores from the reference implementation.
fn plain_scores(config: &GinConfig, model: &Gin, mode: Mode, graphs: &[Graph], x: &Tensor<2>) -> Vec<f32> {
    let widen = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    let parameters = parameters(model).into_iter().map(|(name, all)| (name, widen(all))).collect();
    let by_batch = mode == Mode::Train;
    let (Epsilon::Fixed(epsilon) | Epsilon::Learnable(epsilon)) = config.epsilon;
    let &GinConfig { aggregate, readout, .. } = config;
    let plain = PlainGin { parameters, fixed_epsilon: epsilon.into(), aggregate, readout, by_batch };
    let rows = widen(values(x.clone())).chunks(x.dims()[1]).map(<[f64]>::to_vec).collect();
    plain.forward(graphs, rows).concat().into_iter().map(|score| score as f32).collect()
}

#[test]
fn a_model_matches_the_reference() {
    let device = device().autodiff();
    let graphs = five();
    let x: Tensor<2> = ramp([10, 5], &device);
    for (aggregate, readout) in AGGREGATES.into_iter().flat_map(|one| READOUTS.map(|other| (one, other))) {
        for (jumping, norm) in JUMPINGS.into_iter().flat_map(|jumping| NORMS.map(|norm| (jumping, norm))) {
            println!("{aggregate:?} {readout:?} {jumping:?} {norm:?}");
            let config = GinConfig { aggregate, readout, jumping, norm, ..config() };
            let model = init(&config, &device);
            let batch = upload(&graphs, &device);
            let scores = model.forward(&batch, x.clone(), &ctx(Mode::Train));
            assert_eq!(scores.dims(), [5, 3]);
            check_close(&values(scores), &plain_scores(&config, &model, Mode::Train, &graphs, &x), TOLERANCE);
            // Prediction uses the running statistics, which the training pass has updated.
            let valid = model.valid();
            let scores = values(valid.forward(&batch, x.clone().inner(), &ctx(Mode::Eval)));
            check_close(&scores, &plain_scores(&config, &valid, Mode::Eval, &graphs, &x), TOLERANCE);
        }
    }
}

#[test]
fn a_model_with_a_fixed_epsilon_matches_the_reference() {
    let device = device();
    let x: Tensor<2> = ramp([10, 5], &device);
    for epsilon in [0.0, -1.0, 0.75] {
        let config = GinConfig { epsilon: Epsilon::Fixed(epsilon), ..config() };
        let model = init(&config, &device);
        let scores = values(model.forward(&upload(&five(), &device), x.clone(), &ctx(Mode::Eval)));
        check_close(&scores, &plain_scores(&config, &model, Mode::Eval, &five(), &x), TOLERANCE);
    }
}

/// A user-defined module: multiplies each column by a factor and squares it.
#[derive(Module, Debug)]
struct Squared {
    factor: Param<Tensor<2>>,
}

impl NodeModule for Squared {
    fn forward(&self, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        (x * self.factor.val()).powi_scalar(2)
    }
}

#[test]
fn a_gin_layer_accepts_a_user_defined_module() {
    let device = device();
    let factor = Param::from_tensor(Tensor::from_data([[1.0, -2.0]], &device));
    // The edges are 1 -> 0, 2 -> 0 and 0 -> 1; node 2 has no in-edges.
    let (block, _) = block_diagonal(&[vec![vec![1, 2], vec![0], vec![]]]);
    let block = DeviceBlock::upload(&block, &device);
    let x = Tensor::<2>::from_data([[1.0, 2.0], [3.0, -1.0], [5.0, 0.5]], &device);
    let expected = [
        // The rows of the mean are 1.5 [1, 2] + [4, -0.25], 1.5 [3, -1] + [1, 2] and 1.5 [5, 0.5].
        (Aggregate::Mean, [5.5, 2.75, 5.5, 0.5, 7.5, 0.75]),
        (Aggregate::Max, [6.5, 3.5, 5.5, 0.5, 7.5, 0.75]),
        (Aggregate::Sum, [9.5, 2.5, 5.5, 0.5, 7.5, 0.75]),
    ];
    for (aggregate, sums) in expected {
        let mlp = Squared { factor: factor.clone() };
        let conv = GinConv::new(mlp, Epsilon::Fixed(0.5), aggregate, &device)
            .expect("a finite epsilon should be accepted");
        let squares: Vec<f32> =
            sums.iter().enumerate().map(|(i, sum)| (sum * [1.0, -2.0_f32][i % 2]).powi(2)).collect();
        assert_eq!(values(conv.forward(&block, x.clone(), &ctx(Mode::Eval))), squares, "{aggregate:?}");
    }
}

/// Returns a layer whose MLP is smooth for inputs of about 1: the hidden columns are far enough above or below 0 that
/// no ReLU changes sign.
fn smooth_conv(aggregate: Aggregate, norm: Normalization, device: &Device) -> GinConv<Mlp> {
    let mlp = MlpConfig { d_in: 4, hidden: 6, d_out: 3, n_layers: 2, norm };
    let mut mlp = mlp.init(RngKey::new(4), device).expect("the configuration should be valid");
    let shift = Param::from_tensor(Tensor::from_data([8.0, -8.0, 8.0, -8.0, 8.0, -8.0], device));
    match norm {
        Normalization::None => mlp.linears[0].bias = shift,
        Normalization::Batch | Normalization::Layer => mlp.norms[0].beta = shift,
    }
    GinConv::new(mlp, Epsilon::Learnable(0.5), aggregate, device)
        .expect("a finite epsilon should be accepted")
}

#[test]
fn layers_ignore_the_edge_order_and_have_correct_shapes_and_input_gradients() {
    let device = device().autodiff();
    let (block, _) = block_diagonal(&five());
    for (aggregate, norm) in AGGREGATES.into_iter().flat_map(|aggregate| NORMS.map(|norm| (aggregate, norm)))
    {
        println!("{aggregate:?} {norm:?}");
        let conv = smooth_conv(aggregate, norm, &device);
        check_layer(&block, 4, 3, &device, |block, x| conv.forward(block, x, &ctx(Mode::Train)));
    }
}

#[test]
fn gradients_of_parameters_match_finite_differences() {
    let device = device();
    let (block, _) = block_diagonal(&five());
    let block = DeviceBlock::upload(&block, &device);
    for norm in NORMS {
        let conv = smooth_conv(Aggregate::Sum, norm, &device.clone().autodiff());
        let x: Tensor<2> = ramp([10, 4], &device.clone().autodiff());
        let run = |conv: GinConv<Mlp>| conv.forward(&block, x.clone(), &ctx(Mode::Train));
        let epsilon = conv.epsilon.as_ref().expect("epsilon should be learned").val();
        check_gradient(epsilon.inner(), |epsilon| {
            let mut conv = conv.clone();
            conv.epsilon = Some(Param::from_tensor(epsilon));
            run(conv)
        });
        check_gradient(conv.mlp.linears[0].weight.val().inner(), |weight| {
            let mut conv = conv.clone();
            conv.mlp.linears[0].weight = Param::from_tensor(weight);
            run(conv)
        });
        check_gradient(conv.mlp.linears[1].bias.val().inner(), |bias| {
            let mut conv = conv.clone();
            conv.mlp.linears[1].bias = Param::from_tensor(bias);
            run(conv)
        });
    }
}

#[test]
fn a_learnable_epsilon_has_a_gradient() {
    let device = device().autodiff();
    let model = init(&config(), &device);
    let scores = model.forward(&upload(&five(), &device), ramp([10, 5], &device), &ctx(Mode::Train));
    let grads = scores.powi_scalar(2).sum().backward();
    for layer in &model.layers {
        let epsilon = layer.conv.epsilon.as_ref().expect("epsilon should be learned").val();
        assert_eq!(values(epsilon.clone()), [0.25]);
        let gradient = values(epsilon.grad(&grads).expect("the parameter should have a gradient"));
        assert!(gradient[0] != 0.0);
    }
}

/// Parameters are saved and synchronised between ranks; settings are neither saved nor synchronised.
#[test]
fn a_fixed_epsilon_is_not_a_parameter() {
    let device = device().autodiff();
    let fixed = init(&GinConfig { epsilon: Epsilon::Fixed(0.25), ..config() }, &device);
    let learned = init(&config(), &device);
    let names = |model: &Gin| parameters(model).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert!(fixed.layers.iter().all(|layer| layer.conv.epsilon.is_none()));
    let mut without = names(&learned);
    without.retain(|name| !name.ends_with("epsilon"));
    assert_eq!(names(&fixed), without);
    assert_eq!(names(&learned).len(), without.len() + learned.layers.len());
}

#[test]
#[should_panic(expected = "the MLP is on")]
fn new_panics_for_an_mlp_on_another_device() {
    let mlp = MlpConfig { d_in: 2, hidden: 2, d_out: 2, n_layers: 1, norm: Normalization::None };
    let mlp = mlp.init(RngKey::new(0), &device()).expect("the configuration should be valid");
    let _ = GinConv::new(mlp, Epsilon::Learnable(0.0), Aggregate::Sum, &device().autodiff());
}

#[test]
fn scores_of_a_graph_do_not_depend_on_the_rest_of_its_batch() {
    let device = device();
    let x = values(ramp::<2>([10, 5], &device));
    for (readout, jumping) in READOUTS.into_iter().zip(JUMPINGS) {
        let model = init(&GinConfig { readout, jumping, ..config() }, &device);
        let run = |graphs: &[Graph], x: &[f32]| {
            let x = Tensor::from_data(TensorData::new(x.to_vec(), [x.len() / 5, 5]), &device);
            values(model.forward(&upload(graphs, &device), x, &ctx(Mode::Eval)))
        };
        let together = run(&five(), &x);
        let mut start = 0;
        for (i, graph) in five().into_iter().enumerate() {
            let end = start + graph.len() * 5;
            check_close(&run(&[graph], &x[start..end]), &together[i * 3..i * 3 + 3], TOLERANCE);
            start = end;
        }
    }
}

/// A batch whose graphs all have no nodes gets scores, and does not update the running statistics.
#[test]
fn graphs_without_nodes_get_the_scores_of_the_biases() {
    let device = device().autodiff();
    let model = init(&config(), &device);
    let before = parameters(&model);
    let x = Tensor::<2>::zeros([0, 5], &device);
    let scores = model.forward(&upload(&[vec![], vec![]], &device), x, &ctx(Mode::Train));
    // The pooled rows are zeros, so the scores are the sums of the biases.
    let bias: Vec<f32> = (0..3)
        .map(|class| model.heads.iter().map(|head| values(head.bias.val())[class]).sum::<f32>())
        .collect();
    check_close(&values(scores.clone()), &[bias.clone(), bias].concat(), TOLERANCE);
    scores.sum().backward();
    assert_eq!(parameters(&model.valid()), before);
}

#[test]
fn normalising_a_single_node_gives_finite_values() {
    let device = device().autodiff();
    let model = init(&config(), &device);
    let scores = model.forward(&upload(&[vec![vec![]]], &device), ramp([1, 5], &device), &ctx(Mode::Train));
    assert!(values(scores).iter().all(|score| score.is_finite()));
    assert!(parameters(&model.valid()).iter().all(|(_, all)| all.iter().all(|value| value.is_finite())));
}

#[test]
fn running_statistics_follow_the_batches_in_training_only() {
    let device = device().autodiff();
    let config = GinConfig { n_layers: 1, mlp_layers: 1, ..config() };
    let model = init(&config, &device);
    let graphs = upload(&five(), &device);
    let x: Tensor<2> = ramp([10, 5], &device);
    model.forward(&graphs, x.clone(), &ctx(Mode::Train));
    let rows = values(model.layers[0].conv.forward(graphs.block(), x.clone(), &ctx(Mode::Eval)));
    let norm = |model: &Gin| model.layers[0].norm.clone().expect("the layer should have a norm");
    let running = |model: &Gin| {
        let norm = norm(model);
        [norm.running_mean, norm.running_var].map(|state| values(state.value()))
    };
    let column = |column: usize| rows.iter().skip(column).step_by(7);
    let mean = |c: usize| column(c).sum::<f32>() / 10.0;
    let variance = |c: usize| column(c).map(|value| (value - mean(c)).powi(2)).sum::<f32>() / 10.0;
    let expected = [
        (0..7).map(|c| 0.1 * mean(c)).collect::<Vec<_>>(),
        (0..7).map(|c| 0.9 + 0.1 * variance(c)).collect(),
    ];
    let got = running(&model.valid());
    check_close(&got[0], &expected[0], TOLERANCE);
    check_close(&got[1], &expected[1], TOLERANCE);
    // Predictions by the model in training use the running statistics, too, and do not update them.
    let eval = |model: &Gin, x: Tensor<2>| values(model.forward(&graphs, x, &ctx(Mode::Eval)));
    assert_eq!(eval(&model, x.clone()), eval(&model.valid(), x.inner()));
    assert_eq!(running(&model.valid()), got);
}

#[test]
fn dropout_of_scores_is_keyed_by_graph_id() {
    let device = device();
    let config =
        GinConfig { norm: Normalization::None, jumping: JumpingKnowledge::Last, dropout: 0.5, ..config() };
    let model = init(&config, &device);
    let (one, two): (Graph, Graph) = (vec![vec![1], vec![0]], vec![vec![], vec![0], vec![1]]);
    let x = values(ramp::<2>([5, 5], &device));
    let run = |graphs: [&Graph; 2], items: [u32; 2], x: Vec<f32>, ctx: ForwardContext| {
        let (block, offsets) = block_diagonal(&graphs.map(Graph::clone));
        let graphs = DeviceGraphs::upload(&block, &offsets, &items.map(GraphId), &device);
        let x = Tensor::from_data(TensorData::new(x, [5, 5]), &device);
        values(model.forward(&graphs, x, &ctx))
    };
    let eval = run([&one, &two], [4, 9], x.clone(), ctx(Mode::Eval));
    let train = run([&one, &two], [4, 9], x.clone(), ctx(Mode::Train));
    let items = Tensor::from_data(TensorData::new(vec![4_u32, 9], [2]), (&device, burn::tensor::DType::U32));
    let mask = values(ops::dropout(Tensor::ones([2, 3], &device), &items, RngKey::new(77), 0, 0.5));
    assert_eq!(train, eval.iter().zip(&mask).map(|(score, factor)| score * factor).collect::<Vec<f32>>());
    assert!(mask.contains(&0.0) && mask.contains(&2.0), "{mask:?}");
    // A graph keeps its mask at another position in the batch, and gets another mask under another id.
    let turned = [&x[10..], &x[..10]].concat();
    let turned = run([&two, &one], [9, 4], turned, ctx(Mode::Train));
    check_close(&[&turned[3..], &turned[..3]].concat(), &train, TOLERANCE);
    assert_ne!(run([&one, &two], [5, 12], x, ctx(Mode::Train)), train);
}

#[test]
fn the_simplified_model_matches_the_dgl_tutorial() {
    let device = device();
    let model = GinConfig::simplified(1, 16, 2)
        .init(RngKey::new(0), &device)
        .expect("the configuration should be valid");
    let shapes: Vec<(String, usize)> =
        parameters(&model).into_iter().map(|(name, all)| (name, all.len())).collect();
    let expected = [
        ("layers.0.conv.mlp.linears.0.weight", 16),
        ("layers.0.conv.mlp.linears.0.bias", 16),
        ("layers.1.conv.mlp.linears.0.weight", 32),
        ("layers.1.conv.mlp.linears.0.bias", 2),
    ];
    assert_eq!(shapes, expected.map(|(name, n_values)| (name.to_string(), n_values)));
    let graphs = upload(&five(), &device);
    let x = ramp([10, 1], &device);
    let mut hidden = x.clone();
    for (i, layer) in model.layers.iter().enumerate() {
        let linear = &layer.conv.mlp.linears[0];
        hidden = linear.forward(hidden.clone() + ops::aggregate(graphs.block(), hidden, Reduction::Sum));
        if i == 0 {
            hidden = burn::tensor::activation::relu(hidden);
        }
    }
    let expected = values(ops::segment_reduce(graphs.segments(), hidden, Reduction::Sum));
    assert_eq!(values(model.forward(&graphs, x, &ctx(Mode::Train))), expected);
}

/// Returns the scores and gradients of a whole step, on a batch large enough that every product and sum may use all
/// threads.
fn step_bits(n_threads: usize) -> Vec<u32> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().expect("the pool should start");
    pool.install(|| {
        let device = device().autodiff();
        let ring = |n: u32| (0..n).map(|node| vec![(node + 1) % n, (node + n - 1) % n]).collect::<Graph>();
        // Another device does not use the threads.
        let n_graphs = if is_cpu(&device) { 500 } else { 200 };
        let graphs: Vec<Graph> = (0..n_graphs).map(|graph| ring(10 + graph % 30)).collect();
        let n_nodes = graphs.iter().map(Vec::len).sum::<usize>();
        let config = GinConfig { n_layers: 2, dropout: 0.5, hidden: 64, ..config() };
        let model = init(&config, &device);
        let scores = model.forward(&upload(&graphs, &device), ramp([n_nodes, 5], &device), &ctx(Mode::Train));
        let grads = (scores.clone() * ramp(scores.dims(), &device)).sum_dim(1).sum().backward();
        let mut bits = vec![values(scores)];
        for layer in &model.layers {
            bits.push(values(
                layer
                    .conv
                    .epsilon
                    .as_ref()
                    .expect("epsilon should be learned")
                    .grad(&grads)
                    .expect("the parameter should have a gradient"),
            ));
            bits.push(values(
                layer.conv.mlp.linears[0].weight.grad(&grads).expect("the parameter should have a gradient"),
            ));
            bits.push(values(
                layer.conv.mlp.norms[0].gamma.grad(&grads).expect("the parameter should have a gradient"),
            ));
        }
        bits.extend(parameters(&model.valid()).into_iter().map(|(_, all)| all));
        bits.concat().into_iter().map(f32::to_bits).collect()
    })
}

#[test]
fn a_step_is_bit_identical_for_any_number_of_threads() {
    let one = step_bits(1);
    for n_threads in [2, 5] {
        assert!(one == step_bits(n_threads), "{n_threads} threads");
    }
}
