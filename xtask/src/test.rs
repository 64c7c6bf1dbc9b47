//! `cargo xtask test`: runs all tests that this machine can run, and lists the skipped ones.
//!
//! A test whose requirements the machine does not meet returns early, and writes a line to standard output that the
//! test harness does not capture:
//!
//! ```text
//! writeln!(std::io::stdout(), "kiln-skip: gpu: neighbor_sum on CUDA: no CUDA device")
//! ```
//!
//! The line contains the kind (`gpu`, `browser`, `cpu`, `run` or `other`, see [`Kind`]), the skipped test and the reason.

mod binaries;
mod cpu_runtime;
mod passed;
mod runs;
mod tally;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use self::binaries::{Program, Tests};
use self::passed::{EXAMPLES, Inputs, Passed};
use self::tally::{Kind, Skip, Tally};
use crate::cuda::Stub;
use crate::{llvm, workspace};

/// The number of devices of the stub driver. Each rank uses its own device, and three ranks are the fewest with which
/// the result of a sum depends on the order of its terms.
const N_STUB_DEVICES: usize = 3;

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also builds the device runtimes (CubeCL's CPU runtime, CUDA, NCCL), METIS if clang is installed, and MPI if
    /// clang and MPI are installed, and runs the tests that need them; device tests run on CubeCL's CPU runtime
    #[arg(long, conflicts_with = "device")]
    all: bool,
    /// Runs only the tests that need what --all builds, and the unit tests of the libraries that it changes; for --all
    #[arg(long, requires = "all")]
    rest: bool,
    /// Runs only the tests of kernels, layers, sampling and programs, on this device: cuda, cuda:1, wgpu, cube-cpu
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    device: Option<String>,
    /// Uses a stub of the CUDA driver, without a GPU, and fails unless every kernel is launched; for --device cuda
    #[arg(long, requires = "device")]
    stub: bool,
    /// Repeats also what has passed and did not change since, as with CI=true
    #[arg(long)]
    again: bool,
    /// Fails if the compiler warns
    #[arg(long)]
    deny_warnings: bool,
}

/// The test binaries that run on the device that the environment variable `KILN_DEVICE` names.
const DEVICE_TESTS: &str = "device";

/// The test binaries that run programs on a device. Without `--device`, the device is CubeCL's CPU runtime, if that is
/// built in.
const PROGRAM_TESTS: &str = "devices";

/// The other test binaries of `--all`, with the parts of the names of those tests that need MPI, NCCL, METIS or Slurm, or
/// whose result depends on whether these are built in. An empty list selects all tests.
const FEATURE_TESTS: [(&str, &[&str]); 3] =
    [("assign", &[]), ("jobs", &[]), ("processes", &["mpi", "missing_engines"])];

/// The parts of the names of those tests of kernels that run on the stub as an A100, too, because they launch code that is
/// other code there: kernels of f16 and bf16 ("half_precision", "features" and "bias_dropout"), and matrix products, whose
/// tiles depend on the device. `cargo xtask check --cuda` checks that the code of kiln's other kernels is the same.
const A100_TESTS: &[&str] = &["half_precision", "features::", "dense::", "bias_dropout::"];

/// The parts of the names of those tests of kernels that run on the stub with partial warps, too, because they launch
/// kernels with operations of warps. The run fails if one of these kernels was not launched.
const PARTIAL_WARPS_TESTS: &[&str] = &["scan::", "sampler", "features::"];

/// The name of CubeCL's CPU runtime.
const CPU_RUNTIME: &str = "cube-cpu";

/// The slowest test binaries, in descending order of their time.
const LONGEST: &[&str] = &["programs", "processes", "servers"];

/// The test binaries that must not run beside others. The listed one starts a Slurm cluster on this machine.
const ALONE: &[&str] = &["kiln-cli jobs"];

/// The features of tests and lints without devices. `grpc` enables the examples whose ranks are processes, and
/// `http` the one that serves predictions.
pub(crate) const DEFAULT_FEATURES: &str = "grpc,http";

/// The packages of tests: all except [`KIT`].
pub(crate) const PACKAGES: [&str; 3] = ["--workspace", "--exclude", KIT];

/// The package of the programs for GPU machines. Its tests are those of other packages, linked once more.
pub(crate) const KIT: &str = "kiln-gpu-kit";

/// Returns the features of runs with `--all`, of runs with `--device` except wgpu, and of the lints with devices. All
/// of these use one set of features, so that dependencies are compiled once. METIS's and MPI's bindings need libclang,
/// and MPI's also need an installed MPI library.
pub(crate) fn all_features() -> &'static str {
    let has = |program: &&str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    match (has(&"clang"), ["mpicc", "mpirun"].iter().all(has)) {
        (true, true) => "grpc,http,cube-cpu,cuda,kernel-cache,nccl,metis,mpi",
        (true, false) => "grpc,http,cube-cpu,cuda,kernel-cache,nccl,metis",
        (false, _) => "grpc,http,cube-cpu,cuda,kernel-cache,nccl",
    }
}

/// Returns the tests that a run without `--device` skips on every machine. `all` is true in runs with `--all`.
fn standing_skips(all: bool) -> Vec<Skip> {
    let skip = |what: &str, reason: &str, kind| Skip { what: what.into(), reason: reason.into(), kind };
    let gpu = skip("kernels on a GPU", "`cargo xtask test --device cuda` (or wgpu) runs them", Kind::Gpu);
    let runtimes = "device runtimes, MPI, NCCL, Slurm and METIS";
    let runtimes = skip(runtimes, "`cargo xtask test --all` runs their tests", Kind::Run);
    if all { vec![gpu] } else { vec![gpu, runtimes] }
}

/// Builds the tests and runs them, then prints the counts, the time of each part, and what was skipped.
pub(crate) fn run(args: Args) -> Result<()> {
    run_tests(args).map(|_| ())
}

/// Runs the device tests on the stub driver, and returns the stub with the traces of the run.
pub(crate) fn run_on_stub() -> Result<Stub> {
    let device = Some("cuda".to_owned());
    let args = Args { all: false, rest: false, device, stub: true, again: false, deny_warnings: false };
    run_tests(args)?.context("the tests should have run on the stub")
}

/// Returns the stub on which the tests ran, if they ran on it.
fn run_tests(args: Args) -> Result<Option<Stub>> {
    let start = Instant::now();
    let features = match &args.device {
        // The features of `--all` do not include `wgpu`, the runtime of GPUs that CUDA does not support.
        Some(device) if feature(device) == "wgpu" => "grpc,http,wgpu",
        Some(_) => all_features(),
        None if args.all => all_features(),
        None => DEFAULT_FEATURES,
    };
    llvm::run_for(features)?;
    ensure!(!args.stub || args.device.as_deref().map(feature) == Some("cuda"), "--stub needs --device cuda");
    let stub = if args.stub { Some(Stub::build(N_STUB_DEVICES)?) } else { None };
    let skips = if args.device.is_none() { standing_skips(args.all) } else { Vec::new() };
    let mut tally = Tally { skips, ..Tally::default() };
    let mut times = Vec::new();
    let mut part_start = start;
    let mut end_part = |name: &str| {
        times.push(format!("{name} {} s", part_start.elapsed().as_secs()));
        part_start = Instant::now();
    };

    let packages = packages(&args, features)?;
    let mut build = cargo_test(features, &packages)?;
    build.args(targets(&args));
    let Tests { binaries, programs, libraries, has_warnings } = binaries::build(build)?;
    end_part("build");

    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut runs = runs::of(&args, &binaries, stub.as_ref())?;
    let mut passed = if ci { None } else { passed(&args, features, programs)? };
    if let Some(passed) = &mut passed {
        runs.retain(|run| args.again || !tally.keep(passed.skips(&passed.run(run))));
        passed.begin(runs.iter().map(|run| passed.run(run)).collect())?;
    }
    let logs = if args.all { Some(cpu_runtime::Logs::create()?) } else { None };
    if let Some(logs) = &logs {
        runs.extend(runs::on_cpu_runtime(&binaries, logs)?);
    }
    // Device tests share one device and count its launches, so they must not overlap. On CubeCL's CPU runtime and on the
    // stub driver, each process has a device of its own.
    let shares_device = !args.stub && args.device.as_ref().is_some_and(|device| device != CPU_RUNTIME);
    let at_once = if shares_device { 1 } else { std::thread::available_parallelism()?.get() };
    // Under load, Slurm may declare its nodes lost, so its tests run alone.
    let (alone, beside) = runs.into_iter().partition(|run| ALONE.iter().any(|test| run.name.ends_with(test)));
    tally.add(binaries::run_all(beside, at_once, std::io::stdout())?);
    tally.add(binaries::run_all(alone, 1, std::io::stdout())?);
    end_part("tests");
    // No feature of `--all` adds an example of the documentation.
    if args.device.is_none() && !args.rest {
        let subject = passed.as_ref().map(|passed| passed.examples(&libraries));
        let skips = passed.as_ref().zip(subject.as_ref()).and_then(|(passed, subject)| passed.skips(subject));
        if args.again || !tally.keep(skips) {
            if let Some((passed, subject)) = passed.as_mut().zip(subject) {
                passed.begin(vec![subject])?;
            }
            let mut examples = cargo_test(features, &packages)?;
            examples.arg("--doc");
            tally.add(run_examples(examples)?);
            end_part("doc examples");
        }
    }
    if let Some(passed) = passed {
        passed.end(std::mem::take(&mut tally.passed))?;
    }

    println!("\n{} passed, {} failed, in {} s", tally.n_passed, tally.n_failed, start.elapsed().as_secs());
    if tally.n_unchanged != 0 {
        let n_unchanged = tally.n_unchanged;
        println!("not repeated, because nothing has changed since they passed: {n_unchanged} (see --again)");
    }
    println!("time: {}", times.join(", "));
    for test in &tally.failed {
        println!("    FAILED {test}");
    }
    println!("skipped:");
    for skip in &tally.skips {
        println!("    {skip}");
    }
    if let Some(stub) = &stub {
        print!("{}", stub.report(true)?);
    }
    if let Some(logs) = &logs {
        logs.check()?;
    }
    ensure!(!(args.deny_warnings && has_warnings), "the compiler warned");
    match tally.verdict(ci) {
        Some(complaint) => bail!(complaint),
        None => Ok(stub),
    }
}

/// Returns the packages to test, as arguments of cargo. Runs on a device select those of `--rest` and all others with
/// device tests: for another selection, cargo may compile their dependencies again with other features.
fn packages(args: &Args, features: &str) -> Result<Vec<String>> {
    if !args.rest && args.device.is_none() {
        return Ok(PACKAGES.map(str::to_owned).to_vec());
    }
    let default = workspace::metadata_of_features(DEFAULT_FEATURES)?;
    let featured = workspace::metadata_of_features(features)?;
    let mut packages = binaries::with_other_features(&default, &featured);
    if args.device.is_some() {
        packages.extend(binaries::with_targets(&featured, &[DEVICE_TESTS, PROGRAM_TESTS]));
    }
    packages.remove(KIT);
    Ok(packages.into_iter().flat_map(|package| ["--package".to_owned(), package]).collect())
}

/// Returns the test targets to build, as arguments of cargo. No argument selects all: `--all-targets` would also build the
/// programs that have `test = false`, a second time as tests.
fn targets(args: &Args) -> Vec<&'static str> {
    if args.device.is_none() && !args.rest {
        return Vec::new();
    }
    let mut targets = vec!["--test", DEVICE_TESTS, "--test", PROGRAM_TESTS];
    if args.rest {
        targets.push("--lib");
        targets.extend(FEATURE_TESTS.iter().flat_map(|(target, _)| ["--test", *target]));
    }
    targets
}

fn cargo_test(features: &str, packages: &[String]) -> Result<Command> {
    let mut command = workspace::cargo()?;
    command.args("test --profile tests --locked --no-fail-fast".split(' ')).args(packages);
    command.args(["--features", features]);
    Ok(command)
}

/// Returns `name` unchanged if it names a device that needs a feature, such as `cuda:1`, and otherwise an error.
pub(crate) fn device(name: &str) -> Result<String, String> {
    match feature(name) {
        "cuda" | "wgpu" | "cube-cpu" => Ok(name.to_owned()),
        _ => {
            Err("expected cuda, cuda:N, wgpu, wgpu:N or cube-cpu; without --device, tests run on the CPU"
                .into())
        }
    }
}

/// Returns the feature that a device needs: its name without the number.
pub(crate) fn feature(device: &str) -> &str {
    device.split(':').next().unwrap_or(device)
}

/// Returns what has passed before with these features. Returns `None` if that is not known: without git, and on devices,
/// where results also depend on the driver, or on what the stub records of all runs.
fn passed(args: &Args, features: &str, programs: Vec<Program>) -> Result<Option<Passed>> {
    if args.device.is_some() {
        return Ok(None);
    }
    let Ok(inputs) = Inputs::read() else { return Ok(None) };
    let folder = workspace::metadata()?.target_directory.into_std_path_buf().join("tests");
    Ok(Some(Passed::read(folder.join(format!("passed.{features}.json")), programs, inputs)))
}

/// Runs the examples of the documentation, forwards their output, and returns their results.
fn run_examples(mut command: Command) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start `cargo test`")?;
    let mut output = BufReader::new(child.stdout.take().expect("stdout should be piped"));
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? != 0 {
        std::io::stdout().write_all(&line)?;
        tally.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    if child.wait()?.success() {
        tally.ends_well(EXAMPLES);
    } else if tally.n_failed == 0 {
        tally.failed.push("cargo test --doc".to_owned());
    }
    Ok(tally)
}
