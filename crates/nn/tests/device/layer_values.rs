//! Parity of layers with PyG: outputs and gradients of all inputs and parameters equal the values that
//! `benches/peers/layer_values.py` computed with PyG's layers (`tests/parity/layer_values.json`).

// The lint permits unwrap in test functions only, not in their helpers.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::{check_close, device, values};
use kiln_nn::{
    Aggregate, BlockModel, EdgeInput, EdgeWeighting, Epsilon, ForwardContext, GatConvConfig, GatV2ConvConfig,
    GinConv, GineConfig, GineConv, HeadOutput, Linear, Mlp, Mode, RgcnConv, TransformerConvConfig,
};
use kiln_sample::RngKey;

use super::parity::read;

const TOLERANCE: f32 = 1e-5;

#[derive(serde::Deserialize)]
struct Values {
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    settings: BTreeMap<String, serde_json::Value>,
    block: BlockValues,
    inputs: BTreeMap<String, Array>,
    weights: BTreeMap<String, Array>,
    out_grad: Array,
    out: Array,
    grads: BTreeMap<String, Array>,
}

#[derive(serde::Deserialize)]
struct BlockValues {
    n_src: u32,
    indptr: Vec<u32>,
    indices: Vec<u32>,
    edge_types: Vec<u8>,
}

#[derive(serde::Deserialize, Clone)]
struct Array {
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Array {
    fn tensor<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        let data = TensorData::new(self.values.clone(), shape);
        Tensor::from_data(data, &device().autodiff()).require_grad()
    }

    /// The tensor with the shape of the file.
    fn matrix(&self) -> Tensor<2> {
        self.tensor([self.shape[0], self.shape[1]])
    }

    /// The transpose of a matrix, row-major.
    fn transposed(&self) -> Vec<f32> {
        let n_columns = self.shape[1];
        (0..n_columns).flat_map(|c| self.values.iter().skip(c).step_by(n_columns)).copied().collect()
    }
}

impl Case {
    fn number(&self, name: &str) -> usize {
        self.settings[name].as_u64().unwrap() as usize
    }

    fn is(&self, name: &str) -> bool {
        self.settings[name].as_bool().unwrap()
    }

    fn block(&self) -> DeviceBlock {
        let BlockValues { n_src, indptr, indices, edge_types } = &self.block;
        let block = Block::new(BlockParts {
            srcs: (0..*n_src).map(NodeId).collect(),
            indptr: indptr.clone(),
            indices: indices.iter().copied().map(LocalId).collect(),
            edge_ids: (0..indices.len() as u64).map(EdgeId).collect(),
            weights: None,
            edge_types: Some(edge_types.clone()),
        });
        DeviceBlock::upload(&block, &device())
    }

    /// A weight of PyG's `Linear`, as a parameter `[d_in, d_out]`.
    fn linear(&self, name: &str) -> Param<Tensor<2>> {
        let weight = &self.weights[name];
        let shape = vec![weight.shape[1], weight.shape[0]];
        Param::from_tensor(Array { shape, values: weight.transposed() }.matrix())
    }

    fn vector(&self, name: &str) -> Param<Tensor<1>> {
        let vector = &self.weights[name];
        Param::from_tensor(vector.tensor([vector.values.len()]))
    }

    /// A module of PyG's `Linear` with this name.
    fn linear_module(&self, name: &str) -> Linear {
        let (weight, bias) = (self.linear(&format!("{name}.weight")), self.vector(&format!("{name}.bias")));
        Linear { weight, bias }
    }

    /// The MLP of two dense layers of PyG's `GINConv` and `GINEConv`.
    fn mlp(&self) -> Mlp {
        Mlp { linears: ["nn.0", "nn.2"].map(|name| self.linear_module(name)).to_vec(), norms: Vec::new() }
    }

    /// Attention vectors `[1, n_heads, d_head]`, as a parameter `[n_heads, d_head]`.
    fn heads(&self, name: &str) -> Param<Tensor<2>> {
        Param::from_tensor(self.weights[name].tensor([self.number("heads"), self.number("d_out")]))
    }

    /// Runs a layer and checks the output and the gradients. `params` are the names of weights and the parameters for
    /// them; a matrix of PyG's `Linear` is compared with the transposed gradient.
    fn check(
        &self,
        forward: impl FnOnce(&DeviceBlock, Tensor<2>, &ForwardContext) -> Tensor<2>,
        matrices: &[(&str, &Param<Tensor<2>>)],
        vectors: &[(&str, &Param<Tensor<1>>)],
    ) {
        println!("{}", self.name);
        let x = self.inputs["x"].matrix();
        let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Train };
        let edge_features = self.inputs.get("edge_attr").map(Array::matrix);
        let block = match &edge_features {
            Some(rows) => self.block().with_edge_column("features", rows.clone()),
            None => self.block(),
        };
        let out = forward(&block, x.clone(), &ctx);
        let grads = (out.clone() * self.out_grad.matrix()).sum().backward();
        check_close(&values(out), &self.out.values, TOLERANCE);
        check_close(&values(x.grad(&grads).unwrap()), &self.grads["x"].values, TOLERANCE);
        if let Some(rows) = &edge_features {
            check_close(&values(rows.grad(&grads).unwrap()), &self.grads["edge_attr"].values, TOLERANCE);
        }
        for (name, param) in matrices {
            println!("{name}");
            let got = values(param.val().grad(&grads).unwrap());
            let expected = &self.grads[*name];
            let is_linear = name.starts_with("lin") || name.starts_with("nn.");
            let expected = if is_linear { expected.transposed() } else { expected.values.clone() };
            check_close(&got, &expected, TOLERANCE);
        }
        for (name, param) in vectors {
            println!("{name}");
            check_close(&values(param.val().grad(&grads).unwrap()), &self.grads[*name].values, TOLERANCE);
        }
        let n_compared = self.inputs.len() + matrices.len() + vectors.len();
        assert_eq!(n_compared, self.grads.len(), "some gradients were not compared");
    }
}

fn cases(prefix: &str) -> Vec<Case> {
    let values: Values = serde_json::from_slice(&read("layer_values.json")).unwrap();
    let cases: Vec<_> = values.cases.into_iter().filter(|case| case.name.starts_with(prefix)).collect();
    assert!(!cases.is_empty());
    cases
}

/// Returns the cases of a layer without edge features, and with them.
fn cases_with_edges(prefix: &str) -> impl Iterator<Item = Case> {
    cases(prefix).into_iter().chain(cases(&format!("edge_{prefix}")))
}

/// The width of the edge features of a layer of attention.
fn edge_features(case: &Case) -> Option<usize> {
    case.settings.contains_key("edge_dim").then(|| case.number("edge_dim"))
}

fn output(case: &Case) -> HeadOutput {
    if case.is("concat") { HeadOutput::Concat } else { HeadOutput::Mean }
}

#[test]
fn gat_conv_equals_pyg() {
    for case in cases("gat_") {
        let config = GatConvConfig {
            output: output(&case),
            ..GatConvConfig::new(case.number("d_in"), case.number("d_out"), case.number("heads"))
        };
        let mut layer = config.init(RngKey::new(0), &device().autodiff()).unwrap();
        layer.weight = case.linear("lin.weight");
        layer.attention_src = case.heads("att_src");
        layer.attention_dst = case.heads("att_dst");
        layer.bias = case.vector("bias");
        let matrices = [
            ("lin.weight", &layer.weight),
            ("att_src", &layer.attention_src),
            ("att_dst", &layer.attention_dst),
        ];
        let forward = |block: &_, x, ctx: &_| layer.forward(0, block, x, ctx);
        case.check(forward, &matrices, &[("bias", &layer.bias)]);
    }
}

#[test]
fn gatv2_conv_equals_pyg() {
    for case in cases_with_edges("gatv2_") {
        let share_weights = case.is("share_weights");
        let config = GatV2ConvConfig {
            output: output(&case),
            share_weights,
            edge_features: edge_features(&case),
            ..GatV2ConvConfig::new(case.number("d_in"), case.number("d_out"), case.number("heads"))
        };
        let mut layer = config.init(RngKey::new(0), &device().autodiff()).unwrap();
        layer.weight_src = case.linear("lin_l.weight");
        layer.bias_src = case.vector("lin_l.bias");
        layer.weight_dst = (!share_weights).then(|| case.linear("lin_r.weight"));
        layer.bias_dst = (!share_weights).then(|| case.vector("lin_r.bias"));
        layer.attention = case.heads("att");
        layer.weight_edge = config.edge_features.map(|_| case.linear("lin_edge.weight"));
        layer.bias = case.vector("bias");
        let mut matrices = vec![("lin_l.weight", &layer.weight_src), ("att", &layer.attention)];
        matrices.extend(layer.weight_dst.iter().map(|weight| ("lin_r.weight", weight)));
        matrices.extend(layer.weight_edge.iter().map(|weight| ("lin_edge.weight", weight)));
        let mut vectors = vec![("lin_l.bias", &layer.bias_src), ("bias", &layer.bias)];
        vectors.extend(layer.bias_dst.iter().map(|bias| ("lin_r.bias", bias)));
        let forward = |block: &_, x, ctx: &_| layer.forward(0, block, x, ctx);
        case.check(forward, &matrices, &vectors);
    }
}

#[test]
fn transformer_conv_equals_pyg() {
    for case in cases_with_edges("transformer_") {
        let config = TransformerConvConfig {
            output: output(&case),
            root_weight: case.is("root_weight"),
            beta: case.is("beta"),
            edge_features: edge_features(&case),
            ..TransformerConvConfig::new(case.number("d_in"), case.number("d_out"), case.number("heads"))
        };
        let mut layer = config.init(RngKey::new(0), &device().autodiff()).unwrap();
        layer.key = case.linear_module("lin_key");
        layer.query = case.linear_module("lin_query");
        layer.value = case.linear_module("lin_value");
        layer.skip = config.root_weight.then(|| case.linear_module("lin_skip"));
        layer.beta = config.beta.then(|| case.linear("lin_beta.weight"));
        layer.weight_edge = config.edge_features.map(|_| case.linear("lin_edge.weight"));
        let mut matrices = vec![
            ("lin_key.weight", &layer.key.weight),
            ("lin_query.weight", &layer.query.weight),
            ("lin_value.weight", &layer.value.weight),
        ];
        let mut vectors = vec![
            ("lin_key.bias", &layer.key.bias),
            ("lin_query.bias", &layer.query.bias),
            ("lin_value.bias", &layer.value.bias),
        ];
        matrices.extend(layer.skip.iter().map(|skip| ("lin_skip.weight", &skip.weight)));
        vectors.extend(layer.skip.iter().map(|skip| ("lin_skip.bias", &skip.bias)));
        matrices.extend(layer.beta.iter().map(|beta| ("lin_beta.weight", beta)));
        matrices.extend(layer.weight_edge.iter().map(|weight| ("lin_edge.weight", weight)));
        let forward = |block: &_, x, ctx: &_| layer.forward(0, block, x, ctx);
        case.check(forward, &matrices, &vectors);
    }
}

/// PyG's layer without bases has a matrix per relation: bases with the identity as coefficients.
#[test]
fn rgcn_conv_equals_pyg() {
    for case in cases("rgcn") {
        let n_relations = case.number("n_relations");
        let has_bases = case.weights.contains_key("comp");
        let n_bases = if has_bases { case.number("num_bases") } else { n_relations };
        let (d_in, d_out) = (case.number("d_in"), case.number("d_out"));
        let identity = (0..n_relations * n_relations)
            .map(|i| if i % (n_relations + 1) == 0 { 1.0 } else { 0.0 })
            .collect();
        let identity = Array { shape: vec![n_relations; 2], values: identity };
        let coefficients = if has_bases { &case.weights["comp"] } else { &identity };
        let layer = RgcnConv {
            weight_self: Param::from_tensor(case.weights["root"].matrix()),
            bases: Param::from_tensor(case.weights["weight"].tensor([n_bases * d_in, d_out])),
            coefficients: Param::from_tensor(coefficients.matrix()),
            bias: case.vector("bias"),
            edge_linear: None,
            edge_weighting: EdgeWeighting::None,
        };
        let mut matrices = vec![("root", &layer.weight_self), ("weight", &layer.bases)];
        if has_bases {
            matrices.push(("comp", &layer.coefficients));
        }
        case.check(|block, x, _| layer.forward(block, x), &matrices, &[("bias", &layer.bias)]);
    }
}

/// A parameter with the name of its gradient in the file.
type Named<'a, const D: usize> = (&'static str, &'a Param<Tensor<D>>);

/// The weight and bias gradients of an MLP are compared under these names.
fn mlp_parameters(mlp: &Mlp) -> ([Named<'_, 2>; 2], [Named<'_, 1>; 2]) {
    let [first, last] = &mlp.linears[..] else { panic!("the MLP should have two dense layers") };
    let matrices = [("nn.0.weight", &first.weight), ("nn.2.weight", &last.weight)];
    (matrices, [("nn.0.bias", &first.bias), ("nn.2.bias", &last.bias)])
}

#[test]
fn gin_conv_equals_pyg() {
    for case in cases("gin").into_iter().filter(|case| case.name == "gin") {
        let device = device().autodiff();
        let mut layer = GinConv::new(case.mlp(), Epsilon::Learnable(0.0), Aggregate::Sum, &device).unwrap();
        layer.epsilon = Some(case.vector("eps"));
        let (matrices, vectors) = mlp_parameters(&layer.mlp);
        let vectors = [vectors.as_slice(), &[("eps", layer.epsilon.as_ref().unwrap())]].concat();
        case.check(|block, x, ctx| layer.forward(block, x, ctx), &matrices, &vectors);
    }
}

#[test]
fn gine_conv_equals_pyg() {
    for case in cases("gine") {
        let edge_linear = case.weights.contains_key("lin.weight").then(|| case.linear_module("lin"));
        let device = device().autodiff();
        let mut layer = GineConv::new(case.mlp(), edge_linear, Epsilon::Learnable(0.0), &device).unwrap();
        layer.epsilon = Some(case.vector("eps"));
        let (matrices, vectors) = mlp_parameters(&layer.mlp);
        let (mut matrices, mut vectors) = (matrices.to_vec(), vectors.to_vec());
        vectors.push(("eps", layer.epsilon.as_ref().unwrap()));
        if let Some(linear) = &layer.edge_linear {
            matrices.push(("lin.weight", &linear.weight));
            vectors.push(("lin.bias", &linear.bias));
        }
        case.check(|block, x, ctx| layer.forward(block, x, ctx), &matrices, &vectors);
    }
}

/// Rows of types equal features with a 1 in the column of the type, in the output and all gradients.
#[test]
fn gine_conv_of_types_equals_one_hot_features() {
    let case = cases("gine_projected").remove(0);
    let (device, types) = (device().autodiff(), &case.block.edge_types);
    let n_types = usize::from(*types.iter().max().unwrap()) + 1;
    let bias =
        Param::from_tensor(Array { shape: vec![5], values: vec![0.3, -0.2, 0.1, 0.0, 0.5] }.tensor([5]));
    let weight = (0..5 * n_types).map(|i| (i * 7 % 11) as f32 / 11.0 - 0.5).collect();
    let weight = Param::from_tensor(Array { shape: vec![n_types, 5], values: weight }.matrix());
    let linear = Linear { weight, bias };
    let layer = GineConv::new(case.mlp(), Some(linear), Epsilon::Fixed(0.25), &device).unwrap();
    let one_hot = types
        .iter()
        .flat_map(|&ty| (0..n_types).map(move |column| f32::from(u8::from(column == usize::from(ty)))));
    let one_hot = Array { shape: vec![types.len(), n_types], values: one_hot.collect() }.matrix();
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Train };
    let run = |block: DeviceBlock, typed: bool| {
        let x = case.inputs["x"].matrix();
        let out = match typed {
            true => layer.forward_edge_types(&block, x.clone(), &ctx),
            false => layer.forward(&block, x.clone(), &ctx),
        };
        let grads = (out.clone() * case.out_grad.matrix()).sum().backward();
        let Linear { weight, bias } = layer.edge_linear.as_ref().unwrap();
        let of_linear = [weight.val().grad(&grads).unwrap(), bias.val().grad(&grads).unwrap().unsqueeze()];
        let [of_weight, of_bias] = of_linear.map(values);
        [values(out), values(x.grad(&grads).unwrap()), of_weight, of_bias]
    };
    let expected = run(case.block().with_edge_column("features", one_hot), false);
    for (got, expected) in run(case.block(), true).iter().zip(&expected) {
        check_close(got, expected, TOLERANCE);
    }
    assert!(expected.iter().all(|values| values.iter().any(|value| *value != 0.0)));
}

/// A batch may have no edges, for example with a fanout of 0.
#[test]
fn gine_runs_on_a_block_without_edges() {
    let device = device().autodiff();
    let block =
        Block::new(BlockParts { srcs: vec![NodeId(0); 3], indptr: vec![0; 3], ..BlockParts::default() });
    let block = DeviceBlock::upload(&block, &kiln_kernels::testing::device());
    let no_rows = Tensor::from_data(TensorData::new(Vec::<f32>::new(), [0, 4]), &device);
    let config = GineConfig::new(5, 3, EdgeInput::Features(4)).hidden(6).layers(1);
    let model = config.init(RngKey::new(0), &device).unwrap();
    let x = Array { shape: vec![3, 5], values: vec![0.5; 15] }.matrix();
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Train };
    let out = model.forward(&[block.with_edge_column("features", no_rows)], x.clone(), &ctx);
    assert_eq!(out.dims(), [2, 3]);
    let grads = out.sum().backward();
    let of_x = values(x.grad(&grads).unwrap());
    assert!(of_x[..10].iter().any(|value| *value != 0.0) && of_x[10..] == [0.0; 5], "{of_x:?}");
}
