//! Edge weights in GraphSAGE, R-SAGE and R-GCN, against loops over destinations, relations and edges. The matrices of
//! neighbours are identities and those of own rows are 0, so that the layers return the sums of the aggregates of all relations.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::{check_close, check_gradient, device, ramp, values};
use kiln_nn::{
    Aggregate, EdgeWeighting, Error, ModelConfig, RgcnConfig, RgcnConvConfig, RsageConfig, RsageConvConfig,
    SageConfig, SageConvConfig,
};
use kiln_sample::RngKey;

use super::common::typed::{graph, numbers, sampled, uploaded};

const WIDTH: usize = 3;

/// The tolerance for sums of a few numbers of about 1, computed in different orders.
const TOLERANCE: f32 = 1e-5;

const CASES: [(Aggregate, EdgeWeighting); 5] = [
    (Aggregate::Mean, EdgeWeighting::None),
    (Aggregate::Mean, EdgeWeighting::Scale),
    (Aggregate::Mean, EdgeWeighting::Normalize),
    (Aggregate::Sum, EdgeWeighting::Scale),
    (Aggregate::Max, EdgeWeighting::Scale),
];

/// A block with weights of both signs, one destination without edges, one with parallel edges, and one with weights of 0 only.
fn block() -> Block {
    Block::new(BlockParts {
        srcs: (10..17).map(NodeId).collect(),
        indptr: vec![0, 4, 4, 7, 9],
        indices: [4, 5, 6, 1, 2, 6, 6, 3, 5].map(LocalId).to_vec(),
        edge_ids: (0..9).map(EdgeId).collect(),
        weights: Some(vec![0.5, 100.0, -2.0, 0.01, 1.0, 0.25, 0.75, 0.0, -0.0]),
        edge_types: Some(vec![0, 1, 0, 1, 1, 1, 0, 0, 0]),
    })
}

/// Returns the block with other weights.
fn weighted(block: Block, weights: Vec<f32>) -> Block {
    Block::new(BlockParts { weights: Some(weights), ..block.into_parts() })
}

/// Returns for each destination the sum over the relations of the aggregate of the relation's edges; without `types`, all edges
/// are of one relation.
fn expected(
    block: &Block,
    types: Option<&[u8]>,
    x: &[f32],
    (aggregate, weighting): (Aggregate, EdgeWeighting),
) -> Vec<f32> {
    let weights = block.weights().expect("the block should have weights");
    let mut out = Vec::new();
    for dst in 0..block.n_dst() {
        let edges = block.indptr()[dst] as usize..block.indptr()[dst + 1] as usize;
        let mut of_dst = [0.0_f64; WIDTH];
        for relation in 0..=u8::MAX {
            let of_relation: Vec<usize> =
                edges.clone().filter(|&edge| types.map_or(0, |types| types[edge]) == relation).collect();
            if of_relation.is_empty() {
                continue;
            }
            let total: f64 = of_relation.iter().map(|&edge| f64::from(weights[edge].abs())).sum();
            for (column, sum) in of_dst.iter_mut().enumerate() {
                let messages = of_relation.iter().map(|&edge| {
                    let value = f64::from(x[block.indices()[edge].index() * WIDTH + column]);
                    if weighting == EdgeWeighting::None { value } else { value * f64::from(weights[edge]) }
                });
                *sum += match (aggregate, weighting) {
                    (Aggregate::Mean, EdgeWeighting::Normalize) if total == 0.0 => 0.0,
                    (Aggregate::Mean, EdgeWeighting::Normalize) => messages.sum::<f64>() / total,
                    (Aggregate::Mean, _) => messages.sum::<f64>() / of_relation.len() as f64,
                    (Aggregate::Sum, _) => messages.sum(),
                    (Aggregate::Max, _) => messages.fold(f64::NEG_INFINITY, f64::max),
                };
            }
        }
        out.extend(of_dst.map(|value| value as f32));
    }
    out
}

/// Returns matrices one below the other: the identity where `is_identity` is true, and otherwise 0.
fn matrices(are_identities: &[bool], device: &Device) -> Param<Tensor<2>> {
    let mut rows = Vec::new();
    for &is_identity in are_identities {
        for row in 0..WIDTH {
            rows.extend((0..WIDTH).map(|column| f32::from(u8::from(is_identity && row == column))));
        }
    }
    let shape = [are_identities.len() * WIDTH, WIDTH];
    Param::from_tensor(Tensor::from_data(TensorData::new(rows, shape), device))
}

#[test]
fn sage_weights_neighbours() {
    let device = device();
    let block = block();
    let on_device = DeviceBlock::upload(&block, &device);
    let x: Tensor<2> = ramp([block.n_src(), WIDTH], &device);
    for (aggregate, edge_weighting) in CASES {
        let config = SageConvConfig { d_in: WIDTH, d_out: WIDTH, aggregate, edge_weighting };
        let mut layer = config.init(RngKey::new(0), &device).unwrap();
        layer.weight_self = matrices(&[false], &device);
        layer.weight_neigh = matrices(&[true], &device);
        let got = values(layer.forward(&on_device, x.clone()));
        let expected = expected(&block, None, &values(x.clone()), (aggregate, edge_weighting));
        check_close(&got, &expected, TOLERANCE);
        // Equal maxima, here of weights of 0, have no derivative.
        if aggregate != Aggregate::Max {
            check_gradient(x.clone(), |x| layer.forward(&on_device, x));
        }
    }
}

/// With a narrow result and few sources, the layer multiplies the rows before it aggregates them.
#[test]
fn sage_weights_projected_neighbours() {
    let device = device();
    let block = block();
    let on_device = DeviceBlock::upload(&block, &device);
    let x: Tensor<2> = ramp([block.n_src(), 64], &device);
    let first = Tensor::<2>::eye(64, &device).slice([0..64, 0..WIDTH]);
    for (aggregate, edge_weighting) in CASES {
        let config = SageConvConfig { d_in: 64, d_out: WIDTH, aggregate, edge_weighting };
        let mut layer = config.init(RngKey::new(0), &device).unwrap();
        layer.weight_self = Param::from_tensor(first.clone().zeros_like());
        layer.weight_neigh = Param::from_tensor(first.clone());
        let got = values(layer.forward(&on_device, x.clone()));
        let columns = values(x.clone().slice([0..block.n_src(), 0..WIDTH]));
        check_close(&got, &expected(&block, None, &columns, (aggregate, edge_weighting)), TOLERANCE);
    }
}

#[test]
fn rgcn_weights_the_neighbours_of_each_relation() {
    let device = device();
    let block = block();
    let types = block.edge_types().unwrap();
    let on_device = DeviceBlock::upload(&block, &device);
    let x: Tensor<2> = ramp([block.n_src(), WIDTH], &device);
    for case in CASES.into_iter().filter(|(aggregate, _)| *aggregate == Aggregate::Mean) {
        let (_, edge_weighting) = case;
        let config = RgcnConvConfig {
            d_in: WIDTH,
            d_out: WIDTH,
            n_relations: 2,
            n_bases: 1,
            edge_weighting,
            edge_features: Vec::new(),
        };
        let mut layer = config.init(RngKey::new(0), &device).unwrap();
        layer.weight_self = matrices(&[false], &device);
        layer.bases = matrices(&[true], &device);
        layer.coefficients = Param::from_tensor(Tensor::ones([2, 1], &device));
        let got = values(layer.forward(&on_device, x.clone()));
        check_close(&got, &expected(&block, Some(types), &values(x.clone()), case), TOLERANCE);
        check_gradient(x.clone(), |x| layer.forward(&on_device, x));
    }
}

#[test]
fn rsage_weights_the_neighbours_of_each_relation() {
    let device = device();
    let graph = graph();
    let block = sampled(&graph, &[3, 25, 17, 40, 51, 1], 1).remove(0);
    let weights = numbers(9, block.n_edges(), 200).into_iter().map(|number| number as f32 / 50.0 - 1.0);
    let block = weighted(block, weights.collect());
    let types = block.edge_types().unwrap();
    let on_device = uploaded(&graph, &block, &device);
    let x: Tensor<2> = ramp([block.n_src(), WIDTH], &device);
    let metagraph = graph.metagraph();
    let mut are_identities = Vec::new();
    for node_type in 0..metagraph.n_types() {
        are_identities.push(false);
        are_identities.extend(metagraph.relations_into(node_type).map(|_| true));
    }
    for (aggregate, edge_weighting) in CASES {
        let config = RsageConvConfig {
            d_in: WIDTH,
            d_out: WIDTH,
            metagraph: metagraph.clone(),
            aggregate,
            edge_weighting,
            edge_features: Vec::new(),
        };
        let mut layer = config.init(RngKey::new(0), &device).unwrap();
        layer.weight = matrices(&are_identities, &device);
        let got = values(layer.forward(&on_device, x.clone()));
        let expected = expected(&block, Some(types), &values(x.clone()), (aggregate, edge_weighting));
        check_close(&got, &expected, TOLERANCE);
    }
}

#[test]
fn a_normalised_weighting_needs_a_mean() {
    let device = device();
    for aggregate in [Aggregate::Sum, Aggregate::Max] {
        let plain = SageConfig::new(2, 2).aggregate(aggregate).edge_weighting(EdgeWeighting::Normalize);
        let typed = RsageConfig::new(2, 2).aggregate(aggregate).edge_weighting(EdgeWeighting::Normalize);
        let errors = [
            plain.init(RngKey::new(0), &device).unwrap_err(),
            typed.init(RngKey::new(0), &device).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::NormalizedWithoutMean { aggregate: got } if got == aggregate));
        }
    }
}

/// Runs are identified by the text of a configuration, and their models by its JSON: those of older versions stay valid.
#[test]
fn configurations_without_weights_have_their_earlier_text() {
    let texts = [
        format!("{:?}", SageConfig::new(2, 2)),
        format!("{:?}", RsageConfig::new(2, 2)),
        format!("{:?}", RgcnConfig::new(2, 2, 3)),
    ];
    assert!(texts.iter().all(|text| !text.contains("edge_weighting")), "{texts:?}");
    let weighted = RgcnConfig::new(2, 2, 3).edge_weighting(EdgeWeighting::Scale);
    assert!(format!("{weighted:?}").ends_with("jumping: Direct, edge_weighting: Scale }"));
    assert!(weighted.requirements().edge_weights);
    assert!(!RgcnConfig::new(2, 2, 3).requirements().edge_weights);
}
