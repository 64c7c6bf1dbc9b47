#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::process::Command;

use kiln_testkit::free_port;

use crate::run::{PROGRAM, alone, flags, learned, of_threads, output, text};

/// Processes that know each other by the variables that torchrun and Kubernetes set, without MPI.
#[test]
fn processes_without_mpi_learn_the_same() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let expected = of_threads(folder.path(), 2, 4, 32);
    let out = folder.path().join("store");
    let port = free_port();
    let start = |rank: usize| {
        let mut command = Command::new("timeout");
        command.args(["120", PROGRAM]).args(flags(2, 32)).args(["--engine", "store"]).arg("--out").arg(&out);
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "4");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("KILN_JOB_TOKEN", "a-word-of-this-test").spawn().unwrap()
    };
    // The first one comes last.
    let processes: Vec<_> = [3, 2, 1, 0].map(start).into();
    for process in processes {
        assert!(process.wait_with_output().unwrap().status.success());
    }
    assert_eq!(learned(&out), expected);
}

/// What is wrong with how a program was started is told with the variables' names, before anything is loaded.
#[test]
fn launches_that_cannot_be_are_refused() {
    let refused = |vars: &[(&str, &str)], args: &[&str], expected: &str| {
        let mut command = Command::new(PROGRAM);
        let output = output(command.arg("train").args(args).envs(vars.iter().copied()));
        let said = text(&output);
        assert!(!output.status.success() && said.contains(expected), "{vars:?}: {said}");
    };
    let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4")];
    refused(&slurm, &[], "without srun");
    refused(&[("RANK", "0"), ("WORLD_SIZE", "2")], &[], "MASTER_ADDR");
    let torchrun = [
        ("RANK", "0"),
        ("LOCAL_RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "1"),
    ];
    refused(&torchrun, &["--data", "fake:100", "--engine", "store"], "KILN_JOB_TOKEN");
    refused(&torchrun, &["--data", "fake:100", "--ranks", "2"], "leave out --ranks");
}

/// Without MPI and NCCL, `auto` finds no engine and names both with what they lack.
#[test]
fn auto_names_the_engines_that_it_tried() {
    if cfg!(feature = "mpi") {
        // MPI is there and started none of these processes, an error of its own. The selection without MPI has unit tests
        // in `kiln-comm`.
        return;
    }
    let torchrun = [
        ("RANK", "0"),
        ("LOCAL_RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "1"),
    ];
    let mut command = Command::new(PROGRAM);
    // Neither a driver nor NCCL is found where there are none.
    command.args(["train", "--data", "fake:100"]).envs(torchrun).env("LD_LIBRARY_PATH", "");
    let output = output(&mut command);
    let message = text(&output);
    assert!(!output.status.success(), "{message}");
    if cfg!(feature = "nccl") && message.contains("KILN_JOB_TOKEN") {
        // A machine with a GPU and NCCL: that engine was taken, and needs a token.
        return;
    }
    assert!(message.contains("tried mpi (this program was built without the feature `mpi`"), "{message}");
    assert!(message.contains("--engine store"), "{message}");
}

/// All processes exit with 75 when the first one's disk is full at the end, and end the same when started again.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_all_processes_with_75() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let expected = of_threads(folder.path(), 1, 2, 64);
    let out = folder.path().join("store");
    let start = || {
        let port = free_port();
        let start = |rank: usize| {
            let mut command = Command::new("timeout");
            command
                .args(["120", PROGRAM])
                .args(flags(1, 64))
                .args(["--engine", "store"])
                .arg("--continue")
                .arg(&out);
            command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "2");
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            command.env("KILN_JOB_TOKEN", "a-word-of-this-test").spawn().unwrap()
        };
        [0, 1].map(start).map(|mut process| process.wait().unwrap().code())
    };
    assert_eq!(start(), [Some(0); 2]);
    std::fs::remove_file(out.join("summary.json")).unwrap();
    std::os::unix::fs::symlink("/dev/full", out.join("summary.json.unfinished")).unwrap();
    assert_eq!(start(), [Some(75); 2]);
    assert_eq!(start(), [Some(0); 2]);
    assert_eq!(learned(&out), expected);
}
