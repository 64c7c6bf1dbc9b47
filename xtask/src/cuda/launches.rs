//! The launches and waits of a training step and of a batch, of each model.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::kernels::{self, Kernel};
use super::stub::Stub;
use super::trace::{Accesses, Call, Launch, Trace};
use crate::workspace;

/// A run of `kiln train` for one epoch.
struct Model {
    name: &'static str,
    flags: &'static str,
}

/// The flags of all runs on a graph: three layers, and several batches.
const OF_GRAPH: &str = "--layers 3 --fanouts 15,10,5 --batch-size 256 --val-batches 1";

/// The names of the runs that differ in their precision only.
const IN_F32: &str = "sage, sampled on the device";
const IN_BF16: &str = "sage in bf16, sampled on the device";

/// The first two differ in the precision only. Their rows are several sectors long, so that narrower values are fewer sectors.
const MODELS: [Model; 8] = [
    Model { name: "sage, sampled on the device", flags: "--data fake:1500 --graph-mode device --hidden 64" },
    Model { name: IN_BF16, flags: "--data fake:1500 --graph-mode device --hidden 64 --precision bf16" },
    Model {
        name: "sage, staged neighbour lists",
        flags: "--data fake:3000 --graph-mode zero-copy --hidden 8",
    },
    Model { name: "sage, sampled on the CPU", flags: "--data fake:3000 --graph-mode cpu --hidden 8" },
    Model {
        name: "gcn, sampled on the device",
        flags: "--data fake:3000 --graph-mode device --hidden 8 --model gcn",
    },
    Model {
        name: "gat, sampled on the device",
        flags: "--data fake:3000 --graph-mode device --hidden 8 --model gat",
    },
    Model {
        name: "gatv2, sampled on the device",
        flags: "--data fake:3000 --graph-mode device --hidden 8 --model gatv2",
    },
    Model { name: "gin", flags: "--data mutag --model gin --hidden 8" },
];

/// The kernels of which the run in bf16 executes few cubes: products, which take the stub most of the time on tensor cores. Its
/// losses are meaningless, its launches and the accesses of other kernels are not changed.
const SKIPPED_IN_BF16: &str = "^matmul";

/// The first letters of the names of kernels that gather and aggregate rows.
const OF_ROWS: [&str; 5] =
    ["gather_f_", "segment_sum_f_", "chunk_sums_f_", "group_sums_f_", "long_segments_f_"];

/// The same of Burn's casts.
const OF_CAST: &str = "cast_element";

/// The largest share, in percent, of the bytes that gathers and aggregations move in f32 that they move in bf16: 55.6 on this
/// graph, 54.8 on one of twice as many nodes. Indices have the same size in both.
const MOST_IN_BF16: f64 = 56.0;

/// The kernel that a training step launches once: the gradient of the loss.
pub(super) const OF_STEP: &str = "cross_entropy_adjoint_kernel";
/// The kernel that a loader launches once per batch: it gathers the feature rows.
const OF_BATCH: &str = "gather_f_";

/// The largest numbers of launches and of waits in a training step, and in the preparation of a batch by the loader's
/// thread, without the first step and the first batch of a run.
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
    let trace_path = folder.join("trace");
    let out = folder.join("run");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(program()?);
    let of_graph = if model.flags.contains("--graph-mode") { OF_GRAPH } else { "" };
    command.arg("train").args(of_graph.split_whitespace()).args(model.flags.split_whitespace());
    command.args("--device cuda:0 --seed 1 --workers 1 --epochs 1 --out".split(' ')).arg(&out);
    stub.set(&mut command).env("CUDA_STUB_TRACE", &trace_path).stdout(Stdio::null());
    // The accesses of eight blocks per launch, evenly spaced, represent all.
    command.env("CUDA_STUB_SECTORS", "8");
    if model.flags.contains("bf16") {
        command.env("CUDA_STUB_SKIP", SKIPPED_IN_BF16);
    }
    workspace::run(&mut command)?;
    let mut trace = Trace::default();
    trace.read(&fs::read_to_string(&trace_path)?);
    fs::remove_dir_all(&folder)?;
    let counts = counts(&trace)?;
    Ok(Run { name: model.name, counts, trace })
}

/// Returns the loads and the stores of each kernel in the runs, by the kernel's name.
pub(super) fn accesses(runs: &[Run], own: &[Kernel]) -> BTreeMap<String, [Accesses; 2]> {
    let mut total: BTreeMap<String, [Accesses; 2]> = BTreeMap::new();
    for launch in runs.iter().flat_map(|run| run.trace.launches()) {
        let Some(kernel) = kernels::find(own, &launch.kernel) else { continue };
        let of_kernel = total.entry(kernel.to_string()).or_default();
        for (total, accesses) in of_kernel.iter_mut().zip(launch.accesses.unwrap_or_default()) {
            total.requests += accesses.requests;
            total.sectors += accesses.sectors;
        }
    }
    total
}

/// Returns a message if gathers and aggregations in bf16 move more than [`MOST_IN_BF16`] of the bytes that they move in f32,
/// and otherwise prints the share, and that of the casts between the two.
///
/// # Errors
/// Returns an error if there is no run of one precision, or if its accesses were not counted.
pub(super) fn bf16_problem(runs: &[Run]) -> Result<Option<String>> {
    let run = |name: &str| runs.iter().find(|run| run.name == name).context("there is no such run");
    let in_f32 = run(IN_F32)?;
    let in_bf16 = run(IN_BF16)?;
    let of_f32 = row_bytes(in_f32, &OF_ROWS)?;
    ensure!(0 < of_f32, "no launch of a gather or an aggregation was found");
    let percent = |n_bytes: u64| 100.0 * n_bytes as f64 / of_f32 as f64;
    let of_bf16 = percent(row_bytes(in_bf16, &OF_ROWS)?);
    let of_casts = percent(row_bytes(in_bf16, &[OF_CAST])?);
    let text = format!(
        "gathers and aggregations in bf16 move {of_bf16:.1} % of the bytes in f32, and casts {of_casts:.1} %"
    );
    println!("{text}");
    ensure!(0.0 < of_bf16, "no launch of a gather or an aggregation in bf16 was found");
    Ok((MOST_IN_BF16 < of_bf16).then(|| format!("{text}, at most {MOST_IN_BF16} % are accepted")))
}

/// Returns the bytes that kernels whose names begin so moved in a run.
fn row_bytes(run: &Run, kernels: &[&str]) -> Result<u64> {
    let launches = run.trace.launches();
    launches
        .filter(|launch| kernels.iter().any(|kernel| launch.kernel.starts_with(kernel)))
        .map(|launch| {
            let accesses = launch.accesses.with_context(|| format!("{} was not counted", launch.kernel))?;
            Ok(accesses.iter().map(|accesses| 32 * accesses.sectors).sum::<u64>())
        })
        .sum()
}

/// Returns the path of the program `kiln` that was built with the tests.
pub(super) fn program() -> Result<PathBuf> {
    let path = workspace::metadata()?.target_directory.join("tests/kiln").into_std_path_buf();
    ensure!(path.exists(), "the build of the device tests did not create {}", path.display());
    Ok(path)
}

/// Counts the launches and waits of steps and batches.
///
/// # Errors
/// Returns an error if there are fewer than three steps or batches, or if another queue than those of the steps and of
/// the loader has launches.
fn counts(trace: &Trace) -> Result<Counts> {
    let step_queue = trace.launches().find(|launch| launch.kernel.starts_with(OF_STEP));
    let step_queue = &step_queue.context("the trace has no step")?.queue;
    let mut queues: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in &trace.calls {
        let (Call::Launch(Launch { queue, .. }) | Call::Wait { queue } | Call::Copy { queue }) = call;
        // A wait for the whole device delays the steps.
        queues.entry(if queue == "?" { step_queue } else { queue }).or_default().push(call);
    }
    let steps = parts(&queues[&**step_queue], |call| is_launch_of(call, OF_STEP));
    let others = queues.into_iter().filter(|(queue, _)| queue != step_queue);
    // The loader copies to the device; the queue on which the runtime frees memory does not.
    let (loaders, others): (Vec<_>, Vec<_>) =
        others.partition(|(_, calls)| calls.iter().any(|call| matches!(call, Call::Copy { .. })));
    let stray = others.iter().find(|(_, calls)| calls.iter().any(|call| matches!(call, Call::Launch(_))));
    ensure!(stray.is_none(), "kernels are launched on another queue: {stray:?}");
    let batches = |calls: &Vec<&Call>| {
        let batches = parts(calls, |call| is_launch_of(call, OF_BATCH));
        // If the loader launches nothing, it waits once at the end of a batch.
        if batches.is_empty() { parts(calls, |call| matches!(call, Call::Wait { .. })) } else { batches }
    };
    let batches = loaders.iter().map(|(_, calls)| batches(calls)).max_by_key(Vec::len).unwrap_or_default();
    ensure!(2 <= steps.len().min(batches.len()), "the trace has fewer than three steps or batches");
    Ok(Counts { step: largest(&steps[1..]), batch: largest(&batches[1..]) })
}

fn is_launch_of(call: &Call, kernel: &str) -> bool {
    matches!(call, Call::Launch(launch) if launch.kernel.starts_with(kernel))
}

/// Returns the numbers of launches and of waits from each call for which `is_start` is true to the next.
fn parts(calls: &[&Call], is_start: impl Fn(&Call) -> bool) -> Vec<(usize, usize)> {
    let starts: Vec<usize> = (0..calls.len()).filter(|at| is_start(calls[*at])).collect();
    let count = |part: &[&Call]| {
        let n_launches = part.iter().filter(|call| matches!(call, Call::Launch(_))).count();
        let n_waits = part.iter().filter(|call| matches!(call, Call::Wait { .. })).count();
        (n_launches, n_waits)
    };
    starts.windows(2).map(|part| count(&calls[part[0]..part[1]])).collect()
}

/// Returns the largest number of launches and the largest number of waits.
fn largest(parts: &[(usize, usize)]) -> (usize, usize) {
    parts.iter().fold((0, 0), |(launches, waits), part| (launches.max(part.0), waits.max(part.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(calls: &str) -> Trace {
        let mut trace = Trace::default();
        trace.read(&calls.split(' ').map(|word: &str| match word.split_once('@') {
            Some(("wait", queue)) => format!("0.1 t1 wait event {queue}\n"),
            Some(("copy", queue)) => format!("0.1 t1 copy h2d 512 {queue}\n"),
            Some((kernel, queue)) => {
                format!(
                    "0.1 t1 launch {kernel}_0123abcd 0f grid 1 1 1 block 1 1 1 shared 0 {queue} d0 ms 0.1\n"
                )
            }
            None => unreachable!("the test gives each call a queue"),
        }).collect::<String>());
        trace
    }

    #[test]
    fn counts_steps_and_batches_from_one_marker_to_the_next() {
        let step = "cross_entropy_adjoint_kernel@q2 adam@q2 copy@q2 sum@q2";
        let first = "cross_entropy_adjoint_kernel@q2 zeros@q2 zeros@q2 adam@q2 sum@q2";
        let batch = "gather_f_f32@q3 copy@q3 wait@q3 pick@q3";
        let eval = "eval@q2 eval@q2 eval@q2 eval@q2 eval@q2 eval@q2";
        let calls =
            ["init@q2 init@q2", batch, first, batch, step, "wait@q4 wait@q4", batch, step, step, batch, eval];
        let expected = Counts { step: (3, 0), batch: (2, 1) };
        assert_eq!(counts(&trace(&calls.join(" "))).unwrap(), expected);
        // A step that has one more launch, and another that waits for the whole device.
        let more = format!("{step} more@q2");
        let waiting = format!("{step} wait@d0");
        let calls = [&calls[..calls.len() - 1], &[&*more, &*waiting, step]].concat();
        let expected = Counts { step: (4, 1), batch: (2, 1) };
        assert_eq!(counts(&trace(&calls.join(" "))).unwrap(), expected);
        // A loader without kernels.
        let copies = "copy@q3 copy@q3 wait@q3";
        let calls = [copies, first, copies, step, copies, step, copies, step];
        let expected = Counts { step: (3, 0), batch: (0, 1) };
        assert_eq!(counts(&trace(&calls.join(" "))).unwrap(), expected);
    }

    #[test]
    fn counts_need_three_steps_and_two_queues() {
        let step = "cross_entropy_adjoint_kernel@q2 adam@q2 copy@q3 wait@q3";
        let error = |calls: &[&str]| counts(&trace(&calls.join(" "))).unwrap_err().to_string();
        assert_eq!(error(&[step, step]), "the trace has fewer than three steps or batches");
        assert_eq!(error(&["gather_f_f32@q3"]), "the trace has no step");
        assert!(error(&[step, step, step, "sum@q5"]).starts_with("kernels are launched on another queue"));
    }
}
