//! The launches of a training step of each model at the shape of ogbn-products, whether each keeps all multiprocessors busy,
//! and whether no unit does the work of many.
//!
//! The graph is [generated](data): a batch of 1,024 seeds with the fanouts 15, 10 and 5 reads about 550,000 rows for 60,000,
//! 6,000 and 1,024 destinations, as one of ogbn-products does. Of most launches the stub executes a few cubes only,
//! and counts what they do, so a step takes seconds. The predicted time of a launch is the bytes, or the operations, of its
//! largest cube, divided by the rate of one multiprocessor, times the number of waves of cubes.

mod data;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use self::data::Data;
use super::launches::program;
use super::stub::Stub;
use super::trace::{Call, Launch, Trace, Work};
use crate::workspace;

/// A model whose launches must keep the multiprocessors busy.
#[derive(Debug, Clone, Copy)]
struct Model {
    name: &'static str,
    data: Data,
    flags: &'static str,
}

const fn model(name: &'static str, data: Data, flags: &'static str) -> Model {
    Model { name, data, flags }
}

/// Each kind of layer, loss and option at least once; a run takes about ten seconds, so options share runs.
const MODELS: [Model; 14] = [
    model("sage", Data::Nodes, ""),
    model("gcn", Data::Nodes, "--model gcn"),
    model("gat", Data::Nodes, "--model gat"),
    model("gatv2", Data::Nodes, "--model gatv2"),
    model("gine", Data::Nodes, "--model gine"),
    model("gine of edge types", Data::Nodes, "--model gine --edge-input types"),
    model("rgcn", Data::Nodes, "--model rgcn"),
    model(
        "sage with layer normalisation, clipping and label smoothing",
        Data::Nodes,
        "--norm layer --clip-grad-norm 1 --label-smoothing 0.1",
    ),
    model("sage of links", Data::Links, "--task link --embedding 256"),
    model(
        "transformer of links, bpr",
        Data::Links,
        "--model transformer --task link --embedding 256 --negatives 4 --loss bpr",
    ),
    model("rsage", Data::Relations, "--fanouts 4,3,1"),
    model("hgt, two layers", Data::Relations, "--model hgt --layers 2 --fanouts 4,3"),
    model("gin", Data::Graphs, "--model gin"),
    model("gin of several labels, learned epsilon", Data::Labels, "--model gin --learn-epsilon"),
];

/// The flags of all runs.
const FLAGS: &str = "--epochs 1 --seed 1 --workers 1 --batch-size 1024 --hidden 256 --device cuda:0";

/// The flags of all runs that sample.
const OF_SAMPLING: &str = "--val-batches 1 --graph-mode cpu";

/// The kernel of the updates, which are the last of a step.
const OF_OPTIMIZER: &str = "adam_kernel";

/// The fewest launches between the updates of two steps.
const FEWEST_LAUNCHES: usize = 10;

/// Parts of the names of Burn's kernels that add with one unit per column, or with float atomics, whose sums differ from run to run.
const SERIAL: [&str; 6] = ["select_assign", "scatter", "cumsum", "cumulative", "reduce", "shared_sum"];

/// The largest number of accesses of a unit at one place of the code.
const MOST_ACCESSES: u64 = 4_096;

/// The kernels of which the stub executes only the counted cubes: all but those that list edges by source (`clear`,
/// `count_…`, `place_…`, `sums_in_tiles`, `tile_sums`, and others with these first letters), because others read memory at indices from these lists. POSIX
/// expressions have no negation.
const SKIPPED: &str = "^([^cpst]|c[^lo]|co[^u]|s[^u])";

/// The number of cubes of a launch, evenly spaced, that are counted.
const N_COUNTED: usize = 8;

/// The kernels that may take longer than [`MOST_RATIO`]: the work of their units follows the lengths of lists, which differ
/// from source to source.
const UNEVEN: [&str; 1] = ["place_in_order"];

/// The number of multiprocessors of an H100 and of an H200.
const N_MULTIPROCESSORS: u64 = 132;

/// The bytes per second of a copy on an H100, read and written.
const BYTES_PER_SECOND: f64 = 3.0e12;

/// The same on an H200, which has the same multiprocessors.
const BYTES_PER_SECOND_OF_H200: f64 = 4.3e12;

/// The operations per second in f32 of an H100 without its tensor cores, from its data sheet.
const OPS_PER_SECOND: f64 = 67e12;

/// The predicted time from which a launch must keep the multiprocessors busy.
const LEAST_MICROSECONDS: f64 = 20.0;

/// The largest ratio of the predicted time to the time with all multiprocessors busy.
const MOST_RATIO: f64 = 2.0;

/// The launches in a step of one kernel with the same number of cubes, each of the same work.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    kernel: String,
    n_launches: usize,
    n_cubes: u64,
    /// The largest work of a cube and of a unit.
    work: Work,
    /// The bytes that all cubes move, as estimated from the counted ones.
    n_bytes: u64,
}

impl Row {
    /// Returns the predicted time of one launch on an H100.
    fn microseconds(&self) -> f64 {
        self.microseconds_at(BYTES_PER_SECOND)
    }

    /// Returns the predicted time of one launch on a GPU that copies this many bytes per second.
    fn microseconds_at(&self, bytes_per_second: f64) -> f64 {
        let seconds = |n: u64, per_second: f64| n as f64 / (per_second / N_MULTIPROCESSORS as f64);
        let of_bytes = seconds(self.work.n_bytes, bytes_per_second);
        let of_ops = seconds(self.work.n_ops, OPS_PER_SECOND);
        let n_turns = self.n_cubes.div_ceil(N_MULTIPROCESSORS) as f64;
        // A multiprocessor takes the next cube when one has ended, so that cubes of unequal sizes take at most as long as all
        // bytes on all multiprocessors and the largest cube after them (Graham 1969).
        let of_all_bytes = (self.n_bytes as f64 / bytes_per_second + of_bytes).min(n_turns * of_bytes);
        1e6 * of_all_bytes.max(n_turns * of_ops)
    }

    /// Returns the ratio of the predicted time to the time in which all multiprocessors would do the same work: all bytes,
    /// or as many operations in each cube as in the largest.
    fn ratio(&self) -> f64 {
        let bytes_seconds = self.n_bytes as f64 / BYTES_PER_SECOND;
        let ops_seconds = (self.n_cubes * self.work.n_ops) as f64 / OPS_PER_SECOND;
        self.microseconds() / (1e6 * bytes_seconds.max(ops_seconds))
    }

    /// Returns what is wrong with the launch.
    fn problems(&self) -> Vec<String> {
        let Self { kernel, n_cubes, work, .. } = self;
        let mut problems = Vec::new();
        if self.is_idle() {
            problems.push(format!(
                "{kernel} has {n_cubes} cubes and takes {:.0} µs, {:.1} times the time with all multiprocessors busy",
                self.microseconds(),
                self.ratio()
            ));
        }
        if MOST_ACCESSES < work.longest_site {
            problems.push(format!("a unit of {kernel} has {} accesses at one place", work.longest_site));
        }
        if SERIAL.iter().any(|part| kernel.contains(part)) {
            problems.push(format!("{kernel} of Burn adds in sequence or with atomics"));
        }
        problems
    }

    /// Returns true if the launch takes long because multiprocessors are idle.
    fn is_idle(&self) -> bool {
        !UNEVEN.contains(&&*self.kernel)
            && LEAST_MICROSECONDS < self.microseconds()
            && MOST_RATIO < self.ratio()
    }
}

/// The steps of some models.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// A table of the launches of each step that take longest.
    pub(super) launches: String,
    /// A row for each step, of the table that begins with [`SUMMARY`].
    pub(super) summary: String,
    /// A message for each launch that takes long because multiprocessors are idle, has a unit with the work of many, or is one
    /// of Burn's kernels that add in sequence.
    pub(super) problems: Vec<String>,
}

/// The head of the table of steps.
pub(super) const SUMMARY: &str = "| model at the shape of ogbn-products | launches per step | waits per step | cubes of the longest launch | accesses of the longest unit | ms on an H100, predicted | on an H200 |\n|---|---|---|---|---|---|---|\n";

/// Runs some steps of the models with these names, or of all.
///
/// # Errors
/// Returns an error if a run fails.
pub(super) fn measure(stub: &Stub, names: &[String]) -> Result<Steps> {
    let folder = stub.models().join("products");
    let mut steps = Steps::default();
    for model in MODELS.iter().filter(|model| names.is_empty() || names.iter().any(|name| name == model.name))
    {
        let name = model.name;
        let (rows, n_waits) =
            step(stub, *model, &folder).with_context(|| format!("{name} at products shape"))?;
        steps.launches += &table(name, &rows);
        steps.summary += &summary(name, &rows, n_waits);
        let of_rows = rows.iter().flat_map(Row::problems);
        steps.problems.extend(of_rows.map(|problem| format!("{name} at products shape: {problem}")));
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    Ok(steps)
}

/// Returns the launches of one step of a model, and the number of waits of the host.
fn step(stub: &Stub, model: Model, folder: &Path) -> Result<(Vec<Row>, usize)> {
    let data = model.data.write(folder)?;
    let trace_path = folder.join("trace");
    let out = folder.join("run");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let mut command = Command::new(program()?);
    command.arg("train").args(model.flags.split_whitespace()).args(FLAGS.split_whitespace());
    command.arg("--data").arg(&data).arg("--out").arg(&out);
    if !matches!(model.data, Data::Graphs | Data::Labels) {
        command.args(OF_SAMPLING.split_whitespace());
        for (flag, value) in [("--layers", "3"), ("--fanouts", "15,10,5")] {
            if !model.flags.contains(flag) {
                command.args([flag, value]);
            }
        }
    }
    stub.set(&mut command).env("CUDA_STUB_TRACE", &trace_path).stdout(Stdio::null());
    command.env("CUDA_STUB_SECTORS", N_COUNTED.to_string()).env("CUDA_STUB_SKIP", SKIPPED);
    workspace::run(&mut command)?;
    let mut trace = Trace::default();
    trace.read(&fs::read_to_string(&trace_path)?);
    let (launches, n_waits) = last_step(&trace)?;
    Ok((rows(&launches)?, n_waits))
}

/// Returns the launches of the last complete step, those after the last update of the step before, up to its own last update, and
/// the number of waits of the host for them.
///
/// # Errors
/// Returns an error if the trace has fewer than two steps.
fn last_step(trace: &Trace) -> Result<(Vec<&Launch>, usize)> {
    let is_update = |launch: &&Launch| launch.kernel.starts_with(OF_OPTIMIZER);
    let queue = &trace.launches().find(is_update).context("the trace has no step")?.queue;
    let calls: Vec<&Call> = trace
        .calls
        .iter()
        .filter(|call| match call {
            Call::Launch(launch) => launch.queue == *queue,
            // A wait for the whole device delays the steps.
            Call::Wait { queue: awaited } => awaited == queue || awaited == "?",
            Call::Copy { .. } => false,
        })
        .collect();
    let updates: Vec<usize> = (0..calls.len())
        .filter(|at| matches!(calls[*at], Call::Launch(launch) if is_update(&launch)))
        .collect();
    // The updates of a step follow each other.
    let ends = updates
        .iter()
        .enumerate()
        .filter(|(number, at)| updates.get(number + 1).is_none_or(|next| FEWEST_LAUNCHES < next - **at));
    let ends: Vec<usize> = ends.map(|(_, at)| at + 1).collect();
    let [.., start, end] = ends[..] else { bail!("the trace has fewer than two steps") };
    let step = &calls[start..end];
    let launches: Vec<&Launch> = step
        .iter()
        .filter_map(|call| match call {
            Call::Launch(launch) => Some(launch),
            Call::Wait { .. } | Call::Copy { .. } => None,
        })
        .collect();
    let n_waits = step.len() - launches.len();
    Ok((launches, n_waits))
}

/// Joins the launches of the same kernel, number of cubes and work. Those that take longest come first.
///
/// # Errors
/// Returns an error if a launch was not counted.
fn rows(launches: &[&Launch]) -> Result<Vec<Row>> {
    let mut rows: BTreeMap<(&str, u64, u64, u64), Row> = BTreeMap::new();
    for launch in launches {
        let work = launch.work.with_context(|| format!("{} was not counted", launch.kernel))?;
        let [read, wrote] = launch.accesses.with_context(|| format!("{} was not counted", launch.kernel))?;
        let key = (&*launch.kernel, launch.n_cubes, work.n_bytes, work.n_ops);
        let row = rows.entry(key).or_insert_with(|| Row {
            kernel: launch.kernel.clone(),
            n_launches: 0,
            n_cubes: launch.n_cubes,
            work,
            n_bytes: 32 * (read.sectors + wrote.sectors),
        });
        row.n_launches += 1;
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.sort_by(|a, b| b.microseconds().total_cmp(&a.microseconds()));
    Ok(rows)
}

/// Returns the row of a step in the table of steps.
fn summary(model: &str, rows: &[Row], n_waits: usize) -> String {
    let n_launches: usize = rows.iter().map(|row| row.n_launches).sum();
    let n_cubes = rows.first().map_or(0, |row| row.n_cubes);
    let longest = rows.iter().map(|row| row.work.longest_site).max().unwrap_or(0);
    let milliseconds = |bytes_per_second: f64| {
        let of_rows = rows.iter().map(|row| row.n_launches as f64 * row.microseconds_at(bytes_per_second));
        of_rows.sum::<f64>() / 1e3
    };
    let on_h100 = milliseconds(BYTES_PER_SECOND);
    let on_h200 = milliseconds(BYTES_PER_SECOND_OF_H200);
    format!("| {model} | {n_launches} | {n_waits} | {n_cubes} | {longest} | {on_h100:.1} | {on_h200:.1} |\n")
}

/// Returns a table of the launches of a step that take at least a tenth of [`LEAST_MICROSECONDS`].
fn table(model: &str, rows: &[Row]) -> String {
    let n_launches: usize = rows.iter().map(|row| row.n_launches).sum();
    let total: f64 = rows.iter().map(|row| row.n_launches as f64 * row.microseconds()).sum();
    let mut text = format!(
        "| {model}: {n_launches} launches, {total:.0} µs | launches | cubes | µs of each | ratio | accesses of a unit |\n\
         |---|---|---|---|---|---|\n"
    );
    for row in rows.iter().filter(|row| LEAST_MICROSECONDS / 10.0 <= row.microseconds()) {
        let microseconds = row.microseconds();
        let ratio = row.ratio();
        text += &format!(
            "| `{}` | {} | {} | {microseconds:.1} | {ratio:.2} | {} |\n",
            row.kernel, row.n_launches, row.n_cubes, row.work.longest
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(kernel: &str, n_cubes: u64, n_bytes: u64, n_ops: u64) -> Launch {
        let line = format!(
            "0.1 t1 launch {kernel}_0123abcd 0f grid {n_cubes} 1 1 block 256 1 1 shared 0 q1 d0 ms 0.1 skipped \
             longest 9 site 6 largest {n_bytes} {n_ops} read 6 requests {} sectors 768 bytes wrote 1 requests 0 sectors 0 bytes\n",
            n_cubes * n_bytes / 32
        );
        let mut trace = Trace::default();
        trace.read(&line);
        trace.launches().next().expect("the line should be a launch").clone()
    }

    #[test]
    fn a_launch_of_one_cube_is_idle_if_it_takes_long() {
        // 3e12 / 132 bytes per second and multiprocessor: 1 MB takes 44 µs.
        let sum = launch("sum", 1, 1_000_000, 0);
        let short = launch("short", 1, 100_000, 0);
        let busy = launch("busy", 132, 1_000_000, 0);
        let product = launch("product", 4, 0, 100_000_000);
        let rows = rows(&[&sum, &short, &busy, &busy, &product]).unwrap();
        let of = |name: &str| rows.iter().find(|row| row.kernel == name).unwrap();
        assert!((of("sum").microseconds() - 44.0).abs() < 0.1);
        assert!((of("product").microseconds() - 197.0).abs() < 0.1);
        assert_eq!(of("busy").n_launches, 2);
        assert!((of("busy").ratio() - 1.0).abs() < 1e-3);
        assert!(of("sum").is_idle() && of("product").is_idle());
        assert!(!of("short").is_idle() && !of("busy").is_idle());
        assert!(table("sage", &rows).starts_with("| sage: 5 launches, "));
    }
}
