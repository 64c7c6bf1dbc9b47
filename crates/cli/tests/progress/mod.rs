//! The stages that each command reports, with a reporter that records all of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kiln::store::progress::{ProgressReporter, ProgressScope, ProgressStage, ProgressUnit};

use super::*;

const SPEC: &str = "name: shop
nodes:
  - name: user
    files: [users.csv]
    key: user_id
    columns: [{column: age, transform: standardize}]
    target: {class: {column: segment}}
    split: {random: {seed: 1, train: 0.7, val: 0.15, test: 0.15}}
relations:
  - name: follows
    files: [follows.csv]
    src: {type: user, column: src}
    dst: {type: user, column: dst}
    weight: hours
    reverse: followed_by
";

/// A finished stage.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Finished {
    done: u64,
    total: Option<u64>,
    unit: ProgressUnit,
}

/// The finished stages by name, and the number of those that run.
#[derive(Debug, Default)]
struct Recorder {
    finished: Mutex<BTreeMap<String, Vec<Finished>>>,
    running: Mutex<Vec<Arc<ProgressStage>>>,
}

impl ProgressReporter for Recorder {
    fn started(&self, stage: &Arc<ProgressStage>) {
        self.running.lock().unwrap().push(Arc::clone(stage));
    }

    fn finished(&self, stage: &Arc<ProgressStage>) {
        self.running.lock().unwrap().retain(|running| !Arc::ptr_eq(running, stage));
        let finished = Finished { done: stage.done(), total: stage.total(), unit: stage.unit() };
        self.finished.lock().unwrap().entry(stage.name().to_owned()).or_default().push(finished);
    }
}

/// Runs a command, and checks that it reports the `expected` stages and that each of its stages ends and reaches its total. Returns the stages.
fn check(root: &Path, line: &str, expected: &[&str]) -> BTreeMap<String, Vec<Finished>> {
    let line = line.replace("ROOT", root.to_str().unwrap());
    let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let program = command();
    let matches =
        program.clone().try_get_matches_from(&args).unwrap_or_else(|error| panic!("{line}: {error}"));
    let cli = Cli::from_arg_matches(&matches).unwrap();
    let given = flags::read_given(&program, &matches);
    let recorder = Arc::new(Recorder::default());
    let outcome = ProgressScope::new(recorder.clone()).run(|| execute(cli.command, given, &program));
    outcome.unwrap_or_else(|error| panic!("{line}: {error:#}"));
    let running = recorder.running.lock().unwrap().clone();
    assert!(running.is_empty(), "{line}: {running:?}");
    let stages = recorder.finished.lock().unwrap().clone();
    for name in expected {
        let n_done = stages.get(*name).map(|of_name| of_name.iter().map(|stage| stage.done).sum::<u64>());
        assert!(n_done.is_some_and(|n_done| 0 < n_done), "{line}: {name}: {n_done:?} in {stages:#?}");
    }
    for (name, of_name) in &stages {
        // Of the readings of a text file, the first may end after the header.
        let reaches_total = |stage: &Finished| stage.total.is_none_or(|total| total == stage.done);
        assert!(of_name.last().is_some_and(reaches_total), "{line}: {name}: {of_name:?}");
    }
    stages
}

fn write_tables(root: &Path) {
    let users: String =
        (0..60).map(|user| format!("user-{user},{},{}\n", 18 + user % 50, user % 3)).collect();
    let follows: String =
        (0..240).map(|row| format!("user-{},user-{},{}\n", row % 60, row * 7 % 60, row)).collect();
    let edges: String = (0..200).map(|edge| format!("{},{}\n", edge % 50, edge * 3 % 50)).collect();
    let write = |name: &str, text: String| std::fs::write(root.join(name), text).unwrap();
    write("shop.yaml", SPEC.to_owned());
    write("users.csv", format!("user_id,age,segment\n{users}"));
    write("follows.csv", format!("src,dst,hours\n{follows}"));
    write("edges.csv", edges);
    write("pairs.csv", "1,2\n3,4\n".to_owned());
}

#[test]
fn the_commands_of_data_report_each_stage() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write_tables(root);
    let stages = check(
        root,
        "kiln data import ROOT/shop.yaml --out ROOT/shop",
        &[
            "node type `user`: reading keys and statistics",
            "node type `user`: indexing keys",
            "relation `follows`: finding its nodes",
            "relation `follows`: reading edge columns",
            "relation `follows`: checking rows",
            "node type `user`: writing features and targets",
            "node type `user`: writing keys",
            "counting edges",
            "reading edges",
            "sorting edges",
            "hashing indices.0.npy",
            "writing shop",
        ],
    );
    let n_bytes = std::fs::metadata(root.join("users.csv")).unwrap().len();
    let of_users = Finished { done: n_bytes, total: Some(n_bytes), unit: ProgressUnit::Bytes };
    assert_eq!(stages["node type `user`: reading keys and statistics"], [of_users]);
    let of_edges = Finished { done: 240, total: Some(240), unit: ProgressUnit::Edges };
    assert_eq!(stages["sorting edges"], [of_edges; 2]);
    let verified = ["verifying hashes", "checking edges", "checking edge columns", "checking features"];
    for (line, expected) in [
        ("data verify ROOT/shop", &verified[..]),
        ("data inspect ROOT/shop", &["counting degrees"]),
        ("data convert ROOT/shop --out ROOT/copy", &["verifying hashes", "writing features", "writing copy"]),
        (
            "data convert ROOT/edges.csv --out ROOT/graph --symmetrize",
            &["counting nodes", "reading edges.csv", "counting edges", "sorting edges", "writing graph"],
        ),
        ("data convert ROOT/graph --out ROOT/graph-copy", &["verifying hashes", "writing graph-copy"]),
        (
            "data split-links fake:300 --out ROOT/links",
            &["selecting links", "selecting edges", "writing features", "writing links"],
        ),
        (
            "data partition ROOT/shop --out ROOT/shop-parts --method random --fanouts 3,3",
            &[
                "assigning nodes at random",
                "presampling",
                "writing partitions",
                "writing edges",
                "writing part1",
            ],
        ),
        (
            "data partition fake:300 --out ROOT/parts --method fennel --standardize --add-self-loops",
            &[
                "checking features",
                "reading features",
                "preparing features",
                "adding self loops",
                "hashing data",
                "checking edges",
                "assigning nodes by Fennel, pass 1 of at most 10",
                "counting cut edges",
            ],
        ),
    ] {
        check(root, &format!("kiln {line}"), expected);
    }
}

#[test]
fn training_and_predictions_report_each_stage() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write_tables(root);
    check(root, "kiln data import ROOT/shop.yaml --out ROOT/shop", &[]);
    let train = "kiln train --epochs 1 --hidden 4 --dropout 0 --batch-size 64";
    let layers = ["exact outputs, layer 1 of 2", "exact outputs, layer 2 of 2"];
    let nodes = ["predicting nodes", "writing p1"];
    for (line, expected) in [
        (
            format!("{train} --data fake:300 --model gcn --fanouts 4,4 --symmetrize --eval exact --out ROOT/gcn"),
            [&layers[..], &["adding reverse edges", "hashing data"]].concat(),
        ),
        ("kiln predict --run ROOT/gcn --data fake:300 --out ROOT/p0".to_owned(), [&layers[..], &nodes[..1]].concat()),
        (
            "kiln predict --run ROOT/gcn --data fake:300 --fanouts 2,2 --mode sampled --nodes all --out ROOT/p1".to_owned(),
            nodes.to_vec(),
        ),
        (
            "kiln predict --run ROOT/gcn --data fake:300 --mode sampled --ranks 2 --per-rank --nodes all --out ROOT/p2"
                .to_owned(),
            nodes[..1].to_vec(),
        ),
        (format!("{train} --data ROOT/shop --model sage --fanouts 3,3 --eval exact --out ROOT/rsage"), vec![layers[1]]),
        ("kiln predict --run ROOT/rsage --data ROOT/shop --out ROOT/p3".to_owned(), vec![layers[1], nodes[0]]),
        (
            format!("{train} --data fake:300 --task link --embedding 4 --fanouts 3 --layers 1 --eval exact --out ROOT/links"),
            vec!["evaluating links", "exact outputs, layer 1 of 1"],
        ),
        (
            "kiln predict --run ROOT/links --data fake:300 --pairs ROOT/pairs.csv --out ROOT/p4".to_owned(),
            vec!["exact outputs, layer 1 of 1", nodes[0], "scoring links"],
        ),
        (
            "kiln predict --run ROOT/links --data fake:300 --top-k 3 --nodes all --out ROOT/p5".to_owned(),
            vec!["finding the best links"],
        ),
        (format!("{train} --data mutag --out ROOT/mutag"), vec!["hashing data"]),
        ("kiln predict --run ROOT/mutag --data mutag --nodes all --out ROOT/p6".to_owned(), vec!["predicting graphs"]),
    ] {
        check(root, &line, &expected);
    }
}
