//! Tests of `kiln predict` with random requests: an item has one answer, whatever else is requested, in batches of whatever
//! size, on any number of ranks, on partitions and on servers.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kiln::data::format;
use kiln::graph::NodeId;
use kiln::prelude::*;
use kiln::sample::{KeyDomain, RngKey};

use crate::distributed_sage::{Server, command, text};
use crate::predict::train;
use crate::predict_ranks::{raw_data, write};
use crate::typed::partition;
use crate::{predict_links, typed_link_parts};

/// The number of partitions.
const N_PARTS: usize = 3;

/// The sizes of evaluation batches, one for each request.
const BATCH_SIZES: [usize; 3] = [1, 17, 1000];

/// What a model predicts: the flag and the file of a request, and the file of the answers with its columns that identify an
/// item and that are the same for it everywhere.
#[derive(Clone, Copy)]
struct Items {
    flag: &'static str,
    answer: &'static str,
    ids: &'static [&'static str],
    values: &'static [&'static str],
}

const NODES: Items = Items { flag: "--nodes", answer: "scores.csv", ids: &["item"], values: &["0", "1"] };

const LINKS: Items =
    Items { flag: "--pairs", answer: "links.csv", ids: &["source", "destination"], values: &["score"] };

/// Predicts into a new folder, and returns the ids and the values of each line of the answer.
fn answer(root: &Path, run: &str, items: Items, flags: &str) -> Vec<[Vec<String>; 2]> {
    let out = root.join(format!("out-{}", fs::read_dir(root).unwrap().count()));
    let output =
        command("predict", &format!("--run {run} --out {} {flags}", out.display())).output().unwrap();
    assert!(output.status.success(), "{flags}: {}", text(&output));
    let csv = fs::read_to_string(out.join(items.answer)).unwrap();
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let columns = [items.ids, items.values].map(|names| {
        let position = |name: &&str| header.iter().position(|column| column == name).unwrap();
        names.iter().map(position).collect::<Vec<usize>>()
    });
    let lines = csv.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        columns.each_ref().map(|columns| columns.iter().map(|&column| fields[column].to_owned()).collect())
    });
    lines.collect()
}

/// Sets the size of the batches in which a saved model predicts.
fn set_batch_size(run: &str, batch_size: usize) {
    let path = Path::new(run).join("model.json");
    let mut info: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    info["evaluation"]["batch_size"] = batch_size.into();
    fs::write(&path, info.to_string()).unwrap();
}

/// Compares the answers to random requests on the whole set, on ranks, on partitions and on servers with those of one request of
/// all `items`, each the text of a line of the request.
fn check(root: &Path, run: &str, set: &str, parts: &Path, of: Items, items: &[String]) {
    let request = root.join("all.txt");
    fs::write(&request, items.iter().map(|item| format!("{item}\n")).collect::<String>()).unwrap();
    let all = answer(root, run, of, &format!("--data {set} {} {}", of.flag, request.display()));
    let all: BTreeMap<Vec<String>, Vec<String>> =
        all.into_iter().map(|[ids, values]| (ids, values)).collect();
    assert_eq!(all.len(), items.len());
    assert!(
        all.values().any(|values| values != all.values().next().unwrap()),
        "a constant is always the same"
    );
    // The words select the same items.
    for selection in ["", "--nodes all"].iter().filter(|_| of.flag == NODES.flag) {
        let found = answer(root, run, of, &format!("--data {set} {selection}"));
        assert!(!found.is_empty());
        assert!(found.iter().all(|[ids, values]| all[ids] == *values), "{selection}");
    }
    let servers = Server::all(parts, N_PARTS);
    let places = [
        format!("--data {set}"),
        format!("--data {set} --ranks 3"),
        format!("--parts {} --host 127.0.0.1 --ranks {N_PARTS}", parts.display()),
        Server::addresses(&servers),
    ];
    for (number, batch_size) in BATCH_SIZES.into_iter().enumerate() {
        set_batch_size(run, batch_size);
        let mut rng = RngKey::new(number as u64).fold_in(KeyDomain::Step, 0).node(NodeId(0)).rng();
        let n = if batch_size == 1 { 20 } else { 1 + rng.below(300) };
        let requested: Vec<&String> =
            (0..n).map(|_| &items[rng.below(items.len() as u32) as usize]).collect();
        let path = root.join(format!("request-{number}.txt"));
        fs::write(&path, requested.iter().map(|item| format!("{item}\n")).collect::<String>()).unwrap();
        for place in &places {
            let flags = format!("{place} {} {}", of.flag, path.display());
            let found = answer(root, run, of, &flags);
            assert_eq!(found.len(), requested.len(), "{flags}");
            for ([ids, values], item) in found.iter().zip(&requested) {
                assert_eq!(ids.join(","), **item, "{flags}");
                assert_eq!(*values, all[ids], "{flags}, {item}, batches of {batch_size}");
            }
        }
    }
}

fn nodes(n_nodes: usize) -> Vec<String> {
    (0..n_nodes).map(|node| node.to_string()).collect()
}

fn pairs(n_srcs: usize, n_dsts: usize) -> Vec<String> {
    (0..n_srcs * n_dsts).map(|pair| format!("{},{}", pair / n_dsts, pair % n_dsts)).collect()
}

#[test]
fn nodes_have_one_answer() {
    let root = tempfile::tempdir().unwrap();
    let data = raw_data();
    let [set, parts] = write(&data, N_PARTS, root.path(), "set");
    let flags = "--hidden 8 --fanouts 3,3 --epochs 1 --batch-size 50 --ranks 2";
    let run = train(root.path(), &format!("--data {set} {flags}"));
    check(root.path(), &run, &set, Path::new(&parts), NODES, &nodes(data.graph.n_nodes()));
}

#[test]
fn links_have_one_answer() {
    let root = tempfile::tempdir().unwrap();
    let data = Dataset { names: vec![Default::default()], ..predict_links::data() };
    let [set, parts] = write(&data, N_PARTS, root.path(), "set");
    let flags = "--task link --hidden 8 --embedding 8 --fanouts 3,3 --epochs 1 --batch-size 200";
    let run = train(root.path(), &format!("--data {set} {flags}"));
    check(root.path(), &run, &set, Path::new(&parts), LINKS, &pairs(30, 20));
}

#[test]
fn nodes_of_a_type_have_one_answer() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("shop");
    format::write(&crate::typed::data(), &set).unwrap();
    let set = set.to_str().unwrap();
    let flags = "--hidden 8 --fanouts 3,3;with=2,2 --epochs 1 --batch-size 64 --ranks 2";
    let run = train(root.path(), &format!("--data {set} {flags}"));
    let parts = partition(root.path(), set, N_PARTS);
    check(root.path(), &run, set, &parts, NODES, &nodes(600));
}

#[test]
fn links_of_a_relation_have_one_answer() {
    let root = tempfile::tempdir().unwrap();
    let data = Dataset { targets: None, ..crate::typed::data() };
    let set = typed_link_parts::split(root.path(), &data);
    let flags = "--task link --hidden 8 --embedding 8 --fanouts 3,3;with=2,2 --epochs 1 --batch-size 200";
    let run = train(root.path(), &format!("--data {set} {flags}"));
    let parts: PathBuf = partition(root.path(), &set, N_PARTS);
    check(root.path(), &run, &set, &parts, LINKS, &pairs(20, 30));
}
