//! The memory of training steps of layers with attention and relations: no allocation has a row of all columns per
//! edge. The test counts allocations, so it has its own process.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(unsafe_code, reason = "the test counts the allocations of its process")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_nn::{
    Aggregate, ForwardContext, GatConvConfig, GatV2ConvConfig, Mode, RgcnConvConfig, SageConvConfig,
};
use kiln_sample::RngKey;

/// Counts the bytes in use, their peak and the largest allocation.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

fn count(n_bytes: usize) {
    let in_use = IN_USE.fetch_add(n_bytes, Relaxed) + n_bytes;
    PEAK.fetch_max(in_use, Relaxed);
    LARGEST.fetch_max(n_bytes, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const N_SRC: usize = 4_000;
const N_DST: usize = 2_000;
const DEGREE: usize = 100;
const N_EDGES: usize = N_DST * DEGREE;
const N_HEADS: usize = 4;
/// The width of the input rows and of the output rows.
const WIDTH: usize = 64;

fn block() -> DeviceBlock {
    let sources = (0..N_EDGES).map(|edge| LocalId((edge * 7919 % N_SRC) as u32));
    let mut block = Block::new(BlockParts {
        srcs: (0..N_SRC as u32).map(NodeId).collect(),
        indptr: (0..=N_DST).map(|dst| (dst * DEGREE) as u32).collect(),
        indices: sources.collect(),
        edge_ids: (0..N_EDGES as u64).map(EdgeId).collect(),
        weights: None,
        edge_types: Some((0..N_EDGES).map(|edge| (edge % 10) as u8).collect()),
    });
    block.transpose();
    DeviceBlock::new(block, &Device::flex())
}

/// The peak above the memory in use before the step, and the largest allocation, in bytes.
fn step(
    block: &DeviceBlock,
    layer: impl Fn(&DeviceBlock, Tensor<2>, &ForwardContext) -> Tensor<2>,
) -> [usize; 2] {
    let values: Vec<f32> = (0..N_SRC * WIDTH).map(|i| (i % 1021) as f32 / 1021.0).collect();
    let x = Tensor::from_data(TensorData::new(values, [N_SRC, WIDTH]), &Device::flex().autodiff());
    let x: Tensor<2> = x.require_grad();
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Train };
    let before = IN_USE.load(Relaxed);
    PEAK.store(before, Relaxed);
    LARGEST.store(0, Relaxed);
    let gradients = layer(block, x.clone(), &ctx).sum().backward();
    assert!(x.grad(&gradients).is_some());
    [PEAK.load(Relaxed) - before, LARGEST.load(Relaxed)]
}

#[test]
fn steps_allocate_no_row_per_edge() {
    let (key, device, block) = (RngKey::new(0), Device::flex().autodiff(), block());
    let sage = SageConvConfig { d_in: WIDTH, d_out: WIDTH, aggregate: Aggregate::Mean };
    let sage = sage.init(key, &device).unwrap();
    let gat = GatConvConfig { attention_dropout: 0.3, ..GatConvConfig::new(WIDTH, WIDTH / N_HEADS, N_HEADS) };
    let gat = gat.init(key, &device).unwrap();
    let gatv2 = GatV2ConvConfig::new(WIDTH, WIDTH / N_HEADS, N_HEADS);
    let gatv2 = GatV2ConvConfig { attention_dropout: 0.3, ..gatv2 }.init(key, &device).unwrap();
    let rgcn = RgcnConvConfig { d_in: WIDTH, d_out: WIDTH, n_relations: 10, n_bases: 4 };
    let rgcn = rgcn.init(key, &device).unwrap();
    let steps = [
        ("sage", step(&block, |block, x, _| sage.forward(block, x))),
        ("gat", step(&block, |block, x, ctx| gat.forward(0, block, x, ctx))),
        ("gatv2", step(&block, |block, x, ctx| gatv2.forward(0, block, x, ctx))),
        ("rgcn", step(&block, |block, x, _| rgcn.forward(block, x))),
    ];
    let rows_per_edge = N_EDGES * WIDTH * size_of::<f32>();
    for (name, [peak, largest]) in steps {
        println!("{name}: peak {peak}, largest allocation {largest}");
        assert!(largest < rows_per_edge / 4, "{name}: {largest} bytes, rows of edges take {rows_per_edge}");
    }
}
