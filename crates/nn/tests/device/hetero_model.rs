//! Tests of models behind an encoder, of their input, and of what wrappers pass on to the model within.

use burn::tensor::Tensor;
use kiln_graph::{Block, CscBuilder, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::{device, ramp, values};
use kiln_nn::{
    BlockModel, EdgeInput, GatConfig, GcnConfig, GineConfig, GraphMetadata, GraphRequirements,
    HeteroModelConfig, HgtConfig, LinkDecoderConfig, LinkModelConfig, Mode, ModelConfig, RgcnConfig,
    RsageConfig, SageConfig, TypeOrder,
};
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds};

use super::common::ctx;
use super::common::typed::{graph, numbers};

/// The number of feature columns, or of the encoder's rows.
const D_IN: usize = 5;

/// The blocks of two layers of a sampled batch.
fn blocks() -> Vec<Block> {
    let graph = CscBuilder::new(40).build(&numbers(7, 200, 40), &numbers(8, 200, 40));
    let graph = graph.expect("the edges should be valid").into();
    let config = SamplerConfig::new(vec![Fanout::UpTo(3), Fanout::UpTo(2)]);
    let sampler = NeighborSampler::with_config(graph, config).expect("it should fit");
    let seeds = Seeds::nodes([1, 9, 30, 2, 17, 5].map(NodeId).to_vec());
    let sample = sampler.sample_blocks(&seeds, RngKey::new(5), &mut Scratch::default());
    sample.expect("the seeds should be in range").blocks
}

fn sage() -> SageConfig {
    SageConfig::new(D_IN, 3).hidden(8).layers(2)
}

/// Runs a model of any kind on the rows of each type, as a task does.
fn run(model: &impl BlockModel, blocks: &[DeviceBlock], rows: Vec<Tensor<2>>, order: &TypeOrder) -> Vec<f32> {
    let x = model.input(rows, order);
    values(model.forward(blocks, x, &ctx(Mode::Train)))
}

#[test]
fn a_model_and_a_typed_model_of_one_type_run_alike() {
    let device = device();
    let uploaded: Vec<_> = blocks().iter().map(|block| DeviceBlock::upload(block, &device)).collect();
    let plain = sage().init(RngKey::new(1), &device).expect("the configuration should be valid");
    let typed = HeteroModelConfig::new([Some(D_IN)], sage());
    let typed = typed.init(RngKey::new(1), &device).expect("the configuration should be valid");
    let x: Tensor<2> = ramp([uploaded[0].n_src(), D_IN], &device);
    let order = TypeOrder::of_one_type(uploaded[0].n_src());
    let expected = values(plain.forward(&uploaded, x.clone(), &ctx(Mode::Train)));
    assert_eq!(run(&plain, &uploaded, vec![x.clone()], &order), expected);
    assert_eq!(run(&typed, &uploaded, vec![x.clone()], &order), expected);
    assert!(plain.input_encoder().is_none() && typed.input_encoder().is_none());

    let aggregation = plain.input_aggregation().expect("GraphSAGE should aggregate its input");
    assert_eq!(typed.input_aggregation(), Some(aggregation));
    let rows: Tensor<2> = ramp([uploaded[0].n_dst(), 2 * D_IN], &device);
    let expected = values(plain.forward_aggregated(&uploaded, rows.clone(), &ctx(Mode::Eval)));
    assert_eq!(values(typed.forward_aggregated(&uploaded, rows, &ctx(Mode::Eval))), expected);
}

#[test]
fn the_input_of_a_typed_model_is_that_of_its_encoder() {
    let device = device();
    let blocks = blocks();
    let uploaded: Vec<_> = blocks.iter().map(|block| DeviceBlock::upload(block, &device)).collect();
    let typed = HeteroModelConfig::new([Some(7), None], sage());
    let typed = typed.init(RngKey::new(1), &device).expect("the configuration should be valid");
    let types: Vec<usize> = (0..blocks[0].n_src()).map(|node| node % 2).collect();
    let order = TypeOrder::new(&types, 2, &device);
    let n_odd = types.iter().sum();
    let rows = vec![ramp([types.len() - n_odd, 7], &device), ramp([n_odd, D_IN], &device)];
    let encoder = typed.input_encoder().expect("two types should have an encoder");
    let x = encoder.forward(rows.clone(), &order);
    let expected = values(typed.model.forward(&uploaded, x, &ctx(Mode::Train)));
    assert_eq!(run(&typed, &uploaded, rows, &order), expected);
    assert_eq!(typed.n_layers(), 2);
    assert_eq!(typed.input_format(), typed.model.input_format());
    assert!(!typed.uses_burn_rng());
    // The encoder reads the rows of all nodes.
    assert!(typed.input_aggregation().is_none() && typed.model.input_aggregation().is_some());
}

#[test]
#[should_panic(expected = "got rows of 2 types, expected 1")]
fn a_model_without_encoder_rejects_rows_of_two_types() {
    let device = device();
    let model = sage().init(RngKey::new(1), &device).expect("the configuration should be valid");
    model.input(vec![ramp([2, D_IN], &device), ramp([1, D_IN], &device)], &TypeOrder::of_one_type(3));
}

/// Checks the requirements of a configuration for a graph with these properties, alone and within wrappers.
fn check<C: ModelConfig<Model: BlockModel>>(config: C, graph: &GraphMetadata, expected: &GraphRequirements) {
    let decoder = LinkDecoderConfig::default();
    let typed = HeteroModelConfig::new([Some(D_IN)], config.clone());
    let link = LinkModelConfig { encoder: typed.clone(), decoder };
    assert_eq!(config.for_graph(graph).requirements(), *expected);
    assert_eq!(typed.for_graph(graph).model.requirements(), *expected);
    let with_types = GraphRequirements { widths: Some(vec![Some(D_IN)]), ..expected.clone() };
    assert_eq!(link.for_graph(graph).requirements(), with_types);
}

#[test]
fn a_configuration_takes_the_properties_of_a_graph_that_its_model_reads() {
    let metagraph = graph().metagraph();
    let whole = GraphMetadata {
        n_relations: Some(6),
        metagraph: Some(metagraph.clone()),
        d_edge: Some(7),
        ..GraphMetadata::default()
    };
    let nothing = GraphRequirements::default();
    check(sage(), &whole, &nothing);
    let weights = GraphRequirements { edge_weights: true, gcn_norm: true, ..nothing.clone() };
    check(GcnConfig::new(D_IN, 3), &whole, &weights);
    check(GatConfig::new(D_IN, 3), &whole, &GraphRequirements { self_loops: true, ..nothing.clone() });
    let types = GraphRequirements { n_relations: Some(6), ..nothing.clone() };
    check(RgcnConfig::new(D_IN, 3, 2), &whole, &types);
    let groups = GraphRequirements { metagraph: Some(metagraph), ..types.clone() };
    check(RsageConfig::new(D_IN, 3), &whole, &groups);
    check(HgtConfig::new(D_IN, 3), &whole, &groups);

    let features = GraphRequirements { d_edge: Some(7), ..nothing.clone() };
    let gine = |edges| GineConfig::new(D_IN, 3, edges);
    check(gine(EdgeInput::Types(2)), &whole, &features);
    let without_features = GraphMetadata { d_edge: None, ..whole };
    check(gine(EdgeInput::Types(2)), &without_features, &types);
    check(gine(EdgeInput::Features(7)), &without_features, &features);

    // Unknown properties change nothing.
    let unknown = GraphMetadata::default();
    check(gine(EdgeInput::Features(7)), &unknown, &features);
    check(RgcnConfig::new(D_IN, 3, 6), &unknown, &types);
}

#[test]
fn a_configuration_of_several_types_takes_their_numbers_of_feature_columns() {
    let widths = Some(vec![Some(D_IN), None]);
    let graph = GraphMetadata { widths: widths.clone(), ..GraphMetadata::default() };
    let config = HeteroModelConfig::new([Some(D_IN)], sage());
    assert_eq!(config.clone().for_graph(&graph).requirements().widths, widths);
    assert_eq!(config.clone().for_graph(&GraphMetadata::default()), config);
}
