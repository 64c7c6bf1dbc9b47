//! Tests of `kiln train` without a validation or a test split, with a metric that cannot rank the epochs, and with masks.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln::data::{DatasetTargets, format, synthetic};
use kiln::graph::{NodeTypes, RelationEdges};
use kiln::prelude::*;
use kiln::store::npy;

use crate::predict::{fails, succeeds, text};

const FLAGS: &str = "--hidden 8 --layers 1 --fanouts 4 --epochs 2 --batch-size 32 --threads-per-rank 1";

fn train(data: &Path, out: &Path, flags: &str) -> String {
    let (data, out) = (data.to_str().unwrap(), out.to_str().unwrap());
    let flags: Vec<&str> = FLAGS.split_whitespace().chain(flags.split_whitespace()).collect();
    succeeds(&[&["train", "--data", data, "--out", out], &flags[..]].concat())
}

fn rejected(data: &Path, out: &Path, flags: &str) -> String {
    let (data, path) = (data.to_str().unwrap(), out.to_str().unwrap());
    let flags: Vec<&str> = FLAGS.split_whitespace().chain(flags.split_whitespace()).collect();
    let error = fails(&[&["train", "--data", data, "--out", path], &flags[..]].concat());
    assert!(!out.exists() && !error.contains("panicked"), "{error}");
    error
}

/// Checks the output and the files of a run without a validation or without a test split.
fn check(printed: &str, out: &Path, has_val: bool, has_test: bool) {
    assert_eq!(printed.contains("test            none: the test split has no items"), !has_test, "{printed}");
    assert_eq!(
        printed.contains("best epoch      2 (the last one: no validation split)"),
        !has_val,
        "{printed}"
    );
    let json = text(&out.join("summary.json"));
    assert_eq!((json.contains("\"test_"), json.contains("\"val_")), (has_test, has_val), "{json}");
    assert_eq!(out.join("test_predictions.csv").exists(), has_test);
}

/// Returns a graph of 200 nodes in two classes: those with even and those with odd numbers.
fn ring() -> Dataset {
    let ring = synthetic::ring(200).unwrap();
    let labels = (0..200).map(|node| node % 2).collect::<Vec<i32>>();
    let part = |range: std::ops::Range<u32>| range.map(NodeId).collect();
    let split = Split { train: part(0..100), val: part(100..150), test: part(150..200) };
    let values = kiln::feature::Labels::new(labels, 2).into();
    let class_names = vec!["even".into(), "odd".into()];
    Dataset { targets: Some(DatasetTargets { node_type: 0, values, split, class_names }), ..ring }
}

#[test]
fn nodes_are_trained_without_validation_and_test() {
    let root = tempfile::tempdir().unwrap();
    for (has_val, has_test) in [(false, true), (true, false)] {
        let mut data = ring();
        if has_val {
            data.targets.as_mut().unwrap().split.test = Default::default();
        } else {
            data.targets.as_mut().unwrap().split.val = Default::default();
        }
        let (set, out) =
            (root.path().join(format!("set {has_val}")), root.path().join(format!("out {has_val}")));
        kiln::data::format::write(&data, &set).unwrap();
        if !has_val {
            let error = rejected(&set, &out, "--patience 1");
            assert!(
                error.contains("early stopping (patience) compares epochs on the validation split"),
                "{error}"
            );
        }
        check(&train(&set, &out, ""), &out, has_val, has_test);
    }
}

#[test]
fn links_are_trained_without_validation_and_test() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("set");
    kiln::data::format::write(&ring(), &set).unwrap();
    for (shares, has_val, has_test) in [("0.2,0", true, false), ("0,0.2", false, true), ("0,0", false, false)]
    {
        let out = root.path().join(shares);
        check(&train(&set, &out, &format!("--task link --link-split {shares}")), &out, has_val, has_test);
    }
}

#[test]
fn heterogeneous_nodes_are_trained_without_validation_and_test() {
    let root = tempfile::tempdir().unwrap();
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = (0..160).map(|edge| (edge % 20, edge % 40)).unzip();
    let rates = RelationEdges::new("rates", "user", "item", &srcs, &dsts);
    let train_items: Vec<u32> = (0..40).collect();
    let data = Dataset::builder_with_types(NodeTypes::new([("user", 20), ("item", 40)]).unwrap())
        .relation(rates)
        .nodes("item")
        .features(vec![0.5; 80], 2)
        .nodes("item")
        .labels((0..40).map(|item| item % 2).collect::<Vec<i32>>(), 2)
        .split(train_items.clone(), Vec::<u32>::new(), Vec::<u32>::new())
        .build()
        .unwrap();
    let (set, out) = (root.path().join("set"), root.path().join("out"));
    format::write(&data, &set).unwrap();
    check(&train(&set, &out, ""), &out, false, false);
}

#[test]
fn a_metric_that_cannot_rank_the_epochs_is_an_error_before_the_first_step() {
    let root = tempfile::tempdir().unwrap();
    let mut data = ring();
    data.targets.as_mut().unwrap().split.val = (100..150).step_by(2).map(NodeId).collect();
    let (set, out) = (root.path().join("set"), root.path().join("out"));
    kiln::data::format::write(&data, &set).unwrap();
    for metric in ["roc-auc", "average-precision"] {
        let error = rejected(&set, &out, &format!("--metric {metric} --patience 1"));
        let expected =
            "whose 25 items are all of class 0: use one of accuracy, f1-micro, f1-macro, or other items";
        assert!(
            error.contains(&format!("the metric {metric} cannot select")) && error.contains(expected),
            "{error}"
        );
    }
    let printed = train(&set, &out, "--metric f1-macro --patience 1");
    assert!(printed.contains("validation f1-macro"), "{printed}");
}

/// Writes an array of booleans that is true for every node of a range.
fn put_mask(path: &Path, range: std::ops::Range<u32>) {
    let values: Vec<bool> = (0..200).map(|node| range.contains(&node)).collect();
    fs::write(path, npy::write_mask(&values)).unwrap();
}

#[test]
fn masks_select_nodes_for_training_and_predictions() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("arrays");
    fs::create_dir(&set).unwrap();
    let put = |name: &str, bytes: Vec<u8>| fs::write(set.join(name), bytes).unwrap();
    put("indptr.npy", npy::write(&(0..201).collect::<Vec<i64>>(), &[201]));
    put("indices.npy", npy::write(&(0..200).map(|node| (node + 1) % 200).collect::<Vec<i64>>(), &[200]));
    put("features.npy", npy::write(&(0..200).map(|node| (node % 2) as f32).collect::<Vec<f32>>(), &[200, 1]));
    put("labels.npy", npy::write(&(0..200).map(|node| node % 2).collect::<Vec<i64>>(), &[200]));
    for (name, range) in [("train.npy", 0..100), ("val.npy", 100..150), ("test.npy", 150..200)] {
        put_mask(&set.join(name), range);
    }
    let converted = root.path().join("converted");
    succeeds(&["data", "convert", set.to_str().unwrap(), "--out", converted.to_str().unwrap()]);
    succeeds(&["data", "verify", converted.to_str().unwrap()]);
    let outs = ["of arrays", "of converted"].map(|name| root.path().join(name));
    for (data, out) in [&set, &converted].into_iter().zip(&outs) {
        check(&train(data, out, ""), out, true, true);
    }
    let csv = text(&outs[0].join("test_predictions.csv"));
    assert_eq!(csv, text(&outs[1].join("test_predictions.csv")));
    let items: Vec<u32> =
        csv.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert_eq!(items, (150..200).collect::<Vec<u32>>());

    let (mask, predicted) = (root.path().join("mask.npy"), root.path().join("predicted"));
    put_mask(&mask, 10..13);
    let model = outs[0].to_str().unwrap();
    let flags =
        ["predict", "--run", model, "--data", set.to_str().unwrap(), "--nodes", mask.to_str().unwrap()];
    succeeds(&[&flags[..], &["--out", predicted.to_str().unwrap()]].concat());
    let csv = text(&predicted.join("predictions.csv"));
    let items: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(items, ["10", "11", "12"]);
}
