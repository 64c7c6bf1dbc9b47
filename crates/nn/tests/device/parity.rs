//! Parity of models with weights from PyG and DGL files: outputs match the papers' formulas, computed in float64 with
//! dense matrices (`tests/parity/make.py`).

// The lint permits unwrap in test functions only, not in their helpers.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use kiln_graph::{Block, CscBuilder, NodeId, gcn_norm};
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::{check_close, device, values};
use kiln_nn::{
    Aggregate, BlockModel, ForwardContext, GcnConfig, Mode, PortableWeights, SageConfig, WeightFormat,
    load_safetensors,
};
use kiln_sample::{EdgeWeights, FrontierSampler, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds};

/// The tolerance for a few products and sums of numbers of about 1 in f32.
const TOLERANCE: f32 = 1e-5;

#[derive(serde::Deserialize)]
pub(crate) struct Expected {
    pub(crate) n_nodes: usize,
    pub(crate) srcs: Vec<u32>,
    pub(crate) dsts: Vec<u32>,
    pub(crate) widths: [usize; 3],
    features: Vec<f32>,
    outputs: BTreeMap<String, Vec<f32>>,
}

/// Reads a file of `tests/parity`. The variable that cargo sets is also read at run time, because the program may have
/// been copied to a machine on which the checkout has another path.
pub(crate) fn read(name: &str) -> Vec<u8> {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    std::fs::read(Path::new(&folder).join("tests/parity").join(name)).unwrap()
}

pub(crate) fn expected() -> Expected {
    serde_json::from_slice(&read("graph.json")).unwrap()
}

/// Loads the named weights, and checks the outputs of the model.
fn check<M: BlockModel + PortableWeights>(
    mut model: M,
    name: &str,
    naming: WeightFormat,
    sampler: &NeighborSampler,
) {
    assert_eq!(load_safetensors(&mut model, &read(&format!("{name}.safetensors"))).unwrap(), naming);
    check_outputs(&model, &expected().outputs[name], sampler);
}

/// Runs a model for all nodes over whole neighbourhoods, and checks its outputs.
pub(crate) fn check_outputs<M: BlockModel>(model: &M, output: &[f32], sampler: &NeighborSampler) {
    check_outputs_on(model, output, sampler, |block| DeviceBlock::upload(block, &device()));
}

/// Checks the outputs like [`check_outputs`], with the blocks that `upload` copies to the device.
pub(crate) fn check_outputs_on<M: BlockModel>(
    model: &M,
    output: &[f32],
    sampler: &NeighborSampler,
    upload: impl Fn(&Block) -> DeviceBlock,
) {
    let Expected { n_nodes, widths, features, .. } = expected();
    let nodes = || (0..n_nodes as u32).map(NodeId);
    // The model runs on all nodes in reverse order, and then on one node at a time.
    for seeds in [nodes().rev().collect::<Vec<_>>()].into_iter().chain(nodes().map(|node| vec![node])) {
        let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
        let seeds = Seeds::nodes(seeds);
        let sampled = sampler.sample_blocks(&seeds, ctx.key, &mut Scratch::default()).unwrap();
        let row = |width: usize, node: &NodeId| node.index() * width..(node.index() + 1) * width;
        let srcs = sampled.blocks[0].srcs().iter();
        let x: Vec<f32> = srcs.flat_map(|node| features[row(widths[0], node)].to_vec()).collect();
        let device = device();
        let x = TensorData::new(x, [sampled.blocks[0].n_src(), widths[0]]);
        let blocks: Vec<_> = sampled.blocks.iter().map(&upload).collect();
        let got = values(model.forward(&blocks, Tensor::from_data(x, &device), &ctx));
        let rows = seeds.as_nodes().iter().flat_map(|node| output[row(widths[2], node)].to_vec());
        check_close(&got, &rows.collect::<Vec<f32>>(), TOLERANCE);
    }
}

fn check_sage(name: &str, naming: WeightFormat) {
    let Expected { n_nodes, srcs, dsts, widths: [d_in, hidden, n_classes], .. } = expected();
    let config = SageConfig {
        d_in,
        hidden,
        n_classes,
        n_layers: 2,
        aggregate: Aggregate::Mean,
        input_dropout: 0.5,
        dropout: 0.5,
        ..SageConfig::new(d_in, n_classes)
    };
    let model = config.init(RngKey::new(0), &device()).unwrap();
    let graph = CscBuilder::new(n_nodes).build(&srcs, &dsts).unwrap();
    check(model, name, naming, &NeighborSampler::full(Arc::new(graph), 2));
}

#[test]
fn sage_with_pyg_weights_matches_the_formula_of_the_paper() {
    check_sage("sage_pyg", WeightFormat::Pyg);
}

#[test]
fn sage_with_dgl_weights_matches_the_formula_of_the_paper() {
    check_sage("sage_dgl", WeightFormat::Dgl);
}

#[test]
fn gcn_with_pyg_weights_matches_the_formula_of_the_paper() {
    let Expected { n_nodes, srcs, dsts, widths: [d_in, hidden, n_classes], .. } = expected();
    let config = GcnConfig {
        d_in,
        hidden,
        n_classes,
        n_layers: 2,
        input_dropout: 0.5,
        dropout: 0.5,
        ..GcnConfig::new(d_in, n_classes)
    };
    let model = config.init(RngKey::new(0), &device()).unwrap();
    let graph = gcn_norm(&CscBuilder::new(n_nodes).build(&srcs, &dsts).unwrap()).unwrap();
    let stored = SamplerConfig::full(2).with_weights(EdgeWeights::Stored);
    let sampler = NeighborSampler::with_config(Arc::new(graph), stored).unwrap();
    check(model, "gcn_pyg", WeightFormat::Pyg, &sampler);
}
