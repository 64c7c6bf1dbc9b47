//! Parity of attention models, R-GCN and GINE with PyG and DGL: models with weights from files of these libraries have the
//! outputs that the libraries computed in float64 (`tests/parity/make_attention.py`).

// The lint permits unwrap in test functions only, not in their helpers.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use kiln_graph::{Block, CscBuilder, SelfLoops};
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::device;
use kiln_nn::{
    AttentionKind, BlockModel, EdgeInput, Epsilon, Gat, GatConfig, GineConfig, PortableWeights, Rgcn,
    RgcnConfig, WeightFormat, load_safetensors, to_safetensors,
};
use kiln_sample::{NeighborSampler, RngKey, SamplerConfig};

use super::parity::{Expected, check_outputs_on, expected, read};

#[derive(serde::Deserialize)]
struct AttentionExpected {
    /// The number of heads of the first layer and of the second layer.
    heads: [usize; 2],
    edge_types: Vec<u8>,
    n_relations: usize,
    n_bases: usize,
    /// The features of the edges, `[n_edges, d_edge]`, in the order of the edge list.
    edge_features: Vec<f32>,
    outputs: BTreeMap<String, Vec<f32>>,
}

fn attention_expected() -> AttentionExpected {
    serde_json::from_slice(&read("attention.json")).unwrap()
}

fn gat(attention: AttentionKind) -> Gat {
    let Expected { widths: [d_in, hidden, n_classes], .. } = expected();
    let [n_heads, n_output_heads] = attention_expected().heads;
    let config = GatConfig::new(d_in, n_classes).hidden(hidden).layers(2).attention(attention);
    config.heads(n_heads).output_heads(n_output_heads).init(RngKey::new(0), &device()).unwrap()
}

fn rgcn(n_bases: usize) -> Rgcn {
    let Expected { widths: [d_in, hidden, n_classes], .. } = expected();
    let config = RgcnConfig::new(d_in, n_classes, attention_expected().n_relations);
    config.hidden(hidden).layers(2).bases(n_bases).init(RngKey::new(0), &device()).unwrap()
}

/// Loads the named file, and then the files that the model writes in both formats. The outputs must always be the
/// expected ones.
fn check<M: BlockModel + PortableWeights>(
    model: impl Fn() -> M,
    name: &str,
    format: WeightFormat,
    sampler: &NeighborSampler,
) {
    check_on(model, name, format, sampler, |block| DeviceBlock::upload(block, &device()));
}

/// Checks a model like [`check`], with the blocks that `upload` copies to the device.
fn check_on<M: BlockModel + PortableWeights>(
    model: impl Fn() -> M,
    name: &str,
    format: WeightFormat,
    sampler: &NeighborSampler,
    upload: impl Fn(&Block) -> DeviceBlock,
) {
    let output = &attention_expected().outputs[name];
    let mut loaded = model();
    assert_eq!(load_safetensors(&mut loaded, &read(&format!("{name}.safetensors"))).unwrap(), format);
    check_outputs_on(&loaded, output, sampler, &upload);
    for format in [WeightFormat::Pyg, WeightFormat::Dgl] {
        let mut reloaded = model();
        assert_eq!(load_safetensors(&mut reloaded, &to_safetensors(&loaded, format)).unwrap(), format);
        check_outputs_on(&reloaded, output, sampler, &upload);
    }
}

fn check_gat(attention: AttentionKind, name: &str, format: WeightFormat) {
    let Expected { n_nodes, srcs, dsts, .. } = expected();
    let graph = CscBuilder::new(n_nodes).self_loops(SelfLoops::Add).build(&srcs, &dsts).unwrap();
    check(|| gat(attention), name, format, &NeighborSampler::full(Arc::new(graph), 2));
}

fn check_rgcn(n_bases: usize, name: &str, format: WeightFormat) {
    let Expected { n_nodes, srcs, dsts, .. } = expected();
    let edge_types = attention_expected().edge_types;
    let graph = CscBuilder::new(n_nodes).edge_types(&edge_types).build(&srcs, &dsts).unwrap();
    let config = SamplerConfig::full(2).with_edge_types();
    let sampler = NeighborSampler::with_config(Arc::new(graph), config).unwrap();
    check(|| rgcn(n_bases), name, format, &sampler);
}

fn check_gine(name: &str, format: WeightFormat) {
    let Expected { n_nodes, srcs, dsts, widths: [d_in, hidden, n_classes], .. } = expected();
    // The type of an edge is its position in the list, whose order is that of the features.
    let positions: Vec<u8> = (0..srcs.len() as u8).collect();
    let graph = CscBuilder::new(n_nodes).edge_types(&positions).build(&srcs, &dsts).unwrap();
    let sampler =
        NeighborSampler::with_config(Arc::new(graph), SamplerConfig::full(2).with_edge_types()).unwrap();
    let rows = attention_expected().edge_features;
    let width = rows.len() / srcs.len();
    let config = GineConfig::new(d_in, n_classes, EdgeInput::Features(width)).hidden(hidden).layers(2);
    let config = config.epsilon(Epsilon::Learnable(0.0));
    let model = || config.init(RngKey::new(0), &device()).unwrap();
    let upload = |block: &Block| {
        let of_edges = block.edge_types().unwrap().iter();
        let of_edges: Vec<f32> =
            of_edges.flat_map(|&edge| rows[usize::from(edge) * width..][..width].to_vec()).collect();
        let of_edges = Tensor::from_data(TensorData::new(of_edges, [block.n_edges(), width]), &device());
        DeviceBlock::upload(block, &device()).with_edge_column("features", of_edges)
    };
    check_on(model, name, format, &sampler, upload);
}

#[test]
fn gine_with_pyg_weights_equals_pyg() {
    check_gine("gine_pyg", WeightFormat::Pyg);
}

#[test]
fn gine_with_dgl_weights_equals_dgl() {
    check_gine("gine_dgl", WeightFormat::Dgl);
}

#[test]
fn gat_with_pyg_weights_equals_pyg() {
    check_gat(AttentionKind::Gat, "gat_pyg", WeightFormat::Pyg);
}

#[test]
fn gat_with_dgl_weights_equals_dgl() {
    check_gat(AttentionKind::Gat, "gat_dgl", WeightFormat::Dgl);
}

/// The file has biases of the output, which are written to other biases in the format of DGL.
#[test]
fn gatv2_with_pyg_weights_equals_pyg() {
    check_gat(AttentionKind::GatV2, "gatv2_pyg", WeightFormat::Pyg);
}

#[test]
fn gatv2_with_dgl_weights_equals_dgl() {
    check_gat(AttentionKind::GatV2, "gatv2_dgl", WeightFormat::Dgl);
}

#[test]
fn rgcn_with_pyg_weights_equals_pyg() {
    let AttentionExpected { n_bases, n_relations, .. } = attention_expected();
    check_rgcn(n_bases, "rgcn_pyg", WeightFormat::Pyg);
    check_rgcn(n_relations, "rgcn_pyg_without_bases", WeightFormat::Pyg);
}

#[test]
fn rgcn_with_dgl_weights_equals_dgl() {
    let AttentionExpected { n_bases, n_relations, .. } = attention_expected();
    check_rgcn(n_bases, "rgcn_dgl", WeightFormat::Dgl);
    check_rgcn(n_relations, "rgcn_dgl_without_bases", WeightFormat::Dgl);
}
