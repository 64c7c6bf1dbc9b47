//! The runs that are saved in `benches/runs`, with their commit, date and machine.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::ceilings::Machine;
use super::measure::{Measurement, read_json};
use super::settings::n_cores;
use crate::workspace;

/// A saved run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// The measured commit, with the suffix `-dirty` if files were modified.
    pub(super) commit: String,
    /// The date in UTC, as `2026-01-31`.
    pub(super) date: String,
    pub(super) machine: Host,
    /// The value of `--threads`; `None` if all cores were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) threads: Option<u32>,
    /// The machine's ceilings; `None` in old runs, which did not measure them.
    #[serde(default)]
    pub(super) ceilings: Option<Machine>,
    pub(super) benches: Vec<Measurement>,
}

/// The machine on which a run was measured.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) cpu: String,
    pub(super) cores: usize,
}

impl Run {
    /// Returns a run of these benches with the current commit, date and machine.
    pub(super) fn now(
        threads: Option<u32>,
        ceilings: Option<Machine>,
        benches: Vec<Measurement>,
    ) -> Result<Self> {
        Ok(Self { commit: commit(), date: today()?, machine: Host::this(), threads, ceilings, benches })
    }
}

impl Host {
    /// Returns the processor's name and the number of cores of this machine.
    fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let cpu = model.map_or("unknown", |(_, model)| model).to_owned();
        Self { cpu, cores: n_cores() }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.cores == 1 { "" } else { "s" };
        write!(f, "{}, {} core{s}", self.cpu, self.cores)
    }
}

/// Writes a run to `benches/runs`.
pub(super) fn save(name: &str, run: &Run) -> Result<()> {
    write(&path_of(name)?, run)?;
    println!("saved as benches/runs/{name}.json");
    Ok(())
}

/// Writes a run to a file, and creates its folder if necessary.
pub(super) fn write(path: &Path, run: &Run) -> Result<()> {
    fs::create_dir_all(path.parent().context("the path of the run's file has no parent folder")?)?;
    fs::write(path, serde_json::to_string_pretty(run)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a run from `benches/runs`.
pub(super) fn load(name: &str) -> Result<Run> {
    read_json(&path_of(name)?)
}

/// Reads the ceilings of a saved run.
pub(super) fn ceilings(path: &Path) -> Result<Machine> {
    let run: Run = read_json(path)?;
    run.ceilings
        .with_context(|| format!("{} has no ceilings: omit --ceilings to measure them", path.display()))
}

fn path_of(name: &str) -> Result<PathBuf> {
    Ok(workspace::root()?.join("benches").join("runs").join(format!("{name}.json")))
}

/// Returns the checked-out commit, with the suffix `-dirty` if files were modified. Returns `none` outside a repository
/// and before its first commit.
fn commit() -> String {
    let git = |args: &[&str]| {
        let root = workspace::root()?;
        workspace::stdout_of(Command::new("git").current_dir(root).args(args))
    };
    match (git(&["rev-parse", "--short=12", "HEAD"]), git(&["status", "--porcelain"])) {
        (Ok(hash), Ok(changes)) if changes.is_empty() => hash.trim().to_owned(),
        (Ok(hash), _) => format!("{}-dirty", hash.trim()),
        (Err(_), _) => "none".to_owned(),
    }
}

/// Returns the date in UTC, as `2026-01-31`.
fn today() -> Result<String> {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the system clock is set to a date before 1970")?
        .as_secs();
    Ok(date_of(seconds / 86_400))
}

/// Returns the Gregorian date of a day counted from 1970-01-01, by Hinnant (2021), "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`, restricted to days from 1970 on.
fn date_of(days: u64) -> String {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    // Years begin in March here, so that a leap day is the last day of a year.
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a run of these benches on a made-up machine.
    pub(in super::super) fn run_of(benches: Vec<Measurement>) -> Run {
        let machine = Host { cpu: "a processor".into(), cores: 2 };
        let commit = "abc".into();
        let date = "2026-01-31".into();
        Run { commit, date, machine, threads: None, ceilings: None, benches }
    }

    #[test]
    fn dates_around_leap_days_are_right() {
        for (days, date) in
            [(0, "1970-01-01"), (11_016, "2000-02-29"), (11_017, "2000-03-01"), (20_819, "2027-01-01")]
        {
            assert_eq!(date_of(days), date);
        }
    }

    #[test]
    fn ceilings_survive_writing_and_reading_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("machine.json");
        write(&path, &run_of(Vec::new())).unwrap();
        assert!(
            ceilings(&path)
                .unwrap_err()
                .to_string()
                .ends_with("machine.json has no ceilings: omit --ceilings to measure them")
        );
        let machine = super::super::ceilings::tests::machine();
        write(&path, &Run { ceilings: Some(machine.clone()), ..run_of(Vec::new()) }).unwrap();
        assert_eq!(ceilings(&path).unwrap(), machine);
    }

    #[test]
    fn saved_runs_are_readable() {
        let folder = workspace::root().unwrap().join("benches").join("runs");
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            assert!(!read_json::<Run>(&path).unwrap().benches.is_empty(), "{}", path.display());
        }
    }
}
