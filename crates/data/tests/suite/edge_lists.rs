//! Tests of reading and converting edge lists of every form, including invalid ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Error, Result, format};
use kiln_graph::Csc;
use kiln_store::Error as StoreError;
use kiln_store::npy::{self, Element};
use tempfile::TempDir;

use crate::common::{by_columns, notes_of_reading, overlap, put};

pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// The edges of all tests: 2 -> 0, 3 -> 1, 0 -> 1, 3 -> 3.
const SRCS: [u8; 4] = [2, 3, 0, 3];
const DSTS: [u8; 4] = [0, 1, 1, 3];

/// Writes features, labels and a split of four nodes, without a graph.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put(at, "features.npy", &[0.0_f32, 0.5, 1.0, 1.5], &[4, 1]);
    put(at, "labels.npy", &[1_i32, 0, 2, -1], &[4]);
    put(at, "train.npy", &[0_i32], &[1]);
    put(at, "val.npy", &[1_i32], &[1]);
    put(at, "test.npy", &[2_i32], &[1]);
    folder
}

/// Opens and converts a folder and checks that the results are equal. Returns the graph and the notes, without the note
/// that the graph was built in memory.
fn read(folder: &Path) -> (Csc, Vec<String>) {
    let data = kiln_data::npy::open(folder).unwrap();
    let notes = notes_of_reading(&data.notes);
    let (hint, rest) = notes.split_last().unwrap();
    assert!(hint.to_string().contains("convert the folder once (kiln data convert)"), "{hint}");
    let root = tempfile::tempdir().unwrap();
    let converted = convert(folder, root.path().join("out"), &ConvertOptions::default()).unwrap();
    let mapped = format::open(root.path().join("out")).unwrap();
    assert_eq!(mapped.csc().unwrap().indptr(), data.csc().unwrap().indptr());
    assert_eq!(mapped.csc().unwrap().indices(), data.csc().unwrap().indices());
    assert_eq!(mapped.csc().unwrap().weights(), data.csc().unwrap().weights());
    assert_eq!(mapped.csc().unwrap().edge_types(), data.csc().unwrap().edge_types());
    assert_eq!(notes_of_reading(&converted.notes), rest);
    ((**data.csc().unwrap()).clone(), rest.iter().map(ToString::to_string).collect())
}

fn check(folder: &Path) -> Vec<String> {
    let (graph, said) = read(folder);
    assert_eq!(graph.indptr(), [0, 1, 3, 3, 4]);
    assert_eq!(graph.indices().iter().map(|src| src.0).collect::<Vec<_>>(), [2, 0, 3, 3]);
    said
}

/// Checks edge arrays of one element type in all supported shapes and orders.
fn check_arrays<T: Element>(convert: impl Fn(u8) -> T) {
    let ids = |ends: &[u8]| ends.iter().map(|&id| convert(id)).collect::<Vec<T>>();
    let by_rows = ids(&[SRCS, DSTS].concat());
    let pairs: Vec<T> = SRCS.iter().zip(&DSTS).flat_map(|(&src, &dst)| ids(&[src, dst])).collect();
    let folder = folder();
    put(folder.path(), "edges.npy", &by_rows, &[2, 4]);
    assert_eq!(check(folder.path()), [""; 0]);
    put(folder.path(), "edges.npy", &pairs, &[4, 2]);
    assert_eq!(check(folder.path()), [""; 0]);
    fs::write(folder.path().join("edges.npy"), by_columns(&pairs, &[2, 4])).unwrap();
    assert_eq!(check(folder.path()), [""; 0]);
    fs::write(folder.path().join("edges.npy"), by_columns(&by_rows, &[4, 2])).unwrap();
    assert_eq!(check(folder.path()), [""; 0]);
    fs::remove_file(folder.path().join("edges.npy")).unwrap();
    put(folder.path(), "src.npy", &ids(&SRCS), &[4]);
    put(folder.path(), "dst.npy", &ids(&DSTS), &[4, 1]);
    assert_eq!(check(folder.path()), [""; 0]);
}

#[test]
fn reads_arrays_of_each_integer_type_and_shape() {
    check_arrays(u8::from);
    check_arrays(i32::from);
    check_arrays(u32::from);
    check_arrays(i64::from);
    check_arrays(u64::from);
}

#[test]
fn reads_unaligned_arrays() {
    let folder = folder();
    put(
        folder.path(),
        "edges.npy",
        &[SRCS, DSTS].concat().iter().map(|&id| i64::from(id)).collect::<Vec<_>>(),
        &[2, 4],
    );
    let path = folder.path().join("edges.npy");
    let mut bytes = fs::read(&path).unwrap();
    // An additional blank in the header, whose length is in bytes 8 and 9, misaligns the values.
    bytes.insert(126, b' ');
    bytes[8] += 1;
    fs::write(&path, bytes).unwrap();
    check(folder.path());
}

#[test]
fn reads_tables_with_and_without_header() {
    let lines = "2,0\n3,1\n0,1\n3,3\n";
    let headers =
        ["src,dst", "\u{feff}src,dst", "# src,dst", "_src,_dst"].map(|names| format!("{names}\n{lines}"));
    let plain = [lines, " 2 , 0\r\n3,1\r\n\r\n0,1\r\n3,3"];
    for text in plain.into_iter().chain(headers.iter().map(String::as_str)) {
        let folder = folder();
        fs::write(folder.path().join("edges.csv"), text).unwrap();
        let said = check(folder.path());
        assert_eq!(said.len(), usize::from(text.contains("src")), "{said:?}");
        let is_noted = |said: &String| said.contains("edges.csv is a header: edges lead from `");
        assert!(said.iter().all(is_noted), "{said:?}");
        fs::remove_file(folder.path().join("edges.csv")).unwrap();
        fs::write(folder.path().join("edges.csv.gz"), gzip(text.as_bytes())).unwrap();
        check(folder.path());
    }
}

#[test]
fn edge_data_is_reordered_with_its_edge() {
    let folder = folder();
    let at = folder.path();
    fs::write(at.join("edges.csv"), "a,b,weight\n2,0,0.5\n3,1,1e2\n0,1,-3\n3,3,4\n").unwrap();
    put(at, "edge_types.npy", &[5_u8, 6, 7, 8], &[4]);
    let (graph, _) = read(at);
    assert_eq!(graph.weights().unwrap(), [0.5, -3.0, 100.0, 4.0]);
    assert_eq!(graph.edge_types().unwrap(), [5, 7, 6, 8]);
    fs::write(at.join("edges.csv"), "2,0,0.5\n3,1,1e2\n0,1,-3\n3,3,4\n").unwrap();
    let (graph, notes) = read(at);
    assert_eq!(graph.weights().unwrap(), [0.5, -3.0, 100.0, 4.0]);
    assert!(notes[0].contains("no header: its third column is read as the weights"), "{notes:?}");
    fs::write(at.join("edges.csv"), "2,0\n3,1\n0,1\n3,3\n").unwrap();
    put(at, "weights.npy", &[0.5_f32, 1.0, 1.5, 2.0], &[4]);
    let (graph, _) = read(at);
    assert_eq!(graph.weights().unwrap(), [0.5, 1.5, 1.0, 2.0]);
}

#[test]
fn two_by_two_array_is_read_by_rows_with_a_note() {
    let folder = folder();
    put(folder.path(), "edges.npy", &[0, 1, 2, 3], &[2, 2]);
    let (graph, said) = read(folder.path());
    assert_eq!((graph.indptr(), graph.indices()[0].0), (&[0, 0, 0, 1, 2][..], 0));
    assert!(said[0].contains("has the shape [2, 2]: its first row is read as the sources"), "{said:?}");
}

#[test]
fn second_edge_list_is_ignored_with_a_note() {
    let folder = folder();
    put(
        folder.path(),
        "edges.npy",
        &[SRCS, DSTS].concat().iter().map(|&id| i32::from(id)).collect::<Vec<_>>(),
        &[2, 4],
    );
    fs::write(folder.path().join("edges.csv"), "0,0\n").unwrap();
    let said = check(folder.path());
    assert!(said.len() == 1 && said[0].contains("edges.csv is ignored"), "{said:?}");
}

#[test]
fn converts_edges_without_node_data_to_a_graph() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    fs::write(at.join("pairs.csv.gz"), gzip(b"2,0\n3,1\n0,1\n3,3\n")).unwrap();
    put(at, "pairs.npy", &[2_i64, 3, 0, 3, 0, 1, 1, 3], &[2, 4]);
    fs::create_dir(at.join("pairs")).unwrap();
    fs::copy(at.join("pairs.npy"), at.join("pairs/edges.npy")).unwrap();
    for (n_nodes, expected) in [(None, vec![0, 1, 3, 3, 4]), (Some(6), vec![0, 1, 3, 3, 4, 4, 4])] {
        for input in ["pairs.csv.gz", "pairs.npy", "pairs"] {
            let out = at.join(format!("{input} {}", expected.len()));
            let options = ConvertOptions { n_nodes, ..ConvertOptions::default() };
            let converted = convert(at.join(input), &out, &options).unwrap();
            assert_eq!((converted.n_nodes, converted.n_edges), (expected.len() - 1, 4));
            assert_eq!(format::open_graph(&out).unwrap().indptr(), expected);
            assert_eq!(format::verify(&out).unwrap().n_hashed, 2);
            let error = format::open(&out).unwrap_err();
            assert!(matches!(&error, Error::WrongKind { .. }), "{error}");
            assert!(error.to_string().contains("a graph without features"), "{error}");
        }
    }
    convert(at.join("pairs.npy 5"), at.join("again"), &ConvertOptions::default()).unwrap();
    assert_eq!(format::open_graph(at.join("again")).unwrap().n_edges(), 4);
    assert!(matches!(kiln_data::npy::open(at.join("pairs")), Err(Error::Store(StoreError::Missing { .. }))));
}

#[test]
fn empty_edge_list_makes_a_graph_without_edges() {
    for (name, bytes) in [
        ("a.csv", Vec::new()),
        ("b.csv", b"src,dst,weight\n".to_vec()),
        ("c.npy", npy::write::<i32>(&[], &[0, 2])),
        ("d.npy", npy::write::<u64>(&[], &[2, 0])),
    ] {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(name), bytes).unwrap();
        for (n_nodes, expected) in [(None, 0), (Some(3), 3)] {
            let out = root.path().join(format!("out {expected}"));
            convert(root.path().join(name), &out, &ConvertOptions { n_nodes, ..ConvertOptions::default() })
                .unwrap();
            let graph = format::open_graph(out).unwrap();
            assert_eq!((graph.n_nodes(), graph.n_edges()), (expected, 0));
        }
    }
}

/// Returns the error of opening a folder, after checking that converting it fails with the same error and leaves no
/// output.
fn refusal(change: impl FnOnce(&Path)) -> Error {
    let folder = folder();
    change(folder.path());
    let error = kiln_data::npy::open(folder.path()).unwrap_err();
    assert_eq!(converted(folder.path()).unwrap_err().to_string(), error.to_string());
    error
}

/// Converts into an empty folder and checks that an error leaves it empty.
fn converted(input: &Path) -> Result<()> {
    let root = tempfile::tempdir().unwrap();
    let result = convert(input, root.path().join("out"), &ConvertOptions::default());
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), usize::from(result.is_ok()));
    result.map(|_| ())
}

#[test]
fn rejects_invalid_edge_arrays() {
    let check = |change: &dyn Fn(&Path), expected: &str| {
        let error = refusal(change);
        assert!(error.to_string().contains(expected), "{error}\n    expected {expected}");
    };
    let matrix = |at: &Path, ids: [i64; 4], shape: &[usize]| put(at, "edges.npy", &ids, shape);
    check(
        &|at| matrix(at, [0, 1, 4, 0], &[2, 2]),
        "edges.npy: the destination of edge 0 is 4, expected a node id below 4",
    );
    check(&|at| matrix(at, [0, -1, 2, 0], &[2, 2]), "edges.npy: the source of edge 1 is -1, expected a node");
    check(
        &|at| matrix(at, [0, 1 << 32, 2, 0], &[2, 2]),
        "the source of edge 1 is 4294967296, expected a node",
    );
    check(&|at| matrix(at, [0; 4], &[4]), "edges.npy: the shape is [4], expected (2, n) or (n, 2)");
    check(&|at| matrix(at, [0; 4], &[4, 1]), "is [4, 1], expected (2, n) or (n, 2)");
    check(
        &|at| put(at, "edges.npy", &[0.0_f32; 4], &[2, 2]),
        "the elements are <f4, expected <i4, <u4, <i8 or <u8",
    );
    check(&|at| put(at, "src.npy", &[0_i32], &[1]), "has no dst.npy (the destination of each edge)");
    let pair = |at: &Path, n: usize| {
        put(at, "src.npy", &[0_i32; 3], &[3]);
        put(at, "dst.npy", &vec![0_i64; n], &[n]);
    };
    check(&|at| pair(at, 2), "dst.npy: the number of entries is 2, expected 3");
    let with = |at: &Path, n: usize| {
        pair(at, 3);
        put(at, "weights.npy", &vec![0.0_f32; n], &[n]);
    };
    check(&|at| with(at, 2), "weights.npy: the number of entries is 2, expected 3");
    check(&|at| with(at, 4), "weights.npy: the number of entries is 4, expected 3");
    let typed = |at: &Path| {
        pair(at, 3);
        put(at, "edge_types.npy", &[0_i64; 3], &[3]);
    };
    check(&typed, "edge_types.npy: the elements are <i8, expected |u1");
    check(&|_| (), "and no edges.npy, src.npy and dst.npy, edges.csv or edges.csv.gz");
    let cut = |at: &Path| fs::write(at.join("edges.npy"), &npy::write(&[0_i64; 4], &[2, 2])[..150]).unwrap();
    check(&cut, "22 bytes of values for the shape [2, 2], expected 32");
}

#[test]
fn rejects_invalid_lines_with_their_number() {
    for (text, line, expected) in [
        ("0,1\n1,4\n", 2, "a node id below 4"),
        ("0,1\n-1,2\n", 2, "a node id below 4"),
        ("-1,2\n", 1, "a node id below 4"),
        ("0,1.0\n", 1, "a node id below 4"),
        ("0,99999999999999999999\n", 1, "a node id below 4"),
        ("src,dst\n0,1\nsrc,dst\n", 3, "a node id below 4"),
        ("0,1\n0\n", 2, "2 fields, as in the first line"),
        ("0,1\n0,1,2\n", 2, "2 fields, as in the first line"),
        ("0 1\n", 1, "a source, a destination and an optional weight, separated by commas"),
        ("0,1,2,3\n", 1, "a source, a destination and an optional weight, separated by commas"),
        ("0,1,heavy\n", 1, "a weight, a finite number of 32 bits"),
        ("0,1,0.5\n0,1,nan\n", 2, "a weight, a finite number of 32 bits"),
        ("0,1,-inf\n", 1, "a weight, a finite number of 32 bits"),
        ("0,1,1e999\n", 1, "a weight, a finite number of 32 bits"),
        ("0,1\n\n\n1,4\n", 4, "a node id below 4"),
        ("\r\n\n0,1\r\n\r\n1,4", 5, "a node id below 4"),
        ("0x0,0x1\n1,2\n", 1, "a node id below 4"),
        ("0,1,w\n", 1, "a weight, a finite number of 32 bits"),
        ("\"0\",\"1\"\n1,\"4\"\n", 2, "a node id below 4"),
        ("0,\"1\n", 1, "a node id below 4"),
        ("#0,#1\n1,2\n", 1, "a node id below 4"),
        ("nan,inf\n1,2\n", 1, "a node id below 4"),
        (",\n1,2\n", 1, "a node id below 4"),
        ("\n\n0,1\n\n0\n", 5, "2 fields, as in the first line"),
        ("\n0 1\n", 2, "a source, a destination and an optional weight, separated by commas"),
        ("0,1\n\u{fffd},2\n", 2, "a node id below 4"),
    ] {
        let error = refusal(|at| fs::write(at.join("edges.csv"), text).unwrap());
        let Error::Store(StoreError::BadLine { line: got, expected: said, .. }) = &error else {
            panic!("{text}: {error}")
        };
        assert_eq!((*got, &**said), (line, expected), "{text}");
    }
}

#[test]
fn rejects_duplicate_weights_and_wrong_lengths() {
    let weighted = |n: usize, text: &'static str| {
        refusal(|at| {
            fs::write(at.join("edges.csv"), text).unwrap();
            put(at, "weights.npy", &vec![0.5_f32; n], &[n]);
        })
        .to_string()
    };
    let error = weighted(2, "0,1,2.5\n1,2,3.5\n");
    assert!(error.contains("a further column is a weight, expected none, since"), "{error}");
    let error = weighted(1, "0,1\n1,2\n2,3\n");
    assert!(error.contains("weights.npy: the number of entries is 1, expected 3"), "{error}");
    let error = weighted(5, "0,1\n1,2\n2,3\n");
    assert!(error.contains("weights.npy: the number of entries is 5, expected 3"), "{error}");
}

#[test]
fn rejects_truncated_or_invalid_gzip() {
    let lines: String = (0..5000).map(|i| format!("{},{}\n", i % 4, i * 7 % 4)).collect();
    let whole = gzip(lines.as_bytes());
    for bytes in [&whole[..whole.len() / 2], &whole[..whole.len() - 4], &whole[..5], b"0,1\n1,2\n"] {
        let error = refusal(|at| fs::write(at.join("edges.csv.gz"), bytes).unwrap());
        assert!(
            matches!(&error, Error::Store(StoreError::Io { path, .. }) if path.ends_with("edges.csv.gz")),
            "{error}"
        );
    }
}

#[test]
fn rejects_inputs_that_are_not_edge_lists() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("edges.txt"), "0 1\n").unwrap();
    let error = converted(&root.path().join("edges.txt")).unwrap_err();
    assert!(matches!(&error, Error::Unrecognised { .. }), "{error}");
    assert!(matches!(converted(&root.path().join("nowhere")), Err(Error::Store(StoreError::Io { .. }))));
    fs::write(root.path().join("edges.npy"), npy::write(&[0_u32, u32::MAX], &[2, 1])).unwrap();
    let error = converted(&root.path().join("edges.npy")).unwrap_err();
    assert!(
        error.to_string().contains("the destination of edge 0 is 4294967295, expected a node"),
        "{error}"
    );
    let options = ConvertOptions { n_nodes: Some(1 << 33), ..ConvertOptions::default() };
    let error = convert(root.path().join("edges.npy"), root.path().join("out"), &options).unwrap_err();
    assert!(error.to_string().contains("8589934592 nodes do not fit: at most 4294967295"), "{error}");
}

#[test]
fn rejects_node_count_that_differs_from_the_labels() {
    let folder = folder();
    fs::write(folder.path().join("edges.csv"), "0,1\n").unwrap();
    let out = folder.path().join("out");
    let options = ConvertOptions { n_nodes: Some(5), ..ConvertOptions::default() };
    let error = convert(folder.path(), &out, &options).unwrap_err().to_string();
    assert!(error.contains("the number of feature rows is 4, expected 5"), "{error}");
    let filled = ConvertOptions { n_nodes: Some(4), ..ConvertOptions::default() };
    convert(folder.path(), &out, &filled).unwrap();
    let error = convert(folder.path(), &out, &filled).unwrap_err();
    assert!(
        matches!(&error, Error::Store(StoreError::NotEmpty { path }) if path.ends_with("out")),
        "{error}"
    );
}

#[test]
fn notes_overlapping_splits_and_rejects_invalid_ones() {
    let folder = folder();
    let at = folder.path();
    fs::write(at.join("edges.csv"), "0,1\n").unwrap();
    put(at, "val.npy", &[0_i64, 1], &[2]);
    let root = tempfile::tempdir().unwrap();
    let converted = convert(at, root.path().join("out"), &ConvertOptions::default()).unwrap();
    assert_eq!(notes_of_reading(&converted.notes), [overlap(["train", "val"])]);
    for (bad, expected) in [(3, "val.npy: val split entry 1 is node 3"), (4, "val.npy: entry 1 is 4")] {
        put(at, "val.npy", &[1_i64, bad], &[2]);
        let error = convert(at, root.path().join("no"), &ConvertOptions::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
