//! Tests of models of one type of nodes on a set from tables: items that are joined by the users who rated them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use kiln::prelude::*;

use crate::distributed_sage::Learned;
use crate::predict::{fails, succeeds, text};

const N_ITEMS: usize = 48;

/// The models of one type of nodes alone, with the flags that make them small.
const MODELS: [(&str, &str); 5] = [
    ("gcn", ""),
    ("gat", "--heads 2"),
    ("gatv2", "--heads 2"),
    ("transformer", "--heads 2"),
    ("gine", "--edge-input types"),
];

const SPEC: &str = "name: items
nodes:
  - name: item
    files: [items.csv]
    key: id
    columns: [{column: price, transform: standardize}, {column: size, transform: numeric}]
    target: {class: {column: color}}
    split: {random: {seed: 0, train: 0.5, val: 0.25, test: 0.25}}
relations:
  - name: liked
    files: [pairs.csv]
    where: {kind: [liked]}
    src: {type: item, column: a}
    dst: {type: item, column: b}
    undirected: true
  - name: disliked
    files: [pairs.csv]
    where: {kind: [disliked]}
    src: {type: item, column: a}
    dst: {type: item, column: b}
    undirected: true
";

/// The ratings of users: the item, the user, and true if it is good. Each user rates one kind of items.
fn ratings() -> Vec<(usize, usize, bool)> {
    let of_item = |item: usize| {
        (0..4)
            .map(move |at| (item, 3 * ((item * 5 + at * 7) % 11) + item % 3, !(item + at).is_multiple_of(4)))
    };
    (0..N_ITEMS).flat_map(of_item).collect()
}

/// Writes the items and the pairs of items with a common rater, and imports them.
fn imported(root: &Path) -> String {
    let mut items = "id,price,size,color\n".to_owned();
    for item in 0..N_ITEMS {
        let color = ["red", "green", "blue"][item % 3];
        items += &format!("i{item},{}.5,{},{color}\n", item * 7 % 13, item % 3 + item * 5 % 7);
    }
    let mut raters = BTreeMap::<(usize, bool), BTreeSet<usize>>::new();
    for (item, user, is_good) in ratings() {
        raters.entry((user, is_good)).or_default().insert(item);
    }
    let mut pairs = BTreeSet::new();
    for ((_, is_good), items) in raters {
        let kind = if is_good { "liked" } else { "disliked" };
        let of_item = |&one: &usize| items.range(..one).map(move |other| format!("i{other},i{one},{kind}"));
        pairs.extend(items.iter().flat_map(of_item));
    }
    assert!(pairs.iter().any(|pair: &String| pair.ends_with("disliked")));
    let pairs: Vec<String> = pairs.into_iter().collect();
    fs::write(root.join("items.csv"), items).unwrap();
    fs::write(root.join("pairs.csv"), format!("a,b,kind\n{}\n", pairs.join("\n"))).unwrap();
    fs::write(root.join("spec.yaml"), SPEC).unwrap();
    fs::write(root.join("keys.txt"), "i7\ni0\ni40\n").unwrap();
    let [spec, out] = ["spec.yaml", "items"].map(|name| root.join(name).to_str().unwrap().to_owned());
    succeeds(&["data", "import", &spec, "--out", &out]);
    out
}

/// Trains to a new folder, and returns what it prints.
fn train(root: &Path, data: &str, flags: &str, out: &str) -> String {
    let out = root.join(out);
    let flags = format!("{flags} --hidden 4 --layers 2 --fanouts 3,3 --epochs 1 --threads-per-rank 1");
    let flags: Vec<&str> = flags.split_whitespace().collect();
    succeeds(&[&["train", "--data", data, "--out", out.to_str().unwrap()], &flags[..]].concat())
}

/// Predicts the nodes of `keys.txt`, and returns their keys and classes.
fn predict(root: &Path, run: &str, data: &str) -> Vec<String> {
    let [run, keys, out] = [run, "keys.txt", "predictions"].map(|name| root.join(name));
    let [run, keys, out] = [&run, &keys, &out].map(|path| path.to_str().unwrap());
    succeeds(&["predict", "--run", run, "--data", data, "--keys", keys, "--mode", "exact", "--out", out]);
    let classes = text(&Path::new(out).join("classes.csv"));
    fs::remove_dir_all(out).unwrap();
    classes.lines().map(str::to_owned).collect()
}

#[test]
fn models_of_one_type_read_an_imported_set_as_its_conversion() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let plain = root.join("plain").to_str().unwrap().to_owned();
    succeeds(&["data", "convert", &set, "--homogeneous", "--out", &plain]);
    for (model, flags) in MODELS {
        let evaluation = if model == "gat" { "sampled" } else { "exact" };
        let flags = format!("--model {model} {flags} --eval {evaluation}");
        let printed = train(root, &set, &flags, model);
        let note = format!(
            "note: --model {model} reads items as a homogeneous graph, whose edge types are its 2 relations"
        );
        assert_eq!(printed.matches(&note).count(), 1, "{printed}");
        train(root, &plain, &flags, &format!("{model}-plain"));
        let [of_set, of_plain] =
            [model.to_owned(), format!("{model}-plain")].map(|run| Learned::of(&root.join(run)));
        assert_eq!((of_set.weights_hash, of_set.losses), (of_plain.weights_hash, of_plain.losses), "{model}");
        let predicted = predict(root, model, &set);
        let keys: Vec<&str> = predicted[1..].iter().filter_map(|line| line.split(',').nth(1)).collect();
        assert_eq!(keys, ["i7", "i0", "i40"], "{predicted:?}");
        assert_eq!(predict(root, model, &plain), predicted, "{model}");
    }
}

#[test]
fn flags_of_graphs_of_one_type_apply_and_a_run_is_resumed() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let flags = "--model gcn --standardize true --in-memory";
    train(root, &set, flags, "whole");
    let out = root.join("whole");
    let more = [
        &["train", "--data", &set, "--resume", out.to_str().unwrap()],
        &flags.split(' ').collect::<Vec<_>>()[..],
    ];
    let more = [&more.concat()[..], &["--hidden", "4", "--layers", "2", "--fanouts", "3,3", "--epochs", "2"]]
        .concat();
    succeeds(&more);
    train(root, &set, "--model gcn --task link --embedding 4 --link-type 0", "links");
    let top = ["predict", "--data", &set, "--nodes", "all", "--top-k", "2", "--mode", "exact"];
    let [run, out] = ["links", "top"].map(|name| root.join(name).to_str().unwrap().to_owned());
    succeeds(&[&top[..], &["--run", &run, "--out", &out]].concat());
    // A program predicts on the set as on its conversion.
    let data = Dataset::open(&set).unwrap();
    let plain = data.clone().to_homogeneous().unwrap();
    let links = SavedModel::open(&run).unwrap();
    let top = |data: &Dataset| {
        let predictor = links.on_links(data).unwrap();
        predictor.top_k(&[NodeId(3)], &TopKConfig::new(2), &PredictMode::default()).unwrap()
    };
    assert_eq!(top(&data), top(&plain));
    let nodes = SavedModel::open(root.join("whole")).unwrap();
    let predictors = [&data, &plain].map(|data| nodes.on_nodes(data).unwrap());
    let [of_set, of_plain] =
        predictors.map(|predictor| predictor.predict(&[NodeId(5)], &PredictMode::default()));
    assert_eq!(of_set.unwrap().values(), of_plain.unwrap().values());
    assert!(text(&root.join("top/links.csv")).contains("i0"));
}

#[test]
fn data_that_such_a_model_does_not_read_is_an_error_that_says_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let [parts, out] = ["parts", "none"].map(|name| root.join(name).to_str().unwrap().to_owned());
    succeeds(&["data", "partition", &set, "--parts", "1", "--cache-ratio", "0", "--out", &parts]);
    for (model, expected) in [
        ("gat", "kiln data convert DATA --homogeneous --out NEW"),
        ("gcn", "normalises over the whole graph"),
    ] {
        let flags = ["train", "--parts", &parts, "--host", "127.0.0.1", "--model", model, "--out", &out];
        let error = fails(&flags);
        assert!(error.contains(expected), "{error}");
    }
    let error = fails(&["train", "--data", "debian-archive", "--model", "gat", "--out", &out]);
    assert!(error.contains("--model gat reads one type of nodes, and the data has "), "{error}");
    fs::write(
        root.join("bare.yaml"),
        SPEC.replace(
            "    columns: [{column: price, transform: standardize}, {column: size, transform: numeric}]\n",
            "",
        ),
    )
    .unwrap();
    let [spec, bare] = ["bare.yaml", "bare"].map(|name| root.join(name).to_str().unwrap().to_owned());
    succeeds(&["data", "import", &spec, "--out", &bare]);
    for flags in
        [&["train", "--data", &bare, "--model", "gcn"][..], &["data", "convert", &bare, "--homogeneous"]]
    {
        let error = fails(&[flags, &["--out", &out]].concat());
        assert!(error.contains("the nodes of type `item` of `items` have no features"), "{error}");
        assert!(!Path::new(&out).exists());
    }
}
