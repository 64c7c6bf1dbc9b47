//! Tests of the reader of the TU collection, including invalid folders.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::{Error, GraphDataset, tu};
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;
use tempfile::TempDir;

/// Writes a folder with two graphs: the path 2 - 1 - 3 (numbered from 1), and the pair 4 - 5.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put(at, "A", "1, 2\n2, 1\n3, 1\n1, 3\n5, 4\n4, 5\n");
    put(at, "graph_indicator", "1\n1\n1\n2\n2\n");
    put(at, "graph_labels", "1\n-1\n");
    folder
}

pub(crate) fn put(folder: &Path, what: &str, text: &str) {
    fs::write(folder.join(format!("X_Y_{what}.txt")), text).unwrap();
}

fn read_with(what: &str, text: &str) -> Result<GraphDataset, Error> {
    let folder = folder();
    put(folder.path(), what, text);
    tu::read(folder.path())
}

#[test]
fn reads_a_set_of_the_three_required_files() {
    let folder = folder();
    let data = tu::read(folder.path()).unwrap();
    assert_eq!(data.name, "X_Y");
    assert_eq!(data.node_offsets()[..], [0, 3, 5]);
    assert_eq!(data.graph().indptr(), [0, 2, 3, 4, 5, 6]);
    assert_eq!(data.graph().indices(), [1, 2, 0, 0, 4, 3].map(NodeId));
    assert_eq!(data.labels().as_slice(), [1, 0]);
    assert_eq!(data.class_names, ["-1", "1"]);
    assert!(data.features().is_none() && data.node_labels().is_none());
    assert!(data.graph().edge_types().is_none() && data.graph().weights().is_none());
    assert_eq!(data.notes, []);
}

#[test]
fn reads_labels_types_features_and_weights_from_optional_files() {
    let folder = folder();
    let at = folder.path();
    put(at, "node_labels", "6\n8\n6\n7\n8\n");
    put(at, "edge_labels", "1\n2\n3\n4\n5\n5\n");
    put(at, "node_attributes", "1.5, 0\n2, 0\n3, 0\n4, 0\n5, -1e-3\n");
    put(at, "edge_attributes", "0.1\n0.2\n0.3\n0.4\n0.5\n0.6\n");
    let data = tu::read(at).unwrap();
    assert_eq!(data.node_labels().unwrap().as_slice(), [0, 2, 0, 1, 2]);
    assert_eq!(data.node_label_names, ["6", "7", "8"]);
    // The edges of the file in CSC order: 2 -> 1, 3 -> 1, 1 -> 2, 1 -> 3, 5 -> 4, 4 -> 5.
    assert_eq!(data.graph().edge_types().unwrap(), [1, 2, 0, 3, 4, 4]);
    assert_eq!(data.edge_type_names, ["1", "2", "3", "4", "5"]);
    assert_eq!(data.graph().weights().unwrap(), [0.2, 0.3, 0.1, 0.4, 0.5, 0.6]);
    let features = data.features().unwrap();
    assert_eq!(features.dim(), 2);
    assert_eq!(features.row(NodeId(4)).unwrap(), [5.0, -1e-3]);
}

#[test]
fn several_labels_in_a_line_are_one_label() {
    let data = read_with("node_labels", "0, 1\n0, 0\n1, 0\n0, 1\n0, 0\n").unwrap();
    assert_eq!(data.node_labels().unwrap().as_slice(), [1, 0, 2, 1, 0]);
    assert_eq!(data.node_label_names, ["0, 0", "0, 1", "1, 0"]);
}

#[test]
fn notes_ignored_files_and_missing_reverse_edges() {
    let note = |what, text: &str| {
        let data = read_with(what, text).unwrap();
        assert_eq!(data.notes.len(), 1, "{:?}", data.notes);
        data.notes[0].to_string()
    };
    let said = note("edge_attributes", &"1, 2\n".repeat(6));
    assert!(said.contains("X_Y_edge_attributes.txt is not read: an edge has one weight"), "{said}");
    let said = note("graph_attributes", "0.5\n1.5\n");
    assert!(said.contains("X_Y_graph_attributes.txt is not read"), "{said}");
    let said = note("A", "1, 2\n4, 5\n");
    assert!(said.starts_with("some edges lack their reverse"), "{said}");
    // The first node of a line is the source, as in PyG.
    let data = read_with("A", "1, 2\n4, 5\n").unwrap();
    assert_eq!(data.graph().in_neighbors(NodeId(1)), [NodeId(0)]);
}

#[test]
fn self_loops_and_parallel_edges_are_kept() {
    let data = read_with("A", "1, 1\n1, 2\n1, 2\n2, 1\n2, 1\n").unwrap();
    assert_eq!(data.graph().indices(), [0, 1, 1, 0, 0].map(NodeId));
    assert_eq!(data.notes, []);
}

#[test]
fn rejects_invalid_lines_with_their_number() {
    let cases = [
        ("graph_indicator", "", "line 1: \"the end of the file\", expected the graph of the first node"),
        ("graph_indicator", "0\n", "line 1: \"0\", expected 1, the first graph"),
        ("graph_indicator", "2\n", "line 1: \"2\", expected 1, the first graph"),
        ("graph_indicator", "1\n2\n1\n", "line 3: \"1\", expected graph 2 or the next: sort the nodes"),
        ("graph_indicator", "1\n3\n", "line 2: \"3\", expected graph 1 or the next"),
        ("graph_indicator", "1\n0\n", "line 2: \"0\", expected graph 1 or the next"),
        ("graph_indicator", "1\n4294967295\n", "line 2: \"4294967295\", expected graph 1"),
        ("graph_indicator", "1\n99999999999\n", "line 2: \"99999999999\", expected the node's graph"),
        ("graph_indicator", "1, 1\n", "line 1: \"1\", expected one number"),
        ("A", "", "line 1: \"the end of the file\", expected an edge"),
        ("A", "1\n", "line 1: \"1\", expected two numbers"),
        ("A", "1, 2, 3\n", "line 1: \"3\", expected two numbers"),
        ("A", "1, 2\n1\n", "line 2: \"1 fields\", expected 2 fields, as in the first line"),
        ("A", "1, 2\n0, 1\n", "line 2: \"0\", expected a node, counted from 1: 1 to 5"),
        ("A", "1, 6\n", "line 1: \"6\", expected a node, counted from 1: 1 to 5"),
        ("A", "1, -2\n", "line 1: \"-2\", expected a node, counted from 1"),
        ("A", "1, x\n", "line 1: \"x\", expected a node"),
        ("A", "3, 4\n", "line 1: \"4\", expected a node of graph 1, the graph of node 3"),
        ("graph_labels", "1\n0.5\n", "line 2: \"0.5\", expected an integer"),
        ("node_labels", "1\n\"1\"\n", "line 2: \"\\\"1\\\"\", expected an integer"),
        ("node_attributes", "1\nnan\n", "line 2: \"nan\", expected a finite number"),
        ("graph_labels", "1\n1\n1\n", "line 3: \"1\", expected no more than 2 lines"),
        ("edge_attributes", "1\n1e99\n", "line 2: \"1e99\", expected a finite number"),
    ];
    for (what, text, expected) in cases {
        let error = read_with(what, text).unwrap_err();
        assert!(matches!(error, Error::Store(StoreError::BadLine { .. })), "{error}");
        let expected = format!("X_Y_{what}.txt, {expected}");
        assert!(error.to_string().contains(&expected), "{error}, not {expected}");
    }
}

#[test]
fn rejects_oversized_lines() {
    let error = read_with("node_labels", &"1".repeat((1 << 24) + 1)).unwrap_err().to_string();
    assert!(error.contains("X_Y_node_labels.txt: a line of more than 16777216 bytes"), "{error}");
}

#[test]
fn rejects_files_with_a_wrong_number_of_lines() {
    let cases = [
        ("graph_labels", "1\n", "is 1, expected 2"),
        ("graph_labels", "", "is 0, expected 2"),
        ("node_labels", "1\n", "is 1, expected 5"),
        ("node_attributes", "1\n", "is 1, expected 5"),
        ("edge_labels", "1\n", "is 1, expected 6"),
        ("edge_attributes", "1\n", "is 1, expected 6"),
    ];
    for (what, text, expected) in cases {
        let error = read_with(what, text).unwrap_err().to_string();
        let expected = format!("X_Y_{what}.txt: the number of lines {expected}");
        assert!(error.contains(&expected), "{error}, not {expected}");
    }
}

#[test]
fn rejects_more_than_256_edge_labels() {
    let folder = folder();
    let n_edges = 257;
    put(folder.path(), "A", &"1, 2\n".repeat(n_edges));
    let labels: String = (0..n_edges).map(|label| format!("{label}\n")).collect();
    put(folder.path(), "edge_labels", &labels);
    let error = tu::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("the label of edge 256 is 256, expected one of 256 different labels"), "{error}");
}

#[test]
fn rejects_folders_without_exactly_one_classification_set() {
    assert!(matches!(tu::read("no/such/folder"), Err(Error::Store(StoreError::Io { .. }))));
    let folder = folder();
    let at = folder.path();
    let said = || tu::read(at).unwrap_err().to_string();
    put(at, "graph_labels", "1, 0\n0, 2\n");
    assert!(said().contains("the label of line 2 is 2") || said().contains("line 2"), "{}", said());
    fs::remove_file(at.join("X_Y_graph_labels.txt")).unwrap();
    assert!(said().contains("has no X_Y_graph_labels.txt (the class of each graph)"), "{}", said());
    put(at, "graph_attributes", "1\ninf\n");
    assert!(said().contains("expected a number, or nan for a missing target"), "{}", said());
    fs::remove_file(at.join("X_Y_graph_indicator.txt")).unwrap();
    assert!(said().contains("has no X_Y_graph_indicator.txt"), "{}", said());
    fs::write(at.join("B_A.txt"), "").unwrap();
    assert!(said().contains("is a folder of 2 sets (B, X_Y), expected a folder of one set"), "{}", said());
    fs::remove_file(at.join("B_A.txt")).unwrap();
    fs::remove_file(at.join("X_Y_A.txt")).unwrap();
    assert!(said().contains("has no NAME_A.txt"), "{}", said());
}
