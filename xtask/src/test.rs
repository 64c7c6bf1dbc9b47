//! `cargo xtask test`: all tests that this machine can run, and what it could not.
//!
//! A test that finds that its machine lacks something ends early and says so with one line on standard
//! output, written past the capture of the test harness:
//!
//! ```text
//! writeln!(std::io::stdout(), "kiln-skip: gpu: neighbor_sum on CUDA: no CUDA device")
//! ```
//!
//! The words are the kind (`gpu`, `browser`, or `other`), what was skipped, and the reason.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::cuda_stub::{Stub, own_kernels};
use crate::{llvm, workspace};

/// Devices of the stub driver: several, so that ranks get one each, and sums have an order.
const N_STUB_DEVICES: usize = 3;

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also builds the device runtimes (CubeCL's CPU runtime, CUDA, NCCL) and, where they are installed, MPI and METIS, and runs the tests that need them, the device tests on CubeCL's CPU runtime
    #[arg(long, conflicts_with = "device")]
    all: bool,
    /// Runs only the tests of kernels, layers, sampling and programs, on this device: cuda, cuda:1, wgpu, cube-cpu
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    device: Option<String>,
    /// With --device cuda: runs them on a stub of the CUDA driver, which needs no GPU, and fails unless every kernel is launched
    #[arg(long, requires = "device")]
    stub: bool,
}

/// The test binaries that run on the device that the environment variable `KILN_DEVICE` names.
const DEVICE_TESTS: &[&str] = &["device", "sampler_large"];

/// The programs on a device, which are among all tests on CubeCL's CPU runtime.
const PROGRAM_TESTS: &str = "programs_on_devices";

/// The features of `--all`, of every device test and of the lints: one set, so that the dependencies are compiled once.
/// METIS's bindings need libclang, and MPI's the machine's own library.
pub(crate) fn all_features() -> &'static str {
    let has = |program: &&str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    match (has(&"clang"), ["mpicc", "mpirun"].iter().all(has)) {
        (true, true) => "cube-cpu,cuda,nccl,metis,mpi",
        (true, false) => "cube-cpu,cuda,nccl,metis",
        (false, _) => "cube-cpu,cuda,nccl",
    }
}

const MARKER: &str = "kiln-skip: ";

/// Something that was not tested, and why.
#[derive(Debug, Clone, PartialEq)]
struct Skip {
    what: String,
    reason: String,
    kind: Kind,
}

/// What was missing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Gpu,
    Browser,
    /// Another run of the tests.
    Run,
    /// Anything else, and tests that are ignored: not accepted where `CI=true`.
    Other,
}

impl Kind {
    fn is_accepted_in_ci(self) -> bool {
        matches!(self, Self::Gpu | Self::Browser | Self::Run)
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Gpu => "needs a GPU",
            Kind::Browser => "needs a browser",
            Kind::Run => "in another run",
            Kind::Other => "other",
        };
        write!(f, "{} ({kind}): {}", self.what, self.reason)
    }
}

/// What these tests leave out, on any machine.
fn standing_skips(all: bool) -> Vec<Skip> {
    let skip = |what: &str, reason: &str, kind| Skip { what: what.into(), reason: reason.into(), kind };
    let gpu =
        skip("kernels on a GPU", "`cargo xtask test --device cuda` (or wgpu) runs them there", Kind::Gpu);
    let runtimes = "device runtimes, MPI, NCCL, Slurm and METIS";
    let runtimes = skip(runtimes, "`cargo xtask test --all` runs their tests", Kind::Run);
    if all { vec![gpu] } else { vec![gpu, runtimes] }
}

/// One command of a run.
struct Part {
    name: &'static str,
    command: Command,
}

/// Runs the tests with their output shown as it comes, then the counts, the time of each part, and what was skipped.
pub(crate) fn run(args: Args) -> Result<()> {
    let start = Instant::now();
    let features = match &args.device {
        // Other GPUs need a runtime that `--all` has not.
        Some(device) if feature(device) == "wgpu" => "wgpu",
        Some(_) => all_features(),
        None if args.all => all_features(),
        None => "",
    };
    llvm::run_for(features)?;
    ensure!(!args.stub || args.device.as_deref().map(feature) == Some("cuda"), "--stub is for --device cuda");
    let stub = if args.stub { Some(Stub::build(N_STUB_DEVICES)?) } else { None };
    let mut parts = parts(&args, features)?;
    if let Some(stub) = &stub {
        for part in &mut parts {
            stub.run_tests(&mut part.command)?;
        }
    }
    let skips = if args.device.is_none() { standing_skips(args.all) } else { Vec::new() };
    let (mut tally, mut succeeded, mut times) = (Tally { skips, ..Tally::default() }, true, Vec::new());
    for Part { name, command } in parts {
        let part_start = Instant::now();
        succeeded &= read_output(command, &mut tally)?;
        times.push(format!("{name} {} s", part_start.elapsed().as_secs()));
    }

    println!("\n{} passed, {} failed, in {} s", tally.n_passed, tally.n_failed, start.elapsed().as_secs());
    println!("time: {}", times.join(", "));
    for test in &tally.failed {
        println!("    FAILED {test}");
    }
    println!("skipped:");
    for skip in &tally.skips {
        println!("    {skip}");
    }
    if let Some(stub) = &stub {
        print!("{}", stub.report(&own_kernels(&workspace::text_files(&workspace::paths()?)?))?);
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    match tally.verdict(succeeded, ci) {
        Some(complaint) => bail!(complaint),
        None => Ok(()),
    }
}

/// The build, which fails before any test runs, and the tests.
fn parts(args: &Args, features: &str) -> Result<Vec<Part>> {
    let part = |name, rest: &[&str], device: Option<&str>| -> Result<Part> {
        let mut command = cargo_test(features)?;
        command.args(rest);
        // Whoever set it meant the tests of devices.
        command.env_remove("KILN_DEVICE").envs(device.map(|device| ("KILN_DEVICE", device)));
        Ok(Part { name, command })
    };
    let of_device: Vec<&str> = DEVICE_TESTS.iter().flat_map(|test| ["--test", *test]).collect();
    let Some(device) = args.device.as_deref() else {
        let mut parts = vec![
            part("build", &["--all-targets", "--no-run"], None)?,
            part("tests", &["--all-targets"], None)?,
            part("documentation's examples", &["--doc"], None)?,
        ];
        if args.all {
            parts.push(part("device tests", &of_device, Some("cube-cpu"))?);
        }
        return Ok(parts);
    };
    let tests = [&of_device[..], &["--test", PROGRAM_TESTS]].concat();
    let build = part("build", &[&tests[..], &["--no-run"]].concat(), None)?;
    Ok(vec![build, part("device tests", &tests, Some(device))?])
}

fn cargo_test(features: &str) -> Result<Command> {
    let mut command = workspace::cargo()?;
    command.args([
        "test",
        "--profile",
        "tests",
        "--locked",
        "--workspace",
        "--no-fail-fast",
        "--features",
        features,
    ]);
    Ok(command)
}

/// Reads a device that a feature brings.
pub(crate) fn device(name: &str) -> Result<String, String> {
    match feature(name) {
        "cuda" | "wgpu" | "cube-cpu" => Ok(name.to_owned()),
        _ => {
            Err("expected cuda, cuda:N, wgpu, wgpu:N or cube-cpu; without --device, the processor is used"
                .into())
        }
    }
}

/// The feature that brings a device: its name without the number.
pub(crate) fn feature(device: &str) -> &str {
    device.split(':').next().unwrap_or(device)
}

/// Runs a command, passes its output on and counts it; whether it succeeded.
fn read_output(mut command: Command, tally: &mut Tally) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("`cargo test` does not start")?;
    let mut output = BufReader::new(child.stdout.take().expect("stdout should be piped, as asked for"));
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? != 0 {
        std::io::stdout().write_all(&line)?;
        tally.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// What the output of `cargo test` adds up to.
#[derive(Debug, Default)]
struct Tally {
    n_passed: u64,
    n_failed: u64,
    failed: Vec<String>,
    skips: Vec<Skip>,
}

impl Tally {
    fn read(&mut self, line: &str) {
        if let Some((_, skip)) = line.split_once(MARKER) {
            self.skips.push(parse_skip(skip));
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.n_passed += count_before(counts, " passed");
            self.n_failed += count_before(counts, " failed");
        } else if let Some((test, outcome)) =
            line.strip_prefix("test ").and_then(|test| test.split_once(" ... "))
        {
            if outcome == "FAILED" {
                self.failed.push(test.to_owned());
            } else if let Some(reason) = outcome.strip_prefix("ignored") {
                let reason = reason.trim_start_matches(", ");
                let reason = if reason.is_empty() { "it is marked as ignored" } else { reason };
                self.skips.push(Skip { what: test.into(), reason: reason.into(), kind: Kind::Other });
            }
        }
    }

    /// What is wrong with the run, if anything is.
    fn verdict(&self, cargo_succeeded: bool, ci: bool) -> Option<String> {
        let refused = self.skips.iter().filter(|skip| !skip.kind.is_accepted_in_ci()).count();
        if !cargo_succeeded {
            Some("`cargo test` failed".into())
        } else if self.n_passed == 0 {
            Some("no test ran".into())
        } else if ci && refused != 0 {
            Some(format!("{refused} of the skips need neither a GPU nor a browser, which CI=true forbids"))
        } else {
            None
        }
    }
}

/// `kind: what: reason`; a line that does not fit is a skip of its own, so that it is not lost.
fn parse_skip(text: &str) -> Skip {
    let mut parts = text.splitn(3, ": ");
    let kind = match parts.next() {
        Some("gpu") => Kind::Gpu,
        Some("browser") => Kind::Browser,
        _ => Kind::Other,
    };
    let what = parts.next().unwrap_or(text).to_owned();
    let reason = parts.next().unwrap_or("no reason given").to_owned();
    Skip { what, reason, kind }
}

/// The number that stands before `word`; zero when there is none.
fn count_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or("");
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        tally
    }

    const GREEN: &str = "test a ... ok\n\
        test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
        test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";

    fn skip(kind: Kind, what: &str, reason: &str) -> Skip {
        Skip { what: what.into(), reason: reason.into(), kind }
    }

    #[test]
    fn the_counts_of_all_binaries_add_up() {
        let tally = tally(GREEN);
        assert_eq!((tally.n_passed, tally.n_failed), (7, 0));
        assert_eq!(tally.verdict(true, true), None);
    }

    #[test]
    fn failed_tests_are_named_and_fail_the_run() {
        let output = "test a::b ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured\n";
        let tally = tally(output);
        assert_eq!((tally.n_passed, tally.n_failed), (2, 1));
        assert_eq!(tally.failed, ["a::b"]);
        assert!(tally.verdict(false, false).is_some());
    }

    #[test]
    fn a_run_without_a_test_fails() {
        assert_eq!(tally("").verdict(true, false).unwrap(), "no test ran");
    }

    #[test]
    fn a_gpu_skip_is_accepted_in_ci_and_another_is_not() {
        let gpu = tally(&format!("{GREEN}{MARKER}gpu: sums: no CUDA device: none found\n"));
        assert_eq!(gpu.skips, [skip(Kind::Gpu, "sums", "no CUDA device: none found")]);
        assert_eq!(gpu.verdict(true, true), None);
        let other = tally(&format!("{GREEN}test a ... {MARKER}other: speed-up: one core\n"));
        assert_eq!(other.skips, [skip(Kind::Other, "speed-up", "one core")]);
        assert!(other.verdict(true, true).is_some());
        assert_eq!(other.verdict(true, false), None);
    }

    #[test]
    fn an_ignored_test_is_a_skip_that_ci_refuses() {
        let tally = tally(&format!("{GREEN}test slow ... ignored, takes an hour\ntest bare ... ignored\n"));
        let expected = [
            skip(Kind::Other, "slow", "takes an hour"),
            skip(Kind::Other, "bare", "it is marked as ignored"),
        ];
        assert_eq!(tally.skips, expected);
        assert!(tally.verdict(true, true).is_some());
    }

    #[test]
    fn a_skip_of_an_unknown_kind_is_kept_and_refused() {
        assert_eq!(parse_skip("moon: x: y").kind, Kind::Other);
        assert_eq!(parse_skip("nonsense"), skip(Kind::Other, "nonsense", "no reason given"));
    }
}
