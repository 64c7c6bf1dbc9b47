//! Tests of `kiln train` on several labels per item and on regression targets, as a user runs it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use kiln::data::{Dataset, DatasetTargets, format, synthetic};
use kiln::feature::{TargetValues, Targets};
use serde_json::Value;

use crate::distributed_sage::{Learned, Server, command, text};
use crate::predict_ranks::files;
use crate::typed::{self, partition};

fn run(data: &Path, flags: &str, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["train", "--hidden", "16", "--fanouts", "5,5", "--batch-size", "128", "--data"]).arg(data);
    command.args(flags.split_whitespace());
    if !flags.contains("--resume") {
        command.arg("--out").arg(out);
    }
    command.output().unwrap()
}

fn trained(data: &Path, flags: &str, out: &Path) -> (String, Value) {
    let output = run(data, flags, out);
    assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
    let summary = std::fs::read_to_string(out.join("summary.json")).unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), serde_json::from_str(&summary).unwrap())
}

fn refused(data: &Path, flags: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let output = run(data, flags, &out);
    assert!(!output.status.success() && !out.exists(), "{flags}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns two numbers or two labels for each node, by its value. The second is missing for every third node.
fn target_values(is_regression: bool, n_nodes: u32, value: impl Fn(u32) -> f32) -> Targets {
    let values = match is_regression {
        true => {
            let row = |node: u32| [value(node), if node.is_multiple_of(3) { f32::NAN } else { -value(node) }];
            TargetValues::regression((0..n_nodes).flat_map(row).collect::<Vec<f32>>(), 2)
        }
        false => {
            let row =
                |node: u32| [u8::from(0.5 < value(node)), if node.is_multiple_of(3) { u8::MAX } else { 1 }];
            TargetValues::multi_label((0..n_nodes).flat_map(row).collect::<Vec<u8>>(), 2)
        }
    };
    values.unwrap().into()
}

/// Writes a set in the kiln format whose [`target_values`] are those of the first feature.
pub(crate) fn set(folder: &Path, is_regression: bool) {
    let config = synthetic::FakeConfig { avg_num_nodes: 600, num_channels: 8, ..Default::default() };
    let data = synthetic::fake(config).unwrap();
    let n_nodes = data.graph.n_nodes() as u32;
    let feature = |node| data.node_features().unwrap().row(kiln::graph::NodeId(node)).unwrap()[0];
    let values = target_values(is_regression, n_nodes, feature);
    let targets = DatasetTargets::new(0, values, data.split().clone());
    format::write(&Dataset { targets: Some(targets), ..data }, folder).unwrap();
}

/// Writes a heterogeneous set in the kiln format whose items have [`target_values`].
fn heterogeneous_set(folder: &Path, is_regression: bool) {
    let data = typed::data();
    let targets = data.targets.as_ref().unwrap();
    let values =
        target_values(is_regression, targets.values.len() as u32, |item| (item * 31 % 17) as f32 / 17.0);
    let targets = DatasetTargets::new(targets.node_type, values, targets.split.clone());
    format::write(&Dataset { targets: Some(targets), ..data }, folder).unwrap();
}

/// A run that is resumed by its metric ends like an uninterrupted one.
#[test]
fn regression_selects_by_its_metric_and_resumes_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    set(&data, true);
    let out = |name: &str| folder.path().join(name);
    let flags = "--loss huber --huber-delta 0.5 --metric mae --patience 3 --ranks 2";
    let (printed, whole) = trained(&data, &format!("{flags} --epochs 6"), &out("whole"));
    assert!(printed.contains("2 target columns") && printed.contains("val mae "), "{printed}");
    assert!(printed.contains("note: losses are those of standardised targets"), "{printed}");
    assert!(printed.contains("test rmse ") && !printed.contains("accuracy"), "{printed}");
    assert_eq!(whole["metric"], "mae");
    trained(&data, &format!("{flags} --epochs 3"), &out("parts"));
    let resumed = format!("{flags} --epochs 6 --resume {}", out("parts").display());
    let (_, parts) = trained(&data, &resumed, &out("parts"));
    for name in ["metric", "val_metric", "test_metrics", "best_epoch", "weights_hash"] {
        assert_eq!(whole[name], parts[name], "{name}");
    }
    let other = run(&data, &resumed.replace("--metric mae", "--metric r2"), &out("parts"));
    assert!(String::from_utf8_lossy(&other.stderr).contains("--metric was mae and is r2 now"), "{other:?}");
    let other = run(&data, &format!("{resumed} --target-scale none"), &out("parts"));
    let expected = "--target-scale was standardize and is none now";
    assert!(String::from_utf8_lossy(&other.stderr).contains(expected), "{other:?}");
}

#[test]
fn several_labels_learn_by_the_area_under_the_curve() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    set(&data, false);
    let (printed, summary) = trained(&data, "--epochs 3", &folder.path().join("run"));
    assert!(printed.contains("2 labels") && printed.contains("val roc-auc "), "{printed}");
    assert_eq!(
        (&summary["metric"], &summary["test_metrics"]["roc-auc"]),
        (&"roc-auc".into(), &summary["test_roc_auc"])
    );
    let lines = std::fs::read_to_string(folder.path().join("run/metrics.jsonl")).unwrap();
    let row: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert!(row["val_metric"].as_f64().unwrap() > 0.5 && row["val_accuracy"].is_f64(), "{row}");
}

/// Trains into a new folder. Returns what the summary states about the metrics and the weights, and the losses.
fn learned(root: &Path, flags: &str, name: &str) -> ([Value; 5], Learned) {
    let out = root.join(name);
    let flags = format!("--hidden 16 --fanouts 4,4 --epochs 2 --threads-per-rank 1 {flags}");
    let output = command("train", &format!("{flags} --out {}", out.display())).output().unwrap();
    assert!(output.status.success(), "{flags}: {}", text(&output));
    let summary = std::fs::read_to_string(out.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    let keys = ["metric", "val_metric", "test_metrics", "best_epoch", "weights_hash"];
    (keys.map(|key| summary[key].clone()), Learned::of(&out))
}

/// Returns the files of the predictions of all nodes by the run in `root/whole`.
fn predicted(root: &Path, flags: &str, name: &str) -> BTreeMap<String, Vec<u8>> {
    let [run, out] = ["whole", name].map(|name| root.join(name));
    let flags = format!("--run {} --out {} --nodes all {flags}", run.display(), out.display());
    let output = command("predict", &flags).output().unwrap();
    assert!(output.status.success(), "{flags}: {}", text(&output));
    files(&out)
}

/// From servers, a rank has the batches of the whole set, as a rank with the only partition does. Two ranks sum gradients in
/// another order.
#[test]
fn partitions_learn_and_predict_as_the_whole_set() {
    let layouts: [fn(&Path, bool); 2] = [set, heterogeneous_set];
    let losses = [(true, "--loss huber --metric mae"), (false, "--loss bce --metric f1-micro")];
    for (write, (is_regression, loss)) in
        layouts.into_iter().flat_map(|write| losses.map(|loss| (write, loss)))
    {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(&root.join("set"), is_regression);
        let set = root.join("set").display().to_string();
        let parts = [1, 2].map(|n_parts| partition(root, &set, n_parts));
        let servers = Server::all(&parts[1], 2);
        let workers =
            [1, 2].map(|n| format!("--parts {} --host 127.0.0.1 --ranks {n}", parts[n - 1].display()));
        let flags = format!("--batch-size 64 {loss}");
        let whole = learned(root, &format!("{flags} --data {set}"), "whole");
        assert!(whole.0.iter().all(|value| !value.is_null()), "{:?}", whole.0);
        assert_eq!(learned(root, &format!("{flags} {}", Server::flags(&servers)), "servers").0, whole.0);
        assert_eq!(learned(root, &format!("{flags} {}", workers[0]), "worker").0, whole.0);
        let two_workers = learned(root, &format!("--batch-size 32 {loss} {}", workers[1]), "workers");
        two_workers.1.check_close(&whole.1);
        let expected = predicted(root, &format!("--data {set}"), "predicted");
        assert!(expected["predictions.csv"].starts_with(b"item,target_0,target_1,output_0,output_1\n"));
        assert!(predicted(root, &workers[1], "worker-files") == expected, "{set} {loss}");
        assert!(predicted(root, &Server::addresses(&servers), "server-files") == expected, "{set} {loss}");
        let output = command("train", &format!("{} --loss cross-entropy", workers[1])).output().unwrap();
        let expected = "the task learns class labels, but the data has";
        assert!(!output.status.success() && text(&output).contains(expected), "{}", text(&output));
    }
}

#[test]
fn rejects_losses_metrics_and_flags_that_do_not_suit_the_targets() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    set(&data, true);
    for (flags, expected) in [
        ("--loss bce", "the task learns several labels per item, but the data has regression targets"),
        ("--loss cross-entropy", "the task learns class labels, but the data has regression targets"),
        (
            "--metric accuracy",
            "the metric accuracy is not defined for regression targets: use one of rmse, mae, r2",
        ),
        ("--label-smoothing 0.1", "--class-weights and --label-smoothing require --loss cross-entropy"),
        ("--huber-delta 2", "--huber-delta requires --loss huber"),
    ] {
        let said = refused(&data, flags);
        assert!(said.contains(expected), "{flags}: {said}");
    }
    for (data, flags, expected) in [
        (
            "sbm",
            "--target-scale none",
            "a scale of targets needs regression targets, but the data has class labels",
        ),
        ("sbm", "--task link --target-scale none", "--target-scale is for regression targets: remove it"),
    ] {
        let said = refused(Path::new(data), flags);
        assert!(said.contains(expected), "{flags}: {said}");
    }
    let said = refused(Path::new("sbm"), "--class-weights 1,2");
    assert!(said.contains("expected 8 finite numbers, one per class"), "{said}");
}

/// The default loss and metric of class labels, given as flags, are the settings of a run without these flags.
#[test]
fn default_loss_and_metric_of_classes_do_not_change_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let (_, first) = trained(Path::new("sbm"), "--epochs 1", &out);
    let flags = format!("--epochs 1 --loss cross-entropy --metric accuracy --resume {}", out.display());
    let (_, again) = trained(Path::new("sbm"), &flags, &out);
    assert_eq!(first["weights_hash"], again["weights_hash"]);
    assert!(first.get("metric").is_none() && first.get("test_metrics").is_none(), "{first}");
}
