use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::HugePageAllocator;

/// True after the first note of the process.
static HAS_NOTE: AtomicBool = AtomicBool::new(false);

/// The ticks per second of the times in Linux's `/proc`, the same on all machines.
const TICKS: u64 = 100;

/// The time in which the kernel maps and clears a page of 4 KiB, in seconds: a low estimate.
const FAULT_SECONDS: f64 = 0.5e-6;

/// The share of a run's processor time that a program must be able to gain.
const LEAST_GAIN: f64 = 0.05;

/// The processor time of a run below which a gain does not matter.
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
    before: Option<Usage>,
}

/// What the process has used so far.
#[derive(Debug, Clone, Copy)]
struct Usage {
    /// The number of page faults without access to a disk.
    n_faults: u64,
    /// The processor time of all threads.
    time: Duration,
}

impl PageFaults {
    /// Starts to count.
    pub fn start() -> Self {
        Self { before: Usage::now() }
    }

    /// Returns a note if the time since the start would have been shorter with [`HugePageAllocator`], once per process.
    /// `None` if the program uses it, if the gain would be small, and on systems other than Linux. First accesses to mapped
    /// files count as well, although another allocator does not change them.
    pub fn note(&self) -> Option<String> {
        let before = self.before?;
        let now = Usage::now()?;
        let n_faults = now.n_faults.saturating_sub(before.n_faults);
        let time = now.time.saturating_sub(before.time);
        let text = note(n_faults, time, HugePageAllocator::is_used())?;
        (!HAS_NOTE.swap(true, Ordering::Relaxed)).then_some(text)
    }
}

fn note(n_faults: u64, time: Duration, is_used: bool) -> Option<String> {
    let share = n_faults as f64 * FAULT_SECONDS / time.as_secs_f64();
    let gains = !is_used && LEAST_TIME <= time && LEAST_GAIN <= share;
    gains.then(|| {
        let percent = 100.0 * share;
        format!(
            "the kernel mapped and cleared pages of memory {n_faults} times, about {percent:.0} % of the run's processor time: with the \
             line `kiln::use_allocator!();` beside `main`, the program keeps its memory"
        )
    })
}

impl Usage {
    /// Returns the use until now; `None` on systems other than Linux.
    fn now() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program, in parentheses, may have spaces. After it, the faults are the eighth field, the ticks of
        // user and system time the twelfth and the thirteenth.
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
        let n_ticks = number(11)? + number(12)?;
        Some(Self { n_faults: number(7)?, time: Duration::from_millis(1000 * n_ticks / TICKS) })
    }
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
    fn page_faults_and_processor_time_are_counted() {
        let before = Usage::now().expect("the file should exist");
        let pages = std::hint::black_box(vec![1_u8; 64 << 20]);
        let mut sum = 0_u64;
        while Usage::now().expect("the file should exist").time == before.time {
            sum += pages.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
        let now = Usage::now().expect("the file should exist");
        // A page has at most 2 MiB.
        assert!(32 <= now.n_faults - before.n_faults, "{} for {} bytes, {sum}", now.n_faults, pages.len());
    }
}
