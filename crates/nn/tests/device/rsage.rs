//! Tests of the GraphSAGE layer and model of heterogeneous graphs: against loops over relations, and against the model of
//! homogeneous graphs.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_graph::{Block, Csc, CscBuilder, Metagraph, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::{check_close, check_gradient, device, ramp, values};
use kiln_nn::{
    Aggregate, BlockModel, EdgeWeighting, Error, GraphMetadata, GraphRequirements, JumpingKnowledge, Mode,
    ModelConfig, Normalization, RsageConfig, RsageConv, RsageConvConfig, SageConfig, SageConv,
    SageConvConfig, WeightInit,
};
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds};

use super::common::ctx;
use super::common::typed::{graph, numbers, sampled, uploaded};

const AGGREGATES: [Aggregate; 3] = [Aggregate::Mean, Aggregate::Max, Aggregate::Sum];

/// The tolerance for products and sums of a few dozen numbers of about 1, computed in different orders.
const TOLERANCE: f32 = 2e-5;

fn conv(aggregate: Aggregate, [d_in, d_out]: [usize; 2], device: &Device) -> RsageConv {
    let config = RsageConvConfig {
        d_in,
        d_out,
        metagraph: graph().metagraph(),
        aggregate,
        edge_weighting: EdgeWeighting::None,
        edge_features: Vec::new(),
    };
    let mut conv = config.init(RngKey::new(1), device).expect("the configuration should be valid");
    conv.bias = Param::from_tensor(ramp([4, d_out], device));
    conv
}

/// Runs the layer by loops over destinations, relations and edges, with a matrix per type and per relation.
fn naive(
    conv: &RsageConv,
    aggregate: Aggregate,
    block: &Block,
    x: &[f32],
    [d_in, d_out]: [usize; 2],
) -> Vec<f32> {
    let (graph, weight, bias) = (graph(), values(conv.weight.val()), values(conv.bias.val()));
    // The position of the first matrix of each type.
    let n_into = |node_type: usize| graph.iter().filter(|r| r.dst_type == node_type).count();
    let first = |node_type: usize| (0..node_type).map(|before| 1 + n_into(before)).sum::<usize>();
    let row = |src: usize| &x[src * d_in..][..d_in];
    let mut out = Vec::new();
    for (dst, &node) in block.dsts().iter().enumerate() {
        let node_type = graph.types().type_of(node).expect("the node should have a type");
        let mut of_dst: Vec<f64> = bias[node_type * d_out..][..d_out].iter().map(|b| f64::from(*b)).collect();
        let mut add = |row: &[f64], matrix: usize| {
            for (k, value) in row.iter().enumerate() {
                let weights = &weight[(matrix * d_in + k) * d_out..][..d_out];
                of_dst.iter_mut().zip(weights).for_each(|(out, w)| *out += value * f64::from(*w));
            }
        };
        add(&row(dst).iter().map(|value| f64::from(*value)).collect::<Vec<_>>(), first(node_type));
        let into = graph.iter().enumerate().filter(|(_, r)| r.dst_type == node_type);
        for (i, (relation, _)) in into.enumerate() {
            let edges = block.indptr()[dst] as usize..block.indptr()[dst + 1] as usize;
            let edge_types = block.edge_types().expect("the block should have edge types");
            let srcs: Vec<usize> = edges
                .filter(|&edge| usize::from(edge_types[edge]) == relation)
                .map(|edge| block.indices()[edge].index())
                .collect();
            let column = |k: usize| srcs.iter().map(move |&src| f64::from(row(src)[k]));
            let reduced = (0..d_in).map(|k| match aggregate {
                _ if srcs.is_empty() => 0.0,
                Aggregate::Mean => column(k).sum::<f64>() / srcs.len() as f64,
                Aggregate::Sum => column(k).sum(),
                Aggregate::Max => column(k).fold(f64::MIN, f64::max),
            });
            add(&reduced.collect::<Vec<_>>(), first(node_type) + 1 + i);
        }
        out.extend(of_dst.iter().map(|value| *value as f32));
    }
    out
}

#[test]
fn a_layer_computes_its_formula_on_sampled_blocks() {
    let (device, graph) = (device(), graph());
    // Node 53 has type d, into which there is no relation; the last seeds have one type only.
    for seeds in [&[3, 25, 53, 4, 40, 19][..], &[53], &[1, 2, 3], &[]] {
        let block = &sampled(&graph, seeds, 1)[0];
        let uploaded = uploaded(&graph, block, &device);
        for aggregate in AGGREGATES {
            for dims in [[4, 6], [6, 2]] {
                let (conv, x) = (conv(aggregate, dims, &device), ramp([block.n_src(), dims[0]], &device));
                let expected = naive(&conv, aggregate, block, &values(x.clone()), dims);
                let got = conv.forward(&uploaded, x);
                assert_eq!(got.dims(), [seeds.len(), dims[1]]);
                check_close(&values(got), &expected, TOLERANCE);
            }
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    let (device, graph) = (device().autodiff(), graph());
    let block = &sampled(&graph, &[3, 25, 53, 4], 1)[0];
    let uploaded = uploaded(&graph, block, &device);
    let x: Tensor<2> = ramp([block.n_src(), 2], &device);
    for aggregate in [Aggregate::Mean, Aggregate::Sum] {
        let conv = conv(aggregate, [2, 3], &device);
        check_gradient(x.clone(), |x| conv.forward(&uploaded, x));
        check_gradient(conv.weight.val().detach(), |weight| {
            let mut changed = conv.clone();
            changed.weight = Param::from_tensor(weight);
            changed.forward(&uploaded, x.clone())
        });
    }
}

/// A homogeneous graph of 40 nodes, and its blocks of two layers for six seeds.
fn homogeneous() -> (Arc<Csc>, Vec<Block>) {
    let (srcs, dsts) = (numbers(7, 200, 40), numbers(8, 200, 40));
    let graph = Arc::new(CscBuilder::new(40).build(&srcs, &dsts).expect("the edges should be valid"));
    let config = SamplerConfig::new(vec![Fanout::UpTo(3), Fanout::UpTo(2)]);
    let sampler = NeighborSampler::with_config(Arc::clone(&graph), config).expect("it should fit");
    let seeds = Seeds::nodes([1, 9, 30, 2, 17, 5].map(NodeId).to_vec());
    let sample = sampler.sample_blocks(&seeds, RngKey::new(5), &mut Scratch::default());
    (graph, sample.expect("the seeds should be in range").blocks)
}

/// Returns the values of two matrices one below the other.
fn stacked(own: Tensor<2>, neigh: Tensor<2>) -> Vec<f32> {
    [values(own), values(neigh)].concat()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_homogeneous_layer_is_bit_identical_to_sage() {
    let device = device().autodiff();
    let (_, blocks) = homogeneous();
    // A layer to wide rows aggregates first. The second block has few sources for its edges, so a layer to narrow rows
    // multiplies first.
    for (block, [d_in, d_out]) in [(&blocks[0], [5, 9]), (&blocks[1], [64, 2])] {
        let block = DeviceBlock::upload(block, &device);
        for (aggregate, init) in
            AGGREGATES.into_iter().zip([WeightInit::Dgl, WeightInit::Pyg, WeightInit::Dgl])
        {
            let metagraph = Metagraph::homogeneous();
            let edge_weighting = EdgeWeighting::None;
            let edge_features = Vec::new();
            let typed = RsageConvConfig { d_in, d_out, metagraph, aggregate, edge_weighting, edge_features };
            let typed = typed.init_with(init, RngKey::new(2), &device).expect("the widths should be valid");
            let plain = SageConvConfig { d_in, d_out, aggregate, edge_weighting: EdgeWeighting::None };
            let plain: SageConv =
                plain.init_with(init, RngKey::new(2), &device).expect("the widths should be valid");
            let of_plain = stacked(plain.weight_self.val(), plain.weight_neigh.val());
            assert_eq!(bits(&values(typed.weight.val())), bits(&of_plain));
            assert_eq!(bits(&values(typed.bias.val())), bits(&values(plain.bias.val())));
            let run = |layer: &dyn Fn(Tensor<2>) -> Tensor<2>| {
                let x: Tensor<2> = ramp([block.n_src(), d_in], &device).require_grad();
                let result = layer(x.clone());
                let factors = ramp(result.dims(), &device);
                let grads = (result.clone() * factors).sum().backward();
                (values(result), values(x.grad(&grads).expect("x should have a gradient")), grads)
            };
            let (of_typed, x_typed, typed_grads) = run(&|x| typed.forward(&block, x));
            let (of_plain, x_plain, plain_grads) = run(&|x| plain.forward(&block, x));
            assert_eq!(bits(&of_typed), bits(&of_plain));
            assert_eq!(bits(&x_typed), bits(&x_plain));
            let weight = typed.weight.val().grad(&typed_grads).expect("the weight should have a gradient");
            let [own, neigh] = [&plain.weight_self, &plain.weight_neigh]
                .map(|weight| weight.val().grad(&plain_grads).expect("the weight should have a gradient"));
            assert_eq!(values(weight), stacked(own, neigh));
            let bias = typed.bias.val().grad(&typed_grads).expect("the bias should have a gradient");
            let of_plain = plain.bias.val().grad(&plain_grads).expect("the bias should have a gradient");
            assert_eq!(bits(&values(bias)), bits(&values(of_plain)));
        }
    }
}

#[test]
fn a_homogeneous_model_is_bit_identical_to_sage() {
    let device = device();
    let (_, blocks) = homogeneous();
    let blocks: Vec<_> = blocks.iter().map(|block| DeviceBlock::upload(block, &device)).collect();
    let typed = RsageConfig::new(5, 3).hidden(8).layers(2).residual(false).norm(Normalization::Layer);
    let plain = SageConfig::new(5, 3).hidden(8).layers(2).norm(Normalization::Layer);
    let metagraph = Some(Metagraph::homogeneous());
    assert_eq!(typed.requirements(), GraphRequirements { metagraph, ..GraphRequirements::default() });
    assert_eq!(ModelConfig::min_parameters(&typed), ModelConfig::min_parameters(&plain));
    let typed = typed.jumping(JumpingKnowledge::Cat).init(RngKey::new(6), &device);
    let plain = plain.jumping(JumpingKnowledge::Cat).init(RngKey::new(6), &device);
    let x: Tensor<2> = ramp([blocks[0].n_src(), 5], &device);
    for mode in [Mode::Train, Mode::Eval] {
        let of_typed = typed.as_ref().map(|model| values(model.forward(&blocks, x.clone(), &ctx(mode))));
        let of_plain = plain.as_ref().map(|model| values(model.forward(&blocks, x.clone(), &ctx(mode))));
        let (of_typed, of_plain) = (of_typed.expect("it should run"), of_plain.expect("it should run"));
        assert_eq!(bits(&of_typed), bits(&of_plain));
    }
}

#[test]
fn every_parameter_has_a_gradient_on_every_batch() {
    let (device, graph) = (device().autodiff(), graph());
    let config = RsageConfig::new(3, 2).metagraph(&graph.metagraph()).hidden(4).layers(2).dropout(0.0);
    let model = config.init(RngKey::new(2), &device).expect("the configuration should be valid");
    // The seeds have type d, whose neighbourhoods are empty.
    for seeds in [&[53, 51][..], &[1, 30, 53]] {
        let blocks = sampled(&graph, seeds, 2);
        let uploaded: Vec<_> = blocks.iter().map(|block| uploaded(&graph, block, &device)).collect();
        let output = model.forward(&uploaded, ramp([blocks[0].n_src(), 3], &device), &ctx(Mode::Train));
        let grads = output.sum().backward();
        for layer in &model.layers {
            let weight = values(layer.weight.val().grad(&grads).expect("the weight should have a gradient"));
            assert!(layer.bias.val().grad(&grads).is_some());
            // The relation from the type without nodes has the last matrix of type b: after those of the types a (4), none
            // (1) and b (3).
            let [_, d_out] = layer.weight.dims();
            let d_in = layer.weight.dims()[0] / 10;
            assert_eq!(&weight[8 * d_in * d_out..9 * d_in * d_out], vec![0.0; d_in * d_out]);
        }
    }
}

#[test]
fn the_configuration_has_the_metagraph() {
    let metagraph = graph().metagraph();
    let of_graph = GraphMetadata { metagraph: Some(metagraph.clone()), ..GraphMetadata::default() };
    let config = RsageConfig::for_dims(7, 3).for_graph(&of_graph);
    assert_eq!(config, RsageConfig::new(7, 3).metagraph(&metagraph));
    let expected = GraphRequirements {
        n_relations: Some(6),
        metagraph: Some(metagraph),
        ..GraphRequirements::default()
    };
    assert_eq!(config.requirements(), expected);
    let text = serde_json::to_string(&config).expect("the configuration should be serialisable");
    assert_eq!(serde_json::from_str::<RsageConfig>(&text).expect("it should be read"), config);
    let device = device();
    let model = config.clone().hidden(4).init(RngKey::new(0), &device).expect("it should be valid");
    let matrices = 10 * (7 * 4 + 4 * 4 + 4 * 3);
    assert_eq!(config.clone().hidden(4).min_parameters(), matrices);
    assert_eq!(model.num_params() as u64, matrices + 4 * (4 + 4 + 3));
    let error = |config: RsageConfig| config.init(RngKey::new(0), &device).expect_err("it should be invalid");
    assert!(matches!(error(RsageConfig { n_types: 2, ..config.clone() }), Error::Metagraph(_)));
    assert!(matches!(error(RsageConfig { n_types: usize::MAX, ..config }), Error::OutOfRange { .. }));
}

#[test]
#[should_panic(expected = "the block has no relation groups")]
fn rejects_a_block_without_groups() {
    let (device, graph) = (device(), graph());
    let block = &sampled(&graph, &[3], 1)[0];
    let x = ramp([block.n_src(), 4], &device);
    conv(Aggregate::Mean, [4, 2], &device).forward(&DeviceBlock::upload(block, &device), x);
}

#[test]
#[should_panic(expected = "the numbers of relations into each type differ between groups and layer")]
fn rejects_the_groups_of_another_metagraph() {
    let (device, graph) = (device(), graph());
    let block = &sampled(&graph, &[3], 1)[0];
    let metagraph = Metagraph::new(2, vec![[0, 1]]).expect("the relation should be valid");
    let config = RsageConvConfig {
        d_in: 4,
        d_out: 2,
        metagraph,
        aggregate: Aggregate::Mean,
        edge_weighting: EdgeWeighting::None,
        edge_features: Vec::new(),
    };
    let conv = config.init(RngKey::new(0), &device).expect("the widths should be valid");
    conv.forward(&uploaded(&graph, block, &device), ramp([block.n_src(), 4], &device));
}
