//! Tests of the stub driver, most of which launch a small kernel on it.

use std::io::Write;
use std::process::Stdio;

use super::*;
use crate::cuda::trace::{Launch, Work};

/// The stub and the program that launches the kernel of a PTX file on it.
struct Launcher {
    stub: Stub,
    folder: tempfile::TempDir,
}

/// The end of a process: its exit status, the values that it printed, and what it wrote to standard error.
#[derive(Debug)]
struct Outcome {
    status: Option<i32>,
    values: Vec<u32>,
    message: String,
}

impl Launcher {
    /// Returns `None`, and reports the skipped test, if the C compiler or Python is missing.
    fn build(test: &str) -> Option<Self> {
        for program in ["cc", "python3"] {
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            if !command.status().is_ok_and(|status| status.success()) {
                let skip = format!("kiln-skip: other: {test}: {program} cannot be started");
                writeln!(std::io::stdout(), "{skip}").unwrap();
                return None;
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let stub = Stub { folder: folder.path().to_owned(), n_devices: 1 };
        let (source, library) = (workspace::root().unwrap().join("xtask/cuda_stub"), stub.library());
        fs::create_dir_all(&library).unwrap();
        fs::create_dir_all(stub.traces()).unwrap();
        for file in ["ptx.h", "ptx_to_c.py"] {
            fs::copy(source.join(file), library.join(file)).unwrap();
        }
        fs::write(library.join("unresolved.inc"), "").unwrap();
        compile(&source, &library).unwrap();
        let mut launch = Command::new("cc");
        launch.args(["-O1", "-o"]).arg(library.join("launch")).arg(source.join("tests/launch.c"));
        workspace::run(launch.arg("-L").arg(&library).arg("-l:libcuda.so.1")).unwrap();
        Some(Self { stub, folder })
    }

    /// Launches the kernel of a file in `xtask/cuda_stub/tests` with cubes of 64 units, and returns the trace.
    fn launch(
        &self,
        file: &str,
        [n_cubes, n_values]: [usize; 2],
        vars: &[(&str, &str)],
    ) -> (Outcome, Vec<Launch>) {
        let ptx = workspace::root().unwrap().join("xtask/cuda_stub/tests").join(file);
        let trace_path = self.folder.path().join("trace");
        let mut command = Command::new(self.stub.library().join("launch"));
        command.arg(ptx).args([n_cubes, 64, n_values].map(|n| n.to_string()));
        self.stub.set(&mut command).env("CUDA_STUB_TRACE", &trace_path).envs(vars.iter().copied());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let outcome = Outcome {
            status: output.status.code(),
            values: text.lines().map(|line| line.parse().unwrap()).collect(),
            message: String::from_utf8(output.stderr).unwrap(),
        };
        let mut trace = Trace::default();
        trace.read(&fs::read_to_string(&trace_path).unwrap_or_default());
        (outcome, trace.launches().cloned().collect())
    }
}

#[test]
fn lists_driver_functions_without_a_definition() {
    let driver = "Result cuInit(unsigned flags) { return SUCCESS; }";
    let bindings: String =
        ["Init(Flags: u32)", "GraphLaunch(a: b)", "lib()"].map(|rest| format!("{FUNCTION}{rest}\n")).concat();
    assert_eq!(unresolved(driver, &bindings), "UNRESOLVED(cuGraphLaunch)\n");
}

#[test]
fn counts_the_largest_work_of_a_unit_and_of_a_cube() {
    let Some(launcher) = Launcher::build("work of launches on the stub driver") else { return };
    let (outcome, launches) = launcher.launch("serial_sum.ptx", [10, 2000], &[("CUDA_STUB_SECTORS", "4")]);
    assert_eq!(outcome.status, Some(0), "{}", outcome.message);
    let [launch] = &launches[..] else { panic!("{launches:?}") };
    assert_eq!((launch.n_cubes, launch.n_units, launch.is_skipped), (10, 64, false));
    // One unit of a cube reads all values and writes one. Each access is a sector, because the other units of the warp
    // read nothing.
    let expected = Work { longest: 2001, longest_site: 2000, n_bytes: 32 * 2001, n_ops: 2 * 2000 };
    assert_eq!(launch.work, Some(expected));
    let [read, wrote] = launch.accesses.unwrap();
    assert_eq!([read.requests, read.sectors, wrote.requests, wrote.sectors], [20_000, 20_000, 10, 10]);
    let (_, launches) = launcher.launch("serial_sum.ptx", [10, 2000], &[]);
    assert!(launches[0].work.is_none() && launches[0].accesses.is_none());
}

#[test]
fn skipped_launches_execute_the_counted_cubes_only() {
    let Some(launcher) = Launcher::build("skipped launches on the stub driver") else { return };
    let changed = |vars: &[(&str, &str)]| -> (Vec<usize>, Launch) {
        let (outcome, launches) = launcher.launch("serial_sum.ptx", [10, 100], vars);
        assert_eq!(outcome.status, Some(0), "{}", outcome.message);
        let values = outcome.values.iter().enumerate();
        let changed =
            values.filter(|(position, value)| *position != **value as usize).map(|(position, _)| position);
        (changed.collect(), launches[0].clone())
    };
    let all: Vec<usize> = (0..10).collect();
    assert_eq!(changed(&[("CUDA_STUB_SKIP", "^kern$|other")]).0, all);
    let (none, launch) = changed(&[("CUDA_STUB_SKIP", "^k.*(l|m)$")]);
    assert!(none.is_empty() && launch.is_skipped && launch.n_cubes == 10 && launch.work.is_none());
    let (counted, launch) = changed(&[("CUDA_STUB_SKIP", "kernel"), ("CUDA_STUB_SECTORS", "3")]);
    assert_eq!((counted, launch.work.unwrap().longest), (vec![0, 3, 6], 101));
}

#[test]
fn rejects_invalid_settings_of_the_stub() {
    let Some(launcher) = Launcher::build("settings of the stub driver") else { return };
    for (name, value, expected) in [
        (
            "CUDA_STUB_SKIP",
            "gather(",
            "CUDA_STUB_SKIP is `gather(`, which is not an extended regular expression",
        ),
        ("CUDA_STUB_SECTORS", "8x", "CUDA_STUB_SECTORS is `8x`, expected 0 to 1048576"),
        ("CUDA_STUB_DEVICES", "9", "CUDA_STUB_DEVICES is `9`, expected 0 to 8"),
    ] {
        let (outcome, launches) = launcher.launch("serial_sum.ptx", [1, 10], &[(name, value)]);
        assert_eq!((outcome.status, launches.len()), (Some(99), 0), "{name}");
        assert!(outcome.message.contains(expected), "{}", outcome.message);
    }
}
