//! The memory of exact inference by layers with large intermediate tensors, as counted by an allocator. The test has its
//! own process, so that no other test allocates at the same time.
// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use burn::tensor::Device;
use kiln_feature::{DenseFeatures, EdgeFeatures};
use kiln_graph::{Csc, CscBuilder};
use kiln_nn::{AttentionKind, BlockModel, EdgeInput, GatConfig, GineConfig, RgcnConfig, SageConfig};
use kiln_sample::RngKey;
use kiln_train::{LayerWiseConfig, LayerWiseInference};
use peak_alloc::PeakAlloc;

#[global_allocator]
static PEAK: PeakAlloc = PeakAlloc;

const N_NODES: u32 = 60_000;
const D_IN: usize = 16;
const D_OUT: usize = 8;

/// The limit for the tensors of one range of nodes.
const RANGE_BYTES: u64 = 24 << 20;

/// The memory that is not charged to ranges: the sampler's table, the outputs of all nodes, and the packed panels of the
/// matrix products.
const OTHER_BYTES: u64 = (8 + 4 * D_OUT as u64) * N_NODES as u64 + (4 << 20);

fn graph() -> Arc<Csc> {
    let n_edges = 10 * N_NODES;
    let srcs: Vec<u32> = (0..n_edges).map(|edge| edge.wrapping_mul(2_654_435_761) % N_NODES).collect();
    let dsts: Vec<u32> = (0..n_edges).map(|edge| edge % N_NODES).collect();
    let types: Vec<u8> = (0..n_edges).map(|edge| (edge % 3) as u8).collect();
    Arc::new(CscBuilder::new(N_NODES as usize).edge_types(&types).build(&srcs, &dsts).unwrap())
}

fn check<M: BlockModel>(name: &str, model: &M, graph: &Arc<Csc>) {
    let with_types = |inference: LayerWiseInference| inference.carry_edge_types().unwrap();
    check_with(name, model, graph, with_types);
}

/// Checks the memory of an inference that `configure` completes.
fn check_with<M: BlockModel>(
    name: &str,
    model: &M,
    graph: &Arc<Csc>,
    configure: impl FnOnce(LayerWiseInference) -> LayerWiseInference,
) {
    let features = DenseFeatures::from_f32(vec![0.5; N_NODES as usize * D_IN], D_IN).unwrap();
    let config = LayerWiseConfig { range_bytes: RANGE_BYTES, spill: None };
    PEAK.reset_peak_usage();
    let before = PEAK.current_usage() as u64;
    let inference = configure(LayerWiseInference::new(graph.clone(), config).unwrap());
    inference.outputs(model, &features, &Device::flex()).unwrap();
    let (peak, limit) = (PEAK.peak_usage() as u64 - before, RANGE_BYTES + OTHER_BYTES);
    println!("{name}: {peak} of {limit}");
    assert!(
        RANGE_BYTES / 4 < peak,
        "{name}: {peak} bytes, the ranges are much smaller than the limit allows"
    );
    assert!(peak <= limit, "{name}: {peak} bytes, expected at most {limit}");
}

/// 16 averaged heads, 8 bases, and a row for each edge need several times the memory of a GraphSAGE.
#[test]
fn layers_with_large_intermediate_tensors_stay_within_the_limit() {
    let (graph, key, device) = (graph(), RngKey::new(1), Device::flex());
    let sage = SageConfig::new(D_IN, D_OUT).layers(1);
    check("GraphSAGE", &sage.init(key, &device).unwrap(), &graph);
    for attention in [AttentionKind::Gat, AttentionKind::GatV2] {
        let gat = GatConfig::new(D_IN, D_OUT).layers(1).output_heads(16).attention(attention);
        check(&format!("{attention:?}"), &gat.init(key, &device).unwrap(), &graph);
    }
    let rgcn = RgcnConfig::new(D_IN, D_OUT, 3).layers(1).bases(8);
    check("R-GCN", &rgcn.init(key, &device).unwrap(), &graph);
    let gine = GineConfig::new(D_IN, D_OUT, EdgeInput::Types(3)).layers(1).hidden(128);
    check("GINE", &gine.init(key, &device).unwrap(), &graph);
    let rows = vec![0.5; 32 * graph.n_edges() as usize];
    let rows = EdgeFeatures::new(rows, 32).unwrap();
    let gine = GineConfig { edges: EdgeInput::Features(32), ..gine };
    let with_rows = |inference: LayerWiseInference| inference.carry_edge_column("features", rows).unwrap();
    check_with("GINE of features", &gine.init(key, &device).unwrap(), &graph, with_rows);
}
