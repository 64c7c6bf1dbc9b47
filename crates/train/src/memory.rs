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
/// the backward pass and after the update of each step. What comes and goes between is not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeakMemory(MemoryUse);

impl PeakMemory {
    /// Looks now.
    pub fn look(&mut self) {
        self.merge(MemoryUse::now());
    }

    /// Takes a measurement into account.
    pub fn merge(&mut self, seen: MemoryUse) {
        self.0 = self.0.max(seen);
    }

    /// The largest of each kind, not necessarily at the same moment.
    pub fn get(self) -> MemoryUse {
        self.0
    }
}
