//! The memory of the ops of layers with attention and relations, forward and backward: no allocation has a row of all
//! columns per edge. The test counts allocations, so it has its own process.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(unsafe_code, reason = "the test counts the allocations of its process")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, OwnRow, Reduction};
use kiln_sample::RngKey;

/// Counts the largest allocation.
struct Counting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
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

fn rows(n_rows: usize, width: usize) -> Tensor<2> {
    let values: Vec<f32> = (0..n_rows * width).map(|i| (i % 1021) as f32 / 1021.0 - 0.5).collect();
    let data = TensorData::new(values, [n_rows, width]);
    Tensor::from_data(data, &Device::flex().autodiff()).require_grad()
}

/// Returns the largest allocation of a layer, forward and backward, in bytes.
fn largest_of(layer: impl FnOnce() -> Tensor<2>) -> usize {
    LARGEST.store(0, Relaxed);
    drop(layer().sum().backward());
    LARGEST.load(Relaxed)
}

fn attend(
    block: &DeviceBlock,
    src: Tensor<2>,
    dst: Tensor<2>,
    vectors: Tensor<2>,
    x: Tensor<2>,
) -> Tensor<2> {
    let scores = ops::attention_scores(block, src, dst, vectors, 0.2);
    let weights = ops::edge_dropout(block, ops::edge_softmax(block, scores), RngKey::new(0), 0, 0.3);
    let weights = Some(MessageWeights::PerHead(weights));
    ops::elu(ops::aggregate(block, x, Aggregation { weights, ..Reduction::Sum.into() }))
}

#[test]
fn no_op_allocates_a_row_per_edge() {
    let block = block();
    let x = || rows(N_SRC, WIDTH);
    let (src, dst, ones) = (rows(N_SRC, N_HEADS), rows(N_DST, N_HEADS), rows(N_HEADS, 1));
    let (gatv2_dst, vectors) = (rows(N_DST, WIDTH), rows(N_HEADS, WIDTH / N_HEADS));
    let table = rows(10, 4);
    let relational = || {
        let shares = ops::relation_shares(&block, 10, None);
        let weights = Some(MessageWeights::PerBasis(ops::relation_weights(&block, table, shares)));
        ops::aggregate(
            &block,
            x(),
            Aggregation { reduce: Reduction::Sum, weights, own: OwnRow::Concatenated },
        )
    };
    let normalized = || {
        let weights = Tensor::ones([N_EDGES], &Device::flex());
        let weights = Some(MessageWeights::PerEdge(ops::edge_shares(&block, weights)));
        ops::aggregate(&block, x(), Aggregation { weights, ..Reduction::Sum.into() })
    };
    let largest = [
        ("gat", largest_of(|| attend(&block, src, dst, ones, x()))),
        ("gatv2", largest_of(|| attend(&block, x(), gatv2_dst, vectors, x()))),
        ("rgcn", largest_of(relational)),
        ("sage with normalised weights", largest_of(normalized)),
    ];
    let row_per_edge = N_EDGES * WIDTH * size_of::<f32>();
    for (name, largest) in largest {
        println!("{name}: largest allocation {largest} bytes");
        // An array with a number per edge and head is a sixteenth of one with a row per edge.
        assert!(0 < largest && largest <= row_per_edge / 16, "{name}: {largest} of {row_per_edge} bytes");
    }
}
