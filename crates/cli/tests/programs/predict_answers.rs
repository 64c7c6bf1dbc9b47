//! Tests of the files of `kiln predict`: all have the order of the request and the same first columns.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use kiln::data::synthetic::{FakeConfig, fake};
use kiln::data::{DatasetTargets, NodeNames, format};
use kiln::feature::TargetValues;
use kiln::prelude::*;
use kiln::store::{ArrayFile, npy};

use crate::predict::{succeeds, text, train};
use crate::predict_non_finite::spoil;
use crate::predict_ranks::{predicted, write};

/// The rows of a table, as fields.
pub(crate) type Rows = Vec<Vec<String>>;

/// Returns a set with few edges, so that one node reaches a small share of it.
pub(crate) fn raw() -> Dataset {
    fake(FakeConfig { avg_num_nodes: 300, avg_degree: 2.0, num_channels: 8, seed: 4, ..Default::default() })
        .unwrap()
}

pub(crate) fn named() -> Dataset {
    let data = raw();
    let names: Vec<String> = (0..data.graph.n_nodes()).map(|node| format!("n{node}")).collect();
    Dataset { names: vec![Arc::new(NodeNames::new(names.iter().map(String::as_str)))], ..data }
}

/// Returns the target values of the set: two numbers, or three labels with names.
pub(crate) fn with_values(data: &Dataset, are_labels: bool) -> Dataset {
    let n_nodes = data.graph.n_nodes();
    let values = match are_labels {
        true => {
            TargetValues::multi_label((0..3 * n_nodes).map(|i| (i % 5 == 0) as u8).collect::<Vec<_>>(), 3)
        }
        false => TargetValues::regression((0..2 * n_nodes).map(|i| (i % 11) as f32).collect::<Vec<_>>(), 2),
    };
    let targets = DatasetTargets::new(0, values.unwrap().into(), data.split().clone());
    Dataset { targets: Some(targets), ..data.clone() }
}

/// Writes a set, which partitions need not support, and returns its path.
pub(crate) fn write_set(data: &Dataset, path: &Path) -> String {
    format::write(data, path).unwrap();
    spoil(path);
    path.to_str().unwrap().to_owned()
}

/// Returns the header and the rows of a file.
fn table(bytes: &[u8]) -> (String, Rows) {
    let csv = std::str::from_utf8(bytes).unwrap();
    let (header, lines) = csv.split_once('\n').unwrap();
    (header.to_owned(), lines.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect())
}

pub(crate) fn tables(files: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, (String, Rows)> {
    let text = files.iter().filter(|(name, _)| name.ends_with(".csv"));
    text.map(|(name, bytes)| (name.clone(), table(bytes))).collect()
}

/// Returns a table without its second column, which has the names.
pub(crate) fn without_names(csv: &str) -> String {
    assert!(csv.starts_with("item,name,"), "{csv}");
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(',').collect();
        fields.remove(1);
        fields.join(",") + "\n"
    };
    csv.lines().map(line).collect()
}

/// Returns the position of the largest of the values of a row from column `first` on.
fn largest(row: &[String], first: usize) -> String {
    let values: Vec<f32> = row[first..].iter().map(|value| value.parse().unwrap()).collect();
    let largest = values.iter().copied().fold(f32::MIN, f32::max);
    values.iter().position(|value| *value == largest).unwrap().to_string()
}

#[test]
fn files_of_nodes_have_the_order_of_the_request_and_the_same_first_columns() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let data = named();
    let [set, _] = write(&data, 1, folder, "set");
    let [nameless, parts] = write(&raw(), 2, folder, "nameless");
    let run = train(folder, &format!("--data {set} --hidden 8 --fanouts 4,4 --epochs 1 --batch-size 64"));
    let [keys, ids] = ["keys.txt", "ids.txt"].map(|file| folder.join(file));
    fs::write(&keys, "n17\nn5\nn9\nn5\n").unwrap();
    fs::write(&ids, "17\n5\n9\n5\n").unwrap();
    let [keys, ids] = [&keys, &ids].map(|path| path.to_str().unwrap());
    let request = [17, 5, 9, 5];
    let files = predicted(folder, &run, &format!("--data {set} --keys {keys} --embeddings"));
    let of_keys = tables(&files);
    assert_eq!(
        of_keys.keys().collect::<Vec<_>>(),
        ["classes.csv", "embeddings.csv", "predictions.csv", "scores.csv"]
    );
    for (name, (header, rows)) in &of_keys {
        assert!(header.starts_with("item,name,"), "{name}: {header}");
        let expected: Vec<[String; 2]> =
            request.iter().map(|node| [node.to_string(), format!("n{node}")]).collect();
        let found: Vec<&[String]> = rows.iter().map(|row| &row[..2]).collect();
        assert!(found.iter().zip(&expected).all(|(found, expected)| *found == expected), "{name}: {found:?}");
        assert_eq!(rows.len(), 4, "{name}");
    }
    let [classes, predictions, scores] =
        ["classes.csv", "predictions.csv", "scores.csv"].map(|name| &of_keys[name]);
    assert_eq!(classes.0, "item,name,class,class_name,probability");
    assert_eq!(predictions.0, "item,name,label,predicted");
    for (row, node) in request.iter().enumerate() {
        let class = largest(&scores.1[row], 2);
        assert_eq!([&classes.1[row][2], &predictions.1[row][3]], [&class; 2]);
        assert_eq!(predictions.1[row][2], data.labels().get(NodeId(*node)).unwrap().to_string());
    }
    // Ids select the same nodes, and arrays have the order, too.
    assert!(files == predicted(folder, &run, &format!("--data {set} --nodes {ids} --embeddings")));
    let out = folder.join("arrays");
    let flags = ["predict", "--run", &run, "--data", &set, "--nodes", ids, "--format", "npy"];
    succeeds(&[&flags[..], &["--out", out.to_str().unwrap()]].concat());
    let items = ArrayFile::open(out.join("items.npy")).unwrap().elements::<u32>().unwrap();
    assert_eq!(items[..], request);
    let values: Vec<f32> =
        scores.1.iter().flat_map(|row| &row[2..]).map(|value| value.parse().unwrap()).collect();
    assert!(fs::read(out.join("scores.npy")).unwrap() == npy::write(&values, &[4, values.len() / 4]));
    for name in ["classes.csv", "predictions.csv"] {
        assert!(fs::read(out.join(name)).unwrap() == files[name], "{name}");
    }
    // Without names, all files lack the column, on the whole graph and on partitions.
    for flags in [format!("--data {nameless}"), format!("--parts {parts} --host 127.0.0.1 --ranks 2")] {
        let of_ids = tables(&predicted(folder, &run, &format!("{flags} --nodes {ids} --embeddings")));
        for (name, (header, rows)) in &of_ids {
            assert_eq!(*header, of_keys[name].0.replacen(",name", "", 1), "{name}");
            for (row, named) in rows.iter().zip(&of_keys[name].1) {
                assert!(row[0] == named[0] && row[1..] == named[2..], "{name}: {row:?} {named:?}");
            }
        }
    }
}

#[test]
fn files_of_labels_numbers_and_graphs_have_the_order_of_the_request() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let ids = folder.join("ids.txt");
    fs::write(&ids, "17\n5\n9\n5\n").unwrap();
    let mut answers = Vec::new();
    for (name, are_labels) in [("labels", true), ("numbers", false)] {
        let own = folder.join(name);
        fs::create_dir(&own).unwrap();
        let set = write_set(&with_values(&named(), are_labels), &own.join("set"));
        let run = train(&own, &format!("--data {set} --hidden 8 --fanouts 4,4 --epochs 1"));
        let files = tables(&predicted(&own, &run, &format!("--data {set} --nodes {}", ids.display())));
        assert_eq!(files.keys().collect::<Vec<_>>(), ["predictions.csv", "scores.csv", "values.csv"]);
        let n_outputs = if are_labels { 3 } else { 2 };
        for (row, scores) in files["scores.csv"].1.iter().enumerate() {
            assert_eq!(files["predictions.csv"].1[row][2 + n_outputs..], scores[2..]);
            assert_eq!(files["values.csv"].1[row][2..], scores[2..]);
        }
        answers.push((files, "item,name,"));
    }
    let run = train(folder, "--data mutag --hidden 8 --epochs 1");
    let files = tables(&predicted(folder, &run, &format!("--data mutag --nodes {}", ids.display())));
    answers.push((files, "item,"));
    for (files, columns) in answers {
        for (name, (header, rows)) in files {
            assert!(header.starts_with(columns), "{name}: {header}");
            assert_eq!(header.starts_with("item,name,"), columns == "item,name,", "{name}: {header}");
            let items: Vec<&str> = rows.iter().map(|row| &*row[0]).collect();
            assert_eq!(items, ["17", "5", "9", "5"], "{name}");
            assert!(!columns.contains("name") || rows[2][1] == "n9", "{name}");
        }
    }
}

#[test]
fn folders_of_ranks_join_to_the_files_of_one_rank() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let [set, _] = write(&named(), 1, folder, "set");
    let run = train(folder, &format!("--data {set} --hidden 8 --fanouts 4,4 --epochs 1 --batch-size 16"));
    let ids = folder.join("ids.txt");
    // Descending and repeated.
    let lines: String = (0..90).map(|i| format!("{}\n", (89 - i) / 2)).collect();
    fs::write(&ids, lines).unwrap();
    let request = format!("--data {set} --nodes {} --embeddings", ids.display());
    let whole = tables(&predicted(folder, &run, &request));
    let out = folder.join("parts");
    let flags: Vec<&str> = request.split_whitespace().collect();
    let command = ["predict", "--run", &run, "--ranks", "3", "--per-rank", "--out", out.to_str().unwrap()];
    succeeds(&[&command[..], &flags[..]].concat());
    for (name, (header, rows)) in whole {
        let mut joined = Vec::new();
        for rank in 0..3 {
            let part = out.join(format!("part-{rank:05}-of-00003")).join(&name);
            let (of_part, rows) = table(text(&part).as_bytes());
            assert_eq!(of_part, header);
            joined.extend(rows);
        }
        assert_eq!(joined, rows, "{name}");
        assert!(joined.iter().enumerate().all(|(i, row)| row[0] == ((89 - i) / 2).to_string()), "{name}");
    }
}
