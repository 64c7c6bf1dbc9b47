#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::TcpListener;
use std::process::Command;

use crate::run::{PROGRAM, alone, flags, learned, of_threads, output, text};

/// Processes that know each other by the variables that torchrun and Kubernetes set, without MPI.
#[test]
fn processes_without_mpi_learn_the_same() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let expected = of_threads(folder.path(), 2, 4, 32);
    let out = folder.path().join("store");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: usize| {
        let mut command = Command::new("timeout");
        command.args(["120", PROGRAM, "--engine", "store"]).args(flags(2, 32)).arg("--out").arg(&out);
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
        let output = output(command.args(args).envs(vars.iter().copied()));
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
    if !cfg!(feature = "mpi") {
        refused(&torchrun, &["--data", "fake:100"], "built without the feature `mpi`");
    }
}
