use std::fs;

use kiln_store::available_memory;

use crate::error::Error;

/// The factor by which the memory of a run may grow after its first epoch, until a run has ended.
const MARGIN: u64 = 2;

/// The limits of the memory of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The limit for all runs together, in bytes. Default: the memory that is available when the sweep starts.
    pub total_bytes: Option<u64>,
    /// The memory that each run needs, in bytes. Default: it is measured.
    pub run_bytes: Option<u64>,
}

/// The memory that runs share, from which follows how many fit.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    /// The limit; `None` if it is unknown.
    total_bytes: Option<u64>,
    /// The declared memory of a run.
    run_bytes: Option<u64>,
    /// The largest peak of a run that has ended; `None` before the first.
    peak_of_ended: Option<u64>,
}

/// The memory of a running process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunMemory {
    /// The peak so far in bytes.
    pub(crate) peak_bytes: u64,
    /// True if the process has trained and validated an epoch.
    pub(crate) has_epoch: bool,
}

impl MemoryBudget {
    /// Checks the limits.
    pub(crate) fn new(limits: MemoryLimits) -> Result<Self, Error> {
        let MemoryLimits { total_bytes, run_bytes } = limits;
        if total_bytes.is_some() && run_bytes.is_none() && peak_memory(std::process::id()).is_none() {
            return Err(Error::NoMeasure);
        }
        let total_bytes = total_bytes.or_else(available_memory);
        match (run_bytes, total_bytes) {
            (Some(run_bytes), Some(total_bytes)) if total_bytes < run_bytes => {
                Err(Error::RunAboveLimit { run_bytes, total_bytes })
            }
            _ => Ok(Self { total_bytes, run_bytes, peak_of_ended: None }),
        }
    }

    /// Adds the peak of a run that has ended.
    pub(crate) fn add_ended(&mut self, peak_bytes: u64) {
        self.peak_of_ended = Some(peak_bytes.max(self.peak_of_ended.unwrap_or(0)));
    }

    /// Returns true if another run fits beside the running ones. A run alone always starts.
    pub(crate) fn fits_another(&self, running: &[RunMemory]) -> bool {
        let (Some(total_bytes), false) = (self.total_bytes, running.is_empty()) else { return true };
        let Some(run_bytes) = self.estimate(running) else { return false };
        run_bytes.saturating_mul(running.len() as u64 + 1) <= total_bytes
    }

    /// Returns the limit and the memory of a run if a single run is above the limit.
    pub(crate) fn excess(&self) -> Option<(u64, u64)> {
        let limit_and_peak = self.total_bytes.zip(self.peak_of_ended);
        limit_and_peak.filter(|(total_bytes, peak)| total_bytes < peak)
    }

    /// Returns the memory that a run needs, at least the largest that was seen; `None` before one is known.
    fn estimate(&self, running: &[RunMemory]) -> Option<u64> {
        let peak = running.iter().map(|run| run.peak_bytes).max().unwrap_or(0);
        let seen = self.peak_of_ended.map_or(peak, |ended| ended.max(peak));
        match (self.run_bytes, self.peak_of_ended) {
            (Some(declared), _) => Some(declared.max(seen)),
            (None, Some(_)) => Some(seen),
            // Later steps and the test may need more than the first epoch.
            (None, None) => running.iter().any(|run| run.has_epoch).then(|| peak.saturating_mul(MARGIN)),
        }
    }
}

/// Returns the peak resident memory of a process in bytes, with the pages of mapped files; `None` if the process has ended, or the
/// system does not report it.
pub(crate) fn peak_memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(total: u64, run: Option<u64>) -> MemoryBudget {
        MemoryBudget { total_bytes: Some(total), run_bytes: run, peak_of_ended: None }
    }

    fn running(n_runs: usize, peak_bytes: u64, has_epoch: bool) -> Vec<RunMemory> {
        vec![RunMemory { peak_bytes, has_epoch }; n_runs]
    }

    #[test]
    fn the_peak_of_the_first_run_decides_how_many_run_at_once() {
        let mut budget = budget(1000, None);
        assert!(budget.fits_another(&[]));
        assert!(!budget.fits_another(&running(1, 100, false)), "the peak is unknown before the first epoch");
        // Twice the peak until a run has ended.
        assert!(budget.fits_another(&running(4, 100, true)));
        assert!(!budget.fits_another(&running(5, 100, true)));
        budget.add_ended(200);
        assert!(budget.fits_another(&running(4, 100, false)));
        assert!(!budget.fits_another(&running(5, 100, false)));
        // A running one that needs more counts, too.
        assert!(budget.fits_another(&running(2, 300, false)));
        assert!(!budget.fits_another(&running(2, 400, false)));
        assert_eq!(budget.excess(), None);
        budget.add_ended(1001);
        assert!(budget.fits_another(&[]));
        assert!(!budget.fits_another(&running(1, 10, true)));
        assert_eq!(budget.excess(), Some((1000, 1001)));
    }

    #[test]
    fn a_declared_memory_holds_from_the_start_unless_a_run_needs_more() {
        let mut declared = budget(1000, Some(250));
        assert!(declared.fits_another(&running(3, 10, false)));
        assert!(!declared.fits_another(&running(4, 10, false)));
        declared.add_ended(500);
        assert!(!declared.fits_another(&running(2, 10, false)));
        let limits = MemoryLimits { total_bytes: Some(100), run_bytes: Some(101) };
        let error = MemoryBudget::new(limits).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("--memory-per-run 101"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_of_a_process_is_measured() {
        let peak = peak_memory(std::process::id());
        assert!(peak.is_some_and(|peak| 1 << 20 < peak), "{peak:?}");
    }
}
