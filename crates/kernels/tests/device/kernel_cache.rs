//! Tests of the store of compiled kernels.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use tempfile::TempDir;

use super::common::{is_on_cuda, process_of};

/// A process that runs the smoke test, and the file to which CubeCL writes the kernels that it compiles.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a process that keeps its kernels below a folder.
    fn start(folder: &Path, name: &str) -> Self {
        let log = folder.join(name);
        let mut command = process_of("devices::the_device_passes_the_smoke_test");
        command.env("XDG_CACHE_HOME", folder).env("CUBECL_DEBUG_LOG", &log).stdout(Stdio::null());
        // A file `cubecl.toml` in the folder of the sources or above it has no effect.
        command.current_dir(folder);
        Self { child: command.spawn().expect("the process should start"), log }
    }

    /// Waits for the end of the process, and returns the number of kernels that it has compiled.
    fn wait(mut self) -> usize {
        let status = self.child.wait().expect("the process should be a child");
        assert!(status.success(), "{status}");
        // CubeCL creates the file when it first writes to it.
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains("[START_KERNEL_COMPILATION]")).count()
    }
}

/// Returns true on CUDA devices: CubeCL's CPU runtime stores no kernels, and its WGPU runtime leaves that to the driver.
fn stores_kernels() -> bool {
    if !is_on_cuda() {
        let text = "kiln-skip: gpu: the store of kernels: KILN_DEVICE names no CUDA device";
        writeln!(std::io::stdout(), "{text}").expect("stdout should be open");
    }
    is_on_cuda()
}

#[test]
fn a_later_process_compiles_no_kernel() {
    if !stores_kernels() {
        return;
    }
    let folder = TempDir::new().expect("a folder should be created");
    let first = Process::start(folder.path(), "first").wait();
    assert!(0 < first, "the first process should have compiled kernels");
    let second = Process::start(folder.path(), "second").wait();
    assert_eq!(second, 0, "the second process compiled kernels");
}

#[test]
fn processes_that_start_together_share_the_store() {
    if !stores_kernels() {
        return;
    }
    let folder = TempDir::new().expect("a folder should be created");
    let names = ["0", "1", "2"];
    let together: Vec<Process> = names.iter().map(|name| Process::start(folder.path(), name)).collect();
    for process in together {
        process.wait();
    }
    assert_eq!(Process::start(folder.path(), "last").wait(), 0, "a later process compiled kernels");
}
