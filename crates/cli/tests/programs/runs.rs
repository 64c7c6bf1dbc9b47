//! Tests of `kiln runs`, `kiln report`, and of runs that a signal stops.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use kiln::data::{format, synthetic};
use serde_json::Value;

use crate::distributed_sage::{Learned, command, text};
use crate::killed::send;

/// The flags of the runs that are compared.
const FLAGS: &str = "--data papers --layers 2 --fanouts 5 --batch-size 64";

/// Writes the data of the runs.
fn prepare(root: &Path) {
    let config = synthetic::FakeConfig { avg_num_nodes: 300, seed: 3, ..Default::default() };
    format::write(&synthetic::fake(config).unwrap(), root.join("papers")).unwrap();
}

fn run(root: &Path, subcommand: &str, flags: &str) -> Output {
    command(subcommand, flags).current_dir(root).output().unwrap()
}

fn succeed(root: &Path, subcommand: &str, flags: &str) -> String {
    let output = run(root, subcommand, flags);
    assert!(output.status.success(), "{subcommand} {flags}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn summary(run: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(run.join("summary.json")).unwrap()).unwrap()
}

/// Returns the cells of a table whose columns are separated by two spaces or more.
fn rows(table: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    table.lines().map(cells).collect()
}

#[test]
fn runs_are_listed_with_the_settings_in_which_they_differ_the_best_first() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    succeed(root, "train", &format!("{FLAGS} --epochs 3 --hidden 8 --out runs/narrow"));
    succeed(root, "train", &format!("{FLAGS} --epochs 3 --hidden 32 --out runs/more/wide"));
    let table = rows(&succeed(root, "runs", ""));
    let expected =
        ["run", "validation accuracy", "test accuracy", "best epoch", "epochs", "time", "state", "hidden"];
    assert_eq!(table[0], expected);
    let mut of_summaries = Vec::new();
    for (folder, hidden) in [("runs/narrow", "8"), ("runs/more/wide", "32")] {
        let summary = summary(&root.join(folder));
        let value = |name: &str| format!("{:.4}", summary[name].as_f64().unwrap());
        let best = summary["best_epoch"].to_string();
        of_summaries.push(
            [folder, &value("val_accuracy"), &value("test_accuracy"), &best, "3", hidden].map(str::to_owned),
        );
    }
    of_summaries.sort_by(|one, other| other[1].cmp(&one[1]));
    for (row, expected) in table[1..].iter().zip(&of_summaries) {
        assert!(row[5].ends_with(" s") && row[6] == "finished", "{row:?}");
        let compared = [0, 1, 2, 3, 4, 7].map(|column| row[column].clone());
        assert_eq!(&compared, expected);
    }
    assert_eq!(table.len(), 3);
    // A run alone has no settings that differ.
    assert_eq!(rows(&succeed(root, "runs", "runs/narrow"))[0].len(), 7);
    // Another metric is a column, and the runs of each metric are neighbours.
    succeed(root, "train", &format!("{FLAGS} --epochs 2 --hidden 8 --metric f1-macro --out runs/other"));
    let table = rows(&succeed(root, "runs", "runs"));
    assert_eq!(table[0][..4], ["run", "metric", "validation", "test"]);
    assert_eq!(table[0][8..], ["epochs", "hidden", "metric"].map(str::to_owned));
    let metrics: Vec<&str> = table[1..].iter().map(|row| row[1].as_str()).collect();
    assert_eq!(metrics, ["accuracy", "accuracy", "f1-macro"]);
    // The page has the same rows, and the curves.
    succeed(root, "runs", "--html runs/page.html");
    let page = fs::read_to_string(root.join("runs/page.html")).unwrap();
    for row in &table[1..] {
        assert!(page.contains(&row[0]) && page.contains(&format!(">{}<", row[2])), "{row:?}");
    }
    // Each run has a colour, in which its loss and its metric are drawn.
    let colors: Vec<&str> = page.split("style=\"background: ").skip(1).map(|rest| &rest[..7]).collect();
    assert_eq!(colors.len(), 3);
    for color in colors {
        assert_eq!(page.matches(&format!("stroke=\"{}\"", color.to_uppercase())).count(), 2, "{color}");
    }
}

#[test]
fn runs_of_earlier_versions_and_damaged_runs_are_no_error() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    succeed(root, "train", &format!("{FLAGS} --epochs 1 --hidden 8 --out runs/new"));
    fs::create_dir_all(root.join("runs/old")).unwrap();
    let row = r#"{"epoch": 1, "train_loss": 1.5, "val_loss": 1.25, "val_accuracy": 0.125, "seconds": 2.0}"#;
    // The last row was not written completely.
    fs::write(root.join("runs/old/metrics.jsonl"), format!("{row}\n{{\"epoch\": 2, \"tr")).unwrap();
    fs::create_dir_all(root.join("runs/bad")).unwrap();
    fs::write(root.join("runs/bad/metrics.jsonl"), "no rows\n").unwrap();
    let output = run(root, "runs", "");
    assert!(output.status.success(), "{}", text(&output));
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(
        warning.contains("runs/bad/metrics.jsonl: ") && warning.contains("this run is left out"),
        "{warning}"
    );
    let table = String::from_utf8(output.stdout).unwrap();
    let old = table.lines().find(|line| line.starts_with("runs/old")).unwrap();
    assert_eq!(
        old.split_whitespace().collect::<Vec<_>>(),
        ["runs/old", "0.1250", "1", "1", "2.0", "s", "unfinished"]
    );
    // Its page states what is known.
    succeed(root, "report", "runs/old");
    let page = fs::read_to_string(root.join("runs/old/report.html")).unwrap();
    assert!(
        page.contains("the run was interrupted") && page.contains("validation accuracy 0.1250"),
        "{page}"
    );
    for (flags, expected) in
        [("none", "No such file or directory"), ("papers", "papers has no runs: pass a folder with runs")]
    {
        let output = run(root, "runs", flags);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(expected), "{}", text(&output));
    }
    let output = run(root, "report", "runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(
        text(&output).contains("runs is no run") && text(&output).contains("runs/new"),
        "{}",
        text(&output)
    );
}

#[test]
fn the_report_of_a_finished_run_is_written_again_with_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    crate::targets::set(&root.join("numbers"), true);
    crate::targets::set(&root.join("labels"), false);
    for data in ["papers", "numbers", "labels"] {
        let flags = FLAGS.replace("papers", data);
        succeed(root, "train", &format!("{flags} --epochs 2 --hidden 8 --out runs/{data}"));
        let path = root.join("runs").join(data).join("report.html");
        let written = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        succeed(root, "report", &format!("runs/{data}"));
        assert!(fs::read(&path).unwrap() == written, "{data}: the pages differ");
    }
    let flags = "--data papers --task link --layers 2 --fanouts 5 --epochs 1 --hidden 8 --out runs/links";
    succeed(root, "train", flags);
    // The scores of negatives are in no other file.
    let output = run(root, "report", "runs/links");
    assert!(!output.status.success() && text(&output).contains("it is kept"), "{}", text(&output));
    succeed(root, "report", "runs/links --html links.html");
    assert!(fs::read_to_string(root.join("links.html")).unwrap().contains("test mrr"));
}

#[test]
fn a_signal_ends_a_run_after_its_step_with_checkpoint_summary_and_report() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    for (signal, ranks) in [("INT", 1), ("TERM", 2)] {
        let out = format!("runs/{signal}");
        let flags = format!("{FLAGS} --hidden 8 --ranks {ranks}");
        // More epochs than the test could wait for.
        // A shell starts its background processes with the signal ignored.
        let mut started = Command::new("env");
        started.args(["--default-signal=INT", "timeout", "600", env!("CARGO_BIN_EXE_kiln"), "train"]);
        started.args(["--epochs", "1000000", "--out", &out]);
        started.args(flags.split_whitespace()).current_dir(root).stdin(Stdio::null());
        let child = started.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(300);
        let metrics = root.join(&out).join("metrics.jsonl");
        while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < 2 {
            assert!(Instant::now() < deadline, "{signal}: no epoch was recorded");
            std::thread::yield_now();
        }
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(75), "{signal}: {}", text(&output));
        assert!(text(&output).contains(&format!("continue with --resume {out}")), "{}", text(&output));
        let summary = summary(&root.join(&out));
        assert_eq!(summary["interrupted"], true, "{summary}");
        assert!(
            summary["test_accuracy"].is_null() && 1 <= summary["best_epoch"].as_u64().unwrap(),
            "{summary}"
        );
        let page = fs::read_to_string(root.join(&out).join("report.html")).unwrap();
        assert!(page.contains("the run was interrupted"), "{signal}");
        let table = succeed(root, "runs", &out);
        assert!(table.contains("interrupted"), "{table}");
        // The page is written again from the files.
        succeed(root, "report", &out);
        assert!(fs::read_to_string(root.join(&out).join("report.html")).unwrap() == page, "{signal}");
        // The resumed run ends like one that nothing stopped.
        let n_epochs = summary["n_epochs"].as_u64().unwrap() + 2;
        succeed(root, "train", &format!("{flags} --epochs {n_epochs} --resume {out}"));
        succeed(root, "train", &format!("{flags} --epochs {n_epochs} --out {out}-whole"));
        let [resumed, whole] = [out.clone(), format!("{out}-whole")].map(|run| Learned::of(&root.join(run)));
        assert_eq!((resumed.weights_hash, resumed.losses), (whole.weights_hash, whole.losses), "{signal}");
        assert!(summary_has_test(&root.join(&out)), "{signal}");
    }
}

fn summary_has_test(run: &Path) -> bool {
    let summary = summary(run);
    summary["interrupted"].is_null() && summary["test_accuracy"].is_f64()
}
