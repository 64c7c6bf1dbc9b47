use std::fs;
use std::path::Path;

/// The file with the control groups of this process.
const GROUPS: &str = "/proc/self/cgroup";

/// The folder in which the system mounts control groups.
const MOUNT: &str = "/sys/fs/cgroup";

/// The names that a version of control groups has for the memory of a group.
struct GroupFiles {
    /// The folder of the groups below the mount point.
    folder: &'static str,
    /// The limit in bytes; the word `max` or a number near 2^63 without one.
    limit: &'static str,
    /// The used memory in bytes, with cached files.
    usage: &'static str,
    /// The entry of `memory.stat` with the cached files that the system drops first.
    inactive_files: &'static str,
}

/// Version 2.
const UNIFIED: GroupFiles =
    GroupFiles { folder: "", limit: "memory.max", usage: "memory.current", inactive_files: "inactive_file" };

/// Version 1.
const LEGACY: GroupFiles = GroupFiles {
    folder: "memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    inactive_files: "total_inactive_file",
};

/// Returns the memory that is available to this process, in bytes; `None` if the system does not report it, as on systems other than
/// Linux. It is the available memory of the machine, or what the control groups of the process (of a container, a batch job or a
/// service) still allow, if that is less.
///
/// ```
/// let bytes = kiln_store::available_memory();
/// assert!(bytes.is_none_or(|bytes| 1 << 20 < bytes));
/// ```
pub fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    Some(available.min(allowed_memory(&groups, MOUNT.as_ref()).unwrap_or(u64::MAX)))
}

/// Returns the memory that all control groups of a process still allow; `None` without a limit.
fn allowed_memory(groups: &str, mount: &Path) -> Option<u64> {
    groups.lines().filter_map(|line| allowed_by_line(line, mount)).min()
}

/// Returns the memory that a group and those above it still allow. A line is `ID:CONTROLLERS:PATH`, of version 2 without controllers.
fn allowed_by_line(line: &str, mount: &Path) -> Option<u64> {
    let (_, line) = line.split_once(':')?;
    let (controllers, path) = line.split_once(':')?;
    let files = match controllers {
        "" => &UNIFIED,
        _ if controllers.split(',').any(|controller| controller == "memory") => &LEGACY,
        _ => return None,
    };
    let path = Path::new(path.trim_start_matches('/'));
    // In a container, folders of the path may be absent: its own group is the mount point then.
    path.ancestors().filter_map(|group| files.allowed_by(&mount.join(files.folder).join(group))).min()
}

impl GroupFiles {
    fn allowed_by(&self, group: &Path) -> Option<u64> {
        let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let usage = number(self.usage).unwrap_or(0);
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let entries = stat.lines().filter_map(|line| line.split_once(' '));
        let inactive = entries.filter(|(name, _)| *name == self.inactive_files);
        let inactive = inactive.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum::<u64>();
        Some(limit.saturating_sub(usage.saturating_sub(inactive)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(group: &Path, files: [(&str, &str); 3]) {
        fs::create_dir_all(group).unwrap();
        for (name, text) in files {
            fs::write(group.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_tightest_group_decides_without_its_used_memory() {
        let mount = tempfile::tempdir().unwrap();
        let mount = mount.path();
        let job = "0::/system.slice/job_7/step_0\n";
        assert_eq!(allowed_memory(job, mount), None);
        let stat = "anon 10\ninactive_file 30\nactive_file 5\n";
        let files = |limit, usage| [("memory.max", limit), ("memory.current", usage), ("memory.stat", stat)];
        write(&mount.join("system.slice/job_7/step_0"), files("max\n", "100\n"));
        assert_eq!(allowed_memory(job, mount), None);
        write(&mount.join("system.slice/job_7"), files("1000\n", "400\n"));
        assert_eq!(allowed_memory(job, mount), Some(630));
        write(&mount.join("system.slice"), files("2000\n", "1700\n"));
        assert_eq!(allowed_memory(job, mount), Some(330));
        // A full group, and cached files alone.
        write(mount, files("500\n", "600\n"));
        assert_eq!(allowed_memory("0::/other\n", mount), Some(0));
        write(mount, files("500\n", "20\n"));
        assert_eq!(allowed_memory("0::/\n", mount), Some(500));
    }

    #[test]
    fn groups_of_version_1_have_the_controller_memory() {
        let mount = tempfile::tempdir().unwrap();
        let mount = mount.path();
        let files = [
            ("memory.limit_in_bytes", "1000\n"),
            ("memory.usage_in_bytes", "300\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 100\n"),
        ];
        write(&mount.join("memory/job"), files);
        assert_eq!(allowed_memory("4:cpu:/job\n3:cpuset,memory:/job/step\n0::/\n", mount), Some(800));
        assert_eq!(allowed_memory("4:cpu:/job\nno line\n", mount), None);
    }
}
