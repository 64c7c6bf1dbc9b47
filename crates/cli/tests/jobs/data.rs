//! Processes with different data: differences in sizes or in sampled values end the job when it starts, and others before
//! the first checkpoint.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use kiln::data::format;
use kiln::data::synthetic::{FakeConfig, fake};
use kiln_testkit::free_port;

use crate::run::{PROGRAM, alone, text};

/// Trains two ranks on their own copies of the data, and returns their exit statuses and what they printed.
fn train(folder: &Path) -> ([Option<i32>; 2], String) {
    let port = free_port();
    let start = |rank: usize| {
        let mut command = Command::new("timeout");
        let flags = "train --engine store --model gcn --hidden 16 --batch-size 128 --fanouts 3,3 --epochs 2 --threads-per-rank 1 --val-batches 2 --data";
        command
            .args(["--kill-after=5", "600", PROGRAM])
            .args(flags.split(' '))
            .arg(folder.join(rank.to_string()));
        command.arg("--out").arg(folder.join("run")).stdin(Stdio::null());
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "2");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("KILN_JOB_TOKEN", "a-word-of-this-test");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let outputs = [0, 1].map(start).map(|process| process.wait_with_output().unwrap());
    (outputs.each_ref().map(|output| output.status.code()), outputs.iter().map(text).collect())
}

/// Overwrites a byte of the features of rank 1, counted from the first value.
fn change(folder: &Path, position: usize) {
    let path = folder.join("1/features.npy");
    let mut bytes = fs::read(&path).unwrap();
    let header = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    bytes[header + position] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn processes_with_different_data_fail_before_the_first_checkpoint() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    // Of about 3000 rows of 8 KiB, a sample reads 32. Together they are too large to be hashed before the run starts.
    let data = fake(FakeConfig { avg_num_nodes: 3000, num_channels: 2048, ..FakeConfig::default() }).unwrap();
    let write = || {
        for rank in ["0", "1"] {
            let folder = root.path().join(rank);
            drop(fs::remove_dir_all(&folder));
            format::write(&data, &folder).unwrap();
            // Without the manifest, it is a folder of `.npy` files.
            fs::remove_file(folder.join("kiln.json")).unwrap();
        }
        drop(fs::remove_dir_all(root.path().join("run")));
    };
    write();
    let (statuses, said) = train(root.path());
    assert_eq!(statuses, [Some(0); 2], "{said}");

    // A value of the second row, which is not sampled.
    write();
    change(root.path(), 8192);
    let (statuses, said) = train(root.path());
    assert_eq!(statuses, [Some(70); 2], "{said}");
    assert!(said.contains("rank 1 has other data than rank 0: the hash of the data is "), "{said}");
    assert!(!root.path().join("run/last").exists() && !root.path().join("run/config.json").exists());

    // A value of the first row, which is sampled.
    write();
    change(root.path(), 0);
    let (statuses, said) = train(root.path());
    assert!(statuses.iter().all(|status| *status != Some(0)), "{said}");
    let expected = "rank 1 has other data than rank 0: the hash of its sizes and of sampled values is ";
    assert!(said.contains(expected) && !root.path().join("run").exists(), "{said}");

    // Another number of training nodes.
    write();
    let mut shorter = data.clone();
    shorter.targets.as_mut().unwrap().split.train = shorter.split().train[1..].iter().copied().collect();
    let folder = root.path().join("1");
    fs::remove_dir_all(&folder).unwrap();
    format::write(&shorter, &folder).unwrap();
    fs::remove_file(folder.join("kiln.json")).unwrap();
    let (statuses, said) = train(root.path());
    assert!(statuses.iter().all(|status| *status != Some(0)), "{said}");
    assert!(said.contains(expected) && !root.path().join("run").exists(), "{said}");
}
