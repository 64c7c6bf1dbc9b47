//! Tests of the tutorials' programs on two devices of the kind that the environment variable `KILN_DEVICE` names: with
//! `--ranks auto` each device has a rank, and the losses are those of two ranks on the CPU.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod small;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The relative tolerance of losses after a few steps, which amplify the differences of summation order and rounding.
const LOSS_TOLERANCE: f64 = 1e-3;

/// The number of nodes of the graphs: few, because the stub of the CUDA driver computes on the CPU.
const N_NODES: usize = 60;

/// The fewest kernels that a rank launches on its device in a run of these tests.
const MIN_LAUNCHES: usize = 50;

/// Returns the folder in which the stub of the CUDA driver writes its traces, if the tests run on it.
fn stub_traces() -> Option<PathBuf> {
    std::env::var_os("CUDA_STUB_DIR").map(PathBuf::from)
}

/// Returns the flag that names two devices. Returns `None`, and prints a line, if the machine has fewer.
fn two_devices(program: &str) -> Option<String> {
    let kind = std::env::var("KILN_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    if kind == "cuda" && stub_traces().is_some() {
        // `Run::start` sets the number of the stub's devices, of which the flag names all.
        return Some(kind);
    }
    if kiln::device_count(&kind).unwrap() < 2 {
        // A direct write bypasses the output capture of the test harness.
        let mut out = std::io::stdout();
        writeln!(out, "kiln-skip: gpu: {program} on two devices: KILN_DEVICE does not name two").unwrap();
        return None;
    }
    Some(format!("{kind}:0,{kind}:1"))
}

/// A finished run of a program.
struct Run {
    folder: PathBuf,
    process_id: u32,
}

impl Run {
    /// Runs a program in a new folder. On the stub of the CUDA driver, the machine has two devices.
    fn start(program: &str, args: &[OsString], device: &str, ranks: &str, folder: PathBuf) -> Self {
        fs::create_dir(&folder).unwrap();
        let mut command = Command::new(program);
        command.args(args).args(["--device", device, "--ranks", ranks]).current_dir(&folder);
        command.env("CUDA_STUB_DEVICES", "2").stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = command.spawn().unwrap();
        let process_id = process.id();
        let output = process.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {args:?} on {device}: {printed}");
        Self { folder, process_id }
    }

    /// Returns the losses of training and validation after each epoch.
    fn losses(&self) -> Vec<f64> {
        let runs = fs::read_dir(self.folder.join("runs")).unwrap();
        let runs: Vec<PathBuf> = runs.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(runs.len(), 1, "only rank 0 should write files: {runs:?}");
        let rows = fs::read_to_string(runs[0].join("metrics.jsonl")).unwrap();
        let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
        rows.flat_map(|row| ["train_loss", "val_loss"].map(|name| row[name].as_f64().unwrap())).collect()
    }

    /// Checks in a trace of the stub of the CUDA driver that both devices launched kernels.
    fn check_launches(&self, traces: &Path) {
        let trace = fs::read_to_string(traces.join(format!("trace.{}", self.process_id))).unwrap();
        // These lines have the form `SECONDS tTHREAD launch KERNEL … dDEVICE …`.
        let launches = trace.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let launches: Vec<Vec<&str>> = launches.filter(|line| line.get(2) == Some(&"launch")).collect();
        for device in ["d0", "d1"] {
            let n_launches = launches.iter().filter(|line| line.contains(&device)).count();
            assert!(MIN_LAUNCHES <= n_launches, "{n_launches} launches on {device}");
        }
    }
}

/// Trains with one rank on each of two devices, and with two ranks on the CPU. Both have the same batches, so their
/// losses agree except for rounding.
fn check(name: &str, program: &str, args: impl FnOnce(&Path) -> Vec<OsString>) {
    let Some(device) = two_devices(name) else { return };
    let folder = tempfile::tempdir().unwrap();
    let args = args(folder.path());
    let on_cpu = Run::start(program, &args, "cpu", "2", folder.path().join("cpu"));
    let on_devices = Run::start(program, &args, &device, "auto", folder.path().join("devices"));
    if let Some(traces) = stub_traces() {
        on_devices.check_launches(&traces);
    }
    let (expected, got) = (on_cpu.losses(), on_devices.losses());
    println!("{name} on {device}: losses {got:?}, on the CPU {expected:?}");
    check_close(&got, &expected, &format!("{name} on {device}"));
}

fn check_close(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (number, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (got - expected).abs() / expected.abs();
        assert!(error < LOSS_TOLERANCE, "loss {number} of {what}: {got}, expected {expected}");
    }
}

/// Returns the arguments of a program: flags, separated by spaces, and a last flag with a path.
fn args(flags: &str, path: Option<PathBuf>) -> Vec<OsString> {
    flags.split_whitespace().map(OsString::from).chain(path.map(OsString::from)).collect()
}

#[test]
fn node_classification_trains_on_two_devices() {
    check("node_classification", env!("CARGO_BIN_EXE_node_classification"), |folder| {
        args("--epochs 2 --data", Some(small::write(N_NODES, folder)))
    });
}

/// One rule runs in a kernel, the other one picks on the host.
#[test]
fn custom_sampler_trains_on_two_devices() {
    for rule in ["uniform", "low-degree"] {
        check("custom_sampler", env!("CARGO_BIN_EXE_custom_sampler"), |folder| {
            let flags = format!("--epochs 2 --on-device --rule {rule} --data");
            args(&flags, Some(small::write(N_NODES, folder)))
        });
    }
}

/// On CubeCL's CPU runtime, the rule in CubeCL picks the neighbours that it picks in Rust.
#[cfg(feature = "cube-cpu")]
#[test]
fn custom_sampler_on_the_cpu_runtime() {
    if std::env::var_os("KILN_DEVICE").is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let args = args("--epochs 1 --on-device --data", Some(small::write(N_NODES, folder.path())));
    let run = |device: &str| {
        let program = env!("CARGO_BIN_EXE_custom_sampler");
        Run::start(program, &args, device, "1", folder.path().join(device)).losses()
    };
    let expected = run("cpu");
    check_close(&run("cube-cpu"), &expected, "custom_sampler on cube-cpu");
}

#[test]
fn graph_classification_trains_on_two_devices() {
    check("graph_classification", env!("CARGO_BIN_EXE_graph_classification"), |_| args("--epochs 2", None));
}

#[cfg(feature = "grpc")]
#[test]
fn multi_node_trains_on_two_devices() {
    check("multi_node", env!("CARGO_BIN_EXE_multi_node"), |_| args("--epochs 2 --nodes 60", None));
}

#[cfg(feature = "grpc")]
#[test]
fn distributed_sage_trains_on_two_devices() {
    check("distributed_sage", env!("CARGO_BIN_EXE_distributed_sage"), |folder| {
        args("--epochs 2 --parts", Some(small::write_parts(N_NODES, folder)))
    });
}
