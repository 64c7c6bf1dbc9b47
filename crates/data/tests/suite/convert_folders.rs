//! Tests that converting folders of other libraries within a memory limit writes the same files as opening and
//! writing them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};
use half::f16;
use kiln_data::convert::{ConvertOptions, ConvertReport, convert};
use kiln_data::{Dataset, Error, Note, format, open};
use kiln_graph::{CscBuilder, Duplicates, NodeId, SelfLoops};
use kiln_store::npy::{self, Element};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::common::{by_columns, contents, contents_names, convert_with_least, numbers, put};

const N_NODES: usize = 300;
const N_EDGES: usize = 12_000;

/// Returns edges `[source, destination]` with duplicates and self loops. The last 20 nodes have no edges.
fn pairs() -> Vec<[i64; 2]> {
    let mut next = numbers(5);
    (0..N_EDGES)
        .map(|_| [next(N_NODES - 20) as i64, next(N_NODES - 20).min(next(N_NODES - 20)) as i64])
        .collect()
}

/// Returns all sources, followed by all destinations.
fn by_rows() -> Vec<i64> {
    let end = |end: usize| pairs().into_iter().map(move |pair| pair[end]);
    end(0).chain(end(1)).collect()
}

/// Returns the text of a table: a line for each row, with fields separated by commas.
fn lines<const N: usize>(rows: impl IntoIterator<Item = [String; N]>) -> String {
    rows.into_iter().map(|row| row.join(",") + "\n").collect()
}

fn edge_lines() -> String {
    lines(pairs().into_iter().map(|pair| pair.map(|id| id.to_string())))
}

fn feature(i: usize) -> f64 {
    i as f64 / 7.0 - 40.0
}

/// Writes a GraphBolt folder whose edges are in a file of this format.
fn graphbolt(edges_format: &str) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("set");
    fs::create_dir(&at).unwrap();
    let mut sets = String::new();
    for (part, name) in ["train", "validation", "test"].into_iter().enumerate() {
        let nodes: Vec<i64> = (0..N_NODES as i64).filter(|node| *node as usize % 4 == part).collect();
        let labels: Vec<f32> = nodes.iter().map(|node| (node * 3 % 5) as f32).collect();
        put(&at, &format!("{name}.npy"), &nodes, &[nodes.len()]);
        put(&at, &format!("{name}_labels.npy"), &labels, &[nodes.len(), 1]);
        let data =
            |what: &str, file: &str| format!("{{name: {what}, format: numpy, path: {name}{file}.npy}}");
        sets +=
            &format!("  {name}_set: [{{data: [{}, {}]}}]\n", data("seeds", ""), data("labels", "_labels"));
    }
    let metadata = format!(
        "dataset_name: bolt\ngraph:\n  nodes: [{{num: {N_NODES}}}]\n  edges: [{{format: {edges_format}, path: edges}}]\n\
         feature_data:\n- {{domain: node, name: feat, format: numpy, path: feat.npy}}\n\
         - {{domain: node, name: year, format: numpy, path: none.npy}}\n\
         tasks:\n- name: node_classification\n{sets}"
    );
    fs::write(at.join("metadata.yaml"), metadata).unwrap();
    put(&at, "edges", &by_rows(), &[2, N_EDGES]);
    if edges_format == "csv" {
        fs::write(at.join("edges"), edge_lines()).unwrap();
    }
    let features: Vec<f32> = (0..3 * N_NODES).map(|i| feature(i) as f32).collect();
    put(&at, "feat.npy", &features, &[N_NODES, 3]);
    (root, at)
}

fn gz(path: PathBuf, text: &str) {
    let mut file = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    file.write_all(text.as_bytes()).unwrap();
    file.finish().unwrap();
}

/// Creates an OGB folder with this name that contains only the split. No part of the split contains node 3, because
/// that node has no class.
fn ogb(name: &str) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join(name);
    for folder in ["raw", "split/time"] {
        fs::create_dir_all(at.join(folder)).unwrap();
    }
    for (part, name) in ["train", "valid", "test"].into_iter().enumerate() {
        let nodes = (0..N_NODES).filter(|&node| node != 3 && node % 3 == part);
        gz(at.join(format!("split/time/{name}.csv.gz")), &lines(nodes.map(|node| [node.to_string()])));
    }
    (root, at)
}

fn class(node: usize) -> f32 {
    if node == 3 { f32::NAN } else { (node / 3 % 6) as f32 }
}

fn ogb_of_text(name: &str) -> (TempDir, PathBuf) {
    let (root, at) = ogb(name);
    let raw = at.join("raw");
    gz(raw.join("edge.csv.gz"), &edge_lines());
    gz(raw.join("num-node-list.csv.gz"), &format!("{N_NODES}\n"));
    gz(raw.join("num-edge-list.csv.gz"), &format!("{N_EDGES}\n"));
    let row = |node: usize| [0, 1].map(|column| feature(2 * node + column).to_string());
    gz(raw.join("node-feat.csv.gz"), &lines((0..N_NODES).map(row)));
    gz(raw.join("node-label.csv.gz"), &lines((0..N_NODES).map(|node| [class(node).to_string()])));
    (root, at)
}

fn archive(path: PathBuf, members: &[(&str, Vec<u8>)]) {
    let mut zip = ZipWriter::new(File::create(path).unwrap());
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

fn ogb_of_archives<T: Element>(feature_of: impl Fn(usize) -> T) -> (TempDir, PathBuf) {
    let (root, at) = ogb("ogbn_papers");
    let features: Vec<T> = (0..2 * N_NODES).map(feature_of).collect();
    archive(
        at.join("raw/data.npz"),
        &[
            ("edge_index.npy", npy::write(&by_rows(), &[2, N_EDGES])),
            ("node_feat.npy", npy::write(&features, &[N_NODES, 2])),
            ("num_nodes_list.npy", npy::write(&[N_NODES as i64], &[1])),
            ("num_edges_list.npy", npy::write(&[N_EDGES as i64], &[1])),
        ],
    );
    let classes: Vec<f32> = (0..N_NODES).map(class).collect();
    archive(at.join("raw/node-label.npz"), &[("node_label.npy", npy::write(&classes, &[N_NODES, 1]))]);
    (root, at)
}

/// Converts with the smallest memory limit, with a larger one and with the default. The files must be the ones that
/// opening and writing produce. Returns the report of the last conversion.
fn check((root, input): &(TempDir, PathBuf)) -> ConvertReport {
    let out = |name: &str| root.path().join(name);
    format::write(&open(input).unwrap(), out("expected")).unwrap();
    let expected = contents(&out("expected"));
    let (least, options) = convert_with_least(input, &out("least"), &ConvertOptions::default());
    assert!(least.n_buckets > 1, "{least:?}");
    let more = ConvertOptions { memory_bytes: options.memory_bytes + 10_000, ..options };
    convert(input, out("more"), &more).unwrap();
    let whole = convert(input, out("whole"), &ConvertOptions::default()).unwrap();
    for name in ["least", "more", "whole"] {
        assert!(contents(&out(name)) == expected, "{name}");
        format::verify(out(name)).unwrap();
        fs::remove_dir_all(out(name)).unwrap();
    }
    fs::remove_dir_all(out("expected")).unwrap();
    assert_eq!((whole.n_nodes, whole.n_coo_edges), (N_NODES, N_EDGES as u64));
    assert_eq!(contents_names(root.path()).len(), 1);
    whole
}

#[test]
fn graphbolt_conversion_matches_the_set_in_memory() {
    for edges_format in ["numpy", "csv"] {
        let folder = graphbolt(edges_format);
        let converted = check(&folder);
        let unused = "the node feature year (feature_data[1] in metadata.yaml) is not used";
        assert_eq!(converted.notes, [Note::Other(unused.into())]);
        assert_eq!((converted.n_edges, converted.n_buckets), (N_EDGES, 1));
    }
}

#[test]
fn converts_column_major_edges_and_each_feature_type() {
    let folder = graphbolt("numpy");
    let flat: Vec<i32> = pairs().into_iter().flatten().map(|id| id as i32).collect();
    fs::write(folder.1.join("edges"), by_columns(&flat, &[2, N_EDGES])).unwrap();
    let halves: Vec<f16> = (0..N_NODES).map(|i| f16::from_f64(feature(i))).collect();
    put(&folder.1, "feat.npy", &halves, &[N_NODES]);
    check(&folder);
    let doubles: Vec<f64> = (0..4 * N_NODES).map(feature).collect();
    put(&folder.1, "feat.npy", &doubles, &[N_NODES, 4]);
    check(&folder);
}

#[test]
fn ogb_text_conversion_matches_the_set_in_memory() {
    let converted = check(&ogb_of_text("ogbn_arxiv"));
    assert_eq!((converted.n_edges, converted.notes), (N_EDGES, Vec::new()));
    let converted = check(&ogb_of_text("ogbn_products"));
    let n_loops = pairs().iter().filter(|[src, dst]| src == dst).count();
    assert!(n_loops > 0);
    assert_eq!(converted.n_edges, 2 * N_EDGES - n_loops);
    assert!(matches!(converted.notes[..], [Note::ReverseEdgesAdded { .. }]), "{:?}", converted.notes);
}

#[test]
fn text_edges_beside_an_archive_are_ignored_with_a_note() {
    let folder = ogb_of_archives(feature);
    fs::write(folder.1.join("raw/edge.csv.gz"), "not read").unwrap();
    let notes = check(&folder).notes;
    let is_it = |said: &str| said.contains("edge.csv.gz is ignored: ") && said.contains("data.npz is read");
    assert!(matches!(&notes[..], [Note::Other(said)] if is_it(said)), "{notes:?}");
}

#[test]
fn ogb_archive_conversion_matches_the_set_in_memory() {
    assert_eq!(check(&ogb_of_archives(|i| feature(i) as f32)).notes, []);
    check(&ogb_of_archives(|i| f16::from_f64(feature(i))));
    check(&ogb_of_archives(feature));
}

#[test]
fn rejects_archive_arrays_above_the_memory_limit() {
    let (root, input) = ogb_of_archives(|i| feature(i) as f32);
    let out = root.path().join("out");
    let bytes = 16 * N_EDGES as u64 + 128 + 499_712;
    let options = ConvertOptions { memory_bytes: bytes - 1, ..ConvertOptions::default() };
    let error = convert(&input, &out, &options).unwrap_err();
    let Error::Memory { what, needed_bytes, budget_bytes } = &error else { panic!("{error}") };
    assert!(what.starts_with("reading edge_index of ") && what.ends_with("data.npz into memory"), "{what}");
    assert_eq!((*needed_bytes, *budget_bytes), (bytes, bytes - 1));
    // The array fits, but the remaining memory is too small for sorting.
    let options = ConvertOptions { memory_bytes: bytes + 5000, ..options };
    let error = convert(&input, &out, &options).unwrap_err().to_string();
    assert!(error.contains("the array of edge offsets of 300 nodes needs"), "{error}");
    assert_eq!(contents_names(root.path()), ["ogbn_papers"]);
}

#[test]
fn conversion_of_folders_with_options_matches_the_in_memory_builder() {
    let ends = |end: usize| pairs().iter().map(|pair| pair[end] as u32).collect::<Vec<_>>();
    for (root, input) in [graphbolt("numpy"), ogb_of_text("ogbn_arxiv"), ogb_of_text("ogbn_products")] {
        let options = ConvertOptions {
            symmetrize: !input.ends_with("ogbn_products"),
            duplicates: Duplicates::Remove,
            self_loops: SelfLoops::Add,
            ..ConvertOptions::default()
        };
        let builder = CscBuilder::new(N_NODES).symmetrize().duplicates(Duplicates::Remove);
        let graph = builder.self_loops(SelfLoops::Add).build(&ends(0), &ends(1)).unwrap();
        let data = Dataset { graph: graph.into(), ..open(&input).unwrap() };
        format::write(&data, root.path().join("expected")).unwrap();
        convert_with_least(&input, &root.path().join("out"), &options);
        assert!(contents(&root.path().join("out")) == contents(&root.path().join("expected")));
        let options = ConvertOptions { n_nodes: Some(N_NODES + 1), ..options };
        let error = convert(&input, root.path().join("no"), &options).unwrap_err().to_string();
        assert!(error.contains("the number of nodes is 300, expected 301"), "{error}");
    }
}

#[test]
fn conversion_fails_with_the_same_error_as_opening() {
    let check = |(root, input): (TempDir, PathBuf), change: &dyn Fn(&Path), expected: &str| {
        change(&input);
        let error =
            convert(&input, root.path().join("out"), &ConvertOptions::default()).unwrap_err().to_string();
        assert_eq!(error, open(&input).unwrap_err().to_string());
        assert!(error.contains(expected), "{error}\n    expected {expected}");
        assert_eq!(contents_names(root.path()).len(), 1);
    };
    let bolt = || graphbolt("numpy");
    let text = || ogb_of_text("arxiv");
    let archives = || ogb_of_archives(|i| feature(i) as f32);
    let put_ids = |at: &Path| put(at, "edges", &[0, 5, 300, 1], &[2, 2]);
    check(bolt(), &put_ids, "the destination of edge 0 is 300, expected a node id below 300");
    check(bolt(), &|at| put(at, "edges", &[0; 6], &[3, 2]), "an edge list of shape [3, 2] is not supported");
    check(bolt(), &|at| put(at, "feat.npy", &[1_u8; 300], &[300]), "|u1, expected <f4 or <f2");
    check(
        bolt(),
        &|at| put(at, "feat.npy", &[1.0_f32; 2], &[2]),
        "the number of feature rows is 2, expected",
    );
    let put_text = |name: &'static str, text: &'static str| move |at: &Path| gz(at.join(name), text);
    check(
        text(),
        &put_text("raw/edge.csv.gz", "\n0,1\n\n2,300\n"),
        "line 4: \"300\", expected a node id below 300",
    );
    check(text(), &put_text("raw/edge.csv.gz", "0,1\n"), "the number of edges is 12000, expected 1");
    check(
        text(),
        &put_text("raw/node-feat.csv.gz", "1,2\n1,inf\n"),
        "line 2: \"inf\", expected a finite number",
    );
    check(text(), &put_text("raw/node-feat.csv.gz", "1,2\n1\n"), "line 2: \"1 fields\", expected 2 fields");
    check(text(), &put_text("raw/node-feat.csv.gz", ""), "the number of lines is 0, expected 300");
    check(text(), &put_text("split/time/test.csv.gz", "3\n"), "node 3, expected a node that has a label");
    let empty = |at: &Path| archive(at.join("raw/node-label.npz"), &[]);
    check(archives(), &empty, "node-label.npz has no node_label.npy");
}

#[test]
fn rejects_graph_classification_sets() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("MUTAG.txt"), "1\n2 0\n0 1 1\n0 1 0\n").unwrap();
    fs::create_dir(root.path().join("tu")).unwrap();
    fs::write(root.path().join("tu/SET_A.txt"), "1, 2\n").unwrap();
    for (input, kind) in [("MUTAG.txt", "a GIN file"), ("tu", "a TU folder")] {
        let error = convert(root.path().join(input), root.path().join("out"), &ConvertOptions::default())
            .unwrap_err();
        let Error::WrongKind { kind: said, .. } = &error else { panic!("{error}") };
        assert_eq!(*said, format!("{kind} (graph classification)"));
    }
    assert_eq!(contents_names(root.path()).len(), 2);
}

#[test]
fn a_node_without_edges_keeps_its_row() {
    let (root, input) = ogb_of_text("ogbn_arxiv");
    convert(&input, root.path().join("out"), &ConvertOptions::default()).unwrap();
    let data = open(root.path().join("out")).unwrap();
    let last = NodeId(N_NODES as u32 - 1);
    assert_eq!(data.csc().unwrap().in_neighbors(last), []);
    let row = [2 * N_NODES - 2, 2 * N_NODES - 1].map(|i| feature(i) as f32);
    assert_eq!(data.node_features().unwrap().row(last).unwrap(), row);
}
