#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::process::{Command, Stdio};

use kiln_testkit::free_port;

use crate::run::{PROGRAM, alone, flags, learned, of_threads, output, text};

/// Returns the command of one of `n_ranks` ranks of a job whose rank 0 listens on a port.
fn rank_of(n_ranks: usize, rank: usize, port: u16, words: impl IntoIterator<Item = String>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["600", PROGRAM]).args(words).args(["--engine", "store"]);
    command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
    command.env("WORLD_SIZE", n_ranks.to_string()).env("MASTER_ADDR", "127.0.0.1");
    command.env("MASTER_PORT", port.to_string()).env("KILN_JOB_TOKEN", "a-word-of-this-test");
    command
}

/// The processes find each other by the environment variables of torchrun and Kubernetes, without MPI.
#[test]
fn processes_without_mpi_match_thread_ranks() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let expected = of_threads(folder.path(), 2, 4, 32);
    let out = folder.path().join("store");
    let port = free_port();
    let start = |rank: usize| rank_of(4, rank, port, flags(2, 32)).arg("--out").arg(&out).spawn().unwrap();
    // Rank 0 starts last, so the other ranks have to wait for it.
    let processes: Vec<_> = [3, 2, 1, 0].map(start).into();
    for process in processes {
        assert!(process.wait_with_output().unwrap().status.success());
    }
    assert_eq!(learned(&out), expected);
}

/// Otherwise, the rank with partitions would wait for the others, which do not join its graph.
#[test]
fn ranks_with_and_without_partitions_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (parts, out, port) = (folder.path().join("parts"), folder.path().join("run"), free_port());
    let mut partition = Command::new(PROGRAM);
    partition.args(["data", "partition", "fake:300", "--parts", "1", "--out"]).arg(&parts);
    assert!(output(&mut partition).status.success());
    let train = |rank: usize, data: &str| {
        let words = format!("train --hidden 8 --fanouts 3,3 {data} --out {}", out.display());
        let mut command = rank_of(2, rank, port, words.split(' ').map(str::to_owned));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let one = train(0, "--data fake:300");
    let other = train(1, &format!("--parts {}", parts.display()));
    for process in [one, other] {
        let output = process.wait_with_output().unwrap();
        let expected = "start all processes with the same place of the partitions";
        assert!(!output.status.success() && text(&output).contains(expected), "{}", text(&output));
    }
    assert!(!out.exists());
}

/// The error names the missing variables, before any data is loaded.
#[test]
fn rejects_incomplete_launch_environments() {
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
    refused(&torchrun, &["--data", "fake:100", "--ranks", "3"], "use --ranks 2");
}

/// Without MPI and NCCL, `auto` finds no engine; the error names both, and the reason why each is unavailable.
#[test]
fn the_auto_engine_error_names_the_engines_tried() {
    if cfg!(feature = "mpi") {
        // With MPI built in, a process that mpirun did not start fails with another error. `kiln-comm` has unit tests
        // of the selection without MPI.
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
    // An empty search path hides the CUDA driver and NCCL.
    command.args(["train", "--data", "fake:100"]).envs(torchrun).env("LD_LIBRARY_PATH", "");
    let output = output(&mut command);
    let message = text(&output);
    assert!(!output.status.success(), "{message}");
    if cfg!(feature = "nccl") && message.contains("KILN_JOB_TOKEN") {
        // The machine has a GPU and NCCL, so the NCCL engine was selected. It requires a token.
        return;
    }
    assert!(message.contains("tried mpi (this program was built without the feature `mpi`"), "{message}");
    assert!(message.contains("--engine store"), "{message}");
}

/// All processes exit with 75 when the disk of rank 0 is full at the end of the run. A restart gives the same results.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_all_processes_with_status_75() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let expected = of_threads(folder.path(), 1, 2, 64);
    let out = folder.path().join("store");
    let start = || {
        let port = free_port();
        let start =
            |rank: usize| rank_of(2, rank, port, flags(1, 64)).arg("--continue").arg(&out).spawn().unwrap();
        [0, 1].map(start).map(|mut process| process.wait().unwrap().code())
    };
    assert_eq!(start(), [Some(0); 2]);
    std::fs::remove_file(out.join("summary.json")).unwrap();
    std::os::unix::fs::symlink("/dev/full", out.join("summary.json.unfinished")).unwrap();
    assert_eq!(start(), [Some(75); 2]);
    assert_eq!(start(), [Some(0); 2]);
    assert_eq!(learned(&out), expected);
}
