//! `kiln train` on nodes as a user runs it: what it writes, that its result does not depend
//! on workers and threads, and what it says of every bad flag.

// Helpers of tests unwrap as tests do.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln")).arg("train").args(args).output();
    output.expect("the binary should start")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn summary(folder: &Path) -> serde_json::Value {
    let json = std::fs::read_to_string(folder.join("summary.json")).unwrap();
    serde_json::from_str(&json).unwrap()
}

/// One epoch on real data with dropout: the weights' hash.
fn weights_hash(folder: &Path, workers: &str, threads: &str) -> String {
    let out = folder.join(format!("{workers}-{threads}"));
    let flags =
        ["--epochs", "1", "--seed", "3", "--workers", workers, "--threads-per-rank", threads, "--out"];
    let output = run(&[&flags[..], &[out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    summary(&out)["weights_hash"].as_str().unwrap().to_owned()
}

#[test]
fn weights_do_not_depend_on_workers_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let first = weights_hash(folder.path(), "1", "1");
    for (workers, threads) in [("2", "2"), ("8", "1"), ("0", "2")] {
        let hash = weights_hash(folder.path(), workers, threads);
        assert_eq!(hash, first, "{workers} workers, {threads} threads");
    }
}

#[test]
fn a_run_leaves_all_that_is_needed_to_check_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let flags = [
        "--data",
        "sbm",
        "--epochs",
        "6",
        "--batch-size",
        "128",
        "--hidden",
        "32",
        "--fanouts",
        "all,5",
        "--out",
    ];
    let output = run(&[&flags[..], &[out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("epoch   6/6") && printed.contains("test accuracy"), "{printed}");

    let summary = summary(&out);
    let predictions = std::fs::read_to_string(out.join("test_predictions.csv")).unwrap();
    let rows: Vec<Vec<&str>> = predictions.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let right = rows.iter().filter(|row| row[1] == row[2]).count();
    assert_eq!(summary["test_accuracy"], right as f64 / rows.len() as f64);
    assert!(summary["test_accuracy"].as_f64().unwrap() > 0.8, "{summary}");
    assert!(summary["peak_rss_anon_bytes"].as_u64().unwrap() > 1 << 20, "{summary}");
    assert!((1..=6).contains(&summary["best_epoch"].as_u64().unwrap()), "{summary}");
    for name in ["config.json", "metrics.jsonl", "curves.svg", "best.safetensors"] {
        assert!(out.join(name).exists(), "{name}");
    }
    let config = std::fs::read_to_string(out.join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!((&config["fanouts"], &config["lr"]), (&"all,5".into(), &"0.003".into()));

    let again = run(&["--data", "sbm", "--epochs", "1", "--out", out.to_str().unwrap()]);
    assert!(!again.status.success());
    assert!(text(&again.stderr).contains("is not empty"), "{}", text(&again.stderr));
}

/// A reader that goes away does not stop a run; a refused run leaves no folder behind.
#[test]
fn neither_a_closed_pipe_nor_a_refused_run_does_harm() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let binary = env!("CARGO_BIN_EXE_kiln");
    let mut command = Command::new(binary);
    command.args(["train", "--data", "sbm", "--epochs", "2", "--hidden", "8", "--out"]).arg(&out);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(out.join("summary.json").exists());

    // Flags that are well formed, for a model that no machine holds.
    let refused = folder.path().join("refused");
    let flags = ["--data", "sbm", "--hidden", "1000000", "--out", refused.to_str().unwrap()];
    let output = run(&flags);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("a weight of 1000000 x 1000000"), "{}", text(&output.stderr));
    assert!(!refused.exists());
}

/// A GCN on sampled neighbours, exact evaluation within a memory that makes it use files, early stopping.
#[test]
fn a_gcn_stops_early_and_leaves_no_file_of_its_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let (out, scratch) = (folder.path().join("run"), folder.path().join("scratch"));
    std::fs::create_dir(&scratch).unwrap();
    let flags = "--data fake:1000 --model gcn --layers 2 --fanouts 5 --hidden 16 --batch-size 64 --epochs 50 \
        --patience 1 --eval exact --memory 40KiB";
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("train").args(flags.split_whitespace()).arg("--out").arg(&out).env("TMPDIR", &scratch);
    let output = command.output().unwrap();
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(printed.contains("stopped early") && printed.contains("after 10 for warm-up"), "{printed}");
    let summary = summary(&out);
    assert_eq!(summary["stopped_early"], true);
    assert!(summary["n_epochs"].as_u64().unwrap() < 50, "{summary}");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);

    let refused = folder.path().join("refused");
    let flags = ["--data", "fake:1000", "--eval", "exact", "--memory", "1000", "--out"];
    let output = run(&[&flags[..], &[refused.to_str().unwrap()]].concat());
    let said = text(&output.stderr);
    assert!(said.contains("the memory limit is 1000 bytes, expected at least"), "{said}");
    assert!(!output.status.success() && !refused.exists());
}

/// A learning rate that throws the model away ends in an error, not in a result.
#[test]
fn a_run_that_diverges_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let flags = ["--data", "sbm", "--epochs", "1", "--lr", "1e30", "--batch-size", "100000", "--out"];
    let output = run(&[&flags[..], &[out.to_str().unwrap()]].concat());
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("lower the learning rate"), "{}", text(&output.stderr));
    assert!(!out.join("summary.json").exists());
}

/// A set whose files were damaged after it was written is refused before a folder is made.
#[test]
fn a_test_node_that_does_not_exist_is_told_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let (set, out) = (folder.path().join("set"), folder.path().join("run"));
    let data = kiln::data::synthetic::ring(10).unwrap();
    let data = kiln::data::Dataset {
        split: kiln::data::Split { test: vec![kiln::graph::NodeId(10)].into(), ..data.split.clone() },
        ..data
    };
    kiln::data::format::write(&data, &set).unwrap();
    let output = run(&["--data", set.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let said = text(&output.stderr);
    assert!(said.contains("test.npy: entry of the test split, 0 is node 10, expected a node"), "{said}");
    assert!(!out.exists());
}

#[test]
fn every_bad_flag_is_refused_with_what_was_expected() {
    let cases = [
        (["--data", "cora"], "expected debian-packages, mutag, sbm, fake:NODES or a path that exists"),
        (["--data", "fake:3"], "expected a whole number from 10 to 10000000"),
        (["--data", "/dev"], "/dev is no data set that is known"),
        (["--model", "gat"], "possible values: sage, gcn"),
        (["--layers", "2"], "3 fanouts for --layers 2: give one a layer, or one for all"),
        (["--memory", "1GiB"], "--memory is for --eval exact"),
        (["--folds", "3"], "--folds is not for training on nodes of a whole graph"),
        (["--cache-size", "1GiB"], "--cache-size is not for training on nodes of a whole graph"),
        (["--task", "graph"], "--task graph needs a set of graphs"),
        (["--mlp-layers", "3"], "flags that shape a gin are for --model gin"),
        (["--graph-mode", "gpu"], "possible values: cpu, device"),
        (["--feature-cache", "1GiB"], "--feature-cache is for --graph-mode device"),
        (["--hot-by", "degree"], "--hot-by is for --feature-cache"),
        (["--eval", "half"], "possible values: sampled, exact"),
        (["--patience", "0"], "expected a whole number from 1 to 1000000"),
        (["--optimizer", "sgd"], "possible values: adam, adamw"),
        (["--input-dropout", "1"], "expected a number from 0 up to, not including, 1"),
        (["--memory", "2GB"], "expected a number of bytes, as in 1000000, 512MiB or 2GiB"),
        (["--memory", "99999999TiB"], "expected a number of bytes"),
        (["--fanouts", "10,x"], "expected one number a layer"),
        (["--fanouts", ""], "expected one number a layer"),
        (["--fanouts", "10,-1"], "expected one number a layer"),
        (["--batch-size", "0"], "expected a whole number from 1 to 1000000"),
        (["--hidden", "0"], "expected a whole number from 1 to 1000000"),
        (["--epochs", "0"], "expected a whole number from 1 to 1000000"),
        (["--epochs", "two"], "expected a whole number from 1 to 1000000"),
        (["--lr", "0"], "expected a number above 0"),
        (["--lr", "nan"], "expected a number above 0"),
        (["--lr", "inf"], "expected a number above 0"),
        (["--dropout", "1"], "expected a number from 0 up to, not including, 1"),
        (["--dropout", "-0.1"], "expected a number from 0 up to, not including, 1"),
        (["--weight-decay", "-1"], "expected 0 or a number above it"),
        (["--standardize", "maybe"], "possible values: true, false"),
        (["--seed", "-3"], "invalid digit"),
        (["--workers", "many"], "expected a whole number from 0 to 1024"),
        (["--hidden", "9223372036854775808"], "expected a whole number from 1 to 1000000"),
        (["--workers", "1000000"], "expected a whole number from 0 to 1024"),
        (["--threads-per-rank", "0"], "expected a whole number from 1 to 1024"),
        (["--device", "tpu"], "`tpu` is no device: expected cpu, cube-cpu, cuda, cuda:N, wgpu or wgpu:N"),
        (["--out", "/dev/null/run"], "/dev/null/run"),
        (["--no-such-flag", "1"], "unexpected argument"),
    ];
    for ([flag, value], expected) in cases {
        let given = format!("{flag}={value}");
        // A folder of its own for the cases that only fail once the run has begun.
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let output = command.arg("train").arg(&given).current_dir(folder.path()).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{given} was taken");
        assert!(said.contains(expected), "{given}: {said}");
        assert!(!said.contains("panicked"), "{given}: {said}");
    }
}
