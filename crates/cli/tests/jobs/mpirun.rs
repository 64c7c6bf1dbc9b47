#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::run::{
    self, PROGRAM, alone, flags, learned, next_checkpoint, of_threads, over_within, process_of, signal,
    succeed,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/launch/mpirun.sh");

/// Whether there is an MPI; says so where there is none.
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

/// A command line with what root and two cores need.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "240"]).args(words);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    command
}

fn mpirun(n_ranks: usize) -> Command {
    command(&["mpirun", "--oversubscribe", "-n", &n_ranks.to_string(), PROGRAM])
}

/// Twice as processes, once over TCP, and as threads: the same weights, to the bit. As one rank with the batch of all,
/// the same curve but for rounding.
#[test]
fn processes_learn_what_threads_learn() {
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

/// Of 37,718 nodes to train 4 x 9,429 are a step, and 2 are left: two ranks have none.
#[test]
fn ranks_without_seeds_take_part() {
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
fn graphs_are_classified_by_processes() {
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

/// Starts a long run by the script that starts it again, and waits for its first checkpoint.
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

/// A rank is killed, another one stopped: each time the job is over in the promised time with the rank's name, and is
/// started again, to what a run learns that nothing happened to.
#[test]
fn a_run_whose_ranks_are_lost_goes_on_to_the_same_weights() {
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
    // Once more where the disk keeps rank 0 for longer than the deadline.
    assert!(2 <= said.matches("started again").count(), "{said}");
    for (rank, what) in [(2, "is gone: its connection has closed"), (1, "last seen")] {
        let is_told = |line: &&str| line.contains(&format!("rank {rank} (")) && line.contains(what);
        let line = said.lines().find(is_told).unwrap_or_else(|| panic!("rank {rank}: {said}"));
        assert!(line.contains("pid ") && line.contains(" of step "), "{line}");
    }
    assert_eq!(learned(&out), expected);
}

/// USR1: a checkpoint after the step, status 75; the same command goes on.
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
    // One rank hears of it; all stop after the same step.
    signal(process_of(&out, "OMPI_COMM_WORLD_RANK", 3).unwrap(), "USR1");
    let output = job.wait_with_output().unwrap();
    let said = run::text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("stopped after ") && said.contains("going on after "), "{said}");
    assert!(said.contains("exit status 75: started again"), "{said}");
    assert_eq!(learned(&out), expected);
}
