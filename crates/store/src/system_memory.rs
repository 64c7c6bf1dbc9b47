use std::fs;

/// Returns the memory that is available to programs, in bytes; `None` if the system does not report it, as on systems other than
/// Linux. The limit of a container (of cgroup v2) counts if it is smaller.
///
/// ```
/// let bytes = kiln_store::available_memory();
/// assert!(bytes.is_none_or(|bytes| 1 << 20 < bytes));
/// ```
pub fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
    // Without a limit, the file has the word `max`.
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(u64::MAX);
    Some(available.min(limit))
}
