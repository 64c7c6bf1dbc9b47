//! Edge features in layers with a matrix per relation, against loops over destinations, relations and edges, and the options of
//! the models that read edge features. The values of GATv2 and of the graph transformer are compared with PyG's in
//! `layer_values`.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::module::{Module, Param};
use burn::tensor::{DType, Tensor, TensorData};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, Metagraph, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::{check_close, check_gradient, device, ramp, values};
use kiln_nn::{
    Aggregate, AttentionKind, BlockModel, EdgeInput, EdgeWeighting, Error, GatConfig, GcnConfig, GineConfig,
    GraphMetadata, HeteroModelConfig, HgtConfig, LayerSize, ModelConfig, RgcnConfig, RgcnConvConfig,
    RsageConfig, RsageConvConfig, SageConfig, TransformerConfig,
};
use kiln_sample::RngKey;

use super::common::typed::{graph, numbers, sampled, uploaded};

const D_IN: usize = 4;
const D_OUT: usize = 3;

/// The tolerance for sums of a few numbers of about 1, computed in different orders.
const TOLERANCE: f32 = 1e-5;

/// The widths of the edge features of the six relations of the test graph.
const WIDTHS: [Option<usize>; 6] = [Some(2), None, Some(3), Some(1), None, None];

const CASES: [(Aggregate, EdgeWeighting); 5] = [
    (Aggregate::Mean, EdgeWeighting::None),
    (Aggregate::Mean, EdgeWeighting::Scale),
    (Aggregate::Mean, EdgeWeighting::Normalize),
    (Aggregate::Sum, EdgeWeighting::None),
    (Aggregate::Sum, EdgeWeighting::Scale),
];

/// A sampled block of the graph of several types, with weights of both signs.
fn block() -> Block {
    let block = sampled(&graph(), &[3, 25, 17, 40, 51, 1], 1).remove(0);
    let weights = numbers(9, block.n_edges(), 200).into_iter().map(|number| number as f32 / 50.0 - 1.0);
    Block::new(BlockParts { weights: Some(weights.collect()), ..block.into_parts() })
}

/// Returns a row per edge of the largest width. The columns beyond the width of the edge's relation have a value that no layer
/// may read.
fn features(block: &Block, widths: &[Option<usize>]) -> Vec<f32> {
    let largest = widths.iter().flatten().copied().max().unwrap();
    let types = block.edge_types().unwrap();
    let mut rows = Vec::new();
    for (edge, &relation) in types.iter().enumerate() {
        let width = widths[usize::from(relation)].unwrap_or(0);
        rows.extend((0..largest).map(|column| match column < width {
            true => (edge * 7 + column * 3) as f32 % 11.0 / 5.0 - 1.0,
            false => 1e6,
        }));
    }
    rows
}

fn tensor(rows: &[f32], n_rows: usize) -> Tensor<2> {
    Tensor::from_data(TensorData::new(rows.to_vec(), [n_rows, rows.len() / n_rows]), &device())
}

/// Returns for each destination the sum over the relations of the products of the aggregated features and the relation's
/// matrix, one below the other in `weight`.
fn expected(
    block: &Block,
    widths: &[Option<usize>],
    weight: &[f32],
    (aggregate, weighting): (Aggregate, EdgeWeighting),
) -> Vec<f32> {
    let features = features(block, widths);
    let largest = features.len() / block.n_edges();
    let types = block.edge_types().unwrap();
    let weights = block.weights().unwrap();
    let mut out = Vec::new();
    for bounds in block.indptr().windows(2) {
        let mut of_dst = [0.0_f64; D_OUT];
        let mut first_row = 0;
        for (relation, width) in widths.iter().enumerate() {
            let Some(width) = width else { continue };
            let edges: Vec<usize> = (bounds[0] as usize..bounds[1] as usize)
                .filter(|&e| usize::from(types[e]) == relation)
                .collect();
            let total: f64 = edges.iter().map(|&edge| f64::from(weights[edge].abs())).sum();
            for &edge in &edges {
                let factor = match (aggregate, weighting) {
                    (Aggregate::Mean, EdgeWeighting::None) => 1.0 / edges.len() as f64,
                    (Aggregate::Mean, EdgeWeighting::Scale) => f64::from(weights[edge]) / edges.len() as f64,
                    (Aggregate::Mean, EdgeWeighting::Normalize) => f64::from(weights[edge]) / total,
                    (_, EdgeWeighting::None) => 1.0,
                    (_, _) => f64::from(weights[edge]),
                };
                for row in 0..*width {
                    let feature = factor * f64::from(features[edge * largest + row]);
                    let columns = &weight[(first_row + row) * D_OUT..][..D_OUT];
                    of_dst.iter_mut().zip(columns).for_each(|(sum, w)| *sum += feature * f64::from(*w));
                }
            }
            first_row += width;
        }
        out.extend(of_dst.map(|value| value as f32));
    }
    out
}

fn sum(one: &[f32], other: &[f32]) -> Vec<f32> {
    one.iter().zip(other).map(|(one, other)| one + other).collect()
}

#[test]
fn rgcn_adds_the_means_of_the_features_of_each_relation() {
    let device = device();
    let block = block();
    let x = ramp([block.n_src(), D_IN], &device);
    let plain = DeviceBlock::upload(&block, &device);
    for widths in [WIDTHS.to_vec(), vec![Some(2); 6]] {
        let rows = tensor(&features(&block, &widths), block.n_edges());
        let on_device = plain.clone().with_edge_column("features", rows.clone());
        for case in CASES.into_iter().filter(|(aggregate, _)| *aggregate == Aggregate::Mean) {
            let without = RgcnConvConfig {
                d_in: D_IN,
                d_out: D_OUT,
                n_relations: 6,
                n_bases: 2,
                edge_weighting: case.1,
                edge_features: Vec::new(),
            };
            let with = RgcnConvConfig { edge_features: widths.clone(), ..without.clone() };
            let [without, layer] =
                [without, with].map(|config| config.init(RngKey::new(4), &device).unwrap());
            let weight = layer.edge_linear.as_ref().unwrap().weight.val();
            let added = expected(&block, &widths, &values(weight.clone()), case);
            assert!(added.iter().any(|value| 0.1 < value.abs()));
            let got = values(layer.forward(&on_device, x.clone()));
            check_close(&got, &sum(&values(without.forward(&plain, x.clone())), &added), TOLERANCE);
            check_gradient(weight, |weight| {
                let mut layer = layer.clone();
                layer.edge_linear.as_mut().unwrap().weight = Param::from_tensor(weight);
                layer.forward(&on_device, x.clone())
            });
            check_gradient(x.clone(), |x| layer.forward(&on_device, x));
            let half = plain.clone().with_edge_column("features", rows.clone().cast(DType::BF16));
            check_close(&values(layer.forward(&half, x.clone())), &got, 0.05);
        }
    }
}

#[test]
fn rsage_adds_the_aggregates_of_the_features_of_each_relation() {
    let device = device();
    let graph = graph();
    let block = block();
    let x = ramp([block.n_src(), D_IN], &device);
    let plain = uploaded(&graph, &block, &device);
    let rows = tensor(&features(&block, &WIDTHS), block.n_edges());
    let on_device = plain.clone().with_edge_column("features", rows);
    for case in CASES {
        let without = RsageConvConfig {
            d_in: D_IN,
            d_out: D_OUT,
            metagraph: graph.metagraph(),
            aggregate: case.0,
            edge_weighting: case.1,
            edge_features: Vec::new(),
        };
        let with = RsageConvConfig { edge_features: WIDTHS.to_vec(), ..without.clone() };
        let [without, layer] = [without, with].map(|config| config.init(RngKey::new(4), &device).unwrap());
        let weight = layer.edge_linear.as_ref().unwrap().weight.val();
        let added = expected(&block, &WIDTHS, &values(weight.clone()), case);
        let got = values(layer.forward(&on_device, x.clone()));
        check_close(&got, &sum(&values(without.forward(&plain, x.clone())), &added), TOLERANCE);
        check_gradient(weight, |weight| {
            let mut layer = layer.clone();
            layer.edge_linear.as_mut().unwrap().weight = Param::from_tensor(weight);
            layer.forward(&on_device, x.clone())
        });
    }
}

/// With one type of nodes and one relation, the layer reads the edges of the block, and their maxima, too.
#[test]
fn rsage_of_one_relation_adds_the_aggregates_of_all_edges() {
    let device = device();
    let block = Block::new(BlockParts {
        srcs: (0..4).map(NodeId).collect(),
        indptr: vec![0, 3, 3, 4],
        indices: [1, 2, 3, 0].map(LocalId).to_vec(),
        edge_ids: (0..4).map(EdgeId).collect(),
        ..BlockParts::default()
    });
    let rows = [1.0, -2.0, 4.0, 0.5, 1.0, 6.0, -3.0, 8.0];
    let plain = DeviceBlock::upload(&block, &device);
    let on_device = plain.clone().with_edge_column("features", tensor(&rows, 4));
    let cases = [
        (Aggregate::Sum, [6.0, 4.5, 0.0, 0.0, -3.0, 8.0]),
        (Aggregate::Mean, [2.0, 1.5, 0.0, 0.0, -3.0, 8.0]),
        (Aggregate::Max, [4.0, 6.0, 0.0, 0.0, -3.0, 8.0]),
    ];
    for (aggregate, aggregates) in cases {
        let config = RsageConvConfig {
            d_in: D_IN,
            d_out: 2,
            metagraph: Metagraph::new(1, vec![[0, 0]]).unwrap(),
            aggregate,
            edge_weighting: EdgeWeighting::None,
            edge_features: vec![Some(2)],
        };
        let mut layer = config.init(RngKey::new(4), &device).unwrap();
        layer.edge_linear.as_mut().unwrap().weight = Param::from_tensor(Tensor::eye(2, &device));
        let x = ramp([4, D_IN], &device);
        let without = RsageConvConfig { edge_features: Vec::new(), ..config }.init(RngKey::new(4), &device);
        let without = values(without.unwrap().forward(&plain, x.clone()));
        check_close(&values(layer.forward(&on_device, x)), &sum(&without, &aggregates), TOLERANCE);
    }
}

/// A batch may have no edges, for example with a fanout of 0.
#[test]
fn layers_run_on_blocks_without_edges() {
    let device = device();
    let block = Block::new(BlockParts {
        srcs: vec![NodeId(0); 3],
        indptr: vec![0; 3],
        edge_types: Some(Vec::new()),
        ..BlockParts::default()
    });
    let no_rows = Tensor::from_data(TensorData::new(Vec::<f32>::new(), [0, 2]), &device);
    let block = [DeviceBlock::upload(&block, &device).with_edge_column("features", no_rows)];
    let ctx = super::common::ctx(kiln_nn::Mode::Train);
    let x = || ramp([3, D_IN], &device.clone().autodiff()).require_grad();
    let gat = GatConfig::new(D_IN, 2).attention(AttentionKind::GatV2).layers(1).edge_features(2);
    let transformer = TransformerConfig::new(D_IN, 2).layers(1).edge_features(2);
    let rgcn = RgcnConfig::new(D_IN, 2, 2).layers(1).edge_features([Some(2), None]);
    let rows = [
        gat.init(RngKey::new(0), &device).unwrap().forward(&block, x(), &ctx),
        transformer.init(RngKey::new(0), &device).unwrap().forward(&block, x(), &ctx),
        rgcn.init(RngKey::new(0), &device).unwrap().forward(&block, x(), &ctx),
    ];
    for rows in rows {
        assert!(values(rows).iter().all(|value| value.is_finite()));
    }
}

#[test]
fn errors_name_the_widths_and_the_options() {
    let rgcn = |widths: Vec<Option<usize>>| {
        let config = RgcnConfig::new(D_IN, 2, 2).edge_features(widths);
        config.init(RngKey::new(0), &device()).expect_err("the widths should be rejected")
    };
    let error = rgcn(vec![Some(3)]).to_string();
    assert!(error.starts_with("edge_features is [Some(3)], expected a number of columns"), "{error}");
    assert!(matches!(rgcn(vec![None, None]), Error::EdgeWidths { n_relations: 2, .. }));
    assert!(matches!(rgcn(vec![Some(0), None]), Error::OutOfRange { name: "edge_features", got: 0, .. }));
    let metagraph = graph().metagraph();
    let max = RsageConfig::new(D_IN, 2).metagraph(&metagraph).aggregate(Aggregate::Max).edge_features(WIDTHS);
    let error = max.init(RngKey::new(0), &device()).expect_err("maxima should be rejected").to_string();
    assert!(error.starts_with("aggregate is max, expected mean or sum with edge features"), "{error}");
    let error = GatConfig::new(D_IN, 2).edge_features(3).init(RngKey::new(0), &device());
    let error = error.expect_err("GAT should be rejected").to_string();
    assert!(error.contains("gat_v2"), "{error}");
    for error in [
        TransformerConfig::new(D_IN, 2).edge_features(0).init(RngKey::new(0), &device()).unwrap_err(),
        GatConfig::new(D_IN, 2)
            .attention(AttentionKind::GatV2)
            .edge_features(0)
            .init(RngKey::new(0), &device())
            .unwrap_err(),
    ] {
        assert!(matches!(error, Error::OutOfRange { name: "edge_features", got: 0, .. }), "{error}");
    }
}

/// Checks the bound of the parameters, the form in JSON and the text of a configuration with and without edge features. Runs
/// are identified by the text, and models of older versions have neither.
fn check_config<C: ModelConfig<Model: Module> + PartialEq>(without: C, with: C) {
    for config in [&without, &with] {
        let n_parameters = config.init(RngKey::new(0), &device()).unwrap().num_params() as u64;
        assert!(config.min_parameters() <= n_parameters, "{config:?}");
        let stored = serde_json::to_value(config).unwrap();
        let has_text = format!("{config:?}").contains("edge_features");
        assert_eq!((stored.get("edge_features").is_some(), has_text), (*config == with, *config == with));
        assert_eq!(serde_json::from_value::<C>(stored).unwrap(), *config);
    }
}

#[test]
fn a_configuration_reads_edge_features_if_it_is_asked_to() {
    let plain = GraphMetadata { d_edge: Some(3), ..GraphMetadata::default() };
    let metagraph = graph().metagraph();
    let typed = GraphMetadata { edge_widths: Some(WIDTHS.to_vec()), ..GraphMetadata::default() };

    let gat = GatConfig::new(D_IN, 2);
    let gatv2 = gat.clone().attention(AttentionKind::GatV2);
    assert!(gat.with_edge_features(&plain).is_none());
    assert_eq!(gatv2.clone().for_graph(&plain), gatv2);
    check_config(gatv2.clone(), gatv2.with_edge_features(&plain).unwrap());

    let transformer = TransformerConfig::new(D_IN, 2);
    assert!(transformer.clone().with_edge_features(&typed).is_none());
    let with = transformer.clone().with_edge_features(&plain).unwrap();
    assert_eq!(with.requirements().d_edge, Some(3));
    check_config(transformer, with);

    let rgcn = RgcnConfig::new(D_IN, 2, 6);
    let of_types = rgcn.clone().with_edge_features(&plain).unwrap().requirements();
    assert_eq!((of_types.d_edge, of_types.edge_widths), (Some(3), Some(vec![Some(3); 6])));
    let with = rgcn.clone().with_edge_features(&typed).unwrap();
    let requirements = with.requirements();
    assert_eq!((requirements.d_edge, requirements.edge_widths), (None, Some(WIDTHS.to_vec())));
    check_config(rgcn, with);

    let rsage = RsageConfig::new(D_IN, 2);
    assert_eq!(rsage.clone().with_edge_features(&plain).unwrap().edge_features, [Some(3)]);
    let rsage = rsage.metagraph(&metagraph);
    assert!(rsage.clone().with_edge_features(&plain).is_none());
    check_config(rsage.clone(), rsage.clone().with_edge_features(&typed).unwrap());
    let within = HeteroModelConfig::new([Some(D_IN)], rsage).with_edge_features(&typed).unwrap();
    assert_eq!(within.model.edge_features, WIDTHS);

    let gine = GineConfig::new(D_IN, 2, EdgeInput::Types(2)).with_edge_features(&plain).unwrap();
    assert_eq!(gine.edges, EdgeInput::Features(3));
    assert!(SageConfig::new(D_IN, 2).with_edge_features(&plain).is_none());
    assert!(GcnConfig::new(D_IN, 2).with_edge_features(&plain).is_none());
    assert!(HgtConfig::new(D_IN, 2).with_edge_features(&typed).is_none());
    let none = GraphMetadata { edge_widths: Some(vec![None; 6]), ..GraphMetadata::default() };
    assert!(RgcnConfig::new(D_IN, 2, 6).with_edge_features(&none).is_none());
}

/// Exact evaluation computes from these sizes how many nodes fit in its memory.
#[test]
fn the_memory_of_layers_contains_edge_features() {
    let sizes = |model: &dyn Fn(bool) -> LayerSize| [model(false), model(true)].map(|size| size.memory);
    let transformer = |reads: bool| {
        let config = TransformerConfig::new(D_IN, 2).layers(1).heads(2);
        let config = if reads { config.edge_features(5) } else { config };
        config.init(RngKey::new(0), &device()).unwrap().layer_size(0).unwrap()
    };
    let gat = |reads: bool| {
        let config = GatConfig::new(D_IN, 2).layers(1).attention(AttentionKind::GatV2);
        let config = if reads { config.edge_features(5) } else { config };
        config.init(RngKey::new(0), &device()).unwrap().layer_size(0).unwrap()
    };
    let rgcn = |reads: bool| {
        let config = RgcnConfig::new(D_IN, 2, 3).layers(1);
        let config = if reads { config.edge_features([Some(5), None, Some(2)]) } else { config };
        config.init(RngKey::new(0), &device()).unwrap().layer_size(0).unwrap()
    };
    // The features of an edge, and one or three rows of the heads.
    let [without, with] = sizes(&transformer);
    assert_eq!(with.edge_bytes - without.edge_bytes, 4 * (5 + 2));
    let [without, with] = sizes(&gat);
    assert_eq!(with.edge_bytes - without.edge_bytes, 4 * (5 + 3 * 2));
    // Two sums of the largest width, with and without padding.
    let [without, with] = sizes(&rgcn);
    assert_eq!(with.dst_bytes - without.dst_bytes, 4 * 2 * 2 * 5);
    assert_eq!(with.edge_bytes - without.edge_bytes, 4 * (2 + 5));
}
