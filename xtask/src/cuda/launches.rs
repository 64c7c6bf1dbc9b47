//! The launches and waits of a training step and of a batch, of each model.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::kernels::Kernel;
use super::stub::Stub;
use super::trace::{Accesses, Call, Launch, Trace};
use crate::workspace;

/// A run of `kiln train` for one epoch.
struct Model {
    name: &'static str,
    flags: &'static str,
}

/// The flags of all runs on a graph: three layers, and several batches.
const OF_GRAPH: &str =
    "--data fake:3000 --layers 3 --fanouts 15,10,5 --batch-size 256 --hidden 8 --val-batches 1";

const MODELS: [Model; 5] = [
    Model { name: "sage, sampled on the device", flags: "--graph-mode device" },
    Model { name: "sage, staged neighbour lists", flags: "--graph-mode zero-copy" },
    Model { name: "sage, sampled on the CPU", flags: "--graph-mode cpu" },
    Model { name: "gcn, sampled on the device", flags: "--graph-mode device --model gcn" },
    Model { name: "gin", flags: "--data mutag --model gin --hidden 8" },
];

/// The kernel that a training step launches once: the gradient of the loss.
const OF_STEP: &str = "cross_entropy_adjoint_kernel";
/// The kernel that a loader launches once per batch: it gathers the feature rows.
const OF_BATCH: &str = "gather_f_";

/// The numbers of launches and of waits in a training step, and in the preparation of a batch by the loader's thread.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) step: (usize, usize),
    pub(super) batch: (usize, usize),
}

/// The counts of a model and the trace of its run.
pub(super) struct Run {
    pub(super) name: &'static str,
    pub(super) counts: Counts,
    pub(super) trace: Trace,
}

/// Trains each model on the stub for an epoch.
///
/// # Errors
/// Returns an error if a run fails, or if its trace has fewer than three steps.
pub(super) fn measure(stub: &Stub) -> Result<Vec<Run>> {
    MODELS.iter().map(|model| train(stub, model).with_context(|| model.name)).collect()
}

fn train(stub: &Stub, model: &Model) -> Result<Run> {
    let folder = stub.models();
    let (trace_path, out) = (folder.join("trace"), folder.join("run"));
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(program()?);
    let of_graph = if model.flags.contains("--data") { "" } else { OF_GRAPH };
    command.arg("train").args(of_graph.split_whitespace()).args(model.flags.split_whitespace());
    command.args("--device cuda:0 --seed 1 --workers 1 --epochs 1 --out".split(' ')).arg(&out);
    // Blocks are sampled evenly, so that their accesses represent all.
    command.env("CUDA_STUB_TRACE", &trace_path).env("CUDA_STUB_SECTORS", "8").stdout(Stdio::null());
    workspace::run(stub.set(&mut command))?;
    let mut trace = Trace::default();
    trace.read(&fs::read_to_string(&trace_path)?);
    fs::remove_dir_all(&folder)?;
    let counts = counts(&trace).with_context(|| "the trace has fewer than three steps")?;
    Ok(Run { name: model.name, counts, trace })
}

/// Returns the loads and the stores of each kernel in the runs, by the kernel's name.
pub(super) fn accesses(runs: &[Run], own: &[Kernel]) -> BTreeMap<String, [Accesses; 2]> {
    let mut total: BTreeMap<String, [Accesses; 2]> = BTreeMap::new();
    for launch in runs.iter().flat_map(|run| run.trace.launches()) {
        let Some(kernel) = own.iter().find(|kernel| kernel.is(&launch.kernel)) else { continue };
        let of_kernel = total.entry(kernel.to_string()).or_default();
        for (total, accesses) in of_kernel.iter_mut().zip(launch.accesses.unwrap_or_default()) {
            total.requests += accesses.requests;
            total.sectors += accesses.sectors;
        }
    }
    total
}

/// Returns the path of the program `kiln` that was built with the tests.
fn program() -> Result<PathBuf> {
    let path = workspace::root()?.join("target/tests/kiln");
    ensure!(path.exists(), "{} does not exist: run the step device-tests first", path.display());
    Ok(path)
}

/// Returns `None` if there are fewer than three steps.
fn counts(trace: &Trace) -> Option<Counts> {
    let step_queue = trace.launches().find(|launch| launch.kernel.starts_with(OF_STEP))?.queue.clone();
    let mut queues: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in &trace.calls {
        let (Call::Launch(Launch { queue, .. }) | Call::Wait { queue }) = call;
        queues.entry(queue).or_default().push(call);
    }
    let of_steps = parts(&queues[&*step_queue], OF_STEP);
    if of_steps.len() < 2 {
        return None;
    }
    let mut other_queues = queues.iter().filter(|(queue, _)| **queue != step_queue);
    let of_batches =
        other_queues.find_map(|(_, calls)| Some(parts(calls, OF_BATCH)).filter(|parts| !parts.is_empty()));
    Some(Counts { step: median(of_steps), batch: median(of_batches.unwrap_or_default()) })
}

/// Returns the numbers of launches and of waits from each launch of the kernel whose name begins with `kernel` to the
/// next.
fn parts(calls: &[&Call], kernel: &str) -> Vec<(usize, usize)> {
    let is_start = |call: &&Call| matches!(call, Call::Launch(launch) if launch.kernel.starts_with(kernel));
    let starts: Vec<usize> = (0..calls.len()).filter(|at| is_start(&calls[*at])).collect();
    let count = |part: &[&Call]| {
        let n_launches = part.iter().filter(|call| matches!(call, Call::Launch(_))).count();
        (n_launches, part.len() - n_launches)
    };
    starts.windows(2).map(|part| count(&calls[part[0]..part[1]])).collect()
}

/// Returns the upper median of the launches and its waits, or zeros. The first step also initializes the optimizer, and
/// a step whose sources have few edges needs fewer launches than others.
fn median(mut parts: Vec<(usize, usize)>) -> (usize, usize) {
    parts.sort_unstable();
    parts.get(parts.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(calls: &str) -> Trace {
        let mut trace = Trace::default();
        let line = |word: &str| match word.split_once('@') {
            Some(("wait", queue)) => format!("0.1 t1 wait event {queue}\n"),
            Some((kernel, queue)) => {
                format!("0.1 t1 launch {kernel}_0123abcd 0f grid 1 1 1 {queue} d0 ms 0.1\n")
            }
            None => unreachable!("the test gives each call a queue"),
        };
        trace.read(&calls.split(' ').map(line).collect::<String>());
        trace
    }

    #[test]
    fn counts_steps_and_batches_from_one_marker_to_the_next() {
        let step = "cross_entropy_adjoint_kernel@q2 adam@q2 sum@q2";
        let first = "cross_entropy_adjoint_kernel@q2 zeros@q2 zeros@q2 adam@q2 sum@q2";
        let batch = "gather_f_f32@q3 wait@q3 pick@q3";
        let eval = "eval@q2 eval@q2 eval@q2 eval@q2 eval@q2 eval@q2";
        let calls =
            ["init@q2 init@q2", batch, first, batch, step, "wait@q4 wait@q4", batch, step, step, eval];
        let expected = Counts { step: (3, 0), batch: (2, 1) };
        assert_eq!(counts(&trace(&calls.join(" "))), Some(expected));
        let waiting = step.replace("adam@q2", "wait@q2");
        let expected = Counts { step: (2, 1), batch: (0, 0) };
        assert_eq!(counts(&trace(&[&*waiting, &*waiting, &*waiting].join(" "))), Some(expected));
        assert_eq!(counts(&trace(&[step, step].join(" "))), None);
        assert_eq!(counts(&trace(batch)), None);
    }
}
