//! Tests that a conversion within a memory limit writes the same files as the in-memory builder and `format::write`.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use half::f16;
use kiln_data::convert::{self, ColumnFormat, ConvertOptions, ConvertReport, EdgeChunk, EdgeSource, convert};
use kiln_data::{Dataset, Result, format};
use kiln_graph::{Csc, CscBuilder, Duplicates, SelfLoops};
use kiln_store::npy;

use crate::common::{contents, contents_names, convert_with_least, numbers, put};

/// A pseudorandom edge list in memory.
struct List {
    n_nodes: usize,
    srcs: Vec<u32>,
    dsts: Vec<u32>,
    weights: Vec<f32>,
    types: Vec<u8>,
}

/// Returns a pseudorandom list with duplicates and self loops. Low ids have most of the edges, and the highest ids have
/// no edges.
fn list(seed: u64, n_nodes: usize, n_edges: usize) -> List {
    let mut next = numbers(seed);
    let mut id = || next(n_nodes - n_nodes / 10).min(next(n_nodes)) as u32;
    let (srcs, dsts) = (0..n_edges).map(|_| (id(), id())).unzip();
    let weights = (0..n_edges).map(|_| next(1000) as f32 / 8.0).collect();
    let types = (0..n_edges).map(|_| next(7) as u8).collect();
    List { n_nodes, srcs, dsts, weights, types }
}

/// The columns that the edges of a list have.
#[derive(Debug, Clone, Copy)]
struct ListData {
    weights: bool,
    edge_types: bool,
}

/// The combinations of columns to test.
const DATA: [ListData; 4] = [
    ListData { weights: false, edge_types: false },
    ListData { weights: true, edge_types: false },
    ListData { weights: false, edge_types: true },
    ListData { weights: true, edge_types: true },
];

impl List {
    /// Writes the list as a folder, with features, labels and a split whose element types need a conversion.
    fn write(&self, folder: &Path, data: ListData) {
        let (n, n_edges) = (self.n_nodes, self.srcs.len());
        let both: Vec<i64> = self.srcs.iter().chain(&self.dsts).map(|&id| id.into()).collect();
        put(folder, "edges.npy", &both, &[2, n_edges]);
        if data.weights {
            put(folder, "weights.npy", &self.weights, &[n_edges]);
        }
        if data.edge_types {
            put(folder, "edge_types.npy", &self.types, &[n_edges]);
        }
        put(folder, "features.npy", &(0..3 * n).map(|i| i as f64 / 3.0).collect::<Vec<_>>(), &[n, 3]);
        put(folder, "labels.npy", &(0..n).map(|v| v as i64 % 5 - 1).collect::<Vec<_>>(), &[n, 1]);
        for (part, name) in ["train_idx.npy", "val.npy", "test.npy"].into_iter().enumerate() {
            let nodes: Vec<i64> = (0..n as i64).filter(|v| v % 5 > 0 && *v as usize % 3 == part).collect();
            put(folder, name, &nodes, &[nodes.len()]);
        }
    }

    /// Returns the number of edges that repeat an earlier one, or its reverse if reverse edges are added.
    fn n_duplicates(&self, options: &ConvertOptions) -> u64 {
        let mut seen = HashSet::new();
        let mut n_duplicates = 0;
        for (&src, &dst) in self.srcs.iter().zip(&self.dsts) {
            let is_kept = src != dst || options.self_loops != SelfLoops::Remove;
            let ends = if options.symmetrize { (src.min(dst), src.max(dst)) } else { (src, dst) };
            n_duplicates += u64::from(is_kept && !seen.insert(ends));
        }
        if options.duplicates == Duplicates::Remove { n_duplicates } else { 0 }
    }

    fn build(&self, data: ListData, options: &ConvertOptions) -> Csc {
        let mut builder =
            CscBuilder::new(self.n_nodes).duplicates(options.duplicates).self_loops(options.self_loops);
        if options.symmetrize {
            builder = builder.symmetrize();
        }
        if data.weights {
            builder = builder.weights(&self.weights);
        }
        if data.edge_types {
            builder = builder.edge_types(&self.types);
        }
        builder.build(&self.srcs, &self.dsts).unwrap()
    }
}

fn all_options() -> Vec<ConvertOptions> {
    let mut all = Vec::new();
    for symmetrize in [false, true] {
        for duplicates in [Duplicates::Keep, Duplicates::Remove] {
            for self_loops in [SelfLoops::Keep, SelfLoops::Remove, SelfLoops::Add] {
                all.push(ConvertOptions { symmetrize, duplicates, self_loops, ..ConvertOptions::default() });
            }
        }
    }
    all
}

/// Converts with every combination of options, in one bucket, in several buckets, and with the smallest memory limit.
/// Checks that the files are those of the in-memory builder.
fn check_same_bytes(list: &List, data: ListData) {
    let root = tempfile::tempdir().unwrap();
    let input = root.path().join("set");
    fs::create_dir(&input).unwrap();
    list.write(&input, data);
    let rest = kiln_data::npy::open(&input).unwrap();
    for (case, options) in all_options().into_iter().enumerate() {
        let out = |name: &str| root.path().join(format!("{name}-{case}"));
        let graph = list.build(data, &options);
        format::write(&Dataset { graph: graph.into(), ..rest.clone() }, out("expected")).unwrap();
        let expected = contents(&out("expected"));
        let check = |name: &str, converted: &ConvertReport| {
            assert!(contents(&out(name)) == expected, "{name}: {options:?}, {data:?}");
            format::verify(out(name)).unwrap();
            assert_eq!(converted.n_coo_edges, list.srcs.len() as u64);
            assert_eq!(converted.n_duplicates, list.n_duplicates(&options), "{options:?}");
            assert_eq!(converted.notes, []);
        };
        let whole = convert(&input, out("whole"), &options).unwrap();
        check("whole", &whole);
        assert_eq!((whole.n_buckets, whole.n_readings), (1, 2));
        let (least, little) = convert_with_least(&input, &out("least"), &options);
        check("least", &least);
        assert!(least.n_buckets > 2 && least.n_readings > 2, "{least:?}");
        let options = ConvertOptions { memory_bytes: little.memory_bytes + 20_000, ..options };
        let some = convert(&input, out("some"), &options).unwrap();
        check("some", &some);
        assert!(some.n_buckets > 1 && some.n_readings < least.n_readings, "{some:?}");
    }
    assert!(contents_names(root.path()).iter().all(|name| !name.contains("unfinished")));
}

#[test]
fn conversion_with_all_options_and_edge_data_matches_the_in_memory_builder() {
    for (seed, data) in (1..).zip(DATA) {
        check_same_bytes(&list(seed, 400, 8_000), data);
    }
}

#[test]
fn conversion_of_empty_and_sparse_edge_lists_matches_the_in_memory_builder() {
    for (seed, n_nodes, n_edges) in [(11, 20, 0), (12, 20, 1), (13, 20_000, 30_000)] {
        let list = list(seed, n_nodes, n_edges);
        let root = tempfile::tempdir().unwrap();
        let input = root.path().join("set");
        fs::create_dir(&input).unwrap();
        list.write(&input, DATA[3]);
        for (case, options) in all_options().into_iter().enumerate() {
            let out = root.path().join(format!("least-{case}"));
            convert_with_least(&input, &out, &options);
            let (got, expected) = (format::open(out).unwrap().graph, list.build(DATA[3], &options));
            assert_eq!(
                (got.relation(0).graph.indptr(), got.relation(0).graph.indices()),
                (expected.indptr(), expected.indices())
            );
            assert_eq!(
                (got.relation(0).graph.weights(), got.relation(0).graph.edge_types()),
                (expected.weights(), expected.edge_types())
            );
        }
    }
}

#[test]
fn rejects_memory_limit_that_is_one_byte_too_small() {
    let root = tempfile::tempdir().unwrap();
    let input = root.path().join("edges.npy");
    // The destination of every edge is node 7.
    let edges: Vec<u32> = (0..6000).chain(std::iter::repeat_n(7, 6000)).collect();
    fs::write(&input, npy::write(&edges, &[2, 6000])).unwrap();
    let (_, least) = convert_with_least(&input, &root.path().join("star"), &ConvertOptions::default());
    let options = ConvertOptions { memory_bytes: least.memory_bytes - 1, ..least };
    let error = convert(&input, root.path().join("out"), &options).unwrap_err();
    assert!(error.to_string().contains("sorting the 6000 edges into node 7 needs"), "{error}");
    let options = ConvertOptions { memory_bytes: 100_000, ..least };
    let error = convert(&input, root.path().join("out"), &options).unwrap_err();
    assert!(error.to_string().contains("the array of edge offsets of 6000 nodes needs"), "{error}");
    assert_eq!(contents_names(root.path()).len(), 2);
}

#[test]
fn csc_folder_keeps_the_order_of_its_edges() {
    let root = tempfile::tempdir().unwrap();
    let input = root.path().join("set");
    fs::create_dir(&input).unwrap();
    list(3, 40, 100).write(&input, DATA[0]);
    fs::remove_file(input.join("edges.npy")).unwrap();
    // The neighbours of node 1 are not in ascending order.
    let indptr: Vec<i32> = [0, 0].into_iter().chain(std::iter::repeat_n(3, 39)).collect();
    put(&input, "indptr.npy", &indptr, &[41]);
    put(&input, "indices.npy", &[5_i64, 2, 9], &[3]);
    put(&input, "weights.npy", &[0.5_f32, 1.0, 1.5], &[3]);
    fs::remove_file(input.join("features.npy")).unwrap();
    let halves: Vec<f16> = (0..80).map(|i| f16::from_f32(i as f32)).collect();
    put(&input, "features.npy", &halves, &[40, 2]);
    let converted = convert(&input, root.path().join("out"), &ConvertOptions::default()).unwrap();
    assert_eq!((converted.n_edges, converted.n_buckets), (3, 0));
    format::write(&kiln_data::npy::open(&input).unwrap(), root.path().join("expected")).unwrap();
    assert!(contents(&root.path().join("out")) == contents(&root.path().join("expected")));
    // A set in the kiln format is copied without changes.
    convert(root.path().join("out"), root.path().join("again"), &ConvertOptions::default()).unwrap();
    assert!(contents(&root.path().join("again")) == contents(&root.path().join("expected")));
    for input in ["set", "out"] {
        let options = ConvertOptions { symmetrize: true, ..ConvertOptions::default() };
        let error = convert(root.path().join(input), root.path().join("no"), &options).unwrap_err();
        assert!(error.to_string().contains("the edges are in CSC order already"), "{error}");
    }
}

#[test]
fn converts_the_element_types_of_sparse_features() {
    let root = tempfile::tempdir().unwrap();
    let input = root.path().join("set");
    fs::create_dir(&input).unwrap();
    list(4, 10, 30).write(&input, DATA[0]);
    fs::remove_file(input.join("features.npy")).unwrap();
    put(&input, "features_indptr.npy", &[0_i32, 1, 1, 2, 2, 3, 3, 3, 3, 3, 4], &[11]);
    put(&input, "features_indices.npy", &[7_i64, 0, 1_000_000, 7], &[4]);
    put(&input, "features_data.npy", &[0.5_f32, 1.0, 1.5, 2.0], &[4]);
    convert(&input, root.path().join("out"), &ConvertOptions::default()).unwrap();
    format::write(&kiln_data::npy::open(&input).unwrap(), root.path().join("expected")).unwrap();
    assert!(contents(&root.path().join("out")) == contents(&root.path().join("expected")));
    put(&input, "features_indptr.npy", &[0_i32, 1, 1, 2, 2, 3, 3, 3, 3, 3, 5], &[11]);
    let error = convert(&input, root.path().join("no"), &ConvertOptions::default()).unwrap_err();
    assert!(error.to_string().contains("the last entry of indptr is 5, expected 4"), "{error}");
    assert!(!root.path().join("no").exists());
}

#[test]
fn copies_a_graph_without_node_data_and_its_manifest() {
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (root.path().join("first"), root.path().join("second"));
    let source = EdgeChunk { srcs: vec![0, 2, 1], dsts: vec![1, 1, 0], ..EdgeChunk::default() };
    let source = Fickle { readings: 0.into(), first: source.clone(), then: source };
    convert::write_graph(&source, 3, "a name of its own", &first, &ConvertOptions::default()).unwrap();
    // Edge type names, which only a program can add, are kept too.
    let manifest = fs::read_to_string(first.join("kiln.json")).unwrap();
    let named = manifest.replace("\"edge_type_names\": []", "\"edge_type_names\": [\n    \"near\"\n  ]");
    assert_ne!(manifest, named);
    fs::write(first.join("kiln.json"), named).unwrap();
    let converted = convert(&first, &second, &ConvertOptions::default()).unwrap();
    assert_eq!((converted.n_nodes, converted.n_edges, converted.n_buckets), (3, 3, 0));
    assert!(contents(&first) == contents(&second));
}

/// An edge source whose later readings may produce other edges or an invalid chunk.
struct Fickle {
    readings: std::cell::Cell<usize>,
    first: EdgeChunk,
    then: EdgeChunk,
}

impl EdgeSource for Fickle {
    fn columns(&self) -> Vec<ColumnFormat> {
        Vec::new()
    }

    fn for_each_chunk(&self, _: usize, visit: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>) -> Result<()> {
        self.readings.set(self.readings.get() + 1);
        visit(&mut if self.readings.get() == 1 { self.first.clone() } else { self.then.clone() })
    }
}

#[test]
fn rejects_edge_sources_that_change_or_are_inconsistent() {
    let root = tempfile::tempdir().unwrap();
    let chunk = |srcs: &[u32], dsts: &[u32]| EdgeChunk {
        srcs: srcs.to_vec(),
        dsts: dsts.to_vec(),
        ..EdgeChunk::default()
    };
    let good = chunk(&[0, 1, 2], &[1, 1, 2]);
    let out = root.path().join("out");
    for then in [
        chunk(&[0], &[1]),
        chunk(&[], &[]),
        chunk(&[0, 1, 2, 3], &[1, 1, 2, 3]),
        chunk(&[0, 1, 2], &[3, 3, 3]),
        chunk(&[0, 1, 2], &[1, 2]),
        chunk(&[0, 1, 9], &[1, 1, 2]),
        EdgeChunk { columns: vec![vec![0; 4]], ..good.clone() },
    ] {
        for first in [&good, &then] {
            let source = Fickle { readings: 0.into(), first: first.clone(), then: then.clone() };
            let result = convert::write_graph(&source, 4, "fickle", &out, &ConvertOptions::default());
            let is_whole = then.dsts.len() == then.srcs.len() && then.columns.is_empty();
            let is_honest = *first == then && is_whole && !then.srcs.contains(&9);
            assert_eq!(result.is_ok(), is_honest, "{then:?}: {result:?}");
            if is_honest {
                assert_eq!(format::open_graph(&out).unwrap().n_edges(), then.srcs.len() as u64);
                fs::remove_dir_all(&out).unwrap();
            }
            assert_eq!(contents_names(root.path()), [""; 0]);
        }
    }
}

/// A source whose edges have columns of these formats.
struct Formatted(Vec<ColumnFormat>);

impl EdgeSource for Formatted {
    fn columns(&self) -> Vec<ColumnFormat> {
        self.0.clone()
    }

    fn for_each_chunk(&self, _: usize, _: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>) -> Result<()> {
        panic!("a source with such columns should not be read")
    }
}

#[test]
fn rejects_columns_that_are_not_allowed_before_the_edges_are_read() {
    let root = tempfile::tempdir().unwrap();
    let wide = ColumnFormat { width: 2, ..ColumnFormat::weights() };
    let whole = ColumnFormat { name: "time".into(), ..ColumnFormat::types() };
    let named = |name: &str| ColumnFormat { name: name.into(), ..ColumnFormat::weights() };
    let none = ColumnFormat { width: 0, ..named("time") };
    for formats in
        [vec![wide], vec![whole], vec![none], vec![named("Time")], vec![named("time"), named("time")]]
    {
        let out = root.path().join("out");
        let source = Formatted(formats);
        convert::write_graph(&source, 4, "formatted", &out, &ConvertOptions::default()).unwrap_err();
        assert!(!out.exists());
    }
    let options = ConvertOptions { self_loops: SelfLoops::Add, ..Default::default() };
    let source = Formatted(vec![named("time")]);
    let error = convert::write_graph(&source, 4, "formatted", root.path().join("out"), &options).unwrap_err();
    assert!(error.to_string().contains("edge_time.npy"), "{error}");
}

#[test]
fn parses_sizes_with_and_without_unit() {
    let parse = convert::parse_bytes;
    for (text, expected) in
        [("0", 0), ("1000000", 1_000_000), ("7B", 7), ("3KiB", 3 << 10), ("512MiB", 512 << 20)]
    {
        assert_eq!(parse(text).unwrap(), expected);
    }
    assert_eq!((parse("1 GiB").unwrap(), parse("2TiB").unwrap()), (1 << 30, 2 << 40));
    for (text, similar) in [
        ("", ""),
        ("GiB", ""),
        ("1GB", " (did you mean `1GiB`?)"),
        ("1.5GiB", ""),
        ("-1", ""),
        ("1g", " (did you mean `1GiB`?)"),
        ("99999999999999999999", ""),
        ("99999999999TiB", ""),
        ("7 mib", " (did you mean `7MiB`?)"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        let expected = format!(
            "invalid size {text:?}: expected a number of bytes, such as 1000000, 512MiB or 2GiB{similar}"
        );
        assert_eq!(error, expected);
    }
}
