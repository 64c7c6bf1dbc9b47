//! The memory of exact inference, as measured by Linux. The test has its own process, so that no other test allocates
//! at the same time.
#![cfg(target_os = "linux")]
// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_feature::DenseFeatures;
use kiln_graph::{Csc, CscBuilder};
use kiln_kernels::DeviceBlock;
use kiln_nn::{Aggregate, BlockModel, ForwardContext, LayerSize, Sage, SageConfig};
use kiln_sample::RngKey;
use kiln_train::{LayerWiseConfig, LayerWiseInference, MemoryUse, Spill};

const N_NODES: u32 = 300_000;
const HIDDEN: usize = 64;

/// The size of one layer's activations: 77 MB.
const LAYER_BYTES: u64 = N_NODES as u64 * HIDDEN as u64 * 4;

const RANGE_BYTES: u64 = 24 << 20;

/// The size of the sampler's table.
const TABLE_BYTES: u64 = 8 * N_NODES as u64;

/// The memory that is not charged to ranges: the packed panels of the matrix product, the write buffer, thread stacks,
/// and memory that the allocator retains.
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
        ..SageConfig::new(16, HIDDEN)
    };
    config.init(RngKey::new(1), &Device::flex()).unwrap()
}

fn inference(graph: &Arc<Csc>, memory_bytes: u64, folder: &Path) -> LayerWiseInference {
    let spill = Some(Spill { memory_bytes, folder: folder.to_owned() });
    LayerWiseInference::new(graph.clone(), LayerWiseConfig { range_bytes: RANGE_BYTES, spill }).unwrap()
}

/// Returns the peak memory during a call minus the memory in use before it, in bytes.
fn peak_bytes<R>(call: impl FnOnce() -> R) -> u64 {
    // Writing 5 resets the high-water mark (proc_pid_clear_refs(5)).
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

/// The peak anonymous memory, sampled before and after each layer.
static ANON_BYTES: AtomicU64 = AtomicU64::new(0);

fn look() {
    ANON_BYTES.fetch_max(MemoryUse::now().anon_bytes, Relaxed);
}

/// A model that samples the memory of the process.
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

    fn layer_size(&self, i: usize) -> Option<LayerSize> {
        self.sage.layer_size(i)
    }
}

#[test]
fn memory_stays_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let (graph, device) = (graph(), Device::flex());
    let features = DenseFeatures::from_f32(vec![0.5; N_NODES as usize * 16], 16).unwrap();
    // This call starts the threads of the pool, so that the memory for their start is not measured.
    rayon::broadcast(|_| ());

    // With one layer, an output in a file is mapped but not read, so all resident memory that the inference adds is
    // anonymous.
    let limit = RANGE_BYTES + TABLE_BYTES;
    let one = sage(1);
    let spilled =
        peak_bytes(|| inference(&graph, limit, folder.path()).outputs(&one, &features, &device).unwrap());
    println!("one layer, spilled: {spilled} of {limit}");
    assert!(spilled <= limit + SLACK_BYTES, "{spilled} bytes, expected at most {limit} and the slack");
    let kept = peak_bytes(|| {
        inference(&graph, limit + LAYER_BYTES, folder.path()).outputs(&one, &features, &device).unwrap()
    });
    println!("one layer, kept: {kept} of {}", limit + LAYER_BYTES);
    assert!(LAYER_BYTES < kept && kept <= limit + LAYER_BYTES + SLACK_BYTES, "{kept} bytes");

    // With three layers and a limit that has room for one layer's activations, the other activations are in mapped
    // files, which are not anonymous memory.
    let three = Watched { sage: sage(3) };
    let before = MemoryUse::now().anon_bytes;
    let limit = limit + LAYER_BYTES;
    inference(&graph, limit, folder.path()).outputs(&three, &features, &device).unwrap();
    let held = ANON_BYTES.load(Relaxed) - before;
    println!("three layers: {held} of {limit}");
    assert!(
        LAYER_BYTES < held && held <= limit + SLACK_BYTES,
        "{held} bytes, expected at most {limit} and the slack"
    );
}
