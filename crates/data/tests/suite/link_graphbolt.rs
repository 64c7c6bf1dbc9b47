//! Links and fixed negatives of GraphBolt's tasks.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::open;
use kiln_graph::NodeId;
use tempfile::TempDir;

use crate::common::put;
use crate::link_formats::{links, put_graph, test_negatives};

const METADATA: &str = "\
graph:
  nodes:
  - num: 5
  edges:
  - {format: numpy, path: edges.npy}
feature_data:
- {domain: node, name: feat, format: numpy, path: features.npy}
tasks:
- name: link_prediction
  train_set:
  - data:
    - {name: seeds, format: numpy, path: train.npy}
  validation_set:
  - data:
    - {name: node_pairs, format: numpy, path: val.npy}
    - {name: negative_dsts, format: numpy, path: val_negatives.npy}
  test_set:
  - type: null
    data:
    - {name: seeds, format: numpy, path: test.npy}
    - {name: labels, format: numpy, path: test_labels.npy}
    - {name: indexes, format: numpy, path: test_indexes.npy}
";

pub(crate) fn graphbolt_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put_graph(at);
    fs::write(at.join("metadata.yaml"), METADATA).unwrap();
    put(at, "train.npy", &[0_i64, 1, 2, 1, 3, 0], &[3, 2]);
    put(at, "val.npy", &[1_i64, 3], &[1, 2]);
    put(at, "val_negatives.npy", &[4_i64, 0], &[1, 2]);
    put(at, "test.npy", &[2_i64, 4, 4, 0, 4, 1, 2, 0, 4, 2, 2, 1], &[6, 2]);
    put(at, "test_labels.npy", &[1.0_f32, 1.0, 0.0, 0.0, 0.0, 0.0], &[6]);
    put(at, "test_indexes.npy", &[7_i64, 3, 3, 7, 3, 7], &[6]);
    folder
}

#[test]
fn reads_graphbolt_tasks_of_links() {
    let folder = graphbolt_folder();
    let data = open(folder.path()).unwrap();
    let targets = data.links.as_ref().unwrap();
    assert_eq!(links(&targets.targets), [vec![(0, 1), (2, 1), (3, 0)], vec![(1, 3)], vec![(2, 4), (4, 0)]]);
    assert_eq!(targets.targets.val_negatives().unwrap().dsts_of(0), [NodeId(4), NodeId(0)]);
    assert_eq!(test_negatives(&targets.targets), [vec![(2, 0), (2, 1)], vec![(4, 1), (4, 2)]]);
    assert_eq!((data.labels().n_classes(), data.split().train.len()), (0, 0));
    // Without indexes, the negatives belong to no link in particular.
    let index = "    - {name: indexes, format: numpy, path: test_indexes.npy}\n";
    fs::write(folder.path().join("metadata.yaml"), METADATA.replace(index, "")).unwrap();
    let data = open(folder.path()).unwrap();
    assert_eq!(
        test_negatives(&data.links.as_ref().unwrap().targets),
        [vec![(4, 1), (2, 0)], vec![(4, 2), (2, 1)]]
    );
    // Without a validation set.
    let (start, end) = (METADATA.find("  validation_set").unwrap(), METADATA.find("  test_set").unwrap());
    let text = [&METADATA[..start], &METADATA[end..]].concat();
    fs::write(folder.path().join("metadata.yaml"), text).unwrap();
    let data = open(folder.path()).unwrap();
    assert_eq!(links(&data.links.as_ref().unwrap().targets).map(|part| part.len()), [3, 0, 2]);
    assert_eq!(
        data.notes.last().unwrap().to_string(),
        "metadata.yaml has no validation_set of the task: that part of the split is empty"
    );
}

#[test]
fn sources_of_graphbolt_negatives_are_read_and_arrays_without_a_part_are_noted() {
    let folder = graphbolt_folder();
    let dsts = "    - {name: negative_dsts, format: numpy, path: val_negatives.npy}\n";
    let srcs = "    - {name: negative_srcs, format: numpy, path: val_srcs.npy}\n";
    put(folder.path(), "val_srcs.npy", &[0_i64, 2], &[1, 2]);
    let open_with = |from: &str, to: &str| {
        fs::write(folder.path().join("metadata.yaml"), METADATA.replace(from, to)).unwrap();
        open(folder.path()).unwrap()
    };
    let data = open_with(dsts, &format!("{dsts}{srcs}"));
    let targets = &data.links.as_ref().unwrap().targets;
    assert_eq!(targets.val_negatives().unwrap().srcs_of(0), Some(&[NodeId(0), NodeId(2)][..]));
    let notes = |from: &str, to: &str| {
        let notes = open_with(from, to).notes;
        notes.iter().map(ToString::to_string).find(|note| note.starts_with("these arrays")).unwrap()
    };
    let note = notes(dsts, srcs);
    assert!(note.contains("negative_srcs (tasks[0].validation_set[0].data[1])"), "{note}");
    let labels = "    - {name: labels, format: numpy, path: test_labels.npy}\n";
    let note = notes(labels, &format!("{labels}{srcs}"));
    assert!(note.contains("negative_srcs (tasks[0].test_set[0].data[2])"), "{note}");
    let note = notes(labels, "    - {name: scores, format: numpy, path: none.npy}\n");
    assert!(note.contains("scores (tasks[0].test_set[0].data[1]), indexes"), "{note}");
}

#[test]
fn rejects_inconsistent_graphbolt_tasks_of_links() {
    let check = |write: &dyn Fn(&Path), expected: &str| {
        let folder = graphbolt_folder();
        write(folder.path());
        let error = open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        &|at| put(at, "test_labels.npy", &[1_i64, 1, 0, 0, 0, 2], &[6]),
        "test_labels.npy: the label of row 5 is 2, expected 1 for a link or 0 for a negative",
    );
    check(&|at| put(at, "test_labels.npy", &[1_i64, 1, 0], &[3]), "the number of labels is 3, expected 6");
    check(&|at| put(at, "test_indexes.npy", &[7_i64, 3, 3], &[3]), "the number of indexes is 3, expected 6");
    check(
        &|at| put(at, "test_indexes.npy", &[7_i64, 3, 3, 7, 3, 8], &[6]),
        "test_indexes.npy: the index of row 5 is 8, expected the index of a link",
    );
    check(
        &|at| put(at, "test_indexes.npy", &[7_i64, 3, 3, 3, 3, 7], &[6]),
        "a link with 1 negatives among links with 2 (row 0) is not supported: give each link the same number",
    );
    check(&|at| put(at, "test_labels.npy", &[0_i64; 6], &[6]), "expected the index of a link");
    check(&|at| put(at, "val_negatives.npy", &[0_i64; 4], &[2, 2]), "the number of links is 2, expected 1");
    check(
        &|at| put(at, "train.npy", &[0_i64, 9, 1, 1, 1, 1], &[3, 2]),
        "train.npy: the destination of link 0 is 9",
    );
    check(
        &|at| fs::write(at.join("metadata.yaml"), METADATA.replace("{name: seeds", "{name: pairs")).unwrap(),
        "tasks[0].train_set[0].data is a list of 1, expected an entry called seeds or node_pairs",
    );
}

/// Links that share a query repeat its negatives: here 15,000 links have 15,000 negatives each, which take 3.6 GB.
#[test]
fn rejects_graphbolt_queries_whose_repeated_negatives_exceed_the_memory_limit() {
    let folder = graphbolt_folder();
    let n = 30_000;
    put(folder.path(), "test.npy", &[2_i64, 4].repeat(n), &[n, 2]);
    let labels: Vec<i64> = (0..n as i64).map(|row| row % 2).collect();
    put(folder.path(), "test_labels.npy", &labels, &[n]);
    put(folder.path(), "test_indexes.npy", &vec![0_i64; n], &[n]);
    let error = open(folder.path()).unwrap_err().to_string();
    let expected =
        "test_indexes.npy: 225000000 negatives (15000 links with 15000 each) is not supported: give each";
    assert!(error.contains(expected), "{error}");
    // A shared query with few negatives is read.
    put(folder.path(), "test.npy", &[2_i64, 4, 4, 0, 4, 1, 2, 0], &[4, 2]);
    put(folder.path(), "test_labels.npy", &[1_i64, 1, 0, 0], &[4]);
    put(folder.path(), "test_indexes.npy", &[0_i64; 4], &[4]);
    let data = open(folder.path()).unwrap();
    assert_eq!(
        test_negatives(&data.links.as_ref().unwrap().targets),
        [vec![(4, 1), (2, 0)], vec![(4, 1), (2, 0)]]
    );
}
