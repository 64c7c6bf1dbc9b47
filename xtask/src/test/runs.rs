//! The runs of the test binaries: which tests run where.

use anyhow::Result;

use super::binaries::{Binary, Run};
use super::cpu_runtime::{self, Logs};
use super::{
    A100_TESTS, Args, CPU_RUNTIME, DEVICE_TESTS, FEATURE_TESTS, LONGEST, PARTIAL_WARPS_TESTS, PROGRAM_TESTS,
};
use crate::cuda::Stub;

/// Returns the runs of the test binaries: one run per binary. With `--all`, those of [`on_cpu_runtime`] follow.
///
/// # Errors
/// Returns an error if a binary does not list its tests, or has no test of a chosen name.
pub(super) fn of(args: &Args, binaries: &[Binary], stub: Option<&Stub>) -> Result<Vec<Run>> {
    if let Some(stub) = stub {
        return on_stub(binaries, stub);
    }
    match args.device.as_deref() {
        Some(CPU_RUNTIME) => {
            let mut runs = Vec::new();
            for binary in binaries {
                runs.extend(binary.run_each(Some(CPU_RUNTIME), &[])?);
            }
            Ok(runs)
        }
        Some(device) => Ok(binaries.iter().map(|binary| binary.run(Some(device))).collect()),
        None => without_device(args, binaries),
    }
}

/// Returns the runs of the chosen tests on CubeCL's CPU runtime. Programs name the device themselves.
///
/// # Errors
/// Same as [`of`].
pub(super) fn on_cpu_runtime(binaries: &[Binary], logs: &Logs) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for binary in binaries {
        let parts = cpu_runtime::tests_of(&binary.package);
        if parts.is_empty() {
            continue;
        }
        match binary.target.as_str() {
            PROGRAM_TESTS => runs.extend(binary.run_each(None, parts)?),
            DEVICE_TESTS => {
                for mut run in binary.run_each(Some(CPU_RUNTIME), parts)? {
                    logs.set(&mut run, runs.len());
                    runs.push(run);
                }
            }
            _ => {}
        }
    }
    Ok(runs)
}

fn without_device(args: &Args, binaries: &[Binary]) -> Result<Vec<Run>> {
    let mut sorted: Vec<&Binary> = binaries.iter().collect();
    // The slowest binaries start first, so that the others run concurrently with them.
    sorted.sort_by_key(|binary| {
        LONGEST.iter().position(|test| *test == binary.target).unwrap_or(LONGEST.len())
    });
    let mut runs = Vec::new();
    for binary in &sorted {
        let of_features = FEATURE_TESTS.iter().find(|(target, _)| *target == binary.target);
        match of_features {
            Some((_, parts)) if args.rest => runs.push(binary.run_of(None, parts)?),
            _ if args.rest && !binary.is_lib => {}
            _ if args.all && binary.target == PROGRAM_TESTS => {}
            _ => runs.push(binary.run(None)),
        }
    }
    Ok(runs)
}

/// Returns the runs on the stub driver, the longest first: all binaries on an H200, [`PARTIAL_WARPS_TESTS`] also with
/// partial warps, and [`A100_TESTS`] on an A100.
///
/// # Errors
/// Returns an error if a binary does not list its tests, or has no test of a chosen name.
fn on_stub(binaries: &[Binary], stub: &Stub) -> Result<Vec<Run>> {
    let (kernels, mut others): (Vec<&Binary>, Vec<&Binary>) =
        binaries.iter().partition(|binary| binary.package == "kiln-kernels" && binary.target == DEVICE_TESTS);
    others.sort_by_key(|binary| binary.target != PROGRAM_TESTS);
    let on = |Run { name, mut command }: Run, mode: &str, vars: &[(&str, &str)]| {
        // Property tests draw the same values in every run, so that every run launches the same variants of kernels.
        stub.set(&mut command).env("PROPTEST_RNG_SEED", "1").envs(vars.iter().copied());
        Run { name: format!("{name}, {mode}"), command }
    };
    let mut runs: Vec<Run> =
        kernels.iter().chain(&others).map(|binary| on(binary.run(Some("cuda")), "H200", &[])).collect();
    // The memory of the stub's devices is memory of the host, in which two graphs of 9 GB may not fit at the same time.
    let partial = [("CUDA_STUB_PARTIAL_WARPS", "1"), ("KILN_LARGE", "0")];
    for binary in &kernels {
        let run = binary.run_of(Some("cuda"), PARTIAL_WARPS_TESTS)?;
        runs.push(on(run, "H200 with partial warps", &partial));
    }
    let a100 = [("CUDA_STUB_ARCH", "80"), ("KILN_LARGE", "0")];
    for binary in &kernels {
        runs.push(on(binary.run_of(Some("cuda"), A100_TESTS)?, "A100", &a100));
    }
    Ok(runs)
}
