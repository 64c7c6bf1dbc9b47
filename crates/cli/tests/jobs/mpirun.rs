#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::run::{
    self, PROGRAM, alone, flags, learned, next_checkpoint, of_threads, over_within, process_of, signal,
    succeed,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/launch/mpirun.sh");

/// Returns true if the test can use MPI; otherwise prints a skip line and returns false.
fn is_there() -> bool {
    let found = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let reason = match found {
        _ if !cfg!(feature = "mpi") => "this was built without the feature `mpi`",
        Ok(status) if status.success() => return true,
        _ => "there is no mpirun",
    };
    run::skip("multi_node under mpirun", reason);
    false
}

/// Returns a command with the settings that Open MPI needs to run as root and on fewer cores than ranks.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "1200"]).args(words);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    command
}

fn mpirun(n_ranks: usize) -> Command {
    command(&["mpirun", "--oversubscribe", "-n", &n_ranks.to_string(), PROGRAM])
}

/// Two runs over shared memory and one over TCP give weights bit-identical to those of threads. The loss curve of one
/// rank with the global batch differs only by rounding.
#[test]
fn process_ranks_match_thread_ranks() {
    let _alone = alone();
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let alone = of_threads(folder.path(), 2, 1, 128);
    for (n_ranks, batch_size) in [(2, 64), (4, 32)] {
        let expected = of_threads(folder.path(), 2, n_ranks, batch_size);
        for (trial, btl) in [None, None, Some("self,tcp")].into_iter().enumerate() {
            let out = folder.path().join(format!("{n_ranks}-{trial}"));
            let mut mpirun = mpirun(n_ranks);
            mpirun.args(flags(2, batch_size)).arg("--out").arg(&out);
            mpirun.envs(btl.map(|btl| ("OMPI_MCA_btl", btl)));
            let said = succeed(&mut mpirun);
            assert!(said.contains(&format!("{n_ranks} ranks by Open MPI, {n_ranks} on ")), "{said}");
            assert_eq!(said.matches("test accuracy").count(), 1, "only the first rank prints: {said}");
            assert_eq!(learned(&out), expected, "trial {trial}");
        }
        for (loss, alone) in expected.losses.iter().zip(&alone.losses) {
            assert!((loss - alone).abs() < 1e-5 * alone, "{n_ranks} ranks: {loss} {alone}");
        }
    }
}

/// The 37,718 training nodes are a step of 4 x 9,429 nodes and a step of 2 nodes, in which two ranks have no seeds.
#[test]
fn ranks_without_seeds_take_part_in_steps() {
    let _alone = alone();
    if !is_there() {
        return;
    }
    let (folder, program) = (tempfile::tempdir().unwrap(), PROGRAM);
    let flags = "train --batch-size 9429 --layers 1 --fanouts 2 --epochs 1 --out";
    let run = |words: &[&str], ranks: &[&str], name: &str| {
        let out = folder.path().join(name);
        succeed(command(words).args(flags.split(' ')).arg(&out).args(ranks));
        learned(&out)
    };
    let processes = run(&["mpirun", "--oversubscribe", "-n", "4", program], &[], "processes");
    let threads = run(&[program], &["--ranks", "4", "--threads-per-rank", "1"], "threads");
    assert_eq!(processes, threads);
}

#[test]
fn graph_classification_by_processes_matches_threads() {
    let _alone = alone();
    if !is_there() {
        return;
    }
    let (folder, program) = (tempfile::tempdir().unwrap(), PROGRAM);
    let run = |words: &[&str], ranks: &[&str], name: &str| {
        let out = folder.path().join(name);
        let flags = ["train", "--data", "mutag", "--batch-size", "32", "--epochs", "3", "--out"];
        succeed(command(words).args(flags).arg(&out).args(ranks));
        learned(&out)
    };
    let processes = run(&["mpirun", "--oversubscribe", "-n", "2", program], &[], "processes");
    let threads = run(&[program], &["--ranks", "2", "--threads-per-rank", "1"], "threads");
    assert_eq!(processes, threads);
}

/// Starts a long run with the script that restarts it, and waits for its first checkpoint.
fn start(folder: &Path, epochs: usize, deadline: &str) -> Child {
    let mut command = command(&[SCRIPT, "4", PROGRAM]);
    command
        .args(flags(epochs, 32))
        .args(["--checkpoint-every", "5", "--deadline", deadline, "--continue"])
        .arg(folder);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    next_checkpoint(folder);
    child
}

/// A rank is killed, then another one is stopped. Each time the job exits within the documented time and names the
/// rank; after the restart it ends with the weights of an undisturbed run.
#[test]
fn a_run_that_loses_ranks_resumes_to_identical_weights() {
    let _alone = alone();
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let expected = of_threads(folder.path(), 150, 4, 32);
    let out = folder.path().join("run");
    let job = start(&out, 150, "10");
    for (how, rank, promised) in [("KILL", 2, 5), ("STOP", 1, 10 + 2)] {
        over_within(Duration::from_secs(promised), &out, || {
            signal(process_of(&out, "OMPI_COMM_WORLD_RANK", rank).unwrap(), how);
        });
    }
    let output = job.wait_with_output().unwrap();
    let said = run::text(&output);
    assert!(output.status.success(), "{said}");
    // There may be a third restart, if a slow disk blocks rank 0 for longer than the deadline.
    assert!(2 <= said.matches("started again").count(), "{said}");
    for (rank, what) in [(2, "is gone: its connection has closed"), (1, "last seen")] {
        let is_told = |line: &&str| line.contains(&format!("rank {rank} (")) && line.contains(what);
        let line = said.lines().find(is_told).unwrap_or_else(|| panic!("rank {rank}: {said}"));
        assert!(line.contains("pid ") && line.contains(" of step "), "{line}");
    }
    assert_eq!(learned(&out), expected);
}

/// On SIGUSR1, the run writes a checkpoint after the current step and exits with 75; the same command resumes it.
#[test]
fn a_signal_stops_a_run_at_a_checkpoint() {
    let _alone = alone();
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let expected = of_threads(folder.path(), 40, 4, 32);
    let out = folder.path().join("run");
    let job = start(&out, 40, "60");
    // Only one rank receives the signal, but all ranks stop after the same step.
    signal(process_of(&out, "OMPI_COMM_WORLD_RANK", 3).unwrap(), "USR1");
    let output = job.wait_with_output().unwrap();
    let said = run::text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("stopped after ") && said.contains("resumed after "), "{said}");
    assert!(said.contains("exit status 75: started again"), "{said}");
    assert_eq!(learned(&out), expected);
}
