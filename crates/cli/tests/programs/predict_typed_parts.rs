//! Tests of `kiln predict` on partitions of heterogeneous sets: the files are those of the whole set.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kiln::data::{NodeNames, format};
use kiln::graph::EdgeColumn;
use kiln::prelude::*;

use crate::distributed_sage::{Learned, Server, command, text};
use crate::predict::{fails, train};
use crate::predict_answers::without_names;
use crate::predict_ranks::files;
use crate::typed::{data, partition};

/// The set of [`data`], whose nodes have names.
pub(crate) fn named() -> Dataset {
    let mut data = data();
    for (names, (n_nodes, name)) in data.names.iter_mut().zip([(90, "user"), (600, "item")]) {
        let of_type: Vec<String> = (0..n_nodes).map(|node| format!("{name} {node}")).collect();
        *names = NodeNames::new(of_type.iter().map(String::as_str)).into();
    }
    data
}

fn write(data: &Dataset, root: &Path, name: &str) -> String {
    let path = root.join(name);
    format::write(data, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

const TRAINING: &str = "--hidden 16 --fanouts 4,4;with=3,2 --epochs 1 --batch-size 64";

/// Predicts into a new folder. Returns its files without the names of nodes, which partitions do not have.
fn predicted(root: &Path, run: &str, flags: &str) -> BTreeMap<String, Vec<u8>> {
    let out = root.join(format!("out-{}", fs::read_dir(root).unwrap().count()));
    let output =
        command("predict", &format!("--run {run} --out {} {flags}", out.display())).output().unwrap();
    assert!(output.status.success(), "{flags}: {}", text(&output));
    let mut files = files(&out);
    for file in files.values_mut().filter(|file| file.starts_with(b"item,name,")) {
        *file = without_names(std::str::from_utf8(file).unwrap()).into_bytes();
    }
    files
}

/// Returns the flags for the partitions in a folder, with a rank for each.
fn of_workers(parts: &Path, n_parts: usize) -> String {
    format!("--parts {} --host 127.0.0.1 --ranks {n_parts}", parts.display())
}

#[test]
fn files_of_partitions_are_those_of_the_whole_set_byte_for_byte() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = write(&named(), root, "shop");
    let run = train(root, &format!("--data {set} {TRAINING} --ranks 2"));
    let ids = root.join("ids.txt");
    fs::write(&ids, "599\n0\n7\n0\n").unwrap();
    let requests = [
        "--embeddings".to_owned(),
        "--nodes all --embeddings --mode sampled --fanouts all,2 --seed 5 --format npy".to_owned(),
        "--nodes all --mode sampled --fanouts 2;with=5,all;rates=1 --seed 5 --format npy".to_owned(),
        format!("--nodes {}", ids.display()),
    ];
    let wholes = requests.each_ref().map(|request| predicted(root, &run, &format!("--data {set} {request}")));
    let of_run = fs::read(Path::new(&run).join("test_predictions.csv")).unwrap();
    assert_eq!(wholes[0]["predictions.csv"], of_run);
    for n_parts in 1..=3 {
        let parts = partition(root, &set, n_parts);
        let servers = Server::all(&parts, n_parts);
        for (request, whole) in requests.iter().zip(&wholes) {
            for flags in [of_workers(&parts, n_parts), Server::addresses(&servers)] {
                let of_parts = predicted(root, &run, &format!("{flags} {request}"));
                assert!(of_parts == *whole, "{flags} {request}");
            }
        }
        if n_parts == 2 {
            let flags = format!("{} --per-rank", of_workers(&parts, n_parts));
            let out = root.join("per-rank");
            let flags = format!("--run {run} --out {} {flags}", out.display());
            assert!(command("predict", &flags).status().unwrap().success());
            let scores = ["part-00000-of-00002", "part-00001-of-00002"]
                .map(|part| fs::read_to_string(out.join(part).join("scores.csv")).unwrap());
            let rows: Vec<&str> = scores.iter().flat_map(|part| part.lines().skip(1)).collect();
            let whole = String::from_utf8(wholes[0]["scores.csv"].clone()).unwrap();
            assert_eq!(rows, whole.lines().skip(1).collect::<Vec<_>>());
        }
    }
}

/// Writes a set to a folder of its own. Returns the paths of the set and of its two partitions.
fn partitioned(data: &Dataset, root: &Path, name: &str) -> (String, PathBuf) {
    let root = root.join(name);
    fs::create_dir(&root).unwrap();
    let set = write(data, &root, "shop");
    let parts = partition(&root, &set, 2);
    (set, parts)
}

/// Trains on the servers of partitions, and returns the folder of the run.
fn train_on(parts: &Path, out: &Path) -> String {
    let servers = Server::all(parts, 2);
    let flags = format!("{TRAINING} {} --out {}", Server::flags(&servers), out.display());
    let output = command("train", &flags).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    out.to_str().unwrap().to_owned()
}

/// A run on partitions has the weights of the run on the whole set, with the keys of the nodes if they have names. Without keys, rows
/// are found by id.
#[test]
fn models_and_partitions_with_and_without_keys_predict_the_same() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let named = partitioned(&named(), root, "named");
    let nameless = partitioned(&data(), root, "nameless");
    let of_whole = train(root, &format!("--data {} {TRAINING}", named.0));
    let of_named = train_on(&named.1, &root.join("of-named"));
    let of_nameless = train_on(&nameless.1, &root.join("of-nameless"));
    let [whole, keyed, keyless] =
        [&of_whole, &of_named, &of_nameless].map(|run| Learned::of(Path::new(run)).weights_hash);
    assert!(whole == keyed && whole != keyless);
    let request = "--nodes all --embeddings";
    let expected = predicted(root, &of_whole, &format!("--data {} {request}", named.0));
    for run in [&of_whole, &of_named, &of_nameless] {
        for flags in [of_workers(&named.1, 2), of_workers(&nameless.1, 2), format!("--data {}", named.0)] {
            let files = predicted(root, run, &format!("{flags} {request}"));
            assert!(files == expected, "{run} {flags}");
        }
    }
}

/// In other data, a user has another name, and so another row.
#[test]
fn rows_are_found_by_key_in_partitions_of_other_data() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let training = partitioned(&named(), root, "training");
    let mut other = named();
    let users: Vec<String> = (0..90).rev().map(|user| format!("user {user}")).collect();
    other.names[0] = NodeNames::new(users.iter().map(String::as_str)).into();
    let split = &mut other.targets.as_mut().unwrap().split;
    split.test = split.val.clone();
    let nameless = Dataset { names: data().names, ..other.clone() };
    let (other, nameless) = (partitioned(&other, root, "other"), partitioned(&nameless, root, "nameless"));
    let run = train_on(&training.1, &root.join("of-parts"));
    let request = "--nodes all --mode sampled --fanouts all,all";
    let of = |flags: &str| predicted(root, &run, &format!("{flags} {request}"));
    let expected = of(&format!("--data {}", other.0));
    assert!(of(&of_workers(&other.1, 2)) == expected);
    assert!(of(&of_workers(&training.1, 2)) != expected);
    let of_keyless = train_on(&partitioned(&data(), root, "keyless").1, &root.join("of-keyless"));
    for (run, parts, expected) in [
        (&run, &nameless.1, "the nodes of type \"user\" have no names"),
        (&of_keyless, &nameless.1, "was trained without names of the nodes of type \"user\""),
        (&of_keyless, &other.1, "was trained without names of the nodes of type \"user\""),
    ] {
        let out = root.join("none");
        let flags = format!("--run {run} --out {} {}", out.display(), of_workers(parts, 2));
        let output = command("predict", &flags).output().unwrap();
        assert!(!output.status.success() && text(&output).contains(expected), "{flags}: {}", text(&output));
        assert!(!out.exists());
    }
}

#[test]
fn requests_that_partitions_cannot_serve_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = write(&named(), root, "shop");
    let parts = partition(root, &set, 2);
    let run = train(root, &format!("--data {set} {TRAINING}"));
    let of_one_type = root.join("of-one-type");
    fs::create_dir(&of_one_type).unwrap();
    let ring = write_ring(root);
    let homogeneous = train(
        &of_one_type,
        &format!("--data {} --hidden 8 --layers 1 --fanouts 2 --epochs 1", ring[0].display()),
    );
    let cases = [
        (&run, &parts, "--ranks 2 --mode exact", "exact mode needs the whole graph"),
        (&run, &parts, "--ranks 3", "3 ranks cannot share 2 partitions equally"),
        (&run, &parts, "--ranks 2 --mode sampled --fanouts 1,1,1", "3 fanouts for a model of 2 layers"),
        (&run, &parts, "--ranks 2 --nodes none.txt", "none.txt"),
        (&run, &ring[1], "--ranks 1", "the partitions are of a graph with one type of nodes"),
        (&homogeneous, &parts, "--ranks 2", "the partitions are of a heterogeneous graph"),
    ];
    for (run, parts, flags, expected) in cases {
        let out = root.join("none");
        let flags = format!("--parts {} --host 127.0.0.1 {flags}", parts.display());
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let error = fails(&[&["predict", "--run", run, "--out", out.to_str().unwrap()], &flags[..]].concat());
        assert!(error.contains(expected), "{flags:?}: {error}");
        assert!(!out.exists(), "{flags:?}");
    }
}

/// Writes a homogeneous set and its only partition. Returns both paths.
fn write_ring(root: &Path) -> [PathBuf; 2] {
    let [whole, parts] = ["ring", "ring-parts"].map(|name| root.join(name));
    kiln::data::format::write(&kiln::data::synthetic::ring(60).unwrap(), &whole).unwrap();
    let flags = format!("partition {} --parts 1 --out {}", whole.display(), parts.display());
    assert!(command("data", &flags).status().unwrap().success());
    [whole, parts]
}

/// Trains a model, and returns the folder of the run.
fn run(root: &Path, name: &str, flags: &str) -> PathBuf {
    let out = root.join(name);
    let output = command("train", &format!("{flags} --out {}", out.display())).output().unwrap();
    assert!(output.status.success(), "{flags}: {}", text(&output));
    out
}

/// The features of two relations have other widths, and the third relation has none.
#[test]
fn edge_features_by_relation_train_and_predict_on_partitions_and_links() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let rows = |data: &Dataset, relation: usize, width: usize| {
        let n_values = data.graph.relation(relation).graph.n_edges() as usize * width;
        EdgeColumn::new((0..n_values).map(|value| (value * 31 % 17) as f32 / 17.0).collect::<Vec<_>>(), width)
    };
    let mut data = named();
    for (relation, width) in [(0, 3), (2, 1)] {
        let rows = rows(&data, relation, width).unwrap();
        data = data.with_edge_column(relation, "features", rows).unwrap();
    }
    let (set, parts) = partitioned(&data, root, "featured");
    let plain = run(root, "plain", &format!("--data {set} {TRAINING} --model rgcn"));
    for model in ["sage", "rgcn"] {
        let flags = format!("{TRAINING} --model {model} --edge-input features");
        let whole = run(root, &format!("{model}-whole"), &format!("--data {set} {flags}"));
        let servers = Server::all(&parts, 2);
        let flags = format!("{flags} {}", Server::flags(&servers));
        let of_servers = run(root, &format!("{model}-servers"), &flags);
        let learned = Learned::of(&whole);
        assert_eq!(Learned::of(&of_servers).weights_hash, learned.weights_hash, "{model}");
        assert_ne!(Learned::of(&plain).weights_hash, learned.weights_hash);
        let whole = whole.to_str().unwrap();
        let expected = predicted(root, whole, &format!("--data {set}"));
        assert!(predicted(root, whole, &of_workers(&parts, 2)) == expected, "{model}");
        predicted(root, whole, &format!("--data {set} --mode exact"));
        let model: serde_json::Value =
            serde_json::from_slice(&fs::read(Path::new(whole).join("model.json")).unwrap()).unwrap();
        let widths = serde_json::json!([3, null, 1]);
        assert_eq!(model["inputs"]["sampling"]["edge_widths"], widths);
        assert_eq!(model["config"]["model"]["edge_features"], widths);
    }
    let links =
        "--task link --relation rates --reverse-relation rated-by --hidden 16 --embedding 8 --fanouts 3,3";
    let of_links = format!("--data {set} {links} --edge-input features --epochs 1 --eval-negatives 5");
    let of_links = run(root, "links", &of_links);
    predicted(root, of_links.to_str().unwrap(), &format!("--data {set} --top-k 2 --nodes all"));
}
