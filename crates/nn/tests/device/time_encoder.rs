//! Ages of nodes and edges: their encoding against an independent computation, the gradient of learned frequencies, and what
//! configurations require of a graph.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use kiln_graph::{Block, EdgeColumns};
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::{check_close, check_gradient, device, ramp, values};
use kiln_nn::{
    AttentionKind, BlockModel, EdgeInput, GatConfig, GineConfig, GraphMetadata, HeteroModel,
    HeteroModelConfig, HgtConfig, Mode, ModelConfig, RgcnConfig, RsageConfig, SageConfig, TimeEncoderConfig,
    TimedParts, TransformerConfig, TypeOrder,
};
use kiln_sample::RngKey;

use super::common::typed::{graph, sampled, uploaded};
use super::common::{ctx, parameters};

/// The number of feature columns.
const WIDTH: usize = 3;

/// The width of the rows that models read.
const HIDDEN: usize = 4;

/// Frequencies whose gradients finite differences resolve.
const FREQUENCIES: [f32; 2] = [1.5, 3.25];

/// Returns ages in `[0, 1)`, and an unknown one in every fifth row.
fn ages(n: usize) -> Tensor<2> {
    let age = |row: usize| if row % 5 == 4 { -1.0 } else { (row * 7 % 11) as f32 / 11.0 };
    Tensor::from_data(TensorData::new((0..n).map(age).collect::<Vec<f32>>(), [n, 1]), &device())
}

fn timed(node_types: &[bool], relations: &[bool]) -> TimedParts {
    TimedParts { node_types: node_types.to_vec(), relations: relations.to_vec() }
}

/// A graph of one type of nodes, without types of edges.
fn plain() -> GraphMetadata {
    GraphMetadata { timed: Some(timed(&[true], &[true])), ..GraphMetadata::default() }
}

/// The graph of four types. Nodes of two types have times, and edges of two relations.
fn typed() -> GraphMetadata {
    let relations = [true, false, false, true, false, false];
    let metagraph = Some(graph().metagraph());
    GraphMetadata {
        timed: Some(timed(&[true, false, true, false], &relations)),
        metagraph,
        ..GraphMetadata::default()
    }
}

#[test]
fn encoded_ages_are_cosines_and_sines() {
    let device = device();
    let encoder = TimeEncoderConfig::fixed(3).init(&device).unwrap();
    let rows = [0.0, 0.25, 1.0, 7.5, -1.0];
    let input = Tensor::from_data(TensorData::new(rows.to_vec(), [5, 1]), &device);
    let mut expected = Vec::new();
    for age in rows {
        // The geometric mean of the first and the last frequency is 100 times the first.
        let angles = [1.0, 100.0, 10_000.0].map(|factor| age * factor * std::f64::consts::FRAC_PI_2);
        let is_known = f64::from(u8::from(0.0 <= age));
        expected.extend(angles.map(|angle| (is_known * angle.cos()) as f32));
        expected.extend(angles.map(|angle| (is_known * angle.sin()) as f32));
    }
    // An angle of 10^5 has a rounding error of about 2^-8 in f32.
    check_close(&values(encoder.forward(input.clone())), &expected, 0.01);
    let learned = TimeEncoderConfig::learned(3).init(&device).unwrap();
    assert_eq!(values(learned.forward(input.clone())), values(encoder.forward(input)));
    assert!(TimeEncoderConfig::fixed(0).init(&device).is_err());
}

/// Whether the function of a layer has kinks, at which finite differences are no derivatives.
#[derive(PartialEq)]
enum Kinks {
    None,
    Some,
}

/// Creates a model, and checks that learned frequencies are its only new parameter beside the layers of nodes, and their gradient.
fn check_model<C: ModelConfig<Model: BlockModel>>(
    model: C,
    widths: &[Option<usize>],
    graph: &GraphMetadata,
    kinks: Kinks,
    run: impl Fn(&HeteroModel<C::Model>) -> Tensor<2>,
) {
    let device = device();
    let encoded = |times: TimeEncoderConfig| {
        let config = HeteroModelConfig::new(widths.iter().copied(), model.clone());
        let config = config.time_encoding(times, graph).expect("the graph should have times");
        let stored = serde_json::to_value(&config).unwrap();
        assert_eq!(
            format!("{:?}", serde_json::from_value::<HeteroModelConfig<C>>(stored).unwrap()),
            format!("{config:?}")
        );
        assert_eq!(config.requirements().ages, graph.timed);
        assert_eq!(config.requirements().d_edge, model.requirements().d_edge);
        assert_eq!(config.requirements().edge_widths, model.requirements().edge_widths);
        config.init(RngKey::new(2), &device).unwrap()
    };
    let fixed = encoded(TimeEncoderConfig::fixed(2));
    let mut learned = encoded(TimeEncoderConfig::learned(2));
    let mut names: Vec<String> = parameters(&learned).into_iter().map(|(name, _)| name).collect();
    names.retain(|name| name != "ages.times.frequency");
    assert_eq!(parameters(&fixed).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
    assert_eq!(values(run(&learned)), values(run(&fixed)));
    if kinks == Kinks::None {
        check_gradient(Tensor::from_data(FREQUENCIES, &device), |frequency: Tensor<1>| {
            let mut model = learned.clone();
            let ages = model.ages.as_mut().expect("the model should read ages");
            ages.times.frequency = Some(Param::from_tensor(frequency));
            run(&model)
        });
    }
    learned.ages.as_mut().unwrap().times.frequency = Some(Param::from_tensor(Tensor::zeros([2], &device)));
    assert_ne!(values(run(&learned)), values(run(&fixed)), "the result should depend on the frequencies");
}

/// A block of the graph of several types, with ages, and features of this width if there are some.
fn with_edges(block: DeviceBlock, n_edges: usize, width: Option<usize>) -> DeviceBlock {
    let block = block.with_edge_column(EdgeColumns::AGES, ages(n_edges));
    match width {
        Some(width) => block.with_edge_column(EdgeColumns::FEATURES, ramp([n_edges, width], &device())),
        None => block,
    }
}

fn sampled_block() -> Block {
    sampled(&graph(), &[3, 25, 17, 40, 51, 1], 1).remove(0)
}

#[test]
fn models_of_one_type_of_nodes_learn_frequencies() {
    let block = sampled_block();
    let device = device();
    let upload = |width| with_edges(DeviceBlock::upload(&block, &device), block.n_edges(), width);
    let [without, with] = [None, Some(5)].map(upload);
    let rows = || Tensor::cat(vec![ramp([block.n_src(), WIDTH], &device), ages(block.n_src())], 1);
    let order = TypeOrder::of_one_type(block.n_src());
    fn run<M: BlockModel>(model: &M, block: &DeviceBlock, rows: Tensor<2>, order: &TypeOrder) -> Tensor<2> {
        let x = model.input(vec![rows], order);
        model.forward(std::slice::from_ref(block), x, &ctx(Mode::Train))
    }
    let widths = [Some(WIDTH)];
    let gat = GatConfig::new(HIDDEN, 2).attention(AttentionKind::GatV2).layers(1);
    check_model(gat.clone(), &widths, &plain(), Kinks::Some, |model| run(model, &without, rows(), &order));
    check_model(gat.edge_features(5), &widths, &plain(), Kinks::Some, |model| {
        run(model, &with, rows(), &order)
    });
    let transformer = TransformerConfig::new(HIDDEN, 2).layers(1);
    check_model(transformer, &widths, &plain(), Kinks::None, |model| run(model, &without, rows(), &order));
    let rgcn = RgcnConfig::new(HIDDEN, 2, 6).layers(1);
    check_model(rgcn, &widths, &plain(), Kinks::None, |model| run(model, &without, rows(), &order));
    let gine = GineConfig::new(HIDDEN, 2, EdgeInput::Features(5)).layers(1).hidden(HIDDEN);
    check_model(gine, &widths, &plain(), Kinks::Some, |model| run(model, &with, rows(), &order));
    let nodes_only = GraphMetadata { timed: Some(timed(&[true], &[false])), ..GraphMetadata::default() };
    let sage = SageConfig::new(HIDDEN, 2).layers(1);
    check_model(sage, &widths, &nodes_only, Kinks::None, |model| run(model, &without, rows(), &order));
}

#[test]
fn models_of_several_types_of_nodes_learn_frequencies() {
    let device = device();
    let block = sampled_block();
    let graph = graph();
    let uploaded = uploaded(&graph, &block, &device);
    let types: Vec<usize> = block.srcs().iter().map(|node| graph.types().locate(*node).unwrap().0).collect();
    let order = TypeOrder::new(&types, 4, &device);
    // Type 2 has trainable rows and times.
    let widths = [Some(WIDTH), None, None, Some(WIDTH)];
    let rows = || -> Vec<Tensor<2>> {
        let of_type = |node_type: usize| {
            let n_rows = types.iter().filter(|of_node| **of_node == node_type).count();
            let width = if node_type == 2 || node_type == 1 { HIDDEN } else { WIDTH };
            let features = ramp([n_rows, width], &device);
            match node_type {
                0 | 2 => Tensor::cat(vec![features, ages(n_rows)], 1),
                _ => features,
            }
        };
        (0..4).map(of_type).collect()
    };
    fn run<M: BlockModel>(
        model: &M,
        block: &DeviceBlock,
        rows: Vec<Tensor<2>>,
        order: &TypeOrder,
    ) -> Tensor<2> {
        let x = model.input(rows, order);
        model.forward(std::slice::from_ref(block), x, &ctx(Mode::Train))
    }
    let without = with_edges(uploaded.clone(), block.n_edges(), None);
    let rgcn = RgcnConfig::new(HIDDEN, 2, 6).layers(1);
    check_model(rgcn.clone(), &widths, &typed(), Kinks::None, |model| run(model, &without, rows(), &order));
    let rsage = RsageConfig::new(HIDDEN, 2).metagraph(&graph.metagraph()).layers(1);
    check_model(rsage, &widths, &typed(), Kinks::None, |model| run(model, &without, rows(), &order));
    // Relation 0 has features and times, relation 1 features only, relation 3 times only.
    let features = [Some(2), Some(5), None, None, None, None];
    let with = with_edges(uploaded, block.n_edges(), Some(5));
    check_model(rgcn.edge_features(features), &widths, &typed(), Kinks::None, |model| {
        run(model, &with, rows(), &order)
    });
}

/// A model that reads no features of edges, or their types, reads the ages of nodes only.
#[test]
fn models_that_cannot_read_ages_of_edges_read_those_of_nodes() {
    let config = |model| HeteroModelConfig::new([Some(WIDTH)], model);
    let gine = config(GineConfig::new(HIDDEN, 2, EdgeInput::Types(3)));
    let gine = gine.time_encoding(TimeEncoderConfig::fixed(2), &plain()).unwrap();
    assert_eq!(gine.requirements().ages, Some(timed(&[true], &[false])));
    assert_eq!(gine.requirements().n_relations, Some(3));
    let hgt = HgtConfig::new(HIDDEN, 2).metagraph(&graph().metagraph());
    let hgt = HeteroModelConfig::new([Some(WIDTH); 4], hgt);
    let hgt = hgt.time_encoding(TimeEncoderConfig::fixed(2), &typed()).unwrap();
    assert_eq!(hgt.requirements().ages.map(|ages| ages.relations), Some(vec![false; 6]));
    let edges_only = GraphMetadata { timed: Some(timed(&[false], &[true])), ..GraphMetadata::default() };
    let sage = HeteroModelConfig::new([Some(WIDTH)], SageConfig::new(HIDDEN, 2));
    assert!(sage.clone().time_encoding(TimeEncoderConfig::fixed(2), &edges_only).is_none());
    assert!(sage.time_encoding(TimeEncoderConfig::fixed(2), &GraphMetadata::default()).is_none());
    let transformer = HeteroModelConfig::new([Some(WIDTH)], TransformerConfig::new(HIDDEN, 2));
    assert!(transformer.time_encoding(TimeEncoderConfig::fixed(2), &edges_only).is_some());
}

/// Configurations for other graphs keep the ages of their model.
#[test]
fn edge_features_of_other_graphs_follow_the_encoded_ages() {
    let gine = HeteroModelConfig::new([Some(WIDTH)], GineConfig::new(HIDDEN, 2, EdgeInput::Features(0)));
    let gine = gine.time_encoding(TimeEncoderConfig::fixed(2), &plain()).unwrap();
    assert_eq!((gine.model.edges, gine.requirements().d_edge), (EdgeInput::Features(4), None));
    let graph = GraphMetadata { d_edge: Some(3), ..GraphMetadata::default() };
    for gine in [gine.clone().for_graph(&graph), gine.with_edge_features(&graph).unwrap()] {
        assert_eq!((gine.model.edges, gine.requirements().d_edge), (EdgeInput::Features(7), Some(3)));
    }
}
