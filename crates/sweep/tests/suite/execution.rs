//! Tests of the processes of a sweep, with shell scripts as runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kiln_sweep::{MemoryLimits, Sweep, SweepConfig, SweepOutcome, SweepRun};

use crate::plan::parse;
use crate::table::write_finished;

fn open(folder: &Path, n_runs: usize) -> Sweep {
    let seeds: Vec<String> = (0..n_runs).map(|seed| seed.to_string()).collect();
    Sweep::open(parse(&format!("[sweep]\nlr = [0.1]\nseed = [{}]", seeds.join(", "))).unwrap(), folder)
        .unwrap()
}

fn config(parallel: usize) -> SweepConfig {
    SweepConfig {
        parallel,
        // Scripts record no epoch from which the memory of a run could be estimated.
        memory: MemoryLimits { total_bytes: None, run_bytes: Some(1) },
        stop: Arc::default(),
    }
}

/// Executes a sweep whose runs are a script with the folder of the run as `$0`, the folder of the sweep as `$1` and the files of a
/// finished run in `$2`. Returns the outcome and the lines.
fn execute(sweep: &Sweep, config: &SweepConfig, script: &str) -> (SweepOutcome, Vec<String>) {
    let done = sweep.folder().parent().unwrap().join("done");
    write_finished(&done, 0.5, 0.5);
    let command = |run: &SweepRun| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(sweep.run_folder(run)).arg(sweep.folder()).arg(&done);
        Ok(command)
    };
    let mut lines = Vec::new();
    let outcome = sweep.execute(config, command, |line| lines.push(line.to_owned())).unwrap();
    (outcome, lines)
}

const FINISH: &str = "mkdir -p \"$0\" && cp \"$2\"/* \"$0\"";

#[test]
fn no_more_runs_than_allowed_are_trained_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    let sweep = open(&folder, 6);
    // The first runs wait until three have started.
    let script = format!(
        "touch \"$1/started-${{0##*/}}\"; tries=0; \
         while [ $(ls \"$1\" | grep -c started-) -lt 3 ]; do tries=$((tries + 1)); [ $tries -lt 3000 ] || exit 1; sleep 0.01; done; \
         {FINISH}"
    );
    let (outcome, lines) = execute(&sweep, &config(3), &script);
    assert_eq!(outcome, SweepOutcome::default(), "{lines:#?}");
    let mut n_running = 0;
    let mut counts = Vec::new();
    for line in &lines {
        n_running += usize::from(line.contains(" starts"));
        n_running -= usize::from(line.contains(" has finished"));
        counts.push(n_running);
    }
    assert_eq!((counts.len(), counts.iter().max(), n_running), (12, Some(&3), 0), "{lines:#?}");
    assert!(
        lines.iter().any(|line| line.ends_with("has finished (6 of 6), validation accuracy 0.5000")),
        "{lines:#?}"
    );
    // A sweep that is started again has nothing to do.
    let (outcome, lines) = execute(&sweep, &config(3), "exit 9");
    assert_eq!((outcome, lines), (SweepOutcome::default(), vec!["6 of 6 runs finished before".to_owned()]));
}

#[test]
fn without_a_declared_memory_runs_are_alone_until_one_has_an_epoch() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    let sweep = open(&folder, 3);
    let script = format!(
        "echo start >> \"$1/order\"; sleep 0.2; echo end >> \"$1/order\"; case $0 in *-0) exit 3;; esac; {FINISH}"
    );
    let unmeasured =
        SweepConfig { memory: MemoryLimits { total_bytes: Some(1 << 40), run_bytes: None }, ..config(3) };
    let (outcome, lines) = execute(&sweep, &unmeasured, &script);
    assert_eq!(outcome.failures.keys().collect::<Vec<_>>(), ["cell-001-seed-0"], "{lines:#?}");
    let order = fs::read_to_string(folder.join("order")).unwrap();
    let order: Vec<&str> = order.lines().collect();
    // The memory of a run that fails early is no estimate for the others.
    assert_eq!((order.len(), &order[..4]), (6, &["start", "end", "start", "end"][..]), "{order:?}");
}

#[test]
fn a_failed_run_has_the_last_line_of_its_log_and_is_tried_again() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    let sweep = open(&folder, 2);
    let script =
        format!("case $0 in *-1) echo first >&2; echo 'Error: no memory' >&2; exit 3;; esac; {FINISH}");
    let (outcome, lines) = execute(&sweep, &config(1), &script);
    assert_eq!(outcome.n_interrupted, 0);
    let failures: Vec<_> = outcome.failures.iter().collect();
    assert_eq!(failures.len(), 1, "{lines:#?}");
    assert_eq!(failures[0].0, "cell-001-seed-1");
    assert_eq!(failures[0].1, "exit status: 3: Error: no memory");
    let log = fs::read_to_string(folder.join("logs/cell-001-seed-1.log")).unwrap();
    assert!(log.starts_with("$ \"sh\"") && log.contains("first\n"), "{log}");
    // A process that succeeds without a result has failed, too; its log has no line of an earlier one.
    let (outcome, _) = execute(&sweep, &config(1), "exit 0");
    assert_eq!(outcome.failures["cell-001-seed-1"], "exit status: 0");
    let (outcome, _) = execute(&sweep, &config(1), FINISH);
    assert_eq!(outcome, SweepOutcome::default());
}

#[test]
fn a_stop_asks_the_runs_and_leaves_the_others() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    let sweep = open(&folder, 3);
    let stopped = config(2);
    let done = root.path().join("done");
    write_finished(&done, 0.5, 0.5);
    // `read` waits for a line of the pipe, as `stop_with_sweep` does.
    let command = |run: &SweepRun| {
        stopped.stop.store(true, Ordering::SeqCst);
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "read line && test -n \"$KILN_SUPERVISED\" && mkdir -p \"$0\" && cp \"$1\"/* \"$0\"",
        ]);
        command.arg(sweep.run_folder(run)).arg(&done);
        Ok(command)
    };
    let outcome = sweep.execute(&stopped, command, |_| ()).unwrap();
    // The run that was asked has finished, those that had not started are left.
    assert_eq!((outcome.failures.len(), outcome.n_interrupted), (0, 2));
    let states: Vec<String> =
        sweep.table(&outcome.failures).list_runs().rows.into_iter().map(|row| row[1].clone()).collect();
    assert_eq!(states, ["finished", "waiting", "waiting"]);
}

#[test]
fn a_run_is_interrupted_by_its_status_and_not_by_an_earlier_summary() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    let sweep = open(&folder, 1);
    let name = &sweep.runs()[0].name;
    write_finished(&folder.join(name), 0.5, 0.5);
    let summary = "{\"interrupted\": true, \"best_epoch\": 1, \"n_epochs\": 1}";
    fs::write(folder.join(name).join("summary.json"), summary).unwrap();
    let (outcome, lines) = execute(&sweep, &config(1), "echo 'Error: no data' >&2; exit 1");
    assert_eq!((outcome.n_interrupted, outcome.failures.len()), (0, 1), "{lines:#?}");
    assert_eq!(outcome.failures[name], "exit status: 1: Error: no data");
    // A signal from elsewhere, such as that of a system without memory, is a failure.
    let (outcome, lines) = execute(&sweep, &config(1), "kill -KILL $$");
    assert_eq!((outcome.n_interrupted, outcome.failures.len()), (0, 1), "{lines:#?}");
    let (outcome, lines) = execute(&sweep, &config(1), "exit 75");
    assert_eq!((outcome.n_interrupted, outcome.failures.len()), (1, 0), "{lines:#?}");
}

#[test]
fn a_run_with_a_result_has_finished_whatever_its_status() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    let sweep = open(&folder, 1);
    let script = format!("{FINISH}; echo 'Error: no page' >&2; exit 4");
    let (outcome, lines) = execute(&sweep, &config(1), &script);
    assert_eq!(outcome, SweepOutcome::default(), "{lines:#?}");
    let warning =
        "warning: cell-001-seed-0 has finished, but its process has failed: exit status: 4: Error: no page";
    assert_eq!(lines.last().map(String::as_str), Some(warning));
    let (_, lines) = execute(&sweep, &config(1), "exit 9");
    assert_eq!(lines, ["1 of 1 run finished before"]);
}
