//! Tests the heap usage of converting, writing and verifying, which this binary's allocator counts.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, DatasetTargets, Error, Split, format, open_within};
use kiln_feature::{DenseFeatures, Labels, Preparation};
use kiln_graph::{CscBuilder, NodeId};
use kiln_store::npy;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Returns the peak heap usage of `run` in bytes, above the usage before it.
fn peak_bytes(run: impl FnOnce()) -> usize {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    run();
    HEAP.peak_usage() - before
}

/// Writes a list of edges with scattered destinations and returns the size of the file in bytes.
fn write_edges(path: &Path, n_nodes: u32, n_edges: usize) -> usize {
    let id = |i: usize, factor: u64| (((i as u64 * factor) >> 7) % u64::from(n_nodes)) as u32;
    let srcs = (0..n_edges).map(|i| id(i, 0x9e37_79b9_7f4a));
    let edges: Vec<u32> = srcs.chain((0..n_edges).map(|i| id(i, 0xc2b2_ae3d_27d4))).collect();
    let bytes = npy::write(&edges, &[2, n_edges]);
    fs::write(path, &bytes).unwrap();
    bytes.len()
}

fn check_conversion(root: &Path) {
    const BUDGET: usize = 5 << 20;
    let input = root.join("edges");
    fs::create_dir(&input).unwrap();
    let (n_nodes, n_edges) = (200_000, 2_700_000);
    let file_bytes = write_edges(&input.join("edges.npy"), n_nodes, n_edges);
    assert!(4 * BUDGET <= file_bytes);
    let mut options =
        ConvertOptions { memory_bytes: BUDGET as u64, n_nodes: Some(200_000), ..ConvertOptions::default() };
    let check = |name: &str, options: &ConvertOptions| {
        let mut n_buckets = 0;
        let peak = peak_bytes(|| n_buckets = convert(&input, root.join(name), options).unwrap().n_buckets);
        println!("{name}: {peak} bytes at the peak, {n_buckets} buckets");
        assert!(n_buckets > 3, "got {n_buckets} buckets, expected more than 3");
        assert!(
            peak <= BUDGET + BUDGET / 10,
            "{name}: the peak heap usage is {peak} bytes, expected at most 1.1 * {BUDGET}"
        );
        // The conversion should use most of its memory, because this keeps the number of buckets low.
        assert!(
            BUDGET / 2 < peak,
            "{name}: the peak heap usage is {peak} bytes, expected half of {BUDGET} or more"
        );
    };
    check("plain", &options);
    options.symmetrize = true;
    fs::write(input.join("weights.npy"), npy::write(&vec![0.5_f32; n_edges], &[n_edges])).unwrap();
    fs::write(input.join("edge_types.npy"), npy::write(&vec![1_u8; n_edges], &[n_edges])).unwrap();
    check("symmetric with data", &options);
}

/// Converts text whose rows and edges exceed the memory limit.
fn check_text(root: &Path) {
    const BUDGET: usize = 1 << 20;
    let (n_nodes, n_edges, dim) = (10_000, 300_000, 256);
    let put = |name: &str, text: String| {
        let path = root.join("ogbn_products").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let lines = |n: usize, line: &dyn Fn(usize) -> String| (0..n).map(|i| line(i) + "\n").collect::<String>();
    put("raw/edge.csv", lines(n_edges, &|i| format!("{},{}", i % n_nodes, i * 7 % n_nodes)));
    put("raw/num-node-list.csv", format!("{n_nodes}\n"));
    put("raw/num-edge-list.csv", format!("{n_edges}\n"));
    put("raw/node-label.csv", lines(n_nodes, &|i| (i % 9).to_string()));
    put("raw/node-feat.csv", lines(n_nodes, &|i| vec![(i % 100).to_string(); dim].join(",")));
    for (part, name) in ["train", "valid", "test"].iter().enumerate() {
        put(&format!("split/any/{name}.csv"), lines(n_nodes / 3, &|i| (3 * i + part).to_string()));
    }
    assert!(2 * BUDGET < 8 * n_edges && 8 * BUDGET < 4 * dim * n_nodes);
    let options = ConvertOptions { memory_bytes: BUDGET as u64, ..ConvertOptions::default() };
    let mut n_buckets = 0;
    let (input, out) = (root.join("ogbn_products"), root.join("text"));
    let peak = peak_bytes(|| n_buckets = convert(&input, out, &options).unwrap().n_buckets);
    println!("text: {peak} bytes at the peak, {n_buckets} buckets");
    assert!(n_buckets > 3, "got {n_buckets} buckets, expected more than 3");
    assert!(
        peak <= BUDGET + BUDGET / 10,
        "the peak heap usage is {peak} bytes, expected at most 1.1 * {BUDGET}"
    );
}

/// Converts a set with `f64` features and the maximum number of classes. A single large label causes this number.
fn check_labels(root: &Path) {
    const BUDGET: usize = 1 << 20;
    let input = root.join("labels");
    fs::create_dir(&input).unwrap();
    let (n_nodes, dim) = (20_000, 64);
    write_edges(&input.join("edges.npy"), n_nodes as u32, 1000);
    let put = |name: &str, bytes: Vec<u8>| fs::write(input.join(name), bytes).unwrap();
    put("features.npy", npy::write(&vec![0.5_f64; n_nodes * dim], &[n_nodes, dim]));
    let mut labels = vec![0_i64; n_nodes];
    labels[7] = (1 << 20) - 1;
    put("labels.npy", npy::write(&labels, &[n_nodes]));
    for (name, node) in [("train.npy", 0_i64), ("val.npy", 1), ("test.npy", 2)] {
        put(name, npy::write(&[node], &[1]));
    }
    drop(labels);
    let options = ConvertOptions { memory_bytes: BUDGET as u64, ..ConvertOptions::default() };
    let peak = peak_bytes(|| drop(convert(&input, root.join("classes"), &options).unwrap()));
    println!("labels: {peak} bytes at the peak");
    assert!(
        peak <= BUDGET + BUDGET / 10,
        "the peak heap usage is {peak} bytes, expected at most 1.1 * {BUDGET}"
    );
    let manifest = fs::read(root.join("classes/kiln.json")).unwrap();
    assert!(manifest.len() < 4096, "the manifest has {} bytes, expected fewer than 4096", manifest.len());
    let data = format::open(root.join("classes")).unwrap();
    assert_eq!(data.class_names().last().unwrap(), "1048575");
    // Writing the opened set reproduces the manifest.
    format::write(&data, root.join("again")).unwrap();
    assert!(manifest == fs::read(root.join("again/kiln.json")).unwrap());
}

/// Opens a compressed edge list whose edges take 80 times the memory limit. The reader must reject the list before it
/// has read all edges.
fn check_compressed_edges(root: &Path) {
    const LIMIT: usize = 1 << 20;
    let input = root.join("compressed");
    fs::create_dir(&input).unwrap();
    let mut edges =
        GzEncoder::new(fs::File::create(input.join("edges.csv.gz")).unwrap(), Compression::fast());
    let lines = "0,1\n".repeat(1000);
    (0..10 * LIMIT / 1000).for_each(|_| edges.write_all(lines.as_bytes()).unwrap());
    edges.finish().unwrap();
    fs::write(input.join("labels.npy"), npy::write(&[0_i32, 0], &[2])).unwrap();
    let peak = peak_bytes(|| {
        let error = open_within(&input, LIMIT as u64).unwrap_err();
        assert!(matches!(error, Error::EdgeListTooLarge { .. }), "{error}");
    });
    println!("compressed: {peak} bytes at the peak");
    assert!(peak < 3 * LIMIT, "the peak heap usage is {peak} bytes, expected less than 3 * {LIMIT}");
}

/// Converts an edge list with edge features, whose rows exceed the memory limit.
fn check_edge_features(root: &Path) {
    let input = root.join("edge-features");
    fs::create_dir(&input).unwrap();
    let (n_nodes, n_edges, dim) = (50_000, 400_000, 64);
    write_edges(&input.join("edges.npy"), n_nodes, n_edges);
    fs::write(input.join("weights.npy"), npy::write(&vec![0.5_f32; n_edges], &[n_edges])).unwrap();
    fs::write(input.join("edge_types.npy"), npy::write(&vec![1_u8; n_edges], &[n_edges])).unwrap();
    let rows = npy::write(&vec![0.5_f32; n_edges * dim], &[n_edges, dim]);
    fs::write(input.join("edge_features.npy"), &rows).unwrap();
    for symmetrize in [false, true] {
        let out = root.join(format!("edge-features-{symmetrize}"));
        let mut options = ConvertOptions { memory_bytes: 1, symmetrize, ..ConvertOptions::default() };
        let Error::Memory { needed_bytes, .. } = convert(&input, &out, &options).unwrap_err() else {
            panic!("a limit of one byte should be too low")
        };
        // With the least memory, a bucket has the edges of a few nodes, so that the list is read thousands of times.
        options.memory_bytes = 24 << 20;
        assert!(needed_bytes < options.memory_bytes);
        let peak = peak_bytes(|| drop(convert(&input, &out, &options).unwrap()));
        println!("edge features: {peak} bytes at the peak, {} allowed", options.memory_bytes);
        assert!(
            peak as u64 <= options.memory_bytes && peak < rows.len(),
            "the peak heap usage is {peak} bytes"
        );
    }
}

/// Writes, opens and verifies a set with large features. None of these steps may hold all features in memory.
fn check_writing(root: &Path) {
    let (n_nodes, dim) = (50_000, 64);
    let data = Dataset {
        name: "large".into(),
        graph: CscBuilder::new(n_nodes).build(&[], &[]).unwrap().into(),
        features: vec![Some(Arc::new(DenseFeatures::from_f32(vec![1.0; n_nodes * dim], dim).unwrap()))],
        feature_columns: vec![Vec::new()],
        targets: Some(DatasetTargets {
            node_type: 0,
            values: Labels::new(vec![0; n_nodes], 1).into(),
            split: Split { train: (0..n_nodes as u32).map(NodeId).collect(), ..Split::default() },
            class_names: vec!["all".into()],
        }),
        names: vec![Arc::default()],
        edge_type_names: Vec::new(),
        first_new: None,
        times: Default::default(),
        layout: kiln_data::Layout::Plain,
        preparation: Preparation::default(),
        links: None,
        tasks: Vec::new(),
        notes: Vec::new(),
    };
    let check = |what: &str, run: &dyn Fn()| {
        let peak = peak_bytes(run);
        println!("{what}: {peak} bytes at the peak");
        assert!(peak < 1 << 20, "{what}: the peak heap usage is {peak} bytes, expected less than 1 MiB");
    };
    check("writing", &|| format::write(&data, root.join("large")).unwrap());
    check("opening", &|| drop(format::open(root.join("large")).unwrap()));
    check("verifying", &|| drop(format::verify(root.join("large")).unwrap()));
}

/// Runs all checks in a single test, because the allocator would also count the allocations of concurrent tests.
#[test]
fn heap_usage_stays_within_the_memory_limit() {
    let root = tempfile::tempdir().unwrap();
    check_conversion(root.path());
    check_text(root.path());
    check_labels(root.path());
    check_compressed_edges(root.path());
    check_edge_features(root.path());
    check_writing(root.path());
}
