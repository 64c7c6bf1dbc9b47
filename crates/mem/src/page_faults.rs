use std::time::{Duration, Instant};

use crate::HugePageAllocator;

/// The time in which the kernel maps and clears a page of 4 KiB, in seconds: a low estimate.
const FAULT_SECONDS: f64 = 0.5e-6;

/// The share of a run's time that a program must be able to gain.
const LEAST_GAIN: f64 = 0.05;

/// The run time below which a gain does not matter.
const LEAST_TIME: Duration = Duration::from_secs(5);

/// The page faults of this process since a time. They tell whether a program would gain from
/// [`HugePageAllocator`].
///
/// ```
/// let faults = kiln_mem::PageFaults::start();
/// assert_eq!(faults.note(), None, "a run of less than five seconds gains nothing that matters");
/// ```
#[derive(Debug)]
pub struct PageFaults {
    started: Instant,
    before: Option<u64>,
}

impl PageFaults {
    /// Starts to count.
    pub fn start() -> Self {
        Self { started: Instant::now(), before: n_faults() }
    }

    /// Returns a note if the time since the start would have been shorter with [`HugePageAllocator`]; `None` if the program
    /// uses it, if the gain would be small, and on systems other than Linux.
    pub fn note(&self) -> Option<String> {
        let n_faults = n_faults()?.saturating_sub(self.before?);
        note(n_faults, self.started.elapsed(), HugePageAllocator::is_used())
    }
}

fn note(n_faults: u64, elapsed: Duration, is_used: bool) -> Option<String> {
    let share = n_faults as f64 * FAULT_SECONDS / elapsed.as_secs_f64();
    let gains = !is_used && LEAST_TIME <= elapsed && LEAST_GAIN <= share;
    gains.then(|| {
        let percent = 100.0 * share;
        format!(
            "the kernel mapped and cleared pages of memory {n_faults} times, about {percent:.0} % of the run's time: with the \
             line `kiln::use_allocator!();` beside `main`, the program keeps its memory"
        )
    })
}

/// Returns the number of page faults of this process without access to a disk, or `None` on systems other than Linux.
fn n_faults() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may have spaces. The count is the eighth field after it.
    stat.rsplit(')').next()?.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_for_long_runs_with_many_page_faults_and_another_allocator() {
        let of = |n_faults, seconds, is_used| note(n_faults, Duration::from_secs(seconds), is_used);
        let text = of(2_000_000, 10, false).expect("a tenth of the time should be worth a note");
        assert!(text.contains("2000000 times, about 10 %"), "{text}");
        assert_eq!(of(2_000_000, 10, true), None);
        assert_eq!(of(900_000, 10, false), None);
        assert_eq!(of(800_000, 4, false), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn page_faults_are_counted() {
        let faults = PageFaults::start();
        let pages = std::hint::black_box(vec![1_u8; 64 << 20]);
        let n_faults =
            n_faults().expect("the file should exist") - faults.before.expect("the file should exist");
        // A page has at most 2 MiB.
        assert!(32 <= n_faults, "{n_faults} for {} bytes", pages.len());
    }
}
