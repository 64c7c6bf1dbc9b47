//! Tests of `kiln predict` on items whose outputs are not finite, which have no class and count in no metric, and of the metrics of
//! each part of the split.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use kiln::data::{Split, format};
use kiln::feature::{DenseFeatures, FeatureBuffer, FeatureStore};
use kiln::graph::Csc;
use kiln::prelude::*;

use crate::predict::{kiln, succeeds, train};
use crate::predict_answers::{Rows, named, raw, tables, with_values, write_set};
use crate::predict_ranks::{files, write};
use crate::predict_typed_parts::named as named_types;
use crate::typed::partition;

/// The flags of a run whose outputs depend on a node and its in-neighbours only.
const ONE_LAYER: &str = "--hidden 8 --fanouts all --epochs 1 --batch-size 64";

/// The node whose features are not finite.
pub(crate) const DAMAGED: u32 = 7;

/// A value that [`spoil`] replaces by NaN: sets and partitions with NaN are not written.
const MARK: f32 = 12_345.678;

/// Replaces [`MARK`] by NaN in all feature rows in a folder, as a program that knows no check would write them.
pub(crate) fn spoil(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            spoil(&path);
        } else if name.contains("features") && name.ends_with(".npy") {
            let mut bytes = fs::read(&path).unwrap();
            let marked = bytes.chunks_exact_mut(4).filter(|value| **value == MARK.to_le_bytes());
            marked.for_each(|value| value.copy_from_slice(&f32::NAN.to_le_bytes()));
            fs::write(&path, bytes).unwrap();
        }
    }
}

/// Returns rows in which all values of the nodes are [`MARK`], which are NaN in a folder after [`spoil`].
pub(crate) fn damage(features: &dyn FeatureStore, nodes: impl Iterator<Item = u32>) -> Arc<dyn FeatureStore> {
    let (n_rows, dim) = (features.n_rows() as u32, features.dim());
    let mut rows = FeatureBuffer::empty(features.dtype());
    features.gather(&(0..n_rows).map(NodeId).collect::<Vec<_>>(), &mut rows).unwrap();
    let mut values = rows.into_f32();
    for node in nodes {
        values[node as usize * dim..(node as usize + 1) * dim].fill(MARK);
    }
    Arc::new(DenseFeatures::from_f32(values, dim).unwrap())
}

/// Returns the node and the nodes that have it as an in-neighbour.
pub(crate) fn reached(graph: &Csc, node: u32) -> BTreeSet<u32> {
    let has_node = |dst: &u32| graph.in_neighbors(NodeId(*dst)).contains(&NodeId(node));
    (0..graph.n_nodes() as u32).filter(has_node).chain([node]).collect()
}

/// Predicts into a new folder, and returns what is printed and the tables.
pub(crate) fn answer(root: &Path, run: &str, flags: &str) -> (String, BTreeMap<String, (String, Rows)>) {
    let out = root.join(format!("answer-{}", fs::read_dir(root).unwrap().count()));
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let printed =
        succeeds(&[&["predict", "--run", run, "--out", out.to_str().unwrap()], &flags[..]].concat());
    (printed, tables(&files(&out)))
}

/// Checks that items of `reached` have no class, and others the same as in `expected`.
fn check_classes(
    answer: &BTreeMap<String, (String, Rows)>,
    expected: &BTreeMap<String, (String, Rows)>,
    reached: &BTreeSet<u32>,
) {
    for name in ["predictions.csv", "classes.csv"] {
        assert_eq!(answer[name].0, expected[name].0);
        let first = if name == "classes.csv" { 1 } else { 2 };
        for (row, expected) in answer[name].1.iter().zip(&expected[name].1) {
            match reached.contains(&row[0].parse().unwrap()) {
                true => assert!(row[first..].iter().all(String::is_empty), "{name}: {row:?}"),
                false => assert_eq!(row, expected, "{name}"),
            }
        }
        assert_eq!(answer[name].1.len(), expected[name].1.len());
    }
}

/// Returns the line of the accuracy of these nodes, without those of `left_out`; `None` without nodes.
fn accuracy(
    predictions: &[Vec<String>],
    nodes: &BTreeSet<u32>,
    left_out: &BTreeSet<u32>,
    part: &str,
) -> Option<String> {
    let is_counted = |row: &&Vec<String>| {
        let node = row[0].parse().unwrap();
        nodes.contains(&node) && !left_out.contains(&node)
    };
    let rows: Vec<&Vec<String>> = predictions.iter().filter(is_counted).collect();
    let n_hits = rows.iter().filter(|row| row[1] == row[2]).count();
    let accuracy = n_hits as f64 / rows.len() as f64;
    (!rows.is_empty()).then(|| format!("accuracy {accuracy:.4} on {} labelled items {part}", rows.len()))
}

#[test]
fn nodes_without_finite_outputs_have_no_class_and_metrics_are_those_of_each_part() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let data = raw();
    let n_nodes = data.graph.n_nodes() as u32;
    let nodes = |ids: std::ops::Range<u32>| ids.map(NodeId).collect::<Vec<_>>().into();
    let split = Split { train: nodes(0..90), val: nodes(90..130), test: nodes(130..180) };
    let data = data.with_split(split).unwrap();
    let features = damage(&**data.node_features().unwrap(), [DAMAGED].into_iter());
    let damaged = Dataset { features: vec![Some(features)], ..data.clone() };
    let [set, _] = write(&data, 1, folder, "set");
    let [bad, parts] = write(&damaged, 2, folder, "bad");
    let run = train(folder, &format!("--data {set} {ONE_LAYER}"));
    let reached = reached(data.csc().unwrap(), DAMAGED);
    assert!(1 < reached.len() && reached.len() < 50);
    let ranges = [
        (0..90, "of the training split"),
        (90..130, "of the validation split"),
        (130..180, "of the test split"),
        (180..n_nodes, "in no part of the split"),
    ];
    for mode in ["as-evaluated", "exact", "sampled --fanouts all"] {
        let request = format!("--nodes all --mode {mode}");
        let (printed, expected) = answer(folder, &run, &format!("--data {set} {request}"));
        assert!(!printed.contains("not finite"), "{printed}");
        let predictions = &expected["predictions.csv"].1;
        let lines = |left_out: &BTreeSet<u32>| -> Vec<String> {
            let of_part = |(range, part): &(std::ops::Range<u32>, &str)| {
                accuracy(predictions, &range.clone().collect(), left_out, part)
            };
            ranges.iter().filter_map(of_part).collect()
        };
        let metrics = |printed: &str| -> Vec<String> {
            printed.lines().filter(|line| line.starts_with("accuracy")).map(str::to_owned).collect()
        };
        assert_eq!(metrics(&printed), lines(&BTreeSet::new()));
        for flags in [format!("--data {bad}"), format!("--parts {parts} --host 127.0.0.1 --ranks 2")] {
            if mode == "exact" && flags.contains("--parts") {
                continue;
            }
            let (printed, answer) = answer(folder, &run, &format!("{flags} {request}"));
            check_classes(&answer, &expected, &reached);
            let note = format!("the outputs of {} items are not finite: ", reached.len());
            assert_eq!(printed.lines().filter(|line| line.starts_with(&note)).count(), 1, "{printed}");
            assert_eq!(metrics(&printed), lines(&reached));
        }
    }
    // The test split has no other part, and no node of it may be finite.
    let all = damage(&**data.node_features().unwrap(), 0..n_nodes);
    let [nothing, _] = write(&Dataset { features: vec![Some(all)], ..data.clone() }, 1, folder, "nothing");
    for format in ["csv", "npy", "parquet"] {
        let (printed, answer) = answer(folder, &run, &format!("--data {nothing} --format {format}"));
        assert!(printed.contains("the outputs of 50 items are not finite: "), "{printed}");
        assert!(!printed.contains("accuracy"), "{printed}");
        assert!(answer["classes.csv"].1.iter().all(|row| row[1..].iter().all(String::is_empty)));
        assert_eq!(answer["classes.csv"].1.len(), 50);
    }
}

/// The outputs of training nodes are finite.
#[test]
fn a_run_prints_how_many_outputs_are_not_finite() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let data = raw();
    let reached = reached(data.csc().unwrap(), DAMAGED);
    let (lost, kept): (Vec<u32>, Vec<u32>) =
        (0..data.graph.n_nodes() as u32).partition(|node| reached.contains(node));
    let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
    let val = nodes(&[&lost[..1], &kept[90..130]].concat());
    let test = nodes(&[&lost[1..], &kept[130..]].concat());
    let split = Split { train: nodes(&kept[..90]).into(), val: val.into(), test: test.clone().into() };
    let features = damage(&**data.node_features().unwrap(), [DAMAGED].into_iter());
    let damaged = Dataset { features: vec![Some(features)], ..data }.with_split(split).unwrap();
    let [bad, _] = write(&damaged, 1, folder, "bad");
    let out = folder.join("out");
    let flags = format!("train --out {} --data {bad} {ONE_LAYER} --ranks 2", out.display());
    let output = kiln(&flags.split_whitespace().collect::<Vec<_>>());
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{printed}");
    let warning = "the outputs of 1 item of the validation split are not finite: they count in no metric";
    assert_eq!(printed.matches(warning).count(), 1, "{printed}");
    let n_lost = lost.len() - 1;
    let line =
        format!("not finite      the outputs of {n_lost} items of the test split, which count in no metric");
    assert!(printed.lines().any(|printed| printed == line), "{printed}");
    let rows = fs::read_to_string(out.join("test_predictions.csv")).unwrap();
    let rows: Vec<Vec<String>> =
        rows.lines().skip(1).map(|row| row.split(',').map(str::to_owned).collect()).collect();
    assert_eq!(rows.len(), test.len());
    let expected = accuracy(&rows, &test.iter().map(|node| node.0).collect(), &reached, "").unwrap();
    let expected = expected.split_whitespace().nth(1).unwrap();
    assert!(printed.contains(&format!("test accuracy   {expected}")), "{printed}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("of the test split, which count in no metric"));
}

#[test]
fn labels_and_numbers_that_are_not_finite_are_empty() {
    let root = tempfile::tempdir().unwrap();
    for are_labels in [true, false] {
        let folder = root.path().join(if are_labels { "labels" } else { "numbers" });
        fs::create_dir(&folder).unwrap();
        let data = with_values(&named(), are_labels);
        let features = damage(&**data.node_features().unwrap(), [DAMAGED].into_iter());
        let set = write_set(&data, &folder.join("set"));
        let bad = write_set(&Dataset { features: vec![Some(features)], ..data.clone() }, &folder.join("bad"));
        let run = train(&folder, &format!("--data {set} {ONE_LAYER}"));
        let reached = reached(data.csc().unwrap(), DAMAGED);
        let (_, expected) = answer(&folder, &run, &format!("--data {set} --nodes all"));
        let (printed, answer) = answer(&folder, &run, &format!("--data {bad} --nodes all"));
        let note = format!("the outputs of {} items are not finite: ", reached.len());
        assert!(printed.contains(&note), "{printed}");
        let n_outputs = if are_labels { 3 } else { 2 };
        for name in ["predictions.csv", "values.csv"] {
            for (row, expected) in answer[name].1.iter().zip(&expected[name].1) {
                let outputs = row.len() - n_outputs;
                match reached.contains(&row[0].parse().unwrap()) {
                    true => assert!(row[outputs..].iter().all(String::is_empty), "{name}: {row:?}"),
                    false => assert_eq!(row, expected, "{name}"),
                }
                assert_eq!(row[..outputs], expected[..outputs]);
            }
        }
    }
}

/// Removes the names, which partitions do not have.
fn nameless(mut files: BTreeMap<String, (String, Rows)>) -> BTreeMap<String, (String, Rows)> {
    for (header, rows) in files.values_mut().filter(|(header, _)| header.starts_with("item,name,")) {
        *header = header.replacen("name,", "", 1);
        for row in rows {
            row.remove(1);
        }
    }
    files
}

/// Items reach other items by the relation `with`.
#[test]
fn nodes_of_a_type_without_finite_outputs_have_no_class() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let data = named_types();
    let mut damaged = data.clone();
    damaged.features[1] = Some(damage(&**data.features[1].as_ref().unwrap(), [DAMAGED].into_iter()));
    let [good, bad] = ["good", "bad"].map(|name| folder.join(name));
    for (data, path) in [(&data, &good), (&damaged, &bad)] {
        format::write(data, path).unwrap();
    }
    let partitions = partition(folder, bad.to_str().unwrap(), 2);
    for path in [&bad, &partitions] {
        spoil(path);
    }
    let run = train(
        folder,
        &format!("--data {} --hidden 8 --layers 1 --fanouts all --epochs 1 --batch-size 64", good.display()),
    );
    let with = |item: u32| (0..5).any(|rating| (item * 5 + rating * 13 + 1) % 600 == DAMAGED);
    let reached: BTreeSet<u32> = (0..600).filter(|item| *item == DAMAGED || with(*item)).collect();
    let (printed, expected) = answer(folder, &run, &format!("--data {} --nodes all", good.display()));
    let expected = nameless(expected);
    // The split is that of `typed::data`.
    let part = |parts: std::ops::Range<u32>| -> BTreeSet<u32> {
        (0..600).filter(|item| parts.contains(&(item / 3 % 10))).collect()
    };
    let parts = [
        (part(0..6), "of the training split"),
        (part(6..8), "of the validation split"),
        (part(8..10), "of the test split"),
    ];
    let lines = |left_out: &BTreeSet<u32>| -> Vec<String> {
        let rows = &expected["predictions.csv"].1;
        parts.iter().filter_map(|(nodes, part)| accuracy(rows, nodes, left_out, part)).collect()
    };
    for line in lines(&BTreeSet::new()) {
        assert!(printed.contains(&line), "{line}: {printed}");
    }
    let of_parts = format!("--parts {} --host 127.0.0.1 --ranks 2", partitions.display());
    for flags in [format!("--data {}", bad.display()), of_parts] {
        let (printed, answer) = answer(folder, &run, &format!("{flags} --nodes all"));
        check_classes(&nameless(answer), &expected, &reached);
        let note = format!("the outputs of {} items are not finite: ", reached.len());
        assert!(printed.contains(&note), "{printed}");
        for line in lines(&reached) {
            assert!(printed.contains(&line), "{line}: {printed}");
        }
    }
}

/// A set of graphs without a split of its own is split by the run's seed: 80 % training, 10 % validation.
#[test]
fn metrics_of_graphs_are_those_of_each_part() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let run = train(folder, "--data mutag --hidden 8 --epochs 1 --seed 3");
    let (printed, answer) = answer(folder, &run, "--data mutag --nodes all");
    let predictions = &answer["predictions.csv"].1;
    let split = Split::<GraphId>::random(predictions.len(), [0.8, 0.1], 3).unwrap();
    for (items, part) in [
        (&split.train, "of the training split"),
        (&split.val, "of the validation split"),
        (&split.test, "of the test split"),
    ] {
        let graphs = items.iter().map(|graph| graph.0).collect();
        let line = accuracy(predictions, &graphs, &BTreeSet::new(), part).unwrap();
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    assert_eq!(printed.matches("accuracy").count(), 3, "{printed}");
}
