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

use anyhow::{Context, Result, bail};

use crate::{llvm, workspace};

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs only the tests of kernels, layers, sampling and programs, on this device: cuda, cuda:1, wgpu, cube-cpu
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    device: Option<String>,
}

/// The tests that run on any device, by the name in the environment variable `KILN_DEVICE`.
const DEVICE_TESTS: &[&str] = &[
    "devices",
    "ops",
    "own",
    "segments",
    "maxima",
    "rows",
    "gradient",
    "half_precision",
    "dropout",
    "dense",
    "sage",
    "gcn",
    "gin",
    "gin_init",
    "exchange",
    "parity",
    "norm",
    "sampler",
    "sampler_large",
    "features",
    "device_nodes",
];

/// The programs on a device, which are among all tests on CubeCL's CPU runtime.
const PROGRAM_TESTS: &str = "programs_on_devices";

/// What is built for all tests of a machine without a GPU: one set of features, so that the world is built once. METIS's
/// bindings are made by libclang, as MPI's are from the machine's own library.
pub(crate) fn features() -> &'static str {
    let has = |program: &&str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    match (has(&"clang"), ["mpicc", "mpirun"].iter().all(has)) {
        (true, true) => "cube-cpu,tls,kiln-job/nccl,metis,mpi",
        (true, false) => "cube-cpu,tls,kiln-job/nccl,metis",
        (false, _) => "cube-cpu,tls,kiln-job/nccl",
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
    /// Anything else, and tests that are ignored: not accepted where `CI=true`.
    Other,
}

impl Kind {
    fn is_accepted_in_ci(self) -> bool {
        matches!(self, Self::Gpu | Self::Browser)
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Gpu => "needs a GPU",
            Kind::Browser => "needs a browser",
            Kind::Other => "other",
        };
        write!(f, "{} ({kind}): {}", self.what, self.reason)
    }
}

/// What none of these tests could run, on any machine.
fn standing_skips() -> Vec<Skip> {
    vec![Skip {
        what: "kernels on a GPU".into(),
        reason: "`cargo xtask test --device cuda` (or wgpu) runs them there".into(),
        kind: Kind::Gpu,
    }]
}

/// Runs the tests with their output shown as it comes, then the counts and what was skipped.
pub(crate) fn run(args: Args) -> Result<()> {
    let start = Instant::now();
    let features = match &args.device {
        Some(device) => feature(device),
        None => features(),
    };
    llvm::run_for(features)?;
    let (mut tally, commands) = match &args.device {
        Some(device) => {
            let mut tests = device_tests(features, device)?;
            tests.args(["--test", PROGRAM_TESTS]);
            (Tally::default(), vec![tests])
        }
        None => {
            let mut all = cargo_test(features)?;
            // Whoever set it meant the tests of devices.
            all.env_remove("KILN_DEVICE");
            let tally = Tally { skips: standing_skips(), ..Tally::default() };
            (tally, vec![all, device_tests(features, "cube-cpu")?])
        }
    };
    let mut succeeded = true;
    for command in commands {
        succeeded &= read_output(command, &mut tally)?;
    }

    println!("\n{} passed, {} failed, in {} s", tally.n_passed, tally.n_failed, start.elapsed().as_secs());
    for test in &tally.failed {
        println!("    FAILED {test}");
    }
    println!("skipped:");
    for skip in &tally.skips {
        println!("    {skip}");
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    match tally.verdict(succeeded, ci) {
        Some(complaint) => bail!(complaint),
        None => Ok(()),
    }
}

fn cargo_test(features: &str) -> Result<Command> {
    let mut command = workspace::cargo()?;
    command.args(["test", "--release", "--locked", "--workspace", "--no-fail-fast", "--features", features]);
    Ok(command)
}

/// The tests of kernels and layers on a device.
fn device_tests(features: &str, device: &str) -> Result<Command> {
    let mut command = cargo_test(features)?;
    command.args(DEVICE_TESTS.iter().flat_map(|test| ["--test", test])).env("KILN_DEVICE", device);
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
