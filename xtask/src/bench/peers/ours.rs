//! Our numbers: from benches, and from programs that are timed from outside.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;

use super::python::{Peers, Set};
use super::rows::Cell;
use crate::bench::Settings;
use crate::bench::ceilings::Machine;
use crate::bench::measure::{median, run_stage};
use crate::workspace;

/// The programs that are timed from outside.
const PROGRAMS: [&str; 2] = ["first_step", "node_classification"];

/// Steps after which peak memory is read: the loader's queue is full by then, and buffers are used again.
const MEMORY_STEPS: &str = "20";

/// How often a process is started; the median counts, for the first may wait until the system has found memory.
const STARTS: usize = 5;

/// Where a number of ours comes from.
#[derive(Debug)]
pub(super) enum Ours {
    /// The bench `stage/variant/SET`.
    Bench { set: Set, stage: &'static str, variant: &'static str, threads: u32, value: Value },
    /// Seconds from the start of a process, which opens a set and makes one step on two threads, to that step's end.
    FirstStep { set: Set },
    /// Peak anonymous bytes of a process that makes some steps, on two threads.
    Memory { set: Set },
    /// Validation accuracy of the example after five epochs, on two threads.
    Accuracy { set: Set },
}

/// What is read of a bench.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    /// Things a second.
    Rate,
    /// Milliseconds.
    Time,
}

impl Ours {
    /// The data set.
    pub(super) fn set(&self) -> Set {
        match *self {
            Self::Bench { set, .. }
            | Self::FirstStep { set }
            | Self::Memory { set }
            | Self::Accuracy { set } => set,
        }
    }
}

/// Builds the programs, with the features of everything else.
pub(super) fn build() -> Result<()> {
    let mut command = workspace::cargo()?;
    command.args(["build", "--quiet", "--release", "--locked", "--workspace"]);
    for program in PROGRAMS {
        command.args(["--bin", program]);
    }
    workspace::run(&mut command)
}

/// Measures once.
pub(super) fn measure(ours: &Ours, peers: &Peers, machine: &Machine) -> Result<Cell> {
    let of = |value| Cell { value, ceiling_fraction: None };
    match *ours {
        Ours::Bench { set, stage, variant, threads, value } => {
            let name = format!("{stage}/{variant}/{}", set.name());
            let settings = Settings {
                data: vec![peers.bench_data(set)],
                in_memory: peers.in_memory,
                fanouts: vec![format!("{}=15,10,5", Set::Products.name())],
                threads: Some(threads),
                only: Some(name.clone()),
                device: None,
            };
            let found = run_stage(stage, &settings, machine)?.into_iter().find(|bench| bench.name == name);
            let bench = found.with_context(|| format!("there is no bench {name}"))?;
            let value = match value {
                Value::Time => bench.median_ns / 1e6,
                Value::Rate => bench.rate().with_context(|| format!("bench {name} has no rate"))?.0,
            };
            Ok(Cell { value, ceiling_fraction: bench.ceiling_fraction })
        }
        Ours::FirstStep { set } => {
            let mut seconds = Vec::with_capacity(STARTS);
            for _ in 0..STARTS {
                seconds.push(seconds_to_first_line(&mut first_step(set, peers, "1")?)?);
            }
            seconds.sort_by(f64::total_cmp);
            Ok(of(median(&seconds)))
        }
        Ours::Memory { set } => {
            Ok(of(peak_anonymous_bytes(&mut first_step(set, peers, MEMORY_STEPS)?)? as f64))
        }
        Ours::Accuracy { set } => Ok(of(accuracy(set, peers)?)),
    }
}

fn first_step(set: Set, peers: &Peers, n_steps: &str) -> Result<Command> {
    let mut command = Command::new(program("first_step")?);
    command.arg(peers.bench_data(set)).arg(n_steps).env("RAYON_NUM_THREADS", "2");
    // The processor is compared.
    command.env_remove("KILN_DEVICE").env("KILN_BENCH_FANOUTS", format!("{}=15,10,5", Set::Products.name()));
    Ok(command)
}

/// Seconds from the start of a program to the line that it prints after its step.
fn seconds_to_first_line(command: &mut Command) -> Result<f64> {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().context("first_step cannot be started")?;
    let mut line = String::new();
    let output = child.stdout.take().context("first_step has no output")?;
    BufReader::new(output).read_line(&mut line).context("first_step cannot be read")?;
    let seconds = started.elapsed().as_secs_f64();
    let exit = child.wait().context("first_step cannot be waited for")?;
    ensure!(exit.success() && !line.is_empty(), "first_step ended with {exit}");
    Ok(seconds)
}

/// The most anonymous bytes of a program while it runs, looked at every millisecond: the system keeps no such mark.
fn peak_anonymous_bytes(command: &mut Command) -> Result<u64> {
    let mut child = command.stdout(Stdio::null()).spawn().context("first_step cannot be started")?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    let exit = loop {
        // Gone for a moment before its end is told.
        let text = fs::read_to_string(&status).unwrap_or_default();
        peak_kib = anonymous_kib(&text).unwrap_or(0).max(peak_kib);
        if let Some(exit) = child.try_wait().context("first_step cannot be waited for")? {
            break exit;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    ensure!(exit.success(), "first_step ended with {exit}");
    ensure!(0 < peak_kib, "the system does not say how much memory a process has");
    Ok(peak_kib * 1024)
}

fn anonymous_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// The example with DGL's settings; its validation is sampled, too.
fn accuracy(set: Set, peers: &Peers) -> Result<f64> {
    let out = workspace::root()?.join("target").join("peers").join("run");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("{} cannot be emptied", out.display()))?;
    }
    let mut command = Command::new(program("node_classification")?);
    command.arg("--data").arg(peers.bench_data(set)).arg("--out").arg(&out);
    let args =
        "--layers 3 --hidden 256 --dropout 0 --lr 0.01 --fanouts 10,10,10 --batch-size 1024 --epochs 5";
    workspace::stdout_of(command.args(args.split(' ')).args(["--threads-per-rank", "2"]))?;
    let path = out.join("metrics.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    last_accuracy(&text).with_context(|| format!("{} has no val_accuracy", path.display()))
}

/// That of the last epoch, as the peer's is.
fn last_accuracy(metrics: &str) -> Option<f64> {
    serde_json::from_str::<Json>(metrics.lines().last()?).ok()?["val_accuracy"].as_f64()
}

/// A program that was built beside this one.
fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program's own path is not known")?;
    Ok(own.with_file_name(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_read_of_a_process_status() {
        let status = "Name:\tx\nVmRSS:\t   50000 kB\nRssAnon:\t   12345 kB\nRssFile:\t  7 kB\n";
        assert_eq!(anonymous_kib(status), Some(12345));
        assert_eq!(anonymous_kib("Name:\tx\n"), None);
    }

    #[test]
    fn the_accuracy_is_the_last_epochs() {
        let text = "{\"epoch\": 1, \"val_accuracy\": 0.9}\n{\"epoch\": 2, \"val_accuracy\": 0.8}\n";
        assert_eq!(last_accuracy(text), Some(0.8));
        assert_eq!(last_accuracy("{\"epoch\": 1}"), None);
        assert_eq!(last_accuracy(""), None);
    }
}
