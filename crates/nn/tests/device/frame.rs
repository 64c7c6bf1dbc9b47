//! Tests of normalisation, residual connections and jumping knowledge of models of nodes.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::{CscBuilder, NodeId, gcn_norm};
use kiln_kernels::testing::{check_close, device, ramp, values};
use kiln_kernels::{DeviceBlock, is_cpu};
use kiln_nn::{
    BlockModel, Error, Frame, GcnConfig, GinConfig, JumpingKnowledge, MlpConfig, Mode, ModelConfig,
    Normalization, SageConfig,
};
use kiln_sample::{EdgeWeights, FrontierSampler, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds};

use super::common::{ctx, parameters};

const N_NODES: u32 = 12;
const D_IN: usize = 5;
const HIDDEN: usize = 6;
const N_CLASSES: usize = 3;
const N_LAYERS: usize = 4;

/// The tolerance for sums of a few numbers of about 1, computed in different orders in four layers.
const TOLERANCE: f32 = 1e-4;

const JUMPING: [JumpingKnowledge; 4] =
    [JumpingKnowledge::Direct, JumpingKnowledge::Last, JumpingKnowledge::Cat, JumpingKnowledge::Max];

fn sage() -> SageConfig {
    SageConfig::new(D_IN, N_CLASSES).hidden(HIDDEN).layers(N_LAYERS)
}

fn gcn() -> GcnConfig {
    GcnConfig::new(D_IN, N_CLASSES).hidden(HIDDEN).layers(N_LAYERS)
}

/// Returns the blocks of all neighbours of some nodes, and the ids of the input nodes.
fn blocks(device: &Device) -> (Vec<DeviceBlock>, Vec<NodeId>) {
    let ends = |step: u32| (0..2 * N_NODES).map(|edge| edge * step % N_NODES).collect::<Vec<_>>();
    let graph =
        CscBuilder::new(N_NODES as usize).build(&ends(1), &ends(5)).expect("the edges should be valid");
    let graph = Arc::new(gcn_norm(&graph).expect("the graph should have few enough edges"));
    let stored = SamplerConfig::full(N_LAYERS).with_weights(EdgeWeights::Stored);
    let sampler = NeighborSampler::with_config(graph, stored).expect("the graph should have weights");
    let seeds = Seeds::nodes(vec![NodeId(3), NodeId(1), NodeId(7)]);
    let sampled = sampler
        .sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())
        .expect("the seeds should exist");
    let blocks = sampled.blocks.iter().map(|block| DeviceBlock::upload(block, device)).collect();
    (blocks, sampled.blocks[0].srcs().to_vec())
}

/// The rows of nodes: `rows[row][column]`.
type Rows = Vec<Vec<f32>>;

fn rows_of(x: Tensor<2>) -> Rows {
    let [_, width] = x.dims();
    values(x).chunks(width).map(<[f32]>::to_vec).collect()
}

fn tensor(rows: &Rows, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(rows.concat(), [rows.len(), rows[0].len()]), device)
}

/// Ba, Kiros and Hinton 2016, equation 4, with the scale and shift of the model.
fn layer_norm(row: &[f32], gamma: &[f32], beta: &[f32]) -> Vec<f32> {
    let mean = row.iter().sum::<f32>() / row.len() as f32;
    let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / row.len() as f32;
    let scaled = row.iter().map(|value| (value - mean) / (variance + 1e-5).sqrt());
    scaled.zip(gamma).zip(beta).map(|((value, gamma), beta)| value * gamma + beta).collect()
}

/// Computes a model's outputs plainly from its convolutions: keeps the rows of all layers, and joins those of the seeds
/// at the end.
fn reference(
    frame: &Frame,
    residual: bool,
    jumping: JumpingKnowledge,
    mut x: Rows,
    conv: impl Fn(usize, &Rows) -> Rows,
) -> Rows {
    let mut of_layers: Vec<Rows> = Vec::new();
    for i in 0..N_LAYERS {
        let mut out = conv(i, &x);
        if i + 1 == N_LAYERS && jumping == JumpingKnowledge::Direct {
            return out;
        }
        for (row, own) in out.iter_mut().zip(&x) {
            if let Some(norm) = frame.norms.get(i) {
                let beta = norm.beta.as_ref().expect("the normalisation should have a shift");
                *row = layer_norm(row, &values(norm.gamma.val()), &values(beta.val()));
            }
            for (column, value) in row.iter_mut().enumerate() {
                *value = value.max(0.0) + if residual && 0 < i { own[column] } else { 0.0 };
            }
        }
        of_layers.push(out.clone());
        x = out;
    }
    let joined = |seed: usize| -> Vec<f32> {
        let all = of_layers.iter().map(|rows| rows[seed].clone());
        match jumping {
            JumpingKnowledge::Cat => all.collect::<Vec<_>>().concat(),
            JumpingKnowledge::Max => all
                .reduce(|one, other| one.iter().zip(other).map(|(a, b)| a.max(b)).collect())
                .expect("there should be layers"),
            _ => of_layers[N_LAYERS - 1][seed].clone(),
        }
    };
    let joined: Rows = (0..x.len()).map(joined).collect();
    let head = frame.head.as_ref().expect("jumping knowledge should have a linear layer");
    rows_of(head.forward(tensor(&joined, &device())))
}

/// Returns normalisations with a scale and shift that differ from the initial ones.
fn scaled(mut frame: Frame) -> Frame {
    for (i, norm) in frame.norms.iter_mut().enumerate() {
        let row = |from: f32| -> Tensor<1> {
            let values: Vec<f32> = (0..HIDDEN).map(|column| from + 0.25 * (column + i) as f32).collect();
            Tensor::from_floats(values.as_slice(), &device())
        };
        norm.gamma = Param::from_tensor(row(0.5));
        norm.beta = Some(Param::from_tensor(row(-0.5)));
    }
    frame
}

#[test]
fn sage_with_options_computes_the_formulas_of_its_options() {
    let device = device();
    let (blocks, inputs) = blocks(&device);
    let x = ramp([inputs.len(), D_IN], &device);
    for jumping in JUMPING {
        for (norm, residual) in
            [(Normalization::None, true), (Normalization::Layer, false), (Normalization::Layer, true)]
        {
            let config = sage().norm(norm).residual(residual).jumping(jumping);
            let mut model = config.init(RngKey::new(3), &device).expect("the configuration should be valid");
            model.frame = scaled(model.frame);
            let conv = |i: usize, x: &Rows| rows_of(model.layers[i].forward(&blocks[i], tensor(x, &device)));
            let expected = reference(&model.frame, residual, jumping, rows_of(x.clone()), conv);
            let got = values(model.forward(&blocks, x.clone(), &ctx(Mode::Eval)));
            check_close(&got, &expected.concat(), TOLERANCE);
        }
    }
}

#[test]
fn gcn_with_options_computes_the_formulas_of_its_options() {
    let device = device();
    let (blocks, inputs) = blocks(&device);
    let x = ramp([inputs.len(), D_IN], &device);
    for jumping in JUMPING {
        let config = gcn().norm(Normalization::Layer).residual(true).jumping(jumping);
        let mut model = config.init(RngKey::new(3), &device).expect("the configuration should be valid");
        model.frame = scaled(model.frame);
        let conv = |i: usize, x: &Rows| rows_of(model.layers[i].forward(&blocks[i], tensor(x, &device)));
        let expected = reference(&model.frame, true, jumping, rows_of(x.clone()), conv);
        check_close(
            &values(model.forward(&blocks, x.clone(), &ctx(Mode::Eval))),
            &expected.concat(),
            TOLERANCE,
        );
    }
}

#[test]
fn layers_declare_the_widths_of_their_rows() {
    let device = device();
    let widths = |jumping, n_layers| -> Vec<[usize; 2]> {
        let config = sage().layers(n_layers).jumping(jumping);
        let model = config.init(RngKey::new(0), &device).expect("the configuration should be valid");
        let size = |i| model.layer_size(i).expect("a GraphSAGE model should know the sizes of its layers");
        (0..n_layers).map(|i| size(i).widths).collect()
    };
    assert_eq!(widths(JumpingKnowledge::Direct, 3), [[5, 6], [6, 6], [6, 3]]);
    assert_eq!(widths(JumpingKnowledge::Last, 3), [[5, 6], [6, 6], [6, 3]]);
    assert_eq!(widths(JumpingKnowledge::Cat, 4), [[5, 6], [6, 12], [12, 18], [18, 3]]);
    assert_eq!(widths(JumpingKnowledge::Max, 4), [[5, 6], [6, 12], [12, 12], [12, 3]]);
    for jumping in JUMPING {
        assert_eq!(widths(jumping, 1), [[5, 3]]);
    }
}

/// Without options, a model has the parameters, and a configuration the text, of earlier versions: old checkpoints must
/// still resume.
#[test]
fn models_without_options_have_the_parameters_and_the_text_of_earlier_versions() {
    let model = sage().layers(1).init(RngKey::new(0), &device()).expect("the configuration should be valid");
    let names: Vec<String> = parameters(&model).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["layers.0.weight_self", "layers.0.weight_neigh", "layers.0.bias"]);
    let text = "SageConfig { d_in: 5, hidden: 6, n_classes: 3, n_layers: 4, aggregate: Mean, input_dropout: 0.0, \
                dropout: 0.5";
    assert_eq!(format!("{:?}", sage()), format!("{text} }}"));
    let options = sage().norm(Normalization::Layer).residual(true).jumping(JumpingKnowledge::Cat);
    assert_eq!(format!("{options:?}"), format!("{text}, norm: Layer, residual: true, jumping: Cat }}"));
    let text = "GcnConfig { d_in: 5, hidden: 6, n_classes: 3, n_layers: 4, input_dropout: 0.0, dropout: 0.5";
    assert_eq!(format!("{:?}", gcn()), format!("{text} }}"));
    assert_eq!(format!("{:?}", gcn().residual(true)), format!("{text}, residual: true }}"));
}

#[test]
fn rejects_options_of_other_models_and_residuals_without_equal_widths() {
    let (device, key) = (device(), RngKey::new(0));
    let check = |error: Option<Error>, expected: &str| {
        assert_eq!(error.expect("the configuration should be rejected").to_string(), expected);
    };
    let no_batch = "norm is batch, expected none or layer for this kind of model";
    check(sage().norm(Normalization::Batch).init(key, &device).err(), no_batch);
    check(gcn().norm(Normalization::Batch).init(key, &device).err(), no_batch);
    let no_sum = "jumping is sum, expected direct, last, cat or max for this kind of model";
    check(gcn().jumping(JumpingKnowledge::Sum).init(key, &device).err(), no_sum);
    let gin = GinConfig::paper(D_IN, HIDDEN, N_CLASSES);
    for (jumping, name) in [(JumpingKnowledge::Cat, "cat"), (JumpingKnowledge::Max, "max")] {
        let expected = format!("jumping is {name}, expected direct, last or sum for this kind of model");
        check(GinConfig { jumping, ..gin.clone() }.init(key, &device).err(), &expected);
    }
    let no_layer = "norm is layer, expected none or batch for this kind of model";
    let norm = Normalization::Layer;
    check(GinConfig { norm, ..gin }.init(key, &device).err(), no_layer);
    let mlp = MlpConfig { d_in: D_IN, hidden: HIDDEN, d_out: N_CLASSES, n_layers: 2, norm };
    check(mlp.init(key, &device).err(), no_layer);
    let two = sage().layers(2).residual(true);
    check(
        two.init(key, &device).err(),
        "residual is true, but none of the 2 layers has equal input and output widths before the outputs (d_in 5, \
         hidden 6): use at least 3 layers, jumping knowledge, or a hidden width of d_in",
    );
    for valid in [two.clone().hidden(D_IN), two.clone().layers(3), two.jumping(JumpingKnowledge::Last)] {
        valid.init(key, &device).expect("the configuration should be valid");
    }
}

/// Returns the outputs and gradients of a step that is large enough that every product and sum may use all threads.
fn step_bits(n_threads: usize) -> Vec<u32> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().expect("the pool should start");
    pool.install(|| {
        let device = device().autodiff();
        // Another device does not use the threads.
        let n_nodes = if is_cpu(&device) { 12_000_u32 } else { 4000 };
        let ends = |step: u32| (0..3 * n_nodes).map(|edge| edge * step % n_nodes).collect::<Vec<_>>();
        let graph = CscBuilder::new(n_nodes as usize).build(&ends(1), &ends(7)).expect("valid edges");
        let sampler = NeighborSampler::full(Arc::new(graph), 3);
        let seeds = Seeds::nodes((0..n_nodes).map(NodeId).collect());
        let sampled =
            sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).expect("valid seeds");
        let blocks: Vec<_> = sampled.blocks.iter().map(|block| DeviceBlock::upload(block, &device)).collect();
        let config = sage().hidden(64).layers(3).norm(Normalization::Layer).residual(true);
        let model =
            config.jumping(JumpingKnowledge::Max).init(RngKey::new(0), &device).expect("a valid model");
        let x = ramp([n_nodes as usize, D_IN], &device);
        let outputs = model.forward(&blocks, x, &ctx(Mode::Train));
        let grads = (outputs.clone() * ramp(outputs.dims(), &device)).sum_dim(1).sum().backward();
        let norm = &model.frame.norms[0];
        let head = model.frame.head.as_ref().expect("the model should have a linear layer");
        let all = [
            values(outputs),
            values(norm.gamma.grad(&grads).expect("the scale should have a gradient")),
            values(head.weight.grad(&grads).expect("the weight should have a gradient")),
            values(model.layers[0].weight_neigh.grad(&grads).expect("the weight should have a gradient")),
        ];
        all.concat().into_iter().map(f32::to_bits).collect()
    })
}

#[test]
fn a_step_with_options_is_bit_identical_for_any_number_of_threads() {
    let one = step_bits(1);
    for n_threads in [2, 5] {
        assert!(one == step_bits(n_threads), "{n_threads} threads");
    }
}

/// Checks that the bound is near the number of parameters: it leaves out vectors only.
fn check_min_parameters<C: ModelConfig>(config: &C) {
    let model = config.init(RngKey::new(0), &device()).expect("the configuration should be valid");
    let (bound, n_parameters) = (config.min_parameters(), model.num_params() as u64);
    assert!(bound <= n_parameters && n_parameters < 2 * bound, "{config:?}: {bound} {n_parameters}");
}

#[test]
fn min_parameters_count_the_matrices() {
    for jumping in JUMPING {
        for n_layers in [1, 2, N_LAYERS] {
            check_min_parameters(&sage().jumping(jumping).layers(n_layers).norm(Normalization::Layer));
            check_min_parameters(&gcn().jumping(jumping).layers(n_layers));
        }
    }
    for jumping in [JumpingKnowledge::Direct, JumpingKnowledge::Last, JumpingKnowledge::Sum] {
        for (n_layers, mlp_layers) in [(1, 1), (1, 2), (2, 3), (4, 2)] {
            let config = GinConfig::simplified(D_IN, 16, N_CLASSES);
            check_min_parameters(&GinConfig { n_layers, mlp_layers, jumping, ..config });
        }
    }
    let huge = GinConfig { n_layers: usize::MAX, ..GinConfig::paper(D_IN, usize::MAX, N_CLASSES) };
    assert_eq!(huge.min_parameters(), u64::MAX);
}
