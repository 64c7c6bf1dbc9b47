//! Tests of `kiln train` for graph classification as a user runs it: on several ranks, and with cross-validation.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Returns a `kiln train` command, on MUTAG and with DGL's network unless the flags say otherwise.
fn command(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("train").args(flags.split_whitespace());
    for default in ["--data=mutag", "--model=simplified"] {
        let flag = default.split('=').next().unwrap();
        if !flags.split_whitespace().any(|word| word == flag) {
            command.arg(default);
        }
    }
    command
}

fn run(flags: &str, out: Option<&Path>) -> Output {
    let mut command = command(flags);
    if let Some(out) = out {
        command.arg("--out").arg(out);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Trains, and returns the output of the run and its summary.
fn trained(flags: &str, out: &Path) -> (String, Value) {
    let output = run(flags, Some(out));
    assert!(output.status.success(), "{flags}: {}", text(&output.stderr));
    let json = std::fs::read_to_string(out.join("summary.json")).unwrap();
    (text(&output.stdout), serde_json::from_str(&json).unwrap())
}

#[test]
fn runs_on_1_2_and_4_ranks_and_only_rank_0_prints() {
    let folder = tempfile::tempdir().unwrap();
    for ranks in ["1", "2", "4"] {
        let out = folder.path().join(ranks);
        let (printed, summary) = trained(&format!("--epochs 3 --ranks {ranks}"), &out);
        for line in ["epoch   1/3", "epoch   3/3", "test accuracy", "weights         sha256", "mutag: 188"] {
            assert_eq!(printed.matches(line).count(), 1, "{line} of {ranks} ranks: {printed}");
        }
        assert_eq!(summary["n_epochs"], 3);
        let files =
            ["config.json", "metrics.jsonl", "curves.svg", "best.safetensors", "test_predictions.csv"];
        for name in [&files[..], &["last/checkpoint.safetensors", "report.html"]].concat() {
            assert!(out.join(name).exists(), "{name} of {ranks} ranks");
        }
        // The test split has a tenth of 188 graphs. Each is predicted once, by any rank.
        let said = std::fs::read_to_string(out.join("test_predictions.csv")).unwrap();
        let rows: Vec<&str> = said.lines().skip(1).collect();
        let mut graphs: Vec<&str> = rows.iter().map(|row| row.split(',').next().unwrap()).collect();
        graphs.dedup();
        assert_eq!((rows.len(), graphs.len()), (19, 19), "{said}");
    }
}

/// Batch normalisation uses the statistics of rank 0.
#[test]
fn gin_with_batch_normalisation_learns_on_two_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let flags = "--model gin --hidden 16 --epochs 20 --ranks 2 --batch-size 16";
    let (printed, summary) = trained(flags, &folder.path().join("run"));
    // A constant prediction reaches 0.67, because two thirds of the molecules have one class.
    assert!(summary["val_accuracy"].as_f64().unwrap() > 0.7, "{printed}");
}

#[test]
fn weights_do_not_depend_on_workers_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let hash = |how: &str| {
        let flags = format!("--model gin --hidden 16 --epochs 2 --ranks 2 --batch-size 16 {how}");
        let out = folder.path().join(how.replace(' ', "_"));
        trained(&flags, &out).1["weights_hash"].as_str().unwrap().to_owned()
    };
    let first = hash("--workers 0 --threads-per-rank 1");
    for how in ["--workers 1 --threads-per-rank 1", "--workers 0 --threads-per-rank 2", "--workers 3"] {
        assert_eq!(hash(how), first, "{how}");
    }
}

fn imdb() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/imdb-binary/IMDBBINARY.txt");
    if path.exists() {
        return Some(path);
    }
    let skip = format!("kiln-skip: other: training on IMDB-BINARY: {} does not exist", path.display());
    // A direct write bypasses the output capture of the test harness.
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{skip}").unwrap();
    None
}

#[test]
fn imdb_binary_is_opened_and_trains() {
    let Some(imdb) = imdb() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (features, ranks) in [("constant", 1), ("constant", 2), ("degrees", 2)] {
        let flags = format!("--epochs 1 --ranks {ranks} --node-features {features} --data");
        let out = folder.path().join(format!("{features}-{ranks}"));
        let flags = format!("{flags} {}", imdb.display());
        let (printed, summary) = trained(&flags, &out);
        assert!(printed.contains("1000 graphs"), "{printed}");
        let accuracy = summary["test_accuracy"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&accuracy), "{summary}");
    }
}

#[test]
fn errors_of_invalid_flags_contain_the_expected_values() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("note.txt"), "no graphs").unwrap();
    let cases = [
        (
            "--data proteins",
            "expected debian-packages, debian-tags, debian-archive, mutag, sbm, fake:NODES or a path that exists",
        ),
        ("--data /dev", "is not a data set of a known format"),
        ("--model gcn", "use gin or simplified for graphs"),
        ("--model gin --layers 1", "give at least 2"),
        ("--mlp-layers 0", "expected a whole number from 1 to 1000"),
        ("--readout median", "possible values: sum, mean, max"),
        ("--jumping first", "possible values: all, last, cat, max"),
        ("--norm group", "possible values: batch, layer, none"),
        ("--model gin --norm layer", "norm is layer, expected none or batch for this kind of model"),
        ("--model gin --jumping cat", "jumping is cat, expected direct, last or sum for this kind of model"),
        ("--residual", "--residual does not apply to training on graphs"),
        ("--node-features colour", "possible values: auto, data, labels, degrees, constant"),
        ("--node-features data", "expected labels, degrees or constant: the set has no features"),
        ("--fanouts 5", "--fanouts does not apply to training on graphs"),
        ("--eval exact", "--eval does not apply to training on graphs"),
        ("--task node", "mutag is a set of graphs"),
        ("--folds 3 --loss-every 2", "--loss-every does not apply to training on graphs"),
        ("--ranks 0", "expected a whole number from 1 to 1024"),
        ("--ranks 1024 --threads-per-rank 2", "exceed the limit of 1024 threads"),
        ("--uneven leave", "possible values: join, drop, pad"),
        ("--lr-decay 0", "expected a number above 0 and at most 1"),
    ];
    let of_nodes = [
        "--input-dropout 0.1",
        "--weight-init pyg",
        "--edge-input types",
        "--heads 2",
        "--output-heads 2",
        "--attention-dropout 0.1",
        "--bases 2",
        "--rule uniform",
        "--memory 1GiB",
        "--val-batches 2",
        "--graph-mode device",
        "--feature-cache 1GiB",
        "--hot-by degree",
        "--standardize true",
        "--symmetrize",
        "--decoder dot",
    ];
    let of_nodes = of_nodes.map(|flags| (flags, "does not apply to training on graphs"));
    for (flags, expected) in cases.into_iter().chain(of_nodes) {
        let output = command(flags).current_dir(folder.path()).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{flags} was accepted");
        assert!(said.contains(expected) && !said.contains("panicked"), "{flags}: {said}");
        assert!(!folder.path().join("runs").exists(), "{flags} left a folder");
    }
}

/// Each fold runs on a single rank, so the results are bit-identical; only the order of the lines differs.
#[test]
fn cross_validation_is_identical_on_one_rank_and_two() {
    let lines = |how: &str| {
        let flags = format!("--model gin --folds 3 --epochs 2 --hidden 8 {how}");
        let output = run(&flags, None);
        assert!(output.status.success(), "{how}: {}", text(&output.stderr));
        let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let one = lines("--ranks 1 --workers 0");
    assert_eq!(one.iter().filter(|line| line.starts_with("fold ")).count(), 3, "{one:?}");
    for said in ["paper's protocol", "inner validation"] {
        assert_eq!(one.iter().filter(|line| line.starts_with(said)).count(), 1, "{one:?}");
    }
    assert_eq!(lines("--ranks 2 --workers 1"), one);

    for (flags, expected) in [
        ("--folds 2", "expected a whole number from 3"),
        ("--folds 3 --resume somewhere", "cannot be used with"),
        ("--folds 3 --patience 3", "cannot be used with"),
    ] {
        let output = run(flags, None);
        assert!(!output.status.success() && text(&output.stderr).contains(expected), "{flags}");
    }
}
