//! Tests of `kiln train` on the device of the environment variable `KILN_DEVICE`, or else on CubeCL's CPU runtime if it
//! is built in. Losses must agree with those of the device `cpu`.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "devices/item_times.rs"]
mod item_times;
#[path = "devices/one_answer.rs"]
mod one_answer;
mod partitioned;
#[path = "devices/relations.rs"]
mod relations;
mod stub;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use kiln::comm::rpc::Token;
use kiln::data::Dataset;
use kiln::data::synthetic::{FakeConfig, fake};
use kiln::graph::{EdgeColumn, NodeId};
use kiln::kernels::{DeviceGraph, DeviceSampler, Devices, open_device};
use kiln::partition::{Part, part_dir};
use kiln::remote::{ConnectConfig, DistGraph, DistNeighborSampler, ServeConfig, Server};
use kiln::sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, Rule, SamplerConfig, Scratch, Seeds};
use serde_json::Value;

/// The relative tolerance of losses after a few steps, which amplify the differences of summation order and rounding.
const LOSS_TOLERANCE: f64 = 1e-3;

fn command(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("train").args(flags.split_whitespace());
    command
}

fn run(flags: &str) -> Output {
    command(flags).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the device to compare with the device `cpu`, if there is one.
fn device() -> Option<String> {
    let named = std::env::var("KILN_DEVICE").ok().filter(|name| name != "cpu");
    named.or(cfg!(feature = "cube-cpu").then(|| "cube-cpu".into()))
}

#[test]
fn cross_validation_runs_on_the_device() {
    let device = device().unwrap_or_else(|| "cpu".into());
    let flags =
        format!("--data mutag --folds 3 --epochs 1 --hidden 8 --layers 2 --ranks 2 --device {device}");
    let output = run(&flags);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("inner validation"), "{}", text(&output.stdout));
}

/// Returns the hash of a run's weights.
fn weights_hash(out: &Path) -> String {
    let summary = std::fs::read_to_string(out.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    summary["weights_hash"].as_str().unwrap().to_owned()
}

/// Trains, and returns the metrics of these names for each epoch.
fn losses(flags: &str, device: &str, out: &Path, names: &[&str]) -> Vec<f64> {
    let out = out.join(device);
    let output = run(&format!("{flags} --device {device} --out {}", out.display()));
    assert!(output.status.success(), "{flags} on {device}: {}", text(&output.stderr));
    let rows = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
    rows.flat_map(|row| names.iter().map(move |name| row[name].as_f64().unwrap())).collect()
}

fn check(flags: &str) {
    check_losses(flags, &["train_loss", "val_loss"]);
}

fn check_losses(flags: &str, names: &[&str]) {
    let Some(device) = device() else {
        // A direct write bypasses the output capture of the test harness.
        let mut out = std::io::stdout();
        return writeln!(out, "kiln-skip: gpu: losses: KILN_DEVICE names no other device").unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    let [expected, got] = ["cpu", &device].map(|device| losses(flags, device, folder.path(), names));
    assert_eq!(got.len(), expected.len());
    for (number, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let error = (got - expected).abs() / expected.abs();
        assert!(error < LOSS_TOLERANCE, "loss {number} of {flags} on {device}: {got}, expected {expected}");
    }
}

#[test]
fn node_classification_losses_match_the_cpu() {
    let flags = "--data fake:600 --hidden 16 --fanouts 5,5 --batch-size 128 --epochs 1";
    check(flags);
    check(&format!("{flags} --model gcn --ranks 2"));
    for mode in ["device", "zero-copy"] {
        check(&format!("{flags} --graph-mode {mode}"));
        check(&format!("{flags} --model gcn --graph-mode {mode}"));
    }
}

/// The precisions of products on CUDA devices besides f32, and the relative tolerances of losses after an epoch: the error of a
/// product, about 2^-9 in TF32 and 2^-7 in bf16, times four for two layers, the loss and the steps.
const PRECISIONS: [(&str, f64); 2] = [("tf32", 8e-3), ("bf16", 3.2e-2)];

#[test]
fn products_in_other_precisions_give_close_losses() {
    let Some(device) = device().filter(|device| device.starts_with("cuda")) else {
        let mut out = std::io::stdout();
        return writeln!(out, "kiln-skip: gpu: products in TF32 and bf16: KILN_DEVICE names no CUDA device")
            .unwrap();
    };
    let flags = "--data fake:600 --hidden 16 --layers 2 --fanouts 3 --batch-size 128 --epochs 1";
    let folder = tempfile::tempdir().unwrap();
    let losses_in = |precision: &str| {
        let flags = format!("{flags} --graph-mode device --precision {precision}");
        losses(&flags, &device, &folder.path().join(precision), &["train_loss", "val_loss"])
    };
    let expected = losses_in("f32");
    for (precision, tolerance) in PRECISIONS {
        let got = losses_in(precision);
        assert_ne!(got, expected, "{precision}");
        let is_close = |(got, expected): (&f64, &f64)| (got - expected).abs() < tolerance * expected.abs();
        assert!(got.iter().zip(&expected).all(is_close), "{precision}: {got:?}, expected about {expected:?}");
    }
}

#[test]
fn tf32_is_rejected_without_cuda_devices() {
    // The flag was named `--matmul` when it had only the values of CUDA devices.
    for flag in ["--precision", "--matmul"] {
        let output = run(&format!("--data fake:100 {flag} tf32 --device cpu"));
        let message = text(&output.stderr);
        let expected = "--precision tf32 requires CUDA devices";
        assert!(!output.status.success() && message.contains(expected), "{message}");
    }
}

#[test]
fn bf16_is_rejected_on_other_devices_than_cuda_and_the_cpu() {
    let Some(device) = device().filter(|device| !device.starts_with("cuda")) else {
        let mut out = std::io::stdout();
        return writeln!(out, "kiln-skip: gpu: bf16 on another device: KILN_DEVICE names none").unwrap();
    };
    let output = run(&format!("--data fake:100 --precision bf16 --device {device}"));
    let message = text(&output.stderr);
    let expected = "--precision bf16 requires CUDA devices or the CPU";
    assert!(!output.status.success() && message.contains(expected), "{message}");
}

#[test]
fn kiln_device_lists_devices_and_tests_them() {
    let list = |cuda_path: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command.arg("device").envs(cuda_path.map(|path| ("CUDA_PATH", path)));
        command.output().unwrap()
    };
    let output = list(None);
    let lines = text(&output.stdout);
    assert!(output.status.success(), "{lines}");
    let works = |name: &str| {
        lines.lines().any(|line| line.starts_with(name) && line.contains("works, smoke test in"))
    };
    assert!(works("cpu ") && device().is_none_or(|device| works(&device)), "{lines}");
    if std::env::var_os("CUDA_STUB_DIR").is_some() {
        assert!(lines.contains("cuda:2    NVIDIA H200 (stub), 140.4 GiB, CUDA 13.0: works"), "{lines}");
        let output = list(Some("/nowhere"));
        let lines = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{lines}");
        assert!(
            lines.contains("nvvm/libdevice/libdevice.10.bc does not exist in /nowhere. Install"),
            "{lines}"
        );
    }
}

/// The place where batches are prepared must not affect the weights.
#[test]
fn device_sampled_batches_give_identical_weights() {
    let device = device().unwrap_or_else(|| "cpu".into());
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("with-features");
    kiln::data::format::write(&with_edge_features(), &set).unwrap();
    let gine = format!("{} --edge-input features", set.display());
    for (model, data) in [("sage", "fake:600"), ("gcn", "fake:600"), ("gine", &gine)] {
        let flags =
            format!("--data {data} --model {model} --hidden 16 --fanouts 5,5 --batch-size 128 --epochs 1");
        let trained = |how: &str| {
            let out = folder.path().join(format!("{model} {how}").replace(' ', "_"));
            let output = run(&format!("{flags} --device {device} {how} --out {}", out.display()));
            assert!(output.status.success(), "{model} {how}: {}", text(&output.stderr));
            (weights_hash(&out), text(&output.stdout))
        };
        let (expected, _) = trained("");
        for how in ["device", "zero-copy", "device --feature-cache 10KiB --hot-by presampling"] {
            let (got, said) = trained(&format!("--graph-mode {how}"));
            assert_eq!(got, expected, "{model} {how}");
            let has_all = !how.contains("cache") || device == "cpu";
            assert_eq!(said.contains("feature hits    100.0 %"), has_all, "{model} {how}: {said}");
            assert_eq!(said.contains("stay on the host"), how == "zero-copy", "{said}");
            assert_eq!(said.contains("edges with their features"), model == "gine", "{said}");
        }
    }
}

/// Returns a set of about 500 nodes with two columns of features for each edge.
fn with_edge_features() -> Dataset {
    let config = FakeConfig { avg_num_nodes: 500, num_channels: 16, seed: 3, ..Default::default() };
    let data = fake(config).unwrap();
    let rows = (0..2 * data.graph.n_edges()).map(|i| (i * 7 % 23) as f32 / 23.0);
    let rows = EdgeColumn::new(rows.collect::<Vec<f32>>(), 2).unwrap();
    data.with_edge_column(0, "features", rows).unwrap()
}

/// The device that a rank computes on must not affect the weights.
#[test]
fn two_ranks_on_one_device_match_two_devices() {
    let device = device().unwrap_or_else(|| "cpu".into());
    let one = if device == "cuda" { "cuda:0" } else { &device };
    // On a machine with one device, the flag names it twice, which counts as two devices.
    let two = match Devices::open(&device).unwrap().len() {
        1 => format!("{one},{one}"),
        _ => format!("{device}:0,{device}:1"),
    };
    let folder = tempfile::tempdir().unwrap();
    for mode in ["cpu", "device"] {
        let trained = |name: &str, flags: &str| {
            let out = folder.path().join(format!("{mode} {name}"));
            let flags = format!(
                "--data fake:600 --hidden 16 --fanouts 5,5 --batch-size 128 --epochs 1 --graph-mode {mode} {flags}"
            );
            let output = command(&flags).arg("--out").arg(&out).output().unwrap();
            assert!(output.status.success(), "{mode} {name}: {}", text(&output.stderr));
            weights_hash(&out)
        };
        let on_one = trained("one", &format!("--ranks 2 --device {one}"));
        let on_two = trained("two", &format!("--ranks auto --device {two}"));
        assert_eq!(on_one, on_two, "{mode}: weights on {one} and on {two}");
    }
}

#[test]
fn multi_node_losses_match_the_cpu() {
    check(
        "--data fake:600 --model gcn --hidden 16 --dropout 0 --lr 0.01 --weight-decay 0.0005 --batch-size 128 \
         --fanouts 5,5 --val-batches 2 --epochs 1",
    );
}

/// Each rank's device samples its local partition; the remaining hops are requested from the other rank.
#[test]
fn device_sampling_of_a_partition_gives_identical_weights() {
    let device = device().unwrap_or_else(|| "cpu".into());
    let folder = tempfile::tempdir().unwrap();
    partitioned::write(FakeConfig { avg_num_nodes: 300, ..Default::default() }, None, folder.path());
    let trained = |mode: &str| {
        let (parts, out) = (folder.path().join("parts"), folder.path().join(mode));
        let flags = format!(
            "--ranks 2 --hidden 16 --fanouts 4,6 --epochs 1 --batch-size 32 --device {device} --graph-mode {mode} \
             --parts {} --out {}",
            parts.display(),
            out.display()
        );
        let output = run(&flags);
        assert!(output.status.success(), "{mode}: {}", text(&output.stderr));
        (weights_hash(&out), text(&output.stdout))
    };
    let (expected, _) = trained("cpu");
    for (mode, told) in [("device", "are on the device"), ("zero-copy", "stay on the host")] {
        let (got, said) = trained(mode);
        assert_eq!(got, expected, "{mode}");
        assert!(said.contains(told), "{mode}: {said}");
    }
}

/// This process holds one of two partitions, and the device samples it. The blocks and their edge ids equal those of
/// the whole graph.
#[test]
fn blocks_with_a_device_sampled_partition_match_the_whole_graph() {
    let device = open_device(&device().unwrap_or_else(|| "cpu".into())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = FakeConfig { avg_num_nodes: 600, ..Default::default() };
    partitioned::write(config, None, folder.path());
    let part = |part| Arc::new(Part::open(part_dir(folder.path().join("parts"), part)).unwrap());
    let whole = kiln::data::open(folder.path().join("whole")).unwrap();
    let (own, token) = (part(0), Token::new("a-word-of-this-test").unwrap());
    let server = Server::start(part(1), ServeConfig::new("127.0.0.1:0", token.clone())).unwrap();
    let config = ConnectConfig::new(vec![server.address().to_string()], token);
    let graph = DistGraph::connect(ConnectConfig { own: Some(own.clone()), ..config }).unwrap();
    let (graph, by_node) = (Arc::new(graph), Arc::new(own.graph_by_node(0).unwrap()));
    let fanouts = [Fanout::UpTo(3), Fanout::All, Fanout::UpTo(5)];
    let config = SamplerConfig::new(fanouts).with_rule(Rule::UniformKeepSelfLoops);
    let whole = NeighborSampler::with_config(whole.csc().unwrap().clone(), config.clone()).unwrap();
    let seeds = Seeds::nodes((0..90).map(|seed| NodeId(seed * 5)).collect());
    let expected = whole.sample_blocks(&seeds, RngKey::new(8), &mut Scratch::default()).unwrap();
    for on_device in [DeviceGraph::new(by_node.clone(), &device), DeviceGraph::host_staged(by_node, &device)]
    {
        let own = DeviceSampler::with_config(on_device.unwrap(), config.clone()).unwrap();
        let sampler = DistNeighborSampler::with_config(graph.clone(), config.clone()).unwrap();
        let sampler = sampler.with_local_sampler(own).unwrap();
        let got = sampler.sample_blocks(&seeds, RngKey::new(8), &mut Scratch::default()).unwrap();
        assert!(got == expected);
    }
    let stats = graph.take_fetch_stats();
    assert!(0 < stats.own_dsts && 0 < stats.remote_dsts, "{stats:?}");
}

/// Batches have different shapes, but the kernels that were compiled in the first epoch serve all later ones. The
/// CubeCL log lists each launch with the parameters that its kernel was compiled for.
#[test]
fn kernels_are_not_recompiled_for_new_batch_shapes() {
    let Some(device) = device() else {
        let mut out = std::io::stdout();
        return writeln!(out, "kiln-skip: gpu: compiled kernels: KILN_DEVICE names no other device").unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    let kernels_of = |n_epochs: usize| {
        let (log, out) =
            (folder.path().join(format!("{n_epochs}.log")), folder.path().join(n_epochs.to_string()));
        let flags = format!(
            "--data sbm --hidden 16 --fanouts 5,5 --batch-size 512 --graph-mode device --device {device}"
        );
        let output = command(&flags)
            .args(["--epochs", &n_epochs.to_string(), "--out", out.to_str().unwrap()])
            .env("CUBECL_DEBUG_LOG", &log)
            .env("CUBECL_DEBUG_OPTION", "profile-full")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let log = std::fs::read_to_string(log).unwrap();
        // An entry has the form `| 1.2ms | name: compilation parameters CubeCount (1, 2, 3)`, over several lines.
        let launches =
            log.split(" | ").filter_map(|launch| Some(launch.split_once(" CubeCount (")?.0.to_owned()));
        let launches: Vec<String> = launches.collect();
        (launches.len(), launches.into_iter().collect::<BTreeSet<_>>())
    };
    let ((n_few, first), (n_many, all)) = (kernels_of(1), kernels_of(3));
    assert!(20 < first.len() && 2 * n_few < n_many, "{} kernels, {n_few} and {n_many} launches", first.len());
    let compiled_later: Vec<_> = all.difference(&first).collect();
    assert!(compiled_later.is_empty(), "{} kernels: {compiled_later:#?}", compiled_later.len());
}

#[test]
fn graph_classification_losses_on_two_ranks_match_the_cpu() {
    let flags = "--data mutag --batch-size 32 --epochs 1 --ranks 2";
    check(&format!("{flags} --model simplified"));
    // The gradient of a bias before a batch normalisation is only rounding noise, which Adam scales to full steps.
    // Batch statistics cancel the bias in training, but the running means of validation lag behind, so only the
    // training loss is compared.
    let flags = format!("{flags} --model gin --hidden 16");
    check_losses(&flags, &["train_loss"]);
}

#[test]
fn rejects_a_missing_device_with_its_name() {
    for (name, is_built) in [("cuda:99", cfg!(feature = "cuda")), ("wgpu:99", cfg!(feature = "wgpu"))] {
        let output = run(&format!("--data sbm --epochs 1 --device {name}"));
        assert!(!output.status.success());
        let said = text(&output.stderr);
        let feature = name.split(':').next().unwrap();
        let expected = match is_built {
            true => format!("device `{name}` does not exist"),
            false => format!("`{name}` needs the feature `{feature}`"),
        };
        assert!(said.contains(&expected), "{said}");
    }
}
