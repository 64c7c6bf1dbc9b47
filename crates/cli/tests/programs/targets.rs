//! Tests of `kiln train` on several labels per item and on regression targets, as a user runs it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::process::{Command, Output};

use kiln::data::{Dataset, DatasetTargets, format, synthetic};
use kiln::feature::TargetValues;
use serde_json::Value;

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

/// Writes a set in the kiln format whose targets are the first feature: two numbers, or two labels, of which the second
/// is missing for every third node.
fn set(folder: &Path, is_regression: bool) {
    let config = synthetic::FakeConfig { avg_num_nodes: 600, num_channels: 8, ..Default::default() };
    let data = synthetic::fake(config).unwrap();
    let n_nodes = data.graph.n_nodes() as u32;
    let feature = |node| data.node_features().unwrap().row(kiln::graph::NodeId(node)).unwrap()[0];
    let values = match is_regression {
        true => {
            let row =
                |node: u32| [feature(node), if node.is_multiple_of(3) { f32::NAN } else { -feature(node) }];
            TargetValues::regression((0..n_nodes).flat_map(row).collect::<Vec<f32>>(), 2)
        }
        false => {
            let row =
                |node: u32| [u8::from(0.5 < feature(node)), if node.is_multiple_of(3) { u8::MAX } else { 1 }];
            TargetValues::multi_label((0..n_nodes).flat_map(row).collect::<Vec<u8>>(), 2)
        }
    };
    let targets = DatasetTargets::new(0, values.unwrap().into(), data.split().clone());
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
