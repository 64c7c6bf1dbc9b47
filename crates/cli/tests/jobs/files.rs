#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use kiln::data::format;
use kiln::data::synthetic::{FakeConfig, fake};
use kiln_testkit::free_port;

use crate::run::{PROGRAM, alone};

/// Starts one of two ranks, on its own copy of the data.
fn start(rank: usize, port: u16, folder: &Path) -> Child {
    let mut command = Command::new("timeout");
    let flags = "train --engine store --model gcn --hidden 64 --dropout 0 --lr 0.01 --batch-size 128 --fanouts 3,3 --epochs 100000 --threads-per-rank 1 --val-batches 2 --data";
    command
        .args(["--kill-after=5", "600", PROGRAM])
        .args(flags.split(' '))
        .arg(folder.join(rank.to_string()));
    command.arg("--out").arg(folder.join("run")).stdin(Stdio::null());
    command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "2");
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.env("KILN_JOB_TOKEN", "a-word-of-this-test");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A file changes on the machine of one rank. All ranks exit, and that rank logs the path.
#[test]
fn a_file_that_is_changed_on_one_machine_ends_the_job() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    let data = fake(FakeConfig::default()).unwrap();
    ['0', '1'].into_iter().for_each(|rank| format::write(&data, root.path().join(rank.to_string())).unwrap());
    let port = free_port();
    let [mut first, second] = [0, 1].map(|rank| start(rank, port, root.path()));
    let mut stdout = BufReader::new(first.stdout.take().unwrap());
    let mut printed = String::new();
    while !printed.contains("epoch   1/") {
        assert!(stdout.read_line(&mut printed).unwrap() != 0, "exited before the end of epoch 1: {printed}");
    }
    let features = File::options().write(true).open(root.path().join("1/features.npy")).unwrap();
    features.set_modified(UNIX_EPOCH + Duration::from_secs(1000)).unwrap();
    stdout.read_to_string(&mut printed).unwrap();
    let [first, second] = [first, second].map(|rank| rank.wait_with_output().unwrap());
    let [of_first, of_second] =
        [&first, &second].map(|rank| String::from_utf8_lossy(&rank.stderr).into_owned());
    let statuses = [first.status.code(), second.status.code()];
    assert_eq!(statuses, [Some(70), Some(70)], "{of_first}\n{of_second}");
    let expected = "1/features.npy: the file was changed while it was mapped";
    assert_eq!(
        (of_first.matches(expected).count(), of_second.matches(expected).count()),
        (0, 1),
        "{of_first}\n{of_second}"
    );
    assert!(of_first.contains("rank 1"), "{of_first}");
    // The epoch that read the changed file is not recorded.
    let recorded = fs::read_to_string(root.path().join("run/metrics.jsonl")).unwrap().lines().count();
    assert_eq!(recorded, printed.matches("\nepoch ").count(), "{printed}");
}
