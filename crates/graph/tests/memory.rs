//! The builder's peak memory, measured by a counting global allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kiln_graph::{Csc, CscBuilder, SelfLoops};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system allocator unchanged; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The peak bytes during a build, without the edge list, divided by the bytes of the finished graph.
fn peak_ratio(build: impl Fn() -> Csc) -> f64 {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let graph = build();
    (PEAK.load(Relaxed) - before) as f64 / graph.owned_bytes() as f64
}

/// The only test of this binary, so that no other test allocates at the same time.
#[test]
fn peak_memory_stays_below_two_and_a_half_times_the_graph() {
    let (n_nodes, n_edges) = (20_000u32, 400_000u32);
    let srcs: Vec<u32> = (0..n_edges).map(|i| i.wrapping_mul(2_654_435_761) % n_nodes).collect();
    let dsts: Vec<u32> = (0..n_edges).map(|i| i % n_nodes).collect();
    let weights = vec![1.0; n_edges as usize];
    let types = vec![3; n_edges as usize];
    // The thread pool is started first, because its memory is not part of the builder's.
    rayon::broadcast(|_| ());
    let builder = CscBuilder::new(n_nodes as usize);
    let looped = builder.clone().self_loops(SelfLoops::Add);
    let cases = [
        ("added loops", looped),
        ("plain", builder.clone()),
        ("symmetric", builder.clone().symmetrize()),
        ("weights", builder.clone().weights(&weights)),
        ("types", builder.clone().edge_types(&types)),
        ("symmetric with both", builder.symmetrize().weights(&weights).edge_types(&types)),
    ];
    for (name, builder) in cases {
        let ratio = peak_ratio(|| builder.build(&srcs, &dsts).unwrap());
        println!("{name}: {ratio:.2}");
        assert!(ratio <= 2.5, "{name}: peak memory is {ratio:.2} times the graph");
    }
    // All edges end in one destination, so one bin contains them all.
    let (star, hub) = (CscBuilder::new(n_nodes as usize), vec![7; n_edges as usize]);
    for builder in [star.clone(), star.weights(&weights)] {
        let ratio = peak_ratio(|| builder.build(&srcs, &hub).unwrap());
        assert!(ratio <= 2.5, "a star: peak memory is {ratio:.2} times the graph");
    }
}
