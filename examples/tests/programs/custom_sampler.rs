//! The binary `custom_sampler` as a user runs it, and what its two rules claim: each neighbour alike, or those
//! of low degree rather.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use kiln_data::{Dataset, Split, format, synthetic};
use kiln_feature::{DenseFeatures, Labels};
use kiln_graph::{CscBuilder, NodeId};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_custom_sampler");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the run printed, and its summary.
fn trained(flags: &str, out: &Path) -> (String, Value) {
    let output = Command::new(PROGRAM).args(flags.split_whitespace()).arg("--out").arg(out).output().unwrap();
    assert!(output.status.success(), "{flags}: {}", text(&output.stderr));
    let json = std::fs::read_to_string(out.join("summary.json")).unwrap();
    (text(&output.stdout), serde_json::from_str(&json).unwrap())
}

#[test]
fn it_runs_on_any_number_of_ranks_and_one_of_them_prints() {
    let folder = tempfile::tempdir().unwrap();
    for (ranks, batch) in [(1, 256), (2, 128), (4, 64)] {
        let out = folder.path().join(ranks.to_string());
        let flags = format!("--data sbm --hidden 32 --epochs 2 --ranks {ranks} --batch-size {batch}");
        let (printed, summary) = trained(&flags, &out);
        // 24 steps an epoch: three lines of losses in each of the two.
        for (line, n_lines) in
            [("step    20  loss", 2), ("step ", 6), ("epoch   2/2", 1), ("test accuracy", 1), ("sbm: ", 1)]
        {
            assert_eq!(printed.matches(line).count(), n_lines, "{line} of {ranks} ranks: {printed}");
        }
        assert_eq!(summary["n_epochs"], 2);
        for name in ["config.json", "metrics.jsonl", "best.safetensors", "report.html"] {
            assert!(out.join(name).exists(), "{name} of {ranks} ranks");
        }
        let said = std::fs::read_to_string(out.join("test_predictions.csv")).unwrap();
        assert_eq!(said.lines().count(), 2001);
    }
}

#[test]
fn weights_do_not_depend_on_workers_and_threads_but_on_the_rule() {
    let folder = tempfile::tempdir().unwrap();
    let hash = |how: &str| {
        let flags = format!("--data sbm --hidden 16 --epochs 1 --ranks 2 --batch-size 256 {how}");
        let out = folder.path().join(how.replace(' ', "_"));
        trained(&flags, &out).1["weights_hash"].as_str().unwrap().to_owned()
    };
    let mut firsts = Vec::new();
    for rule in ["uniform", "low-degree"] {
        let first = hash(&format!("--rule {rule} --workers 0 --threads-per-rank 1"));
        for how in ["--workers 1 --threads-per-rank 1", "--workers 0 --threads-per-rank 2"] {
            assert_eq!(hash(&format!("--rule {rule} {how}")), first, "{rule} {how}");
        }
        firsts.push(first);
    }
    assert_ne!(firsts[0], firsts[1]);
}

const N_CLASSES: u32 = 4;
const N_LEAVES: u32 = 4000;

/// Enough hubs that no model learns which of them a leaf has.
const N_HUBS: u32 = 400;

/// Nodes to be classified, the leaves, have ten neighbours: one of degree 1, which shows the leaf's class,
/// and nine hubs of degree 90, which show any class.
///
/// ```text
///   leaves 0..n, partners n..2n, hubs 2n..          partner -> leaf -> hub      hub -> leaf
/// ```
fn leaves_and_hubs() -> Dataset {
    let (mut srcs, mut dsts) = (Vec::new(), Vec::new());
    let class = |leaf: u32| leaf * 7 / 3 % N_CLASSES;
    let hub = |number: u32| 2 * N_LEAVES + number % N_HUBS;
    for leaf in 0..N_LEAVES {
        let partner = N_LEAVES + leaf;
        srcs.extend([partner, leaf]);
        dsts.extend([leaf, partner]);
        for nth in 0..9 {
            // Odd and not divisible by 5, so that a leaf's nine are distinct.
            let hub = hub(leaf * 31 + leaf / N_HUBS * 17 + nth * 43);
            srcs.extend([hub, leaf]);
            dsts.extend([leaf, hub]);
        }
    }
    let n_nodes = 2 * N_LEAVES + N_HUBS;
    let shown = |node: u32| match node {
        leaf if leaf < N_LEAVES => None,
        partner if partner < 2 * N_LEAVES => Some(class(partner - N_LEAVES)),
        hub => Some(hub * 13 / 5 % N_CLASSES),
    };
    let column = |node, column| if shown(node) == Some(column) { 1.0 } else { 0.0 };
    let features =
        (0..n_nodes).flat_map(|node| (0..N_CLASSES).map(move |at| column(node, at))).collect::<Vec<f32>>();
    let labels: Vec<i32> =
        (0..n_nodes).map(|node| if node < N_LEAVES { class(node) as i32 } else { 0 }).collect();
    let part = |nodes: std::ops::Range<u32>| nodes.map(NodeId).collect();
    Dataset {
        name: "leaves and hubs".into(),
        graph: Arc::new(CscBuilder::new(n_nodes as usize).build(&srcs, &dsts).unwrap()),
        features: Arc::new(DenseFeatures::from_f32(features, N_CLASSES as usize).unwrap()),
        labels: Arc::new(Labels::new(labels, N_CLASSES as usize)),
        split: Split { train: part(0..2000), val: part(2000..2500), test: part(2500..N_LEAVES) },
        class_names: Vec::new(),
        ..synthetic::ring(6).unwrap()
    }
}

/// A model that sees one neighbour of a leaf is right when that is the partner, or a hub that happens to show
/// the class. By the inverse of the degrees the partner is picked 1 / (1 + 9 / 90) of the time, so that
/// 0.93 are right; when all are alike, 1 / 10 of the time, so that 0.33 are.
#[test]
fn the_rules_pick_as_they_say() {
    /// Four deviations of the share that is right of 1500 test nodes.
    const TOLERANCE: f64 = 0.05;
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("set");
    format::write(&leaves_and_hubs(), &set).unwrap();
    let chance = 1.0 / f64::from(N_CLASSES);
    for (rule, partner) in [("low-degree", 1.0 / 1.1), ("uniform", 0.1)] {
        let flags = format!(
            "--data {} --fanouts 1 --hidden 8 --dropout 0 --lr 0.05 --epochs 8 --batch-size 250 --rule {rule}",
            set.display()
        );
        let (printed, summary) = trained(&flags, &folder.path().join(rule));
        let expected = partner + (1.0 - partner) * chance;
        let found = summary["test_accuracy"].as_f64().unwrap();
        println!("{rule}: {found}, expected {expected}");
        assert!((found - expected).abs() < TOLERANCE, "{rule}: {expected} expected: {printed}");
    }
}

/// Over all neighbours, whatever the sampler picks in training.
#[test]
fn exact_evaluation_is_heeded() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = |eval: &str| -> Value {
        let out = folder.path().join(eval);
        trained(&format!("--data fake:1000 --hidden 8 --epochs 1 --eval {eval}"), &out);
        serde_json::from_str(&std::fs::read_to_string(out.join("metrics.jsonl")).unwrap()).unwrap()
    };
    let (sampled, exact) = (metrics("sampled"), metrics("exact"));
    assert_eq!(sampled["train_loss"], exact["train_loss"]);
    assert_ne!(sampled["val_loss"], exact["val_loss"]);
}

#[test]
fn every_bad_flag_is_refused_with_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("--rule heavy", "possible values: uniform, low-degree"),
        ("--fanouts 4,four", "expected one number a layer"),
        ("--layers 2", "3 fanouts for --layers 2: give one a layer, or one for all"),
        ("--ranks 2000", "expected a whole number from 1 to 1024"),
        ("--eval half", "possible values: sampled, exact"),
        ("--checkpoint-every 0", "expected a whole number from 1 to 1000000"),
        ("--resume nowhere", "nowhere has no checkpoint to go on from"),
    ];
    for (flags, expected) in cases {
        let output = Command::new(PROGRAM)
            .args(["--data", "fake:100"])
            .args(flags.split_whitespace())
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{flags} was taken");
        assert!(said.contains(expected) && !said.contains("panicked"), "{flags}: {said}");
        assert!(!folder.path().join("runs").exists(), "{flags} left a folder");
    }
}
