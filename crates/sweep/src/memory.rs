use std::fs;

use kiln_store::available_memory;

use crate::error::Error;

/// The factor by which the memory of a run may grow after its first epoch, until a run has finished.
const MARGIN: u64 = 2;

/// The limits of the memory of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The limit for all runs together, in bytes. Default: the memory that is available when the sweep starts.
    pub total_bytes: Option<u64>,
    /// The memory that each run needs, in bytes. Default: it is measured.
    pub run_bytes: Option<u64>,
}

impl MemoryLimits {
    /// Checks the limits against the system, before a sweep is opened.
    ///
    /// ```
    /// use kiln_sweep::MemoryLimits;
    /// let limits = MemoryLimits { total_bytes: Some(1 << 20), run_bytes: Some(1 << 21) };
    /// let error = limits.check().unwrap_err().to_string();
    /// assert!(error.starts_with("--memory-per-run 2097152 is above the limit of 1048576 bytes for all runs"));
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::RunAboveLimit`] if a run is above the limit, and [`Error::NoMeasure`] and [`Error::NoLimit`] if the system does not
    /// report what is not declared.
    pub fn check(self) -> Result<(), Error> {
        self.budget().map(drop)
    }

    /// Returns the budget of these limits on this system.
    pub(crate) fn budget(self) -> Result<MemoryBudget, Error> {
        let is_measured = peak_memory(std::process::id()).is_some();
        MemoryBudget::new(self, available_memory(), is_measured)
    }
}

/// The memory that runs share, from which follows how many fit.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    /// The limit; `None` if it is unknown.
    total_bytes: Option<u64>,
    /// The declared memory of a run.
    run_bytes: Option<u64>,
    /// The largest peak of a run that has finished; `None` before the first.
    peak_of_finished: Option<u64>,
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
    /// Checks the limits. The others are the available memory of the system, if it is known, and whether it measures processes.
    fn new(limits: MemoryLimits, available: Option<u64>, is_measured: bool) -> Result<Self, Error> {
        let MemoryLimits { total_bytes, run_bytes } = limits;
        if total_bytes.is_some() && run_bytes.is_none() && !is_measured {
            return Err(Error::NoMeasure);
        }
        let total_bytes = total_bytes.or(available);
        match (run_bytes, total_bytes) {
            (Some(_), None) => Err(Error::NoLimit),
            (Some(run_bytes), Some(total_bytes)) if total_bytes < run_bytes => {
                Err(Error::RunAboveLimit { run_bytes, total_bytes })
            }
            _ => Ok(Self { total_bytes, run_bytes, peak_of_finished: None }),
        }
    }

    /// Adds the peak of a run that has finished; 0 if it is unknown, which changes nothing.
    pub(crate) fn add_finished(&mut self, peak_bytes: u64) {
        if 0 < peak_bytes {
            self.peak_of_finished = Some(peak_bytes.max(self.peak_of_finished.unwrap_or(0)));
        }
    }

    /// Returns true if another run fits beside the running ones. A run alone always starts.
    pub(crate) fn fits_another(&self, running: &[RunMemory]) -> bool {
        let (Some(total_bytes), false) = (self.total_bytes, running.is_empty()) else { return true };
        let Some(run_bytes) = self.estimate(running) else { return false };
        run_bytes.saturating_mul(running.len() as u64 + 1) <= total_bytes
    }

    /// Returns the limit and the memory of a run if a single run is above the limit.
    pub(crate) fn excess(&self) -> Option<(u64, u64)> {
        let limit_and_peak = self.total_bytes.zip(self.peak_of_finished);
        limit_and_peak.filter(|(total_bytes, peak)| total_bytes < peak)
    }

    /// Returns the memory that a run needs, at least the largest that was seen; `None` before one is known.
    fn estimate(&self, running: &[RunMemory]) -> Option<u64> {
        let peak = running.iter().map(|run| run.peak_bytes).max().unwrap_or(0);
        let seen = self.peak_of_finished.map_or(peak, |finished| finished.max(peak));
        match (self.run_bytes, self.peak_of_finished) {
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
        MemoryBudget { total_bytes: Some(total), run_bytes: run, peak_of_finished: None }
    }

    fn running(n_runs: usize, peak_bytes: u64, has_epoch: bool) -> Vec<RunMemory> {
        vec![RunMemory { peak_bytes, has_epoch }; n_runs]
    }

    #[test]
    fn the_peak_of_the_first_run_decides_how_many_run_at_once() {
        let mut budget = budget(1000, None);
        assert!(budget.fits_another(&[]));
        assert!(!budget.fits_another(&running(1, 100, false)), "the peak is unknown before the first epoch");
        // Twice the peak until a run has finished.
        assert!(budget.fits_another(&running(4, 100, true)));
        assert!(!budget.fits_another(&running(5, 100, true)));
        budget.add_finished(200);
        assert!(budget.fits_another(&running(4, 100, false)));
        assert!(!budget.fits_another(&running(5, 100, false)));
        // A running one that needs more counts, too.
        assert!(budget.fits_another(&running(2, 300, false)));
        assert!(!budget.fits_another(&running(2, 400, false)));
        assert_eq!(budget.excess(), None);
        budget.add_finished(1001);
        assert!(budget.fits_another(&[]));
        assert!(!budget.fits_another(&running(1, 10, true)));
        assert_eq!(budget.excess(), Some((1000, 1001)));
    }

    #[test]
    fn a_declared_memory_holds_from_the_start_unless_a_run_needs_more() {
        let mut declared = budget(1000, Some(250));
        assert!(declared.fits_another(&running(3, 10, false)));
        assert!(!declared.fits_another(&running(4, 10, false)));
        declared.add_finished(500);
        assert!(!declared.fits_another(&running(2, 10, false)));
        let limits = MemoryLimits { total_bytes: Some(100), run_bytes: Some(101) };
        let error = limits.check().unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("--memory-per-run 101"), "{error}");
    }

    #[test]
    fn an_unknown_peak_is_no_estimate() {
        let mut budget = budget(1000, None);
        // The summary of an earlier version has no peak.
        budget.add_finished(0);
        assert!(!budget.fits_another(&running(1, 10, false)));
        budget.add_finished(100);
        budget.add_finished(0);
        assert!(budget.fits_another(&running(9, 10, false)));
        assert!(!budget.fits_another(&running(10, 10, false)));
    }

    #[test]
    fn limits_that_the_system_cannot_keep_are_errors() {
        let limits = |total_bytes, run_bytes| MemoryLimits { total_bytes, run_bytes };
        let error = |limits| MemoryBudget::new(limits, None, false).unwrap_err();
        assert!(matches!(error(limits(Some(10), None)), Error::NoMeasure));
        let without_limit = error(limits(None, Some(10)));
        assert!(
            without_limit.is_usage() && without_limit.to_string().contains("add --memory"),
            "{without_limit}"
        );
        for allowed in [limits(None, None), limits(Some(10), Some(10))] {
            assert!(MemoryBudget::new(allowed, None, false).is_ok());
        }
        assert_eq!(MemoryBudget::new(limits(None, Some(5)), Some(9), false).unwrap().total_bytes, Some(9));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_of_a_process_is_measured() {
        let peak = peak_memory(std::process::id());
        assert!(peak.is_some_and(|peak| 1 << 20 < peak), "{peak:?}");
    }
}
