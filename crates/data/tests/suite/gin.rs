//! Tests of the reader of GIN files, including invalid ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;

use kiln_data::{Error, GraphDataset, gin};
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;

fn read(text: &[u8]) -> Result<GraphDataset, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("SMALL.txt");
    fs::write(&path, text).unwrap();
    gin::read(path)
}

/// A file with two graphs: the path 1 - 0 - 2, and an isolated node.
const SMALL: &str = "2\n3 5\n0 2 1 2\n4 1 0\n-1 1 0\n1 -3\n0 0\n";

#[test]
fn reads_graphs_as_one_block_diagonal_graph() {
    let data = read(SMALL.as_bytes()).unwrap();
    assert_eq!((data.name.as_str(), data.n_graphs()), ("SMALL", 2));
    assert_eq!(data.node_offsets()[..], [0, 3, 4]);
    assert_eq!([data.nodes(0), data.nodes(1)], [0..3, 3..4]);
    assert_eq!(data.graph().indptr(), [0, 2, 3, 4, 4]);
    assert_eq!(data.graph().indices(), [1, 2, 0, 0].map(NodeId));
    assert_eq!(data.notes, []);
    assert!(data.features().is_none());
    assert_eq!(data.to_string(), "SMALL: 2 graphs of 2.00 nodes and 2.00 edges on average, 2 classes");
}

#[test]
fn labels_and_tags_become_classes_in_ascending_order() {
    let data = read(SMALL.as_bytes()).unwrap();
    assert_eq!(data.labels().as_slice(), [1, 0]);
    assert_eq!(data.class_names, ["-3", "5"]);
    assert_eq!(data.node_labels().unwrap().as_slice(), [1, 2, 0, 1]);
    assert_eq!(data.node_label_names, ["-1", "0", "4"]);
}

#[test]
fn numbers_after_the_neighbours_are_features() {
    let data = read(b"1\r\n2 0\r\n0 1 1 0.5 -2\r\n0 1 0  1e3\t0\r\n\r\n").unwrap();
    let features = data.features().unwrap();
    assert_eq!((features.dim(), features.n_rows()), (2, 2));
    assert_eq!(features.row(NodeId(0)).unwrap(), [0.5, -2.0]);
    assert_eq!(features.row(NodeId(1)).unwrap(), [1000.0, 0.0]);
}

#[test]
fn edge_without_reverse_keeps_its_direction_with_a_note() {
    let data = read(b"1\n2 0\n0 2 1 1\n0 0\n").unwrap();
    assert_eq!(data.graph().in_neighbors(NodeId(1)), [NodeId(0), NodeId(0)]);
    assert_eq!(data.graph().in_degree(NodeId(0)), 0);
    assert_eq!(data.notes.len(), 1);
    assert!(data.notes[0].to_string().starts_with("some edges lack their reverse"), "{}", data.notes[0]);
}

#[test]
fn accepts_graphs_without_nodes() {
    let data = read(b"2\n0 1\n1 0\n7 1 0\n").unwrap();
    assert_eq!(data.node_offsets()[..], [0, 0, 1]);
    assert_eq!(data.notes, []);
}

#[test]
fn rejects_invalid_lines_with_their_number() {
    let cases: [(&[u8], &str); 24] = [
        (b"", "line 1: \"the end of the file\", expected the number of graphs"),
        (b"\n", "line 1: \"the end of the line\", expected the number of graphs, at least 1"),
        (b"0\n", "line 1: \"0\", expected the number of graphs, at least 1"),
        (b"-1\n", "line 1: \"-1\", expected the number of graphs, at least 1"),
        (b"1 2\n", "line 1: \"2\", expected one number"),
        (b"1000000000000000000\n1 0\n0 0\n", "line 4: \"the end of the file\", expected a graph"),
        (b"100000000000000000000\n", "line 1: \"100000000000000000000\", expected the number of graphs"),
        (b"1\n4000000000 0\n0 0\n", "line 4: \"the end of the file\", expected a node"),
        (b"1\n5000000000 0\n0 0\n", "line 2: \"5000000000\", expected the number of the graph's nodes"),
        (b"2\n1 0\n0 0\n4294967295 0\n", "line 4: \"4294967295\", expected fewer than 2^32 nodes"),
        (b"1\n-1 0\n", "line 2: \"-1\", expected the number of the graph's nodes"),
        (b"1\n1\n0 0\n", "line 2: \"the end of the line\", expected the graph's label"),
        (b"1\n1 0 0\n0 0\n", "line 2: \"0\", expected two numbers"),
        (b"1\n1 0.5\n0 0\n", "line 2: \"0.5\", expected the graph's label, an integer"),
        (b"1\n1 0\nC 0\n", "line 3: \"C\", expected the node's tag"),
        (b"1\n1 0\n0\n", "line 3: \"the end of the line\", expected the node's degree"),
        (b"1\n1 0\n0 -1\n", "line 3: \"-1\", expected the node's degree"),
        (b"1\n1 0\n0 1000000000000000000 0\n", "line 3: \"the end of the line\", expected a neighbour"),
        (b"2\n1 0\n0 0\n1 0\n0 1 1\n", "line 5: \"1\", expected a node id of this graph, below 1"),
        (b"1\n2 0\n0 1 1 0.5\n0 1 0\n", "line 4: \"0 features\", expected 1 features"),
        (b"1\n1 0\n0 0 x\n", "line 3: \"x\", expected a feature of the node"),
        (b"1\n1 0\n0 0 nan\n", "line 3: \"nan\", expected a feature of the node, a finite number"),
        (b"1\n1 0\n0 0\n\n0 0\n", "line 5: \"0 0\", expected no more lines"),
        (b"1\n1 0\n0 \xff\n", "line 3: \"0 \u{fffd}\", expected numbers"),
    ];
    for (text, expected) in cases {
        let error = read(text).unwrap_err();
        assert!(matches!(error, Error::Store(StoreError::BadLine { .. })), "{error}");
        assert!(error.to_string().contains(expected), "{error}, not {expected}");
    }
    let long = [b"1\n1 0\n".as_slice(), &vec![b' '; (1 << 24) + 1], b"0 0\n"].concat();
    let said = read(&long).unwrap_err().to_string();
    assert!(said.contains("line 3: \"more than 16777216 bytes\", expected a line of numbers"), "{said}");
    assert!(matches!(gin::read("no/such/file"), Err(Error::Store(StoreError::Io { .. }))));
}
