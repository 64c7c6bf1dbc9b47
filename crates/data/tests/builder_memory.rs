//! Checks that building a dataset copies no array, by addresses and by the heap usage, which this binary's allocator
//! counts.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::sync::Arc;

use kiln_data::Dataset;
use kiln_feature::FeatureArray;
use kiln_graph::{CscBuilder, MappedFile, NodeId, SharedArray};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const N_NODES: usize = 50_000;
const DIM: usize = 32;

/// The allowed heap usage: two bytes per node for the check of the split, and small allocations.
const SMALL_BYTES: usize = 2 * N_NODES + (32 << 10);

fn peak_bytes<R>(run: impl FnOnce() -> R) -> (R, usize) {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let result = run();
    (result, HEAP.peak_usage() - before)
}

/// Runs all checks in one test, because the allocator counts the heap of the whole process.
#[test]
fn building_a_dataset_copies_no_array() {
    let graph = Arc::new(CscBuilder::new(N_NODES).build(&[], &[]).unwrap());
    let rows = vec![0.5_f32; N_NODES * DIM];
    let classes: Vec<i32> = (0..N_NODES as i32).map(|node| node % 4).collect();
    let ids = |part: u32| (0..N_NODES as u32).filter(|node| node % 3 == part).collect::<Vec<u32>>();
    let (train, val, test) = (ids(0), ids(1), ids(2));
    let given = (rows.as_ptr(), classes.as_ptr(), train.as_ptr().cast::<NodeId>());

    let rows = FeatureArray::from(rows);
    let FeatureArray::F32(values) = &rows else { panic!("the rows should be f32, got {:?}", rows.dtype()) };
    assert_eq!(values.as_ptr(), given.0);
    let builder = Dataset::builder(N_NODES).graph(graph.clone());
    let (data, peak) =
        peak_bytes(|| builder.features(rows, DIM).labels(classes, 4).split(train, val, test).build());
    let data = data.unwrap();
    assert!(
        peak <= SMALL_BYTES,
        "the peak heap usage is {peak} bytes, and a copy of the labels alone takes {}",
        4 * N_NODES
    );
    assert_eq!((data.labels().as_slice().as_ptr(), data.split().train.as_ptr()), (given.1, given.2));

    // The second check uses rows that stay in their mapped file.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    fs::write(&path, bytemuck::cast_slice(&vec![0.25_f32; N_NODES * DIM])).unwrap();
    let mapping = MappedFile::open(&path).unwrap();
    let mapped: SharedArray<f32> = mapping.slice(0..4 * N_NODES * DIM).unwrap();
    let (classes, split) = (vec![0; N_NODES], data.split().clone());
    let builder = Dataset::builder(N_NODES).graph(graph).labels(classes, 1);
    let (data, peak) =
        peak_bytes(|| builder.features(mapped, DIM).split(split.train, split.val, split.test).build());
    assert!(peak <= SMALL_BYTES, "the peak heap usage is {peak} bytes, expected at most {SMALL_BYTES}");
    assert_eq!(data.unwrap().node_features().unwrap().row(NodeId(7)).unwrap(), [0.25; DIM]);
}
