//! Tests of the sampling flags of `kiln train`: rules, fanouts and evaluation.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Returns a `kiln train` command that prints the loss after every 10 steps.
fn command(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["train", "--lr", "0.001", "--loss-every", "10"]).args(flags.split_whitespace());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Trains, and returns the output of the run and its summary.
fn trained(flags: &str, out: &Path) -> (String, Value) {
    let output = command(flags).arg("--out").arg(out).output().unwrap();
    assert!(output.status.success(), "{flags}: {}", text(&output.stderr));
    let json = std::fs::read_to_string(out.join("summary.json")).unwrap();
    (text(&output.stdout), serde_json::from_str(&json).unwrap())
}

#[test]
fn runs_on_1_2_and_4_ranks_and_only_rank_0_prints() {
    let folder = tempfile::tempdir().unwrap();
    for (ranks, batch) in [(1, 256), (2, 128), (4, 64)] {
        let out = folder.path().join(ranks.to_string());
        let flags =
            format!("--data sbm --fanouts 4,4,4 --hidden 32 --epochs 2 --ranks {ranks} --batch-size {batch}");
        let (printed, summary) = trained(&flags, &out);
        // Each of the two epochs has 24 steps, and prints the loss at steps 0, 10 and 20.
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
        let flags =
            format!("--data sbm --fanouts 4,4,4 --hidden 16 --epochs 1 --ranks 2 --batch-size 256 {how}");
        let out = folder.path().join(how.replace(' ', "_"));
        trained(&flags, &out).1["weights_hash"].as_str().unwrap().to_owned()
    };
    let mut firsts = Vec::new();
    for rule in ["uniform", "uniform-with-replacement"] {
        let first = hash(&format!("--rule {rule} --workers 0 --threads-per-rank 1"));
        for how in ["--workers 1 --threads-per-rank 1", "--workers 0 --threads-per-rank 2"] {
            assert_eq!(hash(&format!("--rule {rule} {how}")), first, "{rule} {how}");
        }
        firsts.push(first);
    }
    assert_ne!(firsts[0], firsts[1]);
}

/// Exact evaluation ignores the fanouts of training.
#[test]
fn exact_evaluation_reads_all_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = |eval: &str| -> Value {
        let out = folder.path().join(eval);
        trained(&format!("--data fake:1000 --fanouts 4,4,4 --hidden 8 --epochs 1 --eval {eval}"), &out);
        serde_json::from_str(&std::fs::read_to_string(out.join("metrics.jsonl")).unwrap()).unwrap()
    };
    let (sampled, exact) = (metrics("sampled"), metrics("exact"));
    assert_eq!(sampled["train_loss"], exact["train_loss"]);
    assert_ne!(sampled["val_loss"], exact["val_loss"]);
}

#[test]
fn errors_of_invalid_flags_contain_the_expected_values() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("--rule heavy", "possible values: uniform, uniform-with-replacement"),
        ("--fanouts 4,four", "expected a number per layer"),
        (
            "--layers 2 --fanouts 4,4,4",
            "--fanouts has 3 values for --layers 2: give one per layer, or one for all",
        ),
        ("--ranks 2000", "expected a whole number from 1 to 1024"),
        ("--eval half", "possible values: sampled, exact"),
        ("--checkpoint-every 0", "expected a whole number from 1 to 1000000"),
        ("--resume nowhere", "nowhere does not exist"),
    ];
    for (flags, expected) in cases {
        let output = command(flags).args(["--data", "fake:100"]).current_dir(folder.path()).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{flags} was accepted");
        assert!(said.contains(expected) && !said.contains("panicked"), "{flags}: {said}");
        assert!(!folder.path().join("runs").exists(), "{flags} left a folder");
    }
}
