//! Tests of the reader of GraphBolt folders with several node types, including invalid ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::{Dataset, Error, Note, format, graphbolt, synthetic};
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;
use tempfile::TempDir;

use crate::common::{notes_of_reading, put};

pub(crate) const METADATA: &str = "\
dataset_name: small
graph:
  nodes:
  - type: author
    num: 3
  - type: paper
    num: 4
  edges:
  - type: \"author:writes:paper\"
    format: numpy
    path: edges/writes.npy
  - type: paper:cites:paper
    format: csv
    path: edges/cites.csv
feature_data:
- domain: node
  type: paper
  name: feat
  format: numpy
  in_memory: false
  path: data/feat.npy
- {domain: node, type: paper, name: year, format: numpy, path: data/year.npy}
tasks:
- name: node_classification
  num_classes: 5
  train_set:
  - type: paper
    data:
    - {name: seeds, format: numpy, in_memory: true, path: set/train_seeds.npy}
    - {name: labels, format: numpy, path: set/train_labels.npy}
  validation_set:
  - type: paper
    data:
    - {name: seeds, format: numpy, path: set/val_seeds.npy}
    - {name: labels, format: numpy, path: set/val_labels.npy}
  test_set:
  - type: paper
    data:
    - {name: seeds, format: numpy, path: set/test_seeds.npy}
    - {name: labels, format: numpy, path: set/test_labels.npy}
";

/// Writes a folder with three authors and four papers. Paper 3 is in no set.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("metadata.yaml"), METADATA).unwrap();
    put(at, "edges/writes.npy", &[0_i64, 2, 2, 2, 1, 1], &[2, 3]);
    fs::write(at.join("edges/cites.csv"), "3,0\n1,0\n0,2\n").unwrap();
    put(at, "data/feat.npy", &[0.0_f32, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], &[4, 2]);
    put(at, "set/train_seeds.npy", &[1_i32], &[1]);
    put(at, "set/train_labels.npy", &[4_i64], &[1]);
    put(at, "set/val_seeds.npy", &[0_i64], &[1]);
    put(at, "set/val_labels.npy", &[1.0_f32], &[1, 1]);
    put(at, "set/test_seeds.npy", &[2_i32], &[1]);
    put(at, "set/test_labels.npy", &[0_u8], &[1]);
    folder
}

fn ids(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}

/// Returns the metadata with one part replaced.
fn edited(from: &str, to: &str) -> String {
    assert!(METADATA.contains(from), "{from}");
    METADATA.replacen(from, to, 1)
}

/// Opens the folder with other metadata and the unchanged arrays.
fn open_as(metadata: &str) -> kiln_data::Result<Dataset> {
    let folder = folder();
    fs::write(folder.path().join("metadata.yaml"), metadata).unwrap();
    graphbolt::open_heterogeneous(folder.path())
}

#[test]
fn opens_types_relations_features_and_the_task() {
    let folder = folder();
    let data = Dataset::open(folder.path()).unwrap();
    assert_eq!(
        data.to_string(),
        "small: 7 nodes of 2 types, 6 edges of 2 relations, 5 classes of paper; 1 / 1 / 1 nodes to train, validate, \
         test"
    );
    assert_eq!(data.graph.types().names(), ["author", "paper"]);
    let names: Vec<_> = data.graph.iter().map(|relation| relation.name.as_str()).collect();
    assert_eq!(names, ["writes", "cites"]);
    // Paper 0 is node 3.
    let neighbors = |relation: usize, row| ids(data.graph.relation(relation).graph.in_neighbors(NodeId(row)));
    assert_eq!((neighbors(0, 1), neighbors(0, 2), neighbors(1, 0)), (vec![2, 2], vec![0], vec![4, 6]));
    assert!(data.features[0].is_none());
    assert_eq!(data.features[1].as_ref().unwrap().row(NodeId(3)).unwrap(), [3.0, 3.5]);
    let targets = data.targets.as_ref().unwrap();
    assert_eq!(targets.split.parts().map(|(_, nodes)| ids(nodes)), [vec![4], vec![3], vec![5]]);
    assert_eq!(targets.class_names, ["0", "1", "2", "3", "4"]);
    let mut labels = Vec::new();
    targets.values.gather(&[0, 1, 2].map(NodeId), &mut labels, &mut Vec::new()).unwrap();
    assert_eq!(labels, [1, 4, 0]);
    assert!(!targets.values.has_any(NodeId(3)));
    assert_eq!(notes_of_reading(&data.validate().unwrap()), []);
    let unused = Note::Other("the node feature year (feature_data[1] in metadata.yaml) is not used".into());
    assert!(data.notes.contains(&unused), "{:?}", data.notes);
}

#[test]
fn a_graphbolt_folder_is_written_in_the_kiln_format() {
    let folder = folder();
    let data = graphbolt::open_heterogeneous(folder.path()).unwrap();
    let out = folder.path().join("kiln");
    format::write(&data, &out).unwrap();
    format::verify(&out).unwrap();
    assert_eq!(format::open(&out).unwrap().hash().unwrap(), data.hash().unwrap());
}

#[test]
fn relations_that_share_a_name_have_the_whole_type() {
    let text = edited("paper:cites:paper", "paper:writes:paper");
    let data = open_as(&text).unwrap();
    let names: Vec<_> = data.graph.iter().map(|relation| relation.name.as_str()).collect();
    assert_eq!(names, ["author:writes:paper", "paper:writes:paper"]);
    let error = open_as(&edited("author:writes:paper", "paper:cites:paper")).unwrap_err().to_string();
    assert!(error.contains("`paper:cites:paper` is empty or occurs twice"), "{error}");
}

#[test]
fn folders_without_a_task_have_no_targets() {
    let (graph, _) = METADATA.split_once("tasks:").unwrap();
    assert!(open_as(graph).unwrap().targets.is_none());
}

#[test]
fn every_reader_opens_several_types() {
    let folder = folder();
    let expected = graphbolt::open_heterogeneous(folder.path()).unwrap().hash().unwrap();
    for data in [graphbolt::open(folder.path()), Dataset::open(folder.path()), kiln_data::open(folder.path())]
    {
        assert_eq!(data.unwrap().hash().unwrap(), expected);
    }
}

#[test]
fn graphs_of_one_type_need_no_names() {
    let text = "graph:\n  nodes:\n  - num: 4\n  edges:\n  - {format: csv, path: edges/cites.csv}\n";
    let data = open_as(text).unwrap();
    assert_eq!(
        (data.graph.types().names(), &*data.graph.relation(0).name),
        (&["node".to_owned()][..], "edge")
    );
    assert_eq!(ids(data.graph.relation(0).graph.in_neighbors(NodeId(0))), [1, 3]);
}

#[test]
fn detects_heterogeneous_sets() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    assert!(kiln_data::is_heterogeneous(folder.path()).unwrap());
    format::write(&graphbolt::open_heterogeneous(folder.path()).unwrap(), at("typed")).unwrap();
    assert!(kiln_data::is_heterogeneous(at("typed")).unwrap());
    format::write(&synthetic::ring(6).unwrap(), at("ring")).unwrap();
    assert!(!kiln_data::is_heterogeneous(at("ring")).unwrap());
    fs::remove_file(at("ring").join("kiln.json")).unwrap();
    assert!(!kiln_data::is_heterogeneous(at("ring")).unwrap());
    assert!(!Dataset::open(at("ring")).unwrap().is_heterogeneous());
    assert!(kiln_data::is_heterogeneous(at("nowhere")).is_err());
}

/// Checks that opening the folder with other metadata fails with an error that names the metadata.
fn check_metadata(from: &str, to: &str, expected: &str) {
    let error = open_as(&edited(from, to)).unwrap_err();
    let is_typed = matches!(&error, Error::Store(StoreError::Metadata { .. }) | Error::Unsupported { .. });
    let text = error.to_string();
    assert!(
        is_typed && text.contains("metadata.yaml") && text.contains(expected),
        "{text}\n    expected {expected}"
    );
}

#[test]
fn rejects_invalid_metadata() {
    check_metadata("type: author", "type: paper", "invalid node type `paper`: it occurs twice");
    check_metadata("- type: author\n    num", "- num", "graph.nodes[0].type is missing");
    check_metadata("num: 3", "num: -3", "graph.nodes[0].num is \"-3\"");
    check_metadata("num: 3", "num: 4294967295", "the number of nodes is 4294967295");
    check_metadata("num: 3", "num: 4294967294", "graph.nodes is ");
    check_metadata(
        "author:writes:paper",
        "author:writes",
        "SOURCE:RELATION:DESTINATION with the node types author",
    );
    check_metadata(
        "author:writes:paper",
        "editor:writes:paper",
        "graph.edges[0].type is \"editor:writes:paper\"",
    );
    check_metadata("- type: paper:cites:paper\n    format", "- format", "graph.edges[1].type is missing");
    check_metadata(
        "type: paper\n  name: feat",
        "type: venue\n  name: feat",
        "one of the node types: author, paper",
    );
    check_metadata("type: paper\n  name: feat", "name: feat", "feature_data[0].type is missing");
    check_metadata("name: feat", "name: title", "features of paper called feat: rename the ones to use");
    check_metadata(
        "train_set:\n  - type: paper",
        "train_set:\n  - type: venue",
        "one of the node types: author",
    );
    check_metadata(
        "validation_set:\n  - type: paper",
        "validation_set:\n  - type: author",
        "tasks[0].validation_set[0].type is \"author\", expected paper, the type of the train_set",
    );
    check_metadata(
        "train_set:\n",
        "train_set:\n  - type: author\n    data: []\n",
        "a set over several node types (tasks[0].train_set) is not supported: write a task over one type",
    );
}

/// Checks that opening the folder fails with an error that names the file, after a change of the folder.
fn check_file(change: impl FnOnce(&Path), name: &str, expected: &str) {
    let folder = folder();
    change(folder.path());
    let error = graphbolt::open_heterogeneous(folder.path()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Store(_)) && text.contains(name) && text.contains(expected), "{text}");
}

#[test]
fn rejects_damaged_files() {
    check_file(
        |at| put(at, "edges/writes.npy", &[0_i64, 3, 2, 3, 1, 1], &[2, 3]),
        "writes.npy",
        "the source of edge 1 is 3, expected below 3, the number of nodes of type `author`",
    );
    check_file(
        |at| put(at, "edges/writes.npy", &[0_i64, 2, 2, 3, 4, 1], &[2, 3]),
        "writes.npy",
        "the destination of edge 1 is 4, expected a node id below 4",
    );
    check_file(
        |at| put(at, "edges/writes.npy", &[0_i64, 2, -1, 3, 1, 1], &[2, 3]),
        "writes.npy",
        "the source of edge 2 is -1",
    );
    check_file(
        |at| fs::write(at.join("edges/cites.csv"), "3,0\n4,0\n").unwrap(),
        "cites.csv, line 2",
        "below 4",
    );
    check_file(|at| fs::remove_file(at.join("edges/cites.csv")).unwrap(), "cites.csv", "");
    check_file(
        |at| put(at, "data/feat.npy", &[0.0_f32; 6], &[3, 2]),
        "feat.npy",
        "the number of feature rows is 3, expected 4",
    );
    check_file(|at| put(at, "set/val_seeds.npy", &[4_i64], &[1]), "val_seeds.npy", "a node id below 4");
    check_file(
        |at| put(at, "set/train_labels.npy", &[5_i64], &[1]),
        "train_labels.npy",
        "below num_classes, 5",
    );
    check_file(|at| fs::write(at.join("set/test_labels.npy"), "damaged").unwrap(), "test_labels.npy", "");
}

#[test]
fn the_number_of_relations_is_limited_before_they_are_read() {
    let entry = |i: usize| format!("  - {{type: 'paper:r{i}:paper', format: csv, path: missing.csv}}\n");
    let (before, after) = METADATA.split_once("feature_data:").unwrap();
    let relations: String = (0..255).map(entry).collect();
    let error = open_as(&format!("{before}{relations}feature_data:{after}")).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Store(_)) && text.contains("at most 256 edge types"), "{text}");
}

#[test]
fn a_number_of_nodes_that_no_file_confirms_is_limited() {
    let text = edited("num: 3", "num: 200000000");
    let error = open_as(&text).unwrap_err();
    assert!(
        matches!(&error, Error::Memory { what, needed_bytes: 1_600_000_032, .. } if what.contains("metadata.yaml")),
        "{error}"
    );
    let folder = folder();
    // The ids of three authors, who have no in-edges, and the offsets of four papers in their second relation.
    assert!(graphbolt::open_heterogeneous_within(folder.path(), 55).is_err());
    assert!(graphbolt::open_heterogeneous_within(folder.path(), 56).is_ok());
}
