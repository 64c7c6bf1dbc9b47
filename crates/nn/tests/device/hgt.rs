//! Tests of the heterogeneous graph transformer against loops over nodes, heads and edges.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_graph::{Block, Metagraph, RelationGroups, Relations};
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::{check_close, check_gradient, device, ramp, values};
use kiln_nn::{
    BlockModel, Error, GraphMetadata, GraphRequirements, HgtConfig, HgtConv, HgtConvConfig, JumpingKnowledge,
    Mode, ModelConfig, TypedLinear,
};
use kiln_sample::RngKey;

use super::common::ctx;
use super::common::typed::{graph, sampled, uploaded};

/// The tolerance for chains of products and sums of a few dozen numbers of about 1, computed in different orders.
const TOLERANCE: f32 = 5e-5;

/// The tolerance of the error function's approximation by Abramowitz and Stegun, formula 7.1.26.
const ERF_TOLERANCE: f64 = 1.5e-7;

fn conv([d_in, d_attention, d_out]: [usize; 3], n_heads: usize, device: &Device) -> HgtConv {
    let (metagraph, project_skip) = (graph().metagraph(), false);
    layer(HgtConvConfig { d_in, d_attention, d_out, n_heads, metagraph, project_skip }, device)
}

/// Creates a layer whose priors and gates differ, so that a wrong one is noticed.
fn layer(config: HgtConvConfig, device: &Device) -> HgtConv {
    let n_heads = config.n_heads;
    let mut conv = config.init(RngKey::new(1), device).expect("the configuration should be valid");
    conv.prior = Param::from_tensor(ramp([6, n_heads], device) + 1.0);
    conv.skip = conv.skip.map(|_| Param::from_tensor(ramp([4, 1], device)));
    conv
}

fn erf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = series.iter().fold(0.0, |sum, term| sum * t + term) * t;
    (1.0 - sum * (-x * x).exp()).copysign(x)
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / 2.0_f64.sqrt()))
}

/// Returns the row times the matrix of a node type, plus the bias.
fn linear(layer: &TypedLinear, node_type: usize, row: &[f64]) -> Vec<f64> {
    let (weight, bias) = (values(layer.weight.val()), values(layer.bias.val()));
    let d_out = layer.bias.dims()[1];
    let term =
        |k: usize, column: usize| row[k] * f64::from(weight[(node_type * row.len() + k) * d_out + column]);
    let of = |column| (0..row.len()).map(|k| term(k, column)).sum::<f64>();
    (0..d_out).map(|column| f64::from(bias[node_type * d_out + column]) + of(column)).collect()
}

/// Runs the layer edge by edge, with the matrices of relations at the sources, as in the paper.
fn naive(conv: &HgtConv, graph: &Relations, block: &Block, x: &[f32], d_in: usize) -> Vec<f32> {
    let [_, n_heads] = conv.prior.dims();
    let [n_rows, d] = conv.attention.dims();
    assert_eq!(n_rows, 6 * n_heads * d);
    let (attention, message) = (values(conv.attention.val()), values(conv.message.val()));
    let prior = values(conv.prior.val());
    let row = |src: usize| -> Vec<f64> { x[src * d_in..][..d_in].iter().map(|v| f64::from(*v)).collect() };
    let type_of = |src: usize| graph.types().type_of(block.srcs()[src]).expect("a node should have a type");
    // The columns of a head times its matrix for a relation.
    let times = |row: &[f64], matrices: &[f32], relation: usize, head: usize| -> Vec<f64> {
        let first = (relation * n_heads + head) * d;
        let term =
            |k: usize, column: usize| row[head * d + k] * f64::from(matrices[(first + k) * d + column]);
        (0..d).map(|column| (0..d).map(|k| term(k, column)).sum()).collect()
    };
    let mut out = Vec::new();
    for dst in 0..block.n_dst() {
        let (own, dst_type) = (row(dst), type_of(dst));
        let query = linear(&conv.query, dst_type, &own);
        let mut messages = vec![0.0; n_heads * d];
        let edges = block.indptr()[dst] as usize..block.indptr()[dst + 1] as usize;
        for head in 0..n_heads {
            let (mut powers, mut rows) = (Vec::new(), Vec::new());
            for edge in edges.clone() {
                let (src, relation) =
                    (block.indices()[edge].index(), block.edge_types().expect("types")[edge]);
                let (relation, src_row) = (usize::from(relation), row(src));
                let key = linear(&conv.key, type_of(src), &src_row);
                let value = linear(&conv.value, type_of(src), &src_row);
                let key = times(&key, &attention, relation, head);
                let dot: f64 = key.iter().zip(&query[head * d..]).map(|(k, q)| k * q).sum();
                powers.push((dot * f64::from(prior[relation * n_heads + head]) / (d as f64).sqrt()).exp());
                rows.push(times(&value, &message, relation, head));
            }
            let sum: f64 = powers.iter().sum();
            for (power, row) in powers.iter().zip(&rows) {
                row.iter().enumerate().for_each(|(k, value)| messages[head * d + k] += power / sum * value);
            }
        }
        let messages: Vec<f64> = messages.into_iter().map(gelu).collect();
        let rows = linear(&conv.output, dst_type, &messages);
        match &conv.skip {
            None => out.extend(rows.iter().map(|value| *value as f32)),
            Some(skip) => {
                let gate = 1.0 / (1.0 + (-f64::from(values(skip.val())[dst_type])).exp());
                let own = conv.projection.as_ref().map_or(own.clone(), |layer| linear(layer, dst_type, &own));
                out.extend(rows.iter().zip(&own).map(|(a, x)| (gate * a + (1.0 - gate) * x) as f32));
            }
        }
    }
    out
}

#[test]
fn a_layer_computes_its_formula_on_sampled_blocks() {
    assert!(f64::from(TOLERANCE) > 10.0 * ERF_TOLERANCE);
    let (device, graph) = (device(), graph());
    // Node 53 has type d, into which there is no relation; the last seeds have one type only.
    for seeds in [&[3, 25, 53, 4, 40, 19][..], &[53], &[1, 2, 3], &[]] {
        let block = &sampled(&graph, seeds, 1)[0];
        let uploaded = uploaded(&graph, block, &device);
        for (widths, n_heads) in [([6, 6, 6], 2), ([5, 8, 3], 4), ([3, 4, 3], 1)] {
            let (conv, x) = (conv(widths, n_heads, &device), ramp([block.n_src(), widths[0]], &device));
            assert_eq!(conv.skip.is_some(), widths[0] == widths[2]);
            let expected = naive(&conv, &graph, block, &values(x.clone()), widths[0]);
            let got = conv.forward(&uploaded, x);
            assert_eq!(got.dims(), [seeds.len(), widths[2]]);
            check_close(&values(got), &expected, TOLERANCE);
        }
    }
}

#[test]
fn skip_connections_of_unequal_widths_are_projected() {
    let (device, graph) = (device(), graph());
    for seeds in [&[3, 25, 53, 4, 40, 19][..], &[53], &[]] {
        let block = &sampled(&graph, seeds, 1)[0];
        let uploaded = uploaded(&graph, block, &device);
        for ([d_in, d_attention, d_out], n_heads) in [([5, 8, 3], 4), ([3, 4, 6], 2), ([3, 4, 3], 1)] {
            let metagraph = graph.metagraph();
            let config = HgtConvConfig { d_in, d_attention, d_out, n_heads, metagraph, project_skip: true };
            let (conv, x) = (layer(config, &device), ramp([block.n_src(), d_in], &device));
            assert!(conv.skip.is_some());
            assert_eq!(conv.projection.is_some(), d_in != d_out);
            let expected = naive(&conv, &graph, block, &values(x.clone()), d_in);
            check_close(&values(conv.forward(&uploaded, x)), &expected, TOLERANCE);
        }
    }
}

/// Rows of nodes without edges are functions of their own features, whatever the input and hidden widths.
#[test]
fn models_of_unequal_widths_read_own_rows_of_nodes_without_edges() {
    let (device, graph) = (device(), graph());
    // Nodes of type d have no edges.
    let blocks = sampled(&graph, &[53, 51], 2);
    let uploaded: Vec<_> = blocks.iter().map(|block| uploaded(&graph, block, &device)).collect();
    let rows = |project_skip: bool| {
        let config = HgtConfig::new(5, 3).metagraph(&graph.metagraph()).hidden(4).heads(2);
        let config = HgtConfig { project_skip, ..config };
        let model = config.init(RngKey::new(2), &device).expect("the configuration should be valid");
        let x = ramp([blocks[0].n_src(), 5], &device);
        values(model.forward(&uploaded, x, &ctx(Mode::Eval)))
    };
    let [with, without] = [rows(true), rows(false)];
    assert_ne!(with[..3], with[3..]);
    assert_eq!(without[..3], without[3..]);
}

#[test]
fn configurations_of_earlier_versions_have_no_projection() {
    let config = HgtConfig::new(5, 3);
    let text = serde_json::to_string(&config).expect("the configuration should be serialisable");
    let earlier = text.replace(",\"project_skip\":true", "");
    assert_ne!(earlier, text);
    let read: HgtConfig = serde_json::from_str(&earlier).expect("it should be read");
    assert_eq!(read, HgtConfig { project_skip: false, ..config });
}

#[test]
fn gradients_match_finite_differences() {
    let (device, graph) = (device().autodiff(), graph());
    let block = &sampled(&graph, &[3, 25, 53], 1)[0];
    let uploaded = uploaded(&graph, block, &device);
    let (conv, x) = (conv([3, 4, 3], 2, &device), ramp([block.n_src(), 3], &device));
    check_gradient(x.clone(), |x| conv.forward(&uploaded, x));
    let run = |change: &dyn Fn(&mut HgtConv)| {
        let mut changed = conv.clone();
        change(&mut changed);
        changed.forward(&uploaded, x.clone())
    };
    let value = |param: &Param<Tensor<2>>| param.val().detach();
    check_gradient(value(&conv.attention), |t| run(&|c| c.attention = Param::from_tensor(t.clone())));
    check_gradient(value(&conv.message), |t| run(&|c| c.message = Param::from_tensor(t.clone())));
    check_gradient(value(&conv.prior), |t| run(&|c| c.prior = Param::from_tensor(t.clone())));
    check_gradient(value(&conv.key.weight), |t| run(&|c| c.key.weight = Param::from_tensor(t.clone())));
    check_gradient(value(&conv.query.bias), |t| run(&|c| c.query.bias = Param::from_tensor(t.clone())));
    check_gradient(value(&conv.value.weight), |t| run(&|c| c.value.weight = Param::from_tensor(t.clone())));
    check_gradient(value(&conv.output.weight), |t| run(&|c| c.output.weight = Param::from_tensor(t.clone())));
    let skip = conv.skip.as_ref().expect("the widths are equal");
    check_gradient(value(skip), |t| run(&|c| c.skip = Some(Param::from_tensor(t.clone()))));
    let (metagraph, project_skip) = (graph.metagraph(), true);
    let config = HgtConvConfig { d_in: 3, d_attention: 4, d_out: 2, n_heads: 2, metagraph, project_skip };
    let conv = layer(config, &device);
    check_gradient(x.clone(), |x| conv.forward(&uploaded, x));
    let projection = conv.projection.as_ref().expect("the widths differ");
    check_gradient(projection.weight.val().detach(), |t| {
        let mut changed = conv.clone();
        let layer = changed.projection.as_mut().expect("the widths differ");
        layer.weight = Param::from_tensor(t.clone());
        changed.forward(&uploaded, x.clone())
    });
}

#[test]
fn every_parameter_has_a_gradient_on_every_batch() {
    let (device, graph) = (device().autodiff(), graph());
    let config = HgtConfig::new(4, 2).metagraph(&graph.metagraph()).hidden(4).heads(2);
    let model = config.init(RngKey::new(2), &device).expect("the configuration should be valid");
    // The seeds have type d, whose neighbourhoods are empty.
    for seeds in [&[53, 51][..], &[1, 30, 53]] {
        let blocks = sampled(&graph, seeds, 2);
        let uploaded: Vec<_> = blocks.iter().map(|block| uploaded(&graph, block, &device)).collect();
        let output = model.forward(&uploaded, ramp([blocks[0].n_src(), 4], &device), &ctx(Mode::Train));
        assert_eq!(output.dims(), [seeds.len(), 2]);
        let grads = output.sum().backward();
        for layer in &model.layers {
            let linear = [&layer.key, &layer.query, &layer.value, &layer.output];
            let mut params: Vec<_> = linear.iter().flat_map(|layer| [&layer.weight, &layer.bias]).collect();
            params.extend([&layer.attention, &layer.message, &layer.prior]);
            params.push(layer.skip.as_ref().expect("the widths are equal"));
            for param in params {
                let gradient = param.val().grad(&grads).expect("each parameter should have a gradient");
                assert!(values(gradient).iter().all(|value| value.is_finite()));
            }
        }
    }
}

#[test]
fn the_configuration_has_the_metagraph_and_the_heads() {
    let metagraph = graph().metagraph();
    let of_graph = GraphMetadata { metagraph: Some(metagraph.clone()), ..GraphMetadata::default() };
    let config = HgtConfig::for_dims(7, 3).for_graph(&of_graph).hidden(8).heads(4);
    let expected = GraphRequirements {
        n_relations: Some(6),
        metagraph: Some(metagraph),
        ..GraphRequirements::default()
    };
    assert_eq!(config.requirements(), expected);
    let text = serde_json::to_string(&config).expect("the configuration should be serialisable");
    assert_eq!(serde_json::from_str::<HgtConfig>(&text).expect("it should be read"), config);
    let device = device();
    for jumping in [JumpingKnowledge::Last, JumpingKnowledge::Direct] {
        let config = config.clone().jumping(jumping);
        let model = config.init(RngKey::new(0), &device).expect("it should be valid");
        assert!(config.min_parameters() <= model.num_params() as u64);
    }
    let error = |config: HgtConfig| config.init(RngKey::new(0), &device).expect_err("it should be invalid");
    assert!(matches!(error(config.clone().heads(3)), Error::HeadWidth { hidden: 8, n_heads: 3 }));
    let none = HgtConfig { relations: Vec::new(), ..config.clone() };
    assert!(matches!(error(none), Error::OutOfRange { name: "n_relations", .. }));
    assert!(matches!(error(config.clone().heads(0)), Error::OutOfRange { name: "n_heads", .. }));
    assert!(matches!(error(HgtConfig { n_types: 1, ..config }), Error::Metagraph(_)));
}

#[test]
#[should_panic(expected = "the relation groups lack those of nodes")]
fn rejects_groups_without_those_of_nodes() {
    let (device, graph) = (device(), graph());
    let block = &sampled(&graph, &[3], 1)[0];
    let metagraph: Metagraph = graph.metagraph();
    let groups = RelationGroups::new(block, graph.types(), &metagraph).expect("the block should fit");
    let uploaded = DeviceBlock::upload(block, &device).with_relation_groups(groups, &device);
    conv([3, 4, 3], 2, &device).forward(&uploaded, ramp([block.n_src(), 3], &device));
}
