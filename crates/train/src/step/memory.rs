use std::time::{Duration, Instant};

/// The memory of this process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Anonymous memory in bytes: the heap, stacks, tensors.
    pub anon_bytes: u64,
    /// Mapped file pages in memory, in bytes. They are shared with the system's page cache.
    pub mapped_bytes: u64,
}

impl MemoryUse {
    /// Measures the memory of this process. Returns zeros on systems other than Linux.
    pub fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
            kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Self { anon_bytes: field("RssAnon"), mapped_bytes: field("RssFile") + field("RssShmem") }
    }
}

impl MemoryUse {
    /// Returns the maximum of two measurements, separately for each kind of memory.
    pub fn max(self, other: Self) -> Self {
        Self {
            anon_bytes: self.anon_bytes.max(other.anon_bytes),
            mapped_bytes: self.mapped_bytes.max(other.mapped_bytes),
        }
    }
}

/// The peak memory of this process among samples. A trainer takes a sample after the forward pass, after the backward
/// pass and after the update of a step, at most once in a few milliseconds. Peaks between samples are missed: this is
/// not a high-water mark.
#[derive(Debug, Clone, Copy, Default)]
pub struct PeakMemory {
    peak: MemoryUse,
    looked_at: Option<Instant>,
}

impl PeakMemory {
    /// The minimum time between two samples. Reading `/proc` is slow compared with a step on a small graph, which would
    /// otherwise read it three times.
    const PAUSE: Duration = Duration::from_millis(5);

    /// Takes a sample, unless the last one is only a few milliseconds old.
    pub fn look(&mut self) {
        if self.looked_at.is_none_or(|looked_at| Self::PAUSE <= looked_at.elapsed()) {
            self.merge(MemoryUse::now());
            self.looked_at = Some(Instant::now());
        }
    }

    /// Includes a measurement in the peak.
    pub fn merge(&mut self, seen: MemoryUse) {
        self.peak = self.peak.max(seen);
    }

    /// Returns the peak of each kind of memory; the two peaks may be of different moments.
    pub fn get(self) -> MemoryUse {
        self.peak
    }
}
