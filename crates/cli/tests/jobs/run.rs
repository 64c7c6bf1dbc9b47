//! Helpers of the tests in this folder.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_kiln");

/// The flags of all runs. An epoch of 4 ranks has 15 steps.
const FLAGS: &str = "--data fake:3000 --model gcn --hidden 64 --fanouts 5,5 --dropout 0.1 --lr 0.01 --weight-decay 0.0005 --val-batches 10 --loss-every 10 --threads-per-rank 1";

/// Returns the arguments of a run with this batch size per rank.
pub(crate) fn flags(epochs: usize, batch_size: usize) -> Vec<String> {
    let of_run = format!("train {FLAGS} --epochs {epochs} --batch-size {batch_size}");
    of_run.split(' ').map(str::to_owned).collect()
}

/// Runs a command to its end, and returns its output.
pub(crate) fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a command that must succeed, and returns its standard output and standard error.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}: {}", output.status, text(&output));
    text(&output)
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Learned {
    pub(crate) weights_hash: String,
    /// The training loss of each epoch.
    pub(crate) losses: Vec<f64>,
}

pub(crate) fn learned(folder: &Path) -> Learned {
    let read =
        |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    let loss = |line: &str| serde_json::from_str::<Value>(line).unwrap()["train_loss"].as_f64().unwrap();
    Learned {
        weights_hash: summary["weights_hash"].as_str().unwrap().to_owned(),
        losses: read("metrics.jsonl").lines().map(loss).collect(),
    }
}

/// Trains with ranks that are threads, and returns the results.
pub(crate) fn of_threads(folder: &Path, epochs: usize, n_ranks: usize, batch_size: usize) -> Learned {
    let out = folder.join(format!("threads-{n_ranks}-{batch_size}-{epochs}"));
    let mut command = Command::new(PROGRAM);
    command.args(flags(epochs, batch_size)).args(["--ranks", &n_ranks.to_string(), "--out"]).arg(&out);
    succeed(&mut command);
    learned(&out)
}

/// Serializes the tests, because each has more ranks than most machines have cores.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits at most ten minutes until the condition holds.
pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(Duration::from_secs(600), || what.to_owned(), is_so);
}

/// Waits at most `limit` until the condition holds. `what` describes it for the panic message.
pub(crate) fn until_within(limit: Duration, what: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < limit, "waited {limit:?} for {}", what());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the PIDs of the `kiln` processes with this folder among their arguments.
pub(crate) fn processes(folder: &Path) -> Vec<u32> {
    let folder = folder.to_str().unwrap();
    let is_one = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut words = line.split('\0');
        words.next() == Some(PROGRAM) && words.any(|word| word == folder)
    };
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(is_one).collect()
}

/// Returns the PID of the `kiln` process with this folder among its arguments whose environment variable `variable` has
/// the value `rank`.
pub(crate) fn process_of(folder: &Path, variable: &str, rank: usize) -> Option<u32> {
    let expected = format!("{variable}={rank}");
    processes(folder).into_iter().find(|pid| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == expected.as_bytes())
    })
}

pub(crate) fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap().success());
}

/// Prints a line about a skipped test, without `println!`, whose output the test harness captures.
pub(crate) fn skip(what: &str, reason: &str) {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "kiln-skip: other: {what}: {reason}").unwrap();
}

/// Waits for the run's next checkpoint, which implies that all its ranks have joined.
pub(crate) fn next_checkpoint(folder: &Path) {
    let path = folder.join("last/checkpoint.safetensors");
    let written = || fs::metadata(&path).and_then(|file| file.modified()).ok();
    let before = written();
    until("a checkpoint", || written().is_some_and(|now| Some(now) != before));
}

/// The time that a loaded machine may take in addition to a documented one.
const BUSY: Duration = Duration::from_secs(60);

/// Waits until the four ranks of a run have joined, calls `strike`, and checks that these processes exit within
/// `promised` and [`BUSY`].
pub(crate) fn over_within(promised: Duration, folder: &Path, strike: impl FnOnce()) {
    until("the ranks", || processes(folder).len() == 4);
    // Once the ranks have joined they watch each other. After a heartbeat interval, the reported stages are current.
    next_checkpoint(folder);
    std::thread::sleep(Duration::from_millis(700));
    let before = processes(folder);
    assert_eq!(before.len(), 4);
    strike();
    let struck = Instant::now();
    until("the end of the ranks", || processes(folder).iter().all(|pid| !before.contains(pid)));
    let took = struck.elapsed();
    println!("over after {:.2} s", took.as_secs_f64());
    assert!(took < promised + BUSY, "{took:?}");
}
