//! Our numbers: from benches, and from programs that are timed from outside.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::python::{Peers, Set};
use super::rows::Cell;
use crate::bench::Settings;
use crate::bench::ceilings::Machine;
use crate::bench::measure::run_stage;
use crate::workspace;

/// The programs that are timed from outside.
const PROGRAMS: [&str; 2] = ["first_step", "node_classification"];

/// Steps after which peak memory is read: the loader's queue is full by then, and buffers are used again.
const MEMORY_STEPS: &str = "20";

/// Where a number of ours comes from.
#[derive(Debug)]
pub(super) enum Ours {
    /// The bench `stage/variant/SET`.
    Bench { set: Set, stage: &'static str, variant: &'static str, threads: u32, value: Value },
    /// Seconds from the start of a process to its end, which opens a set and makes one step, on two threads.
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
            let mut command = first_step(set, peers, "1")?;
            let started = Instant::now();
            workspace::stdout_of(&mut command)?;
            Ok(of(started.elapsed().as_secs_f64()))
        }
        Ours::Memory { set } => {
            let said: Json =
                serde_json::from_str(&workspace::stdout_of(&mut first_step(set, peers, MEMORY_STEPS)?)?)?;
            let bytes = said["peak_rss_anon_bytes"].as_f64();
            Ok(of(bytes.context("first_step printed no peak_rss_anon_bytes")?))
        }
        Ours::Accuracy { set } => Ok(of(accuracy(set, peers)?)),
    }
}

fn first_step(set: Set, peers: &Peers, n_steps: &str) -> Result<Command> {
    let mut command = Command::new(program("first_step")?);
    command.arg(peers.bench_data(set)).arg(n_steps).env("RAYON_NUM_THREADS", "2");
    command.env("KILN_BENCH_FANOUTS", format!("{}=15,10,5", Set::Products.name()));
    Ok(command)
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
    fn the_accuracy_is_the_last_epochs() {
        let text = "{\"epoch\": 1, \"val_accuracy\": 0.9}\n{\"epoch\": 2, \"val_accuracy\": 0.8}\n";
        assert_eq!(last_accuracy(text), Some(0.8));
        assert_eq!(last_accuracy("{\"epoch\": 1}"), None);
        assert_eq!(last_accuracy(""), None);
    }
}
