//! Tests of `kiln train` on a full disk. A symbolic link from the temporary name of a file to `/dev/full` makes writing
//! it fail, even for root.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const FLAGS: &str =
    "--data sbm --batch-size 256 --hidden 16 --fanouts 5,5 --epochs 2 --ranks 2 --checkpoint-every 2";

fn run(flag: &str, folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("train").args(FLAGS.split(' ')).arg(flag).arg(folder).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn weights_hash(folder: &Path) -> String {
    let summary = fs::read_to_string(folder.join("summary.json")).unwrap();
    serde_json::from_str::<Value>(&summary).unwrap()["weights_hash"].as_str().unwrap().to_owned()
}

/// Makes the next write of the file fail as on a full disk.
fn fill(folder: &Path, name: &str) {
    let path = folder.join(format!("{name}.unfinished"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink("/dev/full", path).unwrap();
}

#[test]
fn a_full_disk_is_a_warning_until_the_end_and_then_status_75() {
    let root = tempfile::tempdir().unwrap();
    let (whole, folder) = (root.path().join("whole"), root.path().join("run"));
    let output = run("--out", &whole);
    assert!(output.status.success() && !said(&output).contains("warning"), "{}", said(&output));

    // The first checkpoint fails, so the files that are written after it are postponed, among them config.json.
    fill(&folder, "last/checkpoint.safetensors");
    let output = run("--out", &folder);
    assert!(output.status.success(), "{}", said(&output));
    let warnings = said(&output).matches("warning: ").count();
    assert!(warnings == 1 && said(&output).contains("No space left on device"), "{}", said(&output));
    assert_eq!(weights_hash(&folder), weights_hash(&whole));
    let config = fs::read_to_string(folder.join("config.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&config).unwrap()["hidden"], "16");

    // A summary that cannot be written is an error. Resuming the run repairs it.
    fs::remove_file(folder.join("summary.json")).unwrap();
    fill(&folder, "summary.json");
    let output = run("--resume", &folder);
    assert_eq!(output.status.code(), Some(75), "{}", said(&output));
    assert!(said(&output).contains("summary.json: No space left on device"), "{}", said(&output));
    let output = run("--resume", &folder);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(weights_hash(&folder), weights_hash(&whole));
}
