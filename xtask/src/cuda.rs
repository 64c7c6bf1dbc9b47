//! `cargo xtask check --cuda`: checks the CUDA path without a GPU.
//!
//! A [stub of the CUDA driver](stub) executes all device tests and trains each model. NVIDIA's assembler compiles each
//! of kiln's kernels that ran. The check fails if the stub ends a process, if a kernel was never launched, is rejected or
//! uses local memory, except for [`ACCEPTED_SPILLS`], if a [shuffle](shuffles) follows a branch without a synchronization,
//! if a long launch [leaves multiprocessors idle](shapes), and if the numbers of launches and waits or the table of
//! kernels differ from the committed ones.

mod assembler;
pub(crate) mod kernels;
mod launches;
mod shapes;
mod shuffles;
mod stub;
pub(crate) mod table;
mod toolkit;
mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use self::assembler::{AcceptedSpill, Module};
pub(crate) use self::stub::{Args, Stub, install_libdevice};
use crate::test;

/// The kernels that may spill, the kind of GPU, and the largest number of bytes. The assembler holds 64 warps of 32
/// registers rather than 48 of 40. A thread stores up to three values of 4 bytes and loads them again: before and after its
/// loop over positions, or once per iteration of a loop of eight positions and about a hundred instructions (`edge_dots`,
/// `long_segments`, one variant of `segment_sum`), where local memory of this size stays in the L1 cache. `pick` spills only
/// in the variants that exclude edges: a few values of the destination, around the walk over its excluded edges; so does
/// `place_known`.
/// `column_sums_kernel` stores two values before its loop over rows and loads them after it. One variant of
/// `chunk_sums`, for rows of the edges, loads seven values of 4 bytes again.
const ACCEPTED_SPILLS: [AcceptedSpill; 12] = [
    AcceptedSpill { kernel: "pick", arch: "sm_90a", n_bytes: 40, stack: 24 },
    AcceptedSpill { kernel: "place_known", arch: "sm_80", n_bytes: 36, stack: 16 },
    AcceptedSpill { kernel: "column_sums_kernel of f32", arch: "sm_90a", n_bytes: 16, stack: 8 },
    AcceptedSpill { kernel: "segment_sum of f32", arch: "sm_90a", n_bytes: 16, stack: 8 },
    AcceptedSpill { kernel: "chunk_sums of f32", arch: "sm_90a", n_bytes: 40, stack: 16 },
    AcceptedSpill { kernel: "chunk_sums of f32", arch: "sm_80", n_bytes: 12, stack: 8 },
    AcceptedSpill { kernel: "chunk_maxima of f32", arch: "sm_90a", n_bytes: 12, stack: 8 },
    AcceptedSpill { kernel: "edge_dots_kernel of f32", arch: "sm_80", n_bytes: 8, stack: 8 },
    AcceptedSpill { kernel: "long_segments of f16", arch: "sm_80", n_bytes: 8, stack: 8 },
    AcceptedSpill { kernel: "long_segments of bf16", arch: "sm_80", n_bytes: 8, stack: 8 },
    AcceptedSpill { kernel: "long_segments of f16", arch: "sm_90a", n_bytes: 24, stack: 16 },
    AcceptedSpill { kernel: "long_segments of bf16", arch: "sm_90a", n_bytes: 24, stack: 16 },
];

/// Builds the stub and runs a command on it, or measures steps of models.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(models) = &args.steps else { return stub::run(args) };
    let steps = shapes::measure(&Stub::build(args.devices)?, models)?;
    ensure!(!steps.summary.is_empty(), "no model has such a name: see MODELS in xtask/src/cuda/shapes.rs");
    println!("{}{}{}{}", steps.launches, shapes::SUMMARY, steps.summary, steps.problems.join("\n"));
    Ok(())
}

/// Runs the check. With `update`, writes the tables instead of comparing them with the committed ones.
///
/// # Errors
/// Returns an error that lists all problems.
pub(crate) fn check(update: bool) -> Result<()> {
    let mut part_start = Instant::now();
    let mut end_part = |name: &str| {
        println!("==> {name}: {:.0} s", part_start.elapsed().as_secs_f64());
        part_start = Instant::now();
    };
    let stub = test::run_on_stub()?;
    end_part("device tests on the stub driver");
    let runs = launches::measure(&stub)?;
    end_part("a run of each model");
    let steps = shapes::measure(&stub, &[])?;
    print!("{}", steps.launches);
    end_part("a step of each model at the shape of ogbn-products");
    let own = kernels::own()?;
    let trace = stub.read_traces()?;
    let launches = trace.launches().chain(runs.iter().flat_map(|run| run.trace.launches()));
    let mut modules: BTreeMap<&str, Module<'_>> = BTreeMap::new();
    for launch in launches {
        let Some(kernel) = kernels::find(&own, &launch.kernel) else { continue };
        let module = || Module { ptx: stub.ptx(&launch.module), kernel, shared: 0 };
        let module = modules.entry(&launch.module).or_insert_with(module);
        module.shared = module.shared.max(launch.shared);
    }
    let modules: Vec<Module<'_>> = modules.into_values().collect();
    let ptxas = toolkit::install_ptxas(&stub.toolkit())?;
    let (usages, mut problems) = assembler::assemble_all(&ptxas, &modules, &ACCEPTED_SPILLS)?;
    end_part("assembly of all kernels");
    problems.extend(shuffle_problems(&modules)?);
    problems.extend(steps.problems);
    problems.extend(launches::bf16_problem(&runs)?);
    let text = table::text(&runs, &steps.summary, &usages, &launches::accesses(&runs, &own));
    print!("{text}");
    problems.extend(table::compare(&text, update)?);
    for problem in &problems {
        println!("    {problem}");
    }
    ensure!(problems.is_empty(), "the CUDA path has {} problems", problems.len());
    Ok(())
}

/// Returns a message for each module of a kernel with shuffles in which one of them follows no synchronization.
fn shuffle_problems(modules: &[Module<'_>]) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for module in modules.iter().filter(|module| shuffles::KERNELS.contains(&&*module.kernel.name)) {
        let path = module.ptx.display();
        let text = fs::read_to_string(&module.ptx).with_context(|| format!("cannot read {path}"))?;
        match shuffles::unsynchronized(&text) {
            Ok(lines) => problems.extend(lines.iter().map(|line| {
                format!(
                    "{path}:{line}: a shuffle of {} follows no synchronization of all lanes",
                    module.kernel
                )
            })),
            Err(problem) => problems.push(format!("{path}: {}: {problem}", module.kernel)),
        }
    }
    Ok(problems)
}
