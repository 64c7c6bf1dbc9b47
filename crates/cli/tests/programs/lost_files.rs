//! Tests of dataset files that are truncated, changed in place or replaced while a program has them mapped.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![cfg(unix)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use kiln::data::synthetic::FakeConfig;
use kiln::partition::part_dir;
use tempfile::TempDir;

use crate::partitioned;

/// The flags of a run that is too long to finish within the test.
const FLAGS: &str =
    "--hidden 8 --fanouts 3,3 --batch-size 64 --threads-per-rank 1 --workers 0 --epochs 100000";

/// Writes a dataset of about 1000 nodes, whole and partitioned.
fn data() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    partitioned::write(FakeConfig::default(), None, root.path());
    root
}

/// Changes only the modification time of a file, because the check does not compare contents.
fn touch(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1000)).unwrap();
}

/// The exit status of a program, its standard output and its standard error.
struct End {
    status: Option<i32>,
    printed: String,
    said: String,
}

/// Runs a program for at most ten minutes. Calls `strike` once it prints a line that begins with `start`.
fn end_of(command: &str, envs: &[(&str, &str)], start: &str, strike: impl FnOnce()) -> End {
    let mut words = command.split_whitespace();
    let mut timed = Command::new("timeout");
    timed.args(["--kill-after=5", "600"]).args(&mut words).envs(envs.iter().copied());
    let mut child = timed.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    while !printed.lines().last().is_some_and(|line| line.starts_with(start)) {
        if stdout.read_line(&mut printed).unwrap() == 0 {
            let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
            panic!("{command}: exited before it printed {start:?}: {printed}{said}");
        }
    }
    strike();
    stdout.read_to_string(&mut printed).unwrap();
    let output = child.wait_with_output().unwrap();
    End { status: output.status.code(), printed, said: String::from_utf8(output.stderr).unwrap() }
}

/// Trains on the whole dataset, and calls `strike` with the path of its features after the first epoch.
fn train(root: &Path, flags: &str, strike: impl FnOnce(&Path)) -> (End, PathBuf) {
    let (whole, features) = (root.join("whole"), root.join("whole/features.npy"));
    let (program, out) = (env!("CARGO_BIN_EXE_kiln"), root.join("run"));
    let command = format!("{program} train --data {} --out {} {flags}", whole.display(), out.display());
    (end_of(&command, &[], "epoch   1/", || strike(&features)), out)
}

#[test]
fn a_truncated_file_ends_a_run_with_its_path_and_status_74() {
    for flags in [FLAGS.to_owned(), format!("{FLAGS} --ranks 2")] {
        let root = data();
        let truncate = |path: &Path| File::options().write(true).open(path).unwrap().set_len(64).unwrap();
        let (End { status, said, .. }, _) = train(root.path(), &flags, truncate);
        let expected = "whole/features.npy: the file was truncated while it was mapped";
        assert_eq!(status, Some(74), "{said}");
        assert_eq!(said.matches(expected).count(), 1, "{said}");
    }
}

#[test]
fn a_file_that_is_changed_in_place_ends_a_run_and_its_epoch_is_not_recorded() {
    for flags in [FLAGS.to_owned(), format!("{FLAGS} --ranks 2 --checkpoint-every 1")] {
        let root = data();
        let (End { status, printed, said }, out) = train(root.path(), &flags, touch);
        assert_eq!(status, Some(1), "{said}");
        let expected = "whole/features.npy: the file was changed while it was mapped: expected ";
        assert!(said.contains(expected) && said.contains("restore the file"), "{said}");
        let recorded = fs::read_to_string(out.join("metrics.jsonl")).unwrap().lines().count();
        assert_eq!(recorded, printed.lines().filter(|line| line.starts_with("epoch ")).count(), "{printed}");
    }
}

#[test]
fn a_replaced_file_is_reported_once_and_the_run_continues() {
    let replace = |path: &Path| {
        let new = path.with_extension("new");
        fs::write(&new, b"not even an array").unwrap();
        fs::rename(new, path).unwrap();
    };
    let flags = FLAGS.replace("100000", "100");
    let run = || {
        let root = data();
        let (End { status, printed, said }, _) = train(root.path(), &flags, replace);
        assert_eq!(status, Some(0), "{said}");
        printed
    };
    // On a loaded machine, a run may have ended before the file was replaced.
    let reported = "features.npy was replaced or removed";
    let printed = (0..10).map(|_| run()).find(|printed| printed.contains(reported));
    let printed = printed.expect("a run should report the file");
    assert_eq!(printed.matches(reported).count(), 1, "{printed}");
}

#[test]
fn a_server_exits_when_a_file_of_its_partition_changes() {
    let root = data();
    let part = part_dir(root.path().join("parts"), 0);
    let serve = env!("CARGO_BIN_EXE_kiln");
    let command = format!("{serve} serve --part {} --listen 127.0.0.1:0", part.display());
    let token = [("KILN_GRAPH_TOKEN", "a-word-of-this-test")];
    let End { status, said, .. } = end_of(&command, &token, "part 0", || touch(&part.join("indices.npy")));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("indices.npy: the file was changed while it was mapped"), "{said}");
}
