//! The builder's peak memory, counted by the allocator of this test binary.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kiln_graph::{Csc, CscBuilder, SelfLoops};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator unchanged; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promise for `alloc` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise for `dealloc` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak bytes while building, the edge list not counted, over the bytes of the finished graph.
fn peak_ratio(build: impl Fn() -> Csc) -> f64 {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let graph = build();
    (PEAK.load(Relaxed) - before) as f64 / graph.owned_bytes() as f64
}

/// One test, so that no other allocates meanwhile.
#[test]
fn peak_memory_stays_below_two_and_a_half_times_the_graph() {
    let (n_nodes, n_edges) = (20_000u32, 400_000u32);
    let srcs: Vec<u32> = (0..n_edges).map(|i| i.wrapping_mul(2_654_435_761) % n_nodes).collect();
    let dsts: Vec<u32> = (0..n_edges).map(|i| i % n_nodes).collect();
    let weights = vec![1.0; n_edges as usize];
    let types = vec![3; n_edges as usize];
    // The pool's own memory is not the builder's.
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
    // One destination has all edges, so that one thread sorts them.
    let (star, hub) = (CscBuilder::new(n_nodes as usize), vec![7; n_edges as usize]);
    for builder in [star.clone(), star.weights(&weights)] {
        let ratio = peak_ratio(|| builder.build(&srcs, &hub).unwrap());
        assert!(ratio <= 2.5, "a star: peak memory is {ratio:.2} times the graph");
    }
}
