//! The peak heap usage of partitioning and writing, counted by the allocator of this test binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{Dataset, format, synthetic};
use kiln_partition::{
    CacheConfig, Method, Part, PartitionBook, PartitionMeta, part_dir, partition_nodes, write_parts,
};
use kiln_sample::Fanout;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The allowance of each step for memory that does not grow with the nodes: file buffers and strings.
const FIXED_BYTES: usize = 1 << 20;

/// Checks that `run` allocates at most `most` bytes of heap at its peak, in addition to the fixed allowance.
fn check_peak<T>(what: &str, most: usize, run: impl FnOnce() -> T) -> T {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let result = run();
    let peak = HEAP.peak_usage() - before;
    println!("{what}: {peak} bytes at the peak, at most {most} expected");
    assert!(
        peak <= most + FIXED_BYTES,
        "{what}: {peak} bytes at the peak, expected at most {most} + {FIXED_BYTES}"
    );
    result
}

/// A memory-mapped power-law graph of 2^18 nodes and 2^22 edges. Its features take the same number of bytes as its
/// edges.
fn mapped(root: &std::path::Path) -> Dataset {
    format::write(&synthetic::rmat(18, 16, 16, 1).unwrap(), root.join("set")).unwrap();
    format::open(root.join("set")).unwrap()
}

/// This binary has a single test, because concurrent tests would share the allocator's counters.
#[test]
fn peak_heap_stays_within_documented_limits() {
    const N_PARTS: usize = 4;
    let root = tempfile::tempdir().unwrap();
    let data = mapped(root.path());
    let (n_nodes, n_train) = (data.graph.n_nodes(), data.split().train.len());
    let file_bytes = 4 * data.graph.n_edges() as usize + 4 * n_nodes * data.node_features().unwrap().dim();
    assert!(
        12 * n_nodes + 4 * FIXED_BYTES < file_bytes,
        "the files should be larger than the limits, but have {file_bytes} bytes"
    );
    let of = |method| partition_nodes(data.csc().unwrap(), &data.split().train, N_PARTS, method, 0).unwrap();
    check_peak("random", 7 * n_nodes, || of(Method::Random));
    let parts = check_peak("fennel", 3 * n_nodes, || of(Method::Fennel));
    let book = PartitionBook::from_parts(&parts, N_PARTS).unwrap();
    drop(parts);
    let meta = PartitionMeta { hash: data.hash().unwrap(), method: Method::Fennel, n_cut_edges: 0 };
    let write = |cache: Option<&CacheConfig>, name: &str| {
        write_parts(&data, &book, &meta, cache, root.path().join(name)).unwrap()
    };
    check_peak("writing", 4 * n_nodes, || write(None, "plain"));
    // With small batches the memory of a batch is small compared to the memory that grows with the nodes.
    let cache = CacheConfig { ratio: 0.2, fanouts: vec![Fanout::UpTo(2); 2], batch_size: 16, seed: 0 };
    check_peak("with a cache", 16 * n_nodes + 4 * n_train, || write(Some(&cache), "cached"));
    check_peak("opening", 0, || Part::open(part_dir(root.path().join("cached"), 1)).unwrap());
    check_peak("verifying", 0, || Part::verify(part_dir(root.path().join("cached"), 1)).unwrap());
}
