//! Tests of the stub driver, most of which launch a small kernel on it.

use std::io::Write;
use std::process::Stdio;

use super::*;
use crate::cuda::trace::{Launch, Work};

/// The first unit of each cube adds up all values.
const SERIAL_SUM: &str = include_str!("../../../cuda_stub/tests/serial_sum.ptx");

/// Each unit reads the value of the unit before it, after a branch.
const SHUFFLE: &str = include_str!("../../../cuda_stub/tests/shuffle_after_branch.ptx");

/// The setting of the mode in which the lanes of different branches stay apart.
const PARTIAL_WARPS: [(&str, &str); 1] = [("CUDA_STUB_PARTIAL_WARPS", "1")];

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

    /// Launches the kernel of a PTX text with cubes of 64 units, and returns the trace.
    fn launch(
        &self,
        text: &str,
        [n_cubes, n_values]: [usize; 2],
        vars: &[(&str, &str)],
    ) -> (Outcome, Vec<Launch>) {
        let ptx = self.folder.path().join("kernel.ptx");
        fs::write(&ptx, text).unwrap();
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
    let (outcome, launches) = launcher.launch(SERIAL_SUM, [10, 2000], &[("CUDA_STUB_SECTORS", "4")]);
    assert_eq!(outcome.status, Some(0), "{}", outcome.message);
    let [launch] = &launches[..] else { panic!("{launches:?}") };
    assert_eq!((launch.n_cubes, launch.n_units, launch.is_skipped), (10, 64, false));
    // One unit of a cube reads all values and writes one. Each access is a sector, because the other units of the warp
    // read nothing.
    let expected = Work { longest: 2001, longest_site: 2000, n_bytes: 32 * 2001, n_ops: 2 * 2000 };
    assert_eq!(launch.work, Some(expected));
    let [read, wrote] = launch.accesses.unwrap();
    assert_eq!([read.requests, read.sectors, wrote.requests, wrote.sectors], [20_000, 20_000, 10, 10]);
    let (_, launches) = launcher.launch(SERIAL_SUM, [10, 2000], &[]);
    assert!(launches[0].work.is_none() && launches[0].accesses.is_none());
}

#[test]
fn skipped_launches_count_some_cubes_and_write_nothing() {
    let Some(launcher) = Launcher::build("skipped launches on the stub driver") else { return };
    let changed = |vars: &[(&str, &str)]| -> (Vec<usize>, Launch) {
        let (outcome, launches) = launcher.launch(SERIAL_SUM, [10, 100], vars);
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
    // The counted cubes are executed, but what they write is discarded.
    let (written, launch) = changed(&[("CUDA_STUB_SKIP", "kernel"), ("CUDA_STUB_SECTORS", "3")]);
    assert!(written.is_empty(), "cubes {written:?} have written");
    assert_eq!(launch.work.unwrap().longest, 101);
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
        ("CUDA_STUB_PARTIAL_WARPS", "yes", "CUDA_STUB_PARTIAL_WARPS is `yes`, expected 0 to 1"),
        ("CUDA_STUB_DEVICES", "9", "CUDA_STUB_DEVICES is `9`, expected 0 to 8"),
    ] {
        let (outcome, launches) = launcher.launch(SERIAL_SUM, [1, 10], &[(name, value)]);
        assert_eq!((outcome.status, launches.len()), (Some(99), 0), "{name}");
        assert!(outcome.message.contains(expected), "{}", outcome.message);
    }
}

/// The kernel is `SHUFFLE` with a full-mask synchronization between the branch and the shuffle.
fn synchronized_shuffle() -> String {
    let text = SHUFFLE.replace("// synchronization", "bar.warp.sync -1;");
    assert_ne!(text, SHUFFLE);
    text
}

#[test]
fn a_shuffle_after_a_divergent_branch_fails_with_partial_warps() {
    let Some(launcher) = Launcher::build("shuffles with partial warps") else { return };
    // In the second warp, eight lanes read a value and 24 do not.
    let (outcome, _) = launcher.launch(SHUFFLE, [1, 40], &PARTIAL_WARPS);
    assert_eq!(outcome.status, Some(99), "{outcome:?}");
    let expected = "kernel: lane 8 reads a value of lane 7, which is not in its mask ffffff00";
    assert!(outcome.message.contains(expected), "{}", outcome.message);
    // The default mode, whose code of the kernel is another, keeps the warp together.
    let sums = |n_values: u32| -> Vec<u32> {
        let before = |value: u32| if value.is_multiple_of(32) { value } else { value - 1 };
        (0..n_values).map(|value| value + before(value)).collect()
    };
    let (outcome, _) = launcher.launch(SHUFFLE, [1, 40], &[]);
    assert_eq!((outcome.status, outcome.values), (Some(0), sums(40)));
    // All lanes of both warps take the same branch.
    let (outcome, _) = launcher.launch(SHUFFLE, [1, 64], &PARTIAL_WARPS);
    assert_eq!((outcome.status, outcome.values), (Some(0), sums(64)));
    let (outcome, _) = launcher.launch(&synchronized_shuffle(), [1, 40], &PARTIAL_WARPS);
    assert_eq!((outcome.status, outcome.values), (Some(0), sums(40)));
}

#[test]
fn operations_of_warps_execute_with_the_lanes_of_their_mask() {
    let Some(launcher) = Launcher::build("masks of shuffles") else { return };
    let message = |text: &str| -> String {
        let (outcome, _) = launcher.launch(text, [1, 40], &[]);
        assert_eq!(outcome.status, Some(99), "{outcome:?}");
        outcome.message
    };
    let with_mask = |mask: &str| SHUFFLE.replace("activemask.b32 \t%r4", &format!("mov.b32 \t%r4, {mask}"));
    let outside = message(&with_mask("3"));
    assert!(outside.contains("lane 2 takes part as lane 2, which is not in its mask 00000003"), "{outside}");
    // Lanes without a value go to a barrier, so that they never come to the shuffle of the others.
    let apart = with_mask("-1").replace("@%p1 bra \t$L__shuffle", "@%p1 bra \t$L__apart");
    let apart = apart.replace("$L__end:", "\tbra.uni \t$L__end;\n$L__apart:\n\tbar.sync \t0;\n$L__end:");
    let waits = message(&apart);
    assert!(
        waits.contains("lane 0 waits for lane 8, which never comes, but is in its mask ffffffff"),
        "{waits}"
    );
    // Lanes that have ended are not waited for.
    let ended = with_mask("-1").replace("@%p1 bra \t$L__shuffle", "@%p1 bra \t$L__end");
    let (outcome, _) = launcher.launch(&ended, [1, 40], &[]);
    assert_eq!(outcome.status, Some(0), "{}", outcome.message);
}

#[test]
fn finds_variants_of_kernels_that_were_never_launched_with_partial_warps() {
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub { folder: folder.path().to_owned(), n_devices: 1 };
    fs::create_dir_all(stub.traces()).unwrap();
    let (h200, a100) = (".target sm_90a\nactivemask.b32 %r1;", ".target sm_80\nactivemask.b32 %r1;");
    let mut trace = Trace::default();
    for (module, kernel, ptx) in [
        ("00000000000000a1", "sums_in_tiles", h200),
        ("00000000000000a2", "sums_in_tiles", h200),
        ("00000000000000a3", "sums_in_tiles", a100),
        ("00000000000000a4", "pick", ".target sm_90a\n"),
        ("00000000000000a5", "of_a_library", h200),
    ] {
        fs::write(stub.ptx(module), ptx).unwrap();
        let launch =
            format!("launch {kernel}_12345678 {module} grid 1 1 1 block 32 1 1 shared 0 q1 d0 ms 0.1");
        trace.read(&format!("0.1 t1 {launch}\n"));
    }
    let own = ["sums_in_tiles", "pick"].map(|name| Kernel { name: name.into(), dtype: None });
    let names =
        |names: &[&str]| names.iter().map(|name| format!("sums_in_tiles ({name})")).collect::<Vec<_>>();
    let both = names(&["00000000000000a1", "00000000000000a2"]);
    assert_eq!(stub.never_with_partial_warps(&trace, &own).unwrap(), both);
    fs::write(stub.traces().join("00000000000000a1.partial.so"), "").unwrap();
    assert_eq!(stub.never_with_partial_warps(&trace, &own).unwrap(), both[1..]);
}
