//! Tests of `kiln train` for node classification as a user runs it: the files that it writes, results that do not
//! depend on workers and threads, and the errors for invalid flags.

// Test helpers may unwrap, like tests.
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

/// Trains one epoch on real data with dropout, and returns the hash of the weights.
fn weights_hash(folder: &Path, workers: &str, threads: &str) -> String {
    let out = folder.join(format!("{workers}-{threads}"));
    let model = ["--layers", "2", "--fanouts", "5,5", "--hidden", "64", "--epochs", "1", "--seed", "3"];
    let flags = [&model[..], &["--out", out.to_str().unwrap()]].concat();
    let output = run(&[&flags[..], &["--workers", workers, "--threads-per-rank", threads]].concat());
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
fn a_run_writes_config_metrics_predictions_and_weights() {
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

/// A closed pipe does not stop a run. A rejected run leaves no folder behind.
#[test]
fn a_closed_pipe_does_not_stop_a_run_and_a_rejected_run_leaves_no_folder() {
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

    // The flags are valid, but the model exceeds the memory of any machine.
    let refused = folder.path().join("refused");
    let flags = ["--data", "sbm", "--hidden", "1000000", "--out", refused.to_str().unwrap()];
    let output = run(&flags);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("a weight of 1000000 x 1000000"), "{}", text(&output.stderr));
    assert!(!refused.exists());
}

/// The memory limit of exact evaluation is so low that it writes temporary files.
#[test]
fn an_early_stopped_gcn_leaves_no_temporary_files() {
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

/// Settings that make training diverge end in an error, not in a result.
#[test]
fn a_diverging_run_fails_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let flags = "--data sbm --epochs 1 --optimizer adamw --weight-decay 1e30 --batch-size 100000 --out";
    let flags: Vec<&str> = flags.split(' ').collect();
    let output = run(&[&flags[..], &[out.to_str().unwrap()]].concat());
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("lower the learning rate"), "{}", text(&output.stderr));
    assert!(!out.join("summary.json").exists());
}

/// A dataset that was damaged after it was written is rejected before the run's folder is created.
#[test]
fn rejects_a_missing_test_node_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let (set, out) = (folder.path().join("set"), folder.path().join("run"));
    let mut data = kiln::data::synthetic::ring(10).unwrap();
    data.targets.as_mut().unwrap().split.test = vec![kiln::graph::NodeId(10)].into();
    kiln::data::format::write(&data, &set).unwrap();
    let output = run(&["--data", set.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let said = text(&output.stderr);
    assert!(said.contains("test.npy: test split entry 0 is node 10, expected a node"), "{said}");
    assert!(!out.exists());
}

#[test]
fn errors_of_invalid_flags_contain_the_expected_values() {
    let cases = [
        (
            ["--data", "cora"],
            "expected debian-packages, debian-tags, debian-archive, mutag, sbm, fake:NODES or a path that exists",
        ),
        (["--data", "fake:3"], "expected a whole number from 10 to 10000000"),
        (["--data", "/dev"], "/dev is not a data set of a known format"),
        (["--model", "gta"], "possible values: sage, gcn, gat, gatv2, transformer, rgcn"),
        (["--memory", "1GiB"], "--memory requires --eval exact"),
        (["--folds", "3"], "--folds does not apply to training on nodes of a whole graph"),
        (["--cache-size", "1GiB"], "--cache-size does not apply to training on nodes of a whole graph"),
        (["--task", "graph"], "--task graph needs a set of graphs"),
        (["--mlp-layers", "3"], "--mlp-layers and --learn-epsilon require --model gin or gine"),
        (["--readout", "max"], "--readout requires --model gin"),
        (["--edge-input", "types"], "--edge-input types requires --model gine"),
        (
            ["--edge-input", "features"],
            "--model sage does not read the edge features of such data: use gatv2, transformer, rgcn or gine",
        ),
        (["--graph-mode", "gpu"], "possible values: cpu, device"),
        (["--feature-cache", "1GiB"], "--feature-cache requires --graph-mode device"),
        (["--hot-by", "degree"], "--hot-by requires --feature-cache"),
        (["--eval", "half"], "possible values: sampled, exact"),
        (["--patience", "0"], "expected a whole number from 1 to 1000000"),
        (["--optimizer", "lamb"], "possible values: adam, adamw, sgd"),
        (["--momentum", "0.9"], "--momentum and --nesterov require --optimizer sgd"),
        (["--lr-epochs", "5"], "--lr-epochs requires --lr-schedule cosine or linear"),
        (["--warmup", "2weeks"], "expected a number of steps of at least 1, or of epochs"),
        (["--clip-grad-norm", "0"], "expected a number above 0"),
        (["--accumulate", "0"], "expected a whole number from 1 to 1000000"),
        (["--norm", "batch"], "norm is batch, expected none or layer for this kind of model"),
        (["--input-dropout", "1"], "expected a number of at least 0 and below 1"),
        (["--memory", "2GB"], "expected a number of bytes, such as 1000000, 512MiB or 2GiB"),
        (["--memory", "99999999TiB"], "expected a number of bytes"),
        (["--fanouts", "10,x"], "expected a number per layer"),
        (["--fanouts", ""], "expected a number per layer"),
        (["--fanouts", "10,-2"], "expected a number per layer"),
        (["--batch-size", "0"], "expected a whole number from 1 to 1000000"),
        (["--hidden", "0"], "expected a whole number from 1 to 1000000"),
        (["--epochs", "0"], "expected a whole number from 1 to 1000000"),
        (["--epochs", "two"], "expected a whole number from 1 to 1000000"),
        (["--lr", "0"], "expected a number above 0"),
        (["--lr", "nan"], "expected a number above 0"),
        (["--lr", "inf"], "expected a number above 0"),
        (["--dropout", "1"], "expected a number of at least 0 and below 1"),
        (["--dropout", "-0.1"], "expected a number of at least 0 and below 1"),
        (["--weight-decay", "-1"], "expected a number of at least 0"),
        (["--standardize", "maybe"], "possible values: true, false"),
        (["--seed", "-3"], "invalid digit"),
        (["--workers", "many"], "expected a whole number from 0 to 1024"),
        (["--hidden", "9223372036854775808"], "expected a whole number from 1 to 1000000"),
        (["--workers", "1000000"], "expected a whole number from 0 to 1024"),
        (["--threads-per-rank", "0"], "expected a whole number from 1 to 1024"),
        (["--device", "tpu"], "unknown device `tpu`: expected cpu, cube-cpu, cuda, cuda:N, wgpu or wgpu:N"),
        (["--out", "/dev/null/run"], "/dev/null/run"),
        (["--no-such-flag", "1"], "unexpected argument"),
    ];
    for ([flag, value], expected) in cases {
        let given = format!("{flag}={value}");
        // Some cases fail only after the run has created its folder, so each case has its own working directory.
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let output = command.arg("train").arg(&given).current_dir(folder.path()).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{given} was accepted");
        assert!(said.contains(expected), "{given}: {said}");
        assert!(!said.contains("panicked"), "{given}: {said}");
    }
}

/// Returns the records of an event file, after checking their lengths.
pub(crate) fn event_records(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut records, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        records.push(&rest[12..12 + length]);
        rest = &rest[12 + length + 4..];
    }
    records
}

#[test]
fn logs_are_json_lines_and_event_files_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let flags = "--data sbm --fanouts 4 --hidden 8 --epochs 2 --log-format json --tensorboard";
    let flags: Vec<&str> = flags.split_whitespace().chain(["--out", out.to_str().unwrap()]).collect();
    let output = run(&flags);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let events: Vec<serde_json::Value> =
        printed.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    assert_eq!(of("epoch").iter().map(|epoch| epoch["epoch"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    let summary = &of("summary")[0]["summary"];
    assert_eq!(summary["n_epochs"], 2);
    let rows = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    assert_eq!(of("epoch")[0]["loss"], first["train_loss"], "{first}");
    let files: Vec<_> =
        std::fs::read_dir(out.join("tensorboard")).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    let bytes = std::fs::read(&files[0]).unwrap();
    let records = event_records(&bytes);
    let n_with = |tag: &str| {
        records.iter().filter(|record| record.windows(tag.len()).any(|part| part == tag.as_bytes())).count()
    };
    let n_steps: u64 = rows
        .lines()
        .map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap()["n_steps"].as_u64().unwrap())
        .sum();
    // The version of the format, the start of the session, each step, and each epoch.
    assert_eq!(records.len() as u64, 2 + n_steps + 2);
    assert_eq!(
        (n_with("brain.Event:2"), n_with("loss/step") as u64, n_with("loss/validation")),
        (1, n_steps, 2)
    );
}
