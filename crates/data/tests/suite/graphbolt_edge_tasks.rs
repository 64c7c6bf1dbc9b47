//! Tasks with labels of edges in GraphBolt folders: classes, several labels and numbers of the edges of a relation.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, Error, LinkSplitError, Note, format, open};
use kiln_feature::{TargetKind, Targets};
use kiln_graph::LinkId;
use tempfile::TempDir;

use crate::common::put;
use crate::graphbolt;
use crate::link_formats::links;

/// A part of a task, with its own arrays.
fn part(key: &str, name: &str, seeds: &str) -> String {
    format!(
        "  {key}:\n  - data:\n    - {{name: {seeds}, format: numpy, path: {name}.npy}}\n    \
         - {{name: labels, format: numpy, path: {name}_labels.npy}}\n"
    )
}

/// The metadata of the folder with a task with labels of edges and these entries.
fn metadata(task: &str) -> String {
    let (graph, _) = graphbolt::METADATA.split_once("tasks:").unwrap();
    let features = "- {domain: edge, name: amount, format: numpy, path: amount.npy}\n";
    let [train, val] = [part("train_set", "train", "seeds"), part("validation_set", "val", "node_pairs")];
    format!("{graph}{features}tasks:\n- name: fraud\n{task}{train}{val}")
}

/// A folder with the edges 0 -> 1, 2 -> 1, 2 -> 1, 3 -> 0, whose amounts are 0.5, 1.5, 2.5 and 3.5.
fn folder() -> TempDir {
    let folder = graphbolt::folder();
    let at = folder.path();
    fs::write(at.join("metadata.yaml"), metadata("")).unwrap();
    put(at, "amount.npy", &[0.5_f32, 1.5, 2.5, 3.5], &[4]);
    put(at, "train.npy", &[2_i64, 1, 0, 1, 2, 1], &[3, 2]);
    put(at, "train_labels.npy", &[1_i64, 0, 2], &[3]);
    put(at, "val.npy", &[3_i64, 0], &[1, 2]);
    put(at, "val_labels.npy", &[1_i64], &[1]);
    folder
}

fn notes(data: &Dataset) -> Vec<String> {
    data.notes.iter().map(ToString::to_string).collect()
}

fn classes(values: &Targets<LinkId>) -> (usize, Vec<i32>) {
    match values {
        Targets::Classes(labels) => (labels.n_classes(), labels.as_slice().to_vec()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_classes_of_edges_with_their_features() {
    let folder = folder();
    let data = open(folder.path()).unwrap();
    let task = data.links.as_ref().unwrap();
    assert_eq!(links(&task.targets), [vec![(2, 1), (0, 1), (2, 1)], vec![(3, 0)], vec![]]);
    assert_eq!(classes(task.targets.values().unwrap()), (3, vec![1, 0, 2, 1]));
    // The rows of the pair 2 -> 1 are its edges in their order.
    let rows = task.targets.features().unwrap().to_column();
    assert_eq!((0..4).map(|row| rows.value(row)).collect::<Vec<_>>(), [1.5, 0.5, 2.5, 3.5]);
    // The edge for validation is not in the graph.
    assert_eq!(data.csc().unwrap().indptr(), [0, 0, 3, 3, 3]);
    assert_eq!((data.labels().n_classes(), data.split().train.len()), (0, 0));
    let expected = "metadata.yaml has no test_set of the task: that part of the split is empty";
    assert!(notes(&data).contains(&expected.to_owned()), "{:?}", data.notes);
    assert_eq!(data.validate().unwrap(), []);
    // The kiln format has the same set, also of a conversion.
    let [written, converted] = ["written", "converted"].map(|name| folder.path().join(name));
    format::write(&data, &written).unwrap();
    let report = convert(folder.path(), &converted, &ConvertOptions::default()).unwrap();
    assert_eq!(report.to_string(), "4 nodes, 3 edges from a list of 4, sorted in 1 bucket, read 1 times");
    assert_eq!(crate::common::contents(&converted), crate::common::contents(&written));
    assert_eq!(open(&converted).unwrap().links.unwrap().targets, task.targets);
    let symmetrized = ConvertOptions { symmetrize: true, ..Default::default() };
    let error = convert(folder.path(), folder.path().join("none"), &symmetrized).unwrap_err().to_string();
    assert!(error.contains("the folder has labels of edges, which must be edges of its list"), "{error}");
    assert!(!folder.path().join("none").exists());
}

#[test]
fn the_form_of_labels_determines_the_targets() {
    let folder = folder();
    let at = folder.path();
    let kind = || {
        let data = open(at).unwrap();
        let values = data.links.unwrap().targets.values().unwrap().clone();
        (values.kind(), values.n_outputs())
    };
    // Ratings: floats are numbers, unless the metadata states classes.
    put(at, "train_labels.npy", &[1.0_f32, 0.0, 2.0], &[3, 1]);
    put(at, "val_labels.npy", &[1.0_f64], &[1]);
    assert_eq!(kind(), (TargetKind::Regression, 1));
    fs::write(at.join("metadata.yaml"), metadata("  num_classes: 5\n")).unwrap();
    assert_eq!(kind(), (TargetKind::Classes, 5));
    fs::write(at.join("metadata.yaml"), metadata("")).unwrap();
    put(at, "train_labels.npy", &[1_i64, 0, 0, -1, 1, 1], &[3, 2]);
    put(at, "val_labels.npy", &[1_u8, 0], &[1, 2]);
    assert_eq!(kind(), (TargetKind::MultiLabel, 2));
}

const TYPED: &str = "\
graph:
  nodes:
  - {type: user, num: 3}
  - {type: item, num: 2}
  edges:
  - {type: \"user:buys:item\", format: csv, path: buys.csv}
  - {type: \"item:bought_by:user\", format: csv, path: bought_by.csv}
tasks:
- name: ratings
  train_set:
  - type: \"user:buys:item\"
    data:
    - {name: seeds, format: numpy, path: train.npy}
    - {name: labels, format: numpy, path: train_labels.npy}
  test_set:
  - type: \"user:buys:item\"
    data:
    - {name: seeds, format: numpy, path: test.npy}
    - {name: labels, format: numpy, path: test_labels.npy}
";

fn typed_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("metadata.yaml"), TYPED).unwrap();
    fs::write(at.join("buys.csv"), "0,0\n1,1\n2,1\n2,0\n").unwrap();
    fs::write(at.join("bought_by.csv"), "0,0\n1,1\n1,2\n0,2\n").unwrap();
    put(at, "train.npy", &[2_i64, 1, 0, 0], &[2, 2]);
    put(at, "train_labels.npy", &[4.5_f32, 1.0], &[2]);
    put(at, "test.npy", &[1_i64, 1], &[1, 2]);
    put(at, "test_labels.npy", &[3.0_f32], &[1]);
    folder
}

#[test]
fn reads_numbers_of_the_edges_of_a_relation_and_leaves_out_the_reverses() {
    let folder = typed_folder();
    let data = open(folder.path()).unwrap();
    let task = data.links.as_ref().unwrap();
    assert_eq!((task.relation, task.reverse), (0, Some(1)));
    // Item 0 is node 3.
    assert_eq!(links(&task.targets), [vec![(2, 4), (0, 3)], vec![], vec![(1, 4)]]);
    let Targets::Values(values) = task.targets.values().unwrap() else { panic!("{task:?}") };
    assert_eq!(values.as_numbers().unwrap(), [4.5, 1.0, 3.0]);
    assert!(task.targets.features().is_none());
    for relation in [0, 1] {
        let graph = data.graph.whole_graph(relation).unwrap();
        let edges: Vec<_> = graph.dsts().into_iter().zip(graph.indices()).collect();
        assert_eq!(edges.len(), 3);
        assert!(edges.iter().all(|(dst, src)| dst.0.min(src.0) != 1), "{edges:?}");
    }
    let [relation, reverse] = ["buys", "bought_by"].map(str::to_owned);
    assert!(data.notes.contains(&Note::ReverseRelation { relation, reverse }), "{:?}", data.notes);
    assert!(data.targets.is_none());
    data.validate().unwrap();
    let written = folder.path().join("written");
    format::write(&data, &written).unwrap();
    assert_eq!(open(&written).unwrap().hash().unwrap(), data.hash().unwrap());
}

fn rejects(folder: TempDir, change: impl Fn(&Path), expected: &str) -> Error {
    change(folder.path());
    let error = open(folder.path()).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    error
}

#[test]
fn rejects_pairs_without_an_edge_of_their_own() {
    let error = rejects(
        folder(),
        |at| put(at, "val.npy", &[1_i64, 0], &[1, 2]),
        "relation `edge`: row 0 of the val split is the pair 1 -> 0, expected an edge of its own, and the graph has 0 edges",
    );
    let Error::InPart { source, .. } = error else { panic!("{error:?}") };
    let expected = LinkSplitError::NotAnEdge { part: "val", position: 0, src: 1, dst: 0, n_edges: 0 };
    assert!(matches!(*source, Error::LinkSplit(found) if found == expected));
    // An edge in two parts.
    let expected =
        "row 0 of the val split is the pair 0 -> 1, expected an edge of its own, and the graph has 1 edges";
    rejects(folder(), |at| put(at, "val.npy", &[0_i64, 1], &[1, 2]), expected);
    let expected = "relation `buys`: row 0 of the test split is the pair 1 -> 0, expected an edge";
    rejects(typed_folder(), |at| put(at, "test.npy", &[1_i64, 0], &[1, 2]), expected);
}

#[test]
fn rejects_labels_and_pairs_that_do_not_fit() {
    let write = |at: &Path, text: &str| fs::write(at.join("metadata.yaml"), text).unwrap();
    let few = "train_labels.npy: the number of labels is 2, expected 3";
    rejects(folder(), |at| put(at, "train_labels.npy", &[1_i64, 0], &[2]), few);
    let large = "train_labels.npy: the label of row 2 is 2, expected below num_classes, 2";
    rejects(folder(), |at| write(at, &metadata("  num_classes: 2\n")), large);
    let missing = "val_labels.npy: the label of row 0 is -1, expected a class: every edge of a set needs one";
    rejects(folder(), |at| put(at, "val_labels.npy", &[-1_i64], &[1]), missing);
    let columns = "val_labels.npy: the number of columns of labels is 2, expected 1";
    rejects(folder(), |at| put(at, "val_labels.npy", &[1_i64, 0], &[1, 2]), columns);
    let fraction = "val_labels.npy: the label of row 0 is 0.5, expected a class";
    rejects(folder(), |at| put(at, "val_labels.npy", &[0.5_f32], &[1]), fraction);
    let integers = "test_labels.npy: the elements are <i8, expected floats, as in the train_set";
    rejects(typed_folder(), |at| put(at, "test_labels.npy", &[3_i64], &[1]), integers);
    let infinite = "test_labels.npy: a target of row 0 is inf, expected finite numbers of 32 bits";
    rejects(typed_folder(), |at| put(at, "test_labels.npy", &[f32::INFINITY], &[1]), infinite);
    let none = "has no target value";
    rejects(typed_folder(), |at| put(at, "test_labels.npy", &[f32::NAN], &[1]), none);
    let node = "the destination of link 0 is 9";
    rejects(folder(), |at| put(at, "val.npy", &[3_i64, 9], &[1, 2]), node);
    let item = "the destination of link 0 is 2, expected below 2, the number of nodes of type `item`";
    rejects(typed_folder(), |at| put(at, "test.npy", &[1_i64, 2], &[1, 2]), item);
    let (start, test) = TYPED.split_once("  test_set").unwrap();
    let other = test.replace("user:buys:item", "item:bought_by:user");
    rejects(
        typed_folder(),
        |at| write(at, &format!("{start}  test_set{other}")),
        "expected the edge type of the train_set",
    );
    let text = metadata("").replacen("- num: 4", "- {num: 4, type: user}", 1);
    let text = text.replacen(
        "- format: numpy\n    path: edges",
        "- type: user:pays:user\n    format: numpy\n    path: edges",
        1,
    );
    let text = text.replacen("train_set:\n  - data", "train_set:\n  - type: user:owes:user\n    data", 1);
    rejects(folder(), |at| write(at, &text), "expected user:pays:user, the only edge type");
}

#[test]
fn one_task_with_labels_of_edges_is_read_if_there_is_no_other() {
    let folder = folder();
    let at = folder.path();
    let (graph, task) =
        metadata("").split_once("tasks:\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let (_, of_nodes) = graphbolt::METADATA.split_once("tasks:\n").unwrap();
    let open_with = |tasks: &str| {
        fs::write(at.join("metadata.yaml"), format!("{graph}tasks:\n{tasks}")).unwrap();
        open(at)
    };
    let is_noted = |data: &Dataset| {
        notes(data).iter().any(|note| note.contains("the task fraud (tasks[0] in metadata.yaml) is not read"))
    };
    // With a task of nodes, also without the name that is preferred, the graph keeps its edges.
    for of_nodes in [of_nodes.to_owned(), of_nodes.replace("node_classification", "topics")] {
        let data = open_with(&format!("{task}{of_nodes}")).unwrap();
        assert!(data.links.is_none() && is_noted(&data), "{:?}", data.notes);
        assert_eq!((data.graph.n_edges(), data.split().train.len()), (4, 1));
    }
    let of_links = "- name: link_prediction\n  train_set:\n  - data:\n    - {name: seeds, format: numpy, path: train.npy}\n";
    let data = open_with(&format!("{task}{of_links}")).unwrap();
    assert!(data.links.as_ref().unwrap().targets.values().is_none() && is_noted(&data), "{:?}", data.notes);
    let error = open_with(&task.repeat(2)).unwrap_err().to_string();
    assert!(error.contains("tasks is fraud, fraud, expected one called node_classification"), "{error}");
}
