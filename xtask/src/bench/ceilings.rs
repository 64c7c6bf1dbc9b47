//! The ceilings of the machine, measured by `benches/src/bin/ceilings.rs`, and the lower bounds on the times of benches
//! that follow from them.

use std::fmt;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::work::{Access, Work};
use crate::workspace;

/// The ceilings of one thread, and of the number of threads that benches use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    /// The ceilings by number of threads, ascending.
    pub(super) ceilings: Vec<Ceilings>,
}

/// The rates that a number of threads reach together; see `kiln_benches::ceilings`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ceilings {
    pub(super) threads: usize,
    /// The rate of sequential reads, in bytes per second.
    pub(super) stream_read: f64,
    /// The rate of sequential copies, in bytes per second; reads and writes both count.
    pub(super) stream_copy: f64,
    /// The rate of random reads of the largest array with pages of 4 KiB, in cache lines per second.
    pub(super) random_lines_small_pages: f64,
    /// The rates of random accesses with huge pages, by the array's size.
    pub(super) random: Vec<RandomPlaces>,
    /// The rate of floating-point operations per second; a fused multiply-add counts as two.
    pub(super) fma: f64,
}

/// The rates of random accesses to an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RandomPlaces {
    pub(super) array_bytes: u64,
    pub(super) lines: f64,
    /// The rates of copying random rows, by width, in bytes per second; reads and writes both count.
    pub(super) gather_rows: Vec<RowRate>,
    /// The rates of summing random rows, by width, in bytes per second.
    pub(super) read_rows: Vec<RowRate>,
}

/// The rate of accesses to rows of one width.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct RowRate {
    pub(super) row_bytes: u64,
    pub(super) bytes_per_second: f64,
}

impl Machine {
    /// Runs the program that measures the ceilings, with one thread and with `n_threads`.
    pub(super) fn measure(n_threads: usize) -> Result<Self> {
        let mut command = workspace::cargo()?;
        command.args([
            "run",
            "--quiet",
            "--release",
            "--locked",
            "--package",
            "kiln-benches",
            "--bin",
            "ceilings",
            "--",
            "1",
        ]);
        if 1 < n_threads {
            command.arg(n_threads.to_string());
        }
        Self::parse(&workspace::stdout_of(&mut command)?)
    }

    fn parse(text: &str) -> Result<Self> {
        let line =
            |line: &str| serde_json::from_str(line).with_context(|| format!("invalid ceilings: {line}"));
        let ceilings: Vec<Ceilings> = text.lines().map(line).collect::<Result<_>>()?;
        ensure!(!ceilings.is_empty(), "the program that measures the ceilings printed nothing");
        Ok(Self { ceilings })
    }

    /// Returns a lower bound in seconds for the time of this work. Returns `None` if the work has no ceiling, or if the
    /// ceilings for its number of threads were not measured.
    pub(super) fn bound_seconds(&self, work: &Work) -> Option<f64> {
        let of = self.ceilings.iter().find(|of| of.threads == work.threads)?;
        let places = of.random.iter().min_by_key(|places| places.distance(work.among))?;
        let row_rate = match work.access {
            Access::Nothing => f64::INFINITY,
            Access::Gather(row_bytes) => nearest(&places.gather_rows, row_bytes)?,
            Access::Read(row_bytes) => nearest(&places.read_rows, row_bytes)?,
        };
        let parts = [
            work.streamed as f64 / of.stream_read.max(of.stream_copy),
            if 0.0 < work.replayed { work.replayed } else { work.row_traffic as f64 / row_rate },
            work.lines as f64 / places.lines,
            work.flop as f64 / of.fma,
        ];
        Some(parts.into_iter().fold(0.0, f64::max)).filter(|&seconds| 0.0 < seconds)
    }
}

impl RandomPlaces {
    /// Compares the array's size with `bytes`. Returns the larger of the two in percent of the smaller.
    fn distance(&self, bytes: u64) -> u64 {
        let small = self.array_bytes.min(bytes).max(1);
        let large = self.array_bytes.max(bytes);
        large.saturating_mul(100) / small
    }
}

/// Returns the rate of the measured row width that is nearest to `row_bytes`; `None` if no width was measured.
fn nearest(rates: &[RowRate], row_bytes: u64) -> Option<f64> {
    let rate = rates.iter().min_by_key(|rate| rate.row_bytes.abs_diff(row_bytes))?;
    Some(rate.bytes_per_second)
}

impl fmt::Display for Machine {
    /// Writes a line for each number of threads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for of in &self.ceilings {
            let s = if of.threads == 1 { "" } else { "s" };
            write!(f, "ceilings of {} thread{s}: ", of.threads)?;
            write!(f, "read {:.1}, copy {:.1} GB/s; ", of.stream_read / 1e9, of.stream_copy / 1e9)?;
            let small = of.random_lines_small_pages / 1e6;
            write!(f, "FMA {:.0} GFLOP/s; random lines in small pages {small:.0} M/s", of.fma / 1e9)?;
            for places in &of.random {
                let mib = places.array_bytes >> 20;
                let lines = places.lines / 1e6;
                write!(f, "; of {mib} MiB: random lines {lines:.0} M/s, random rows")?;
                for (gather, read) in places.gather_rows.iter().zip(&places.read_rows) {
                    let [copied, added] = [gather, read].map(|rate| rate.bytes_per_second / 1e9);
                    write!(f, " of {} B copied {copied:.1}, added up {added:.1} GB/s", gather.row_bytes)?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a made-up machine with ceilings for one thread. Random accesses are faster in its array of 1 kB than in
    /// that of 4 GB.
    pub(in super::super) fn machine() -> Machine {
        let text = r#"{"threads": 1, "stream_read": 1e9, "stream_copy": 2e9, "random_lines_small_pages": 5e7, "random": [
            {"array_bytes": 1000, "lines": 1e8, "gather_rows": [], "read_rows": [{"row_bytes": 512,
            "bytes_per_second": 16e9}]}, {"array_bytes": 4194304000, "lines": 1e7, "gather_rows": [{"row_bytes": 400,
            "bytes_per_second": 4e9}, {"row_bytes": 512, "bytes_per_second": 5e9}], "read_rows": [{"row_bytes": 512,
            "bytes_per_second": 8e9}]}], "fma": 1e11}"#;
        Machine::parse(&text.replace('\n', " ")).unwrap()
    }

    /// Returns the work of an iteration that does nothing, with an array of 2 GB.
    fn work() -> Work {
        let text = r#"{"elements": 1, "unit": "edges", "threads": 1, "streamed": 0, "row_traffic": 0,
            "access": "nothing", "lines": 0, "among": 2000000000, "flop": 0}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn bound_is_the_largest_time_of_all_resources() {
        let machine = machine();
        let bound = |work| machine.bound_seconds(&work);
        assert_eq!(bound(work()), None);
        assert_eq!(bound(Work { lines: 10_000_000, ..work() }), Some(1.0));
        assert_eq!(bound(Work { lines: 10_000_000, flop: 300_000_000_000, ..work() }), Some(3.0));
        assert_eq!(bound(Work { streamed: 4_000_000_000, ..work() }), Some(2.0));
        assert_eq!(bound(Work { threads: 2, lines: 1, ..work() }), None);
    }

    #[test]
    fn rows_have_the_ceiling_of_the_nearest_width() {
        let machine = machine();
        let bound = |access| machine.bound_seconds(&Work { row_traffic: 40_000_000_000, access, ..work() });
        assert_eq!(bound(Access::Gather(256)), Some(10.0));
        assert_eq!(bound(Access::Gather(500)), Some(8.0));
        assert_eq!(bound(Access::Read(64)), Some(5.0));
    }

    #[test]
    fn random_reads_have_the_ceiling_of_the_nearest_array_size() {
        let machine = machine();
        let bound = |among| machine.bound_seconds(&Work { lines: 100_000_000, among, ..work() });
        assert_eq!((bound(500), bound(1_000_000)), (Some(1.0), Some(1.0)));
        assert_eq!((bound(10_000_000), bound(u64::MAX)), (Some(10.0), Some(10.0)));
    }

    #[test]
    fn ceilings_are_formatted_as_a_line() {
        let said = machine().to_string();
        let start = "ceilings of 1 thread: read 1.0, copy 2.0 GB/s; FMA 100 GFLOP/s; random lines in small pages 50 M/s";
        assert!(said.starts_with(start), "{said}");
        let end = "; of 4000 MiB: random lines 10 M/s, random rows of 400 B copied 4.0, added up 8.0 GB/s\n";
        assert!(said.ends_with(end), "{said}");
    }
}
