//! The summary of test output: the numbers of passed and failed tests, and the skipped tests.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The start of a line about a skipped test.
const MARKER: &str = "kiln-skip: ";

/// A skipped test, with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Skip {
    pub(super) what: String,
    pub(super) reason: String,
    pub(super) kind: Kind,
}

/// The kind of a skip: the requirement that the machine lacks, or the run that includes the test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Kind {
    Gpu,
    Browser,
    /// Instructions of another processor.
    Cpu,
    /// The test runs in another run of `cargo xtask test`.
    Run,
    /// Another requirement, or an ignored test. If `CI=true`, such a skip fails the run.
    Other,
}

impl Kind {
    fn is_accepted_in_ci(self) -> bool {
        matches!(self, Self::Gpu | Self::Browser | Self::Cpu | Self::Run)
    }

    /// Returns true if the test is skipped in every run of the same binary on this machine, whatever is installed.
    fn is_permanent(self) -> bool {
        matches!(self, Self::Gpu | Self::Cpu | Self::Run)
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Gpu => "needs a GPU",
            Kind::Browser => "needs a browser",
            Kind::Cpu => "needs another processor",
            Kind::Run => "in another run",
            Kind::Other => "other",
        };
        write!(f, "{} ({kind}): {}", self.what, self.reason)
    }
}

/// The counts, failures and skips in the output of all tests.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) n_passed: u64,
    pub(super) n_failed: u64,
    pub(super) failed: Vec<String>,
    pub(super) skips: Vec<Skip>,
    /// The names of the runs that passed and need not be repeated, with what they skip each time.
    pub(super) passed: BTreeMap<String, Vec<Skip>>,
    /// The number of runs that were not repeated, because nothing has changed since they passed.
    pub(super) n_unchanged: usize,
}

impl Tally {
    /// Parses a line of a test's output, and adds its counts, failure or skip.
    pub(super) fn read(&mut self, line: &str) {
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

    /// Records that the run of this name, whose output this tally has read, exited with success.
    pub(super) fn ends_well(&mut self, name: &str) {
        if self.n_failed == 0 && self.skips.iter().all(|skip| skip.kind.is_permanent()) {
            self.passed.insert(name.to_owned(), self.skips.clone());
        }
    }

    /// Counts a run that passed before and is not repeated, with the tests that it skips. Returns false if `skips` is
    /// `None`: the run must be repeated.
    pub(super) fn keep(&mut self, skips: Option<&[Skip]>) -> bool {
        self.n_unchanged += usize::from(skips.is_some());
        self.skips.extend(skips.into_iter().flatten().cloned());
        skips.is_some()
    }

    /// Adds the counts, failures, skips and runs of another tally.
    pub(super) fn add(&mut self, other: Self) {
        let Self { n_passed, n_failed, failed, skips, passed, n_unchanged } = other;
        self.n_passed += n_passed;
        self.n_failed += n_failed;
        self.failed.extend(failed);
        self.skips.extend(skips);
        self.passed.extend(passed);
        self.n_unchanged += n_unchanged;
    }

    /// Returns the reason why the run fails, or `None` if it succeeds. If `ci` is true, skips of [`Kind::Other`] also
    /// fail the run.
    pub(super) fn verdict(&self, ci: bool) -> Option<String> {
        let refused = self.skips.iter().filter(|skip| !skip.kind.is_accepted_in_ci()).count();
        if !self.failed.is_empty() || self.n_failed != 0 {
            Some("a test failed".into())
        } else if self.n_passed == 0 && self.n_unchanged == 0 {
            Some("no test ran".into())
        } else if ci && refused != 0 {
            Some(format!(
                "{refused} skipped tests need neither a GPU, a browser nor another processor: CI=true does not accept such skips"
            ))
        } else {
            None
        }
    }
}

/// Parses `kind: what: reason`. A malformed line becomes a skip with the whole text, so that it is not lost.
fn parse_skip(text: &str) -> Skip {
    let mut parts = text.splitn(3, ": ");
    let kind = match parts.next() {
        Some("gpu") => Kind::Gpu,
        Some("browser") => Kind::Browser,
        Some("cpu") => Kind::Cpu,
        Some("run") => Kind::Run,
        _ => Kind::Other,
    };
    let what = parts.next().unwrap_or(text).to_owned();
    let reason = parts.next().unwrap_or("no reason given").to_owned();
    Skip { what, reason, kind }
}

/// Returns the number before `word`, or zero if there is none.
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
        assert_eq!(tally.verdict(true), None);
    }

    #[test]
    fn failed_tests_are_named_and_fail_the_run() {
        let output = "test a::b ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured\n";
        let tally = tally(output);
        assert_eq!((tally.n_passed, tally.n_failed), (2, 1));
        assert_eq!(tally.failed, ["a::b"]);
        assert!(tally.verdict(false).is_some());
    }

    #[test]
    fn a_run_without_a_test_fails() {
        assert_eq!(tally("").verdict(false).unwrap(), "no test ran");
    }

    #[test]
    fn ci_accepts_gpu_skips_and_rejects_other_skips() {
        let gpu = tally(&format!("{GREEN}{MARKER}gpu: sums: no CUDA device: none found\n"));
        assert_eq!(gpu.skips, [skip(Kind::Gpu, "sums", "no CUDA device: none found")]);
        assert_eq!(gpu.verdict(true), None);
        let other = tally(&format!("{GREEN}test a ... {MARKER}other: speed-up: one core\n"));
        assert_eq!(other.skips, [skip(Kind::Other, "speed-up", "one core")]);
        assert!(other.verdict(true).is_some());
        assert_eq!(other.verdict(false), None);
    }

    #[test]
    fn ignored_tests_are_skips_that_ci_rejects() {
        let tally = tally(&format!("{GREEN}test slow ... ignored, takes an hour\ntest bare ... ignored\n"));
        let expected = [
            skip(Kind::Other, "slow", "takes an hour"),
            skip(Kind::Other, "bare", "it is marked as ignored"),
        ];
        assert_eq!(tally.skips, expected);
        assert!(tally.verdict(true).is_some());
    }

    #[test]
    fn a_run_that_skips_a_test_for_what_may_be_installed_is_repeated() {
        for (kind, may_change) in
            [("gpu", false), ("cpu", false), ("run", false), ("browser", true), ("other", true)]
        {
            let mut tally = tally(&format!("{GREEN}{MARKER}{kind}: sums: a reason\n"));
            tally.ends_well("suite");
            let expected = (!may_change).then(|| tally.skips.clone());
            assert_eq!(tally.passed.get("suite").cloned(), expected, "{kind}");
        }
    }

    #[test]
    fn skips_of_an_unknown_kind_are_kept_and_rejected() {
        assert_eq!(parse_skip("moon: x: y").kind, Kind::Other);
        assert_eq!(parse_skip("nonsense"), skip(Kind::Other, "nonsense", "no reason given"));
    }
}
