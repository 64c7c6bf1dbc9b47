use std::time::{Duration, Instant};

/// Memory of this process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Bytes of anonymous memory: the heap, stacks, tensors.
    pub anon_bytes: u64,
    /// Bytes of mapped files that are in memory; shared with the system's page cache.
    pub mapped_bytes: u64,
}

impl MemoryUse {
    /// What the process uses now. Zeros where the system does not say (other systems than Linux).
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
    /// The larger of each kind.
    pub fn max(self, other: Self) -> Self {
        Self {
            anon_bytes: self.anon_bytes.max(other.anon_bytes),
            mapped_bytes: self.mapped_bytes.max(other.mapped_bytes),
        }
    }
}

/// The most memory seen at the moments when somebody looked: a trainer does after the forward pass, after
/// the backward pass and after the update of a step, where the last look is some milliseconds old. What comes and
/// goes between is not seen: it is a sample, not a high-water mark.
#[derive(Debug, Clone, Copy, Default)]
pub struct PeakMemory {
    peak: MemoryUse,
    looked_at: Option<Instant>,
}

impl PeakMemory {
    /// The least time between two looks. The system takes 40 µs to say it: a tenth of a step on small graphs, if
    /// each step looked three times.
    const PAUSE: Duration = Duration::from_millis(5);

    /// Looks now, unless somebody looked a few milliseconds ago.
    pub fn look(&mut self) {
        if self.looked_at.is_none_or(|looked_at| Self::PAUSE <= looked_at.elapsed()) {
            self.merge(MemoryUse::now());
            self.looked_at = Some(Instant::now());
        }
    }

    /// Takes a measurement into account.
    pub fn merge(&mut self, seen: MemoryUse) {
        self.peak = self.peak.max(seen);
    }

    /// The largest of each kind, not necessarily at the same moment.
    pub fn get(self) -> MemoryUse {
        self.peak
    }
}
