//! The memory that exact inference takes, as Linux counts it: a process of its own with one test, so that
//! no other allocates meanwhile.
#![cfg(target_os = "linux")]
// Helpers of tests unwrap as tests do.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_feature::DenseFeatures;
use kiln_graph::{Csc, CscBuilder};
use kiln_kernels::DeviceBlock;
use kiln_nn::{Aggregate, BlockModel, ForwardContext, LayerWiseModel, Sage, SageConfig};
use kiln_sample::RngKey;
use kiln_train::{LayerWiseConfig, LayerWiseInference, MemoryUse, Spill};

const N_NODES: u32 = 300_000;
const HIDDEN: usize = 64;

/// Bytes of one layer's activations: 77 MB.
const LAYER_BYTES: u64 = N_NODES as u64 * HIDDEN as u64 * 4;

const RANGE_BYTES: u64 = 24 << 20;

/// The sampler's table.
const TABLE_BYTES: u64 = 8 * N_NODES as u64;

/// What no range is charged for: the matrix product's packed panels, the write buffer, threads' stacks, and
/// what the allocator keeps.
const SLACK_BYTES: u64 = 12 << 20;

fn graph() -> Arc<Csc> {
    let n_edges = 5 * N_NODES;
    let srcs: Vec<u32> = (0..n_edges).map(|edge| edge.wrapping_mul(2_654_435_761) % N_NODES).collect();
    let dsts: Vec<u32> = (0..n_edges).map(|edge| edge % N_NODES).collect();
    Arc::new(CscBuilder::new(N_NODES as usize).build(&srcs, &dsts).unwrap())
}

fn sage(n_layers: usize) -> Sage {
    let config = SageConfig {
        d_in: 16,
        hidden: HIDDEN,
        n_classes: HIDDEN,
        n_layers,
        aggregate: Aggregate::Mean,
        input_dropout: 0.0,
        dropout: 0.0,
    };
    config.init(RngKey::new(1), &Device::flex()).unwrap()
}

fn inference(graph: &Arc<Csc>, memory_bytes: u64, folder: &Path) -> LayerWiseInference {
    let spill = Some(Spill { memory_bytes, folder: folder.to_owned() });
    LayerWiseInference::new(graph.clone(), LayerWiseConfig { range_bytes: RANGE_BYTES, spill }).unwrap()
}

/// The most memory that a call held above what there was before, in bytes.
fn peak_bytes<R>(call: impl FnOnce() -> R) -> u64 {
    // Sets the high-water mark back (proc_pid_clear_refs(5)).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let high_water = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    let before = high_water();
    drop(call());
    high_water() - before
}

/// Anonymous memory at its most, seen before and after each layer.
static ANON_BYTES: AtomicU64 = AtomicU64::new(0);

fn look() {
    ANON_BYTES.fetch_max(MemoryUse::now().anon_bytes, Relaxed);
}

/// A model that looks at the process's memory.
#[derive(Module, Debug)]
struct Watched {
    sage: Sage,
}

impl BlockModel for Watched {
    fn n_layers(&self) -> usize {
        self.sage.n_layers()
    }

    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        look();
        let x = self.sage.layer(i, block, x, ctx);
        look();
        x
    }
}

impl LayerWiseModel for Watched {
    fn widths(&self, i: usize) -> [usize; 2] {
        self.sage.widths(i)
    }
}

#[test]
fn memory_stays_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let (graph, device) = (graph(), Device::flex());
    let features = DenseFeatures::from_f32(vec![0.5; N_NODES as usize * 16], 16).unwrap();
    // Threads and their stacks are there before anything is counted.
    rayon::broadcast(|_| ());

    // One layer: all that it takes, at any moment, is anonymous memory.
    let limit = RANGE_BYTES + TABLE_BYTES;
    let one = sage(1);
    let spilled =
        peak_bytes(|| inference(&graph, limit, folder.path()).outputs(&one, &features, &device).unwrap());
    println!("one layer, spilled: {spilled} of {limit}");
    assert!(spilled <= limit + SLACK_BYTES, "{spilled} bytes of {limit}");
    let kept = peak_bytes(|| {
        inference(&graph, limit + LAYER_BYTES, folder.path()).outputs(&one, &features, &device).unwrap()
    });
    println!("one layer, kept: {kept} of {}", limit + LAYER_BYTES);
    assert!(LAYER_BYTES < kept && kept <= limit + LAYER_BYTES + SLACK_BYTES, "{kept} bytes");

    // Three layers, with room for one layer's activations: mapped pages are the system's.
    let three = Watched { sage: sage(3) };
    let before = MemoryUse::now().anon_bytes;
    let limit = limit + LAYER_BYTES;
    inference(&graph, limit, folder.path()).outputs(&three, &features, &device).unwrap();
    let held = ANON_BYTES.load(Relaxed) - before;
    println!("three layers: {held} of {limit}");
    assert!(LAYER_BYTES < held && held <= limit + SLACK_BYTES, "{held} bytes of {limit}");
}
