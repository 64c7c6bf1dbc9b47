//! Tests of ranks on several devices of the stubs of the CUDA driver and of NCCL.

use std::collections::BTreeMap;
use std::io::Write;

use super::{command, text};

/// Four ranks run on two devices of the stub driver. Each device launches kernels, and receives graph and features
/// once.
#[test]
fn ranks_of_a_device_share_one_copy_of_graph_and_features() {
    if std::env::var_os("CUDA_STUB_DIR").is_none() {
        let mut out = std::io::stdout();
        return writeln!(out, "kiln-skip: gpu: copies per device: not on the stub driver").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let traced = folder.path().join("trace");
    std::fs::create_dir(&traced).unwrap();
    let flags = "--data fake:2000 --hidden 8 --layers 1 --fanouts 2 --batch-size 8 --epochs 1 --drop-last --ranks 4 \
                 --device cuda:0,cuda:1 --graph-mode device";
    let mut command = command(flags);
    command.arg("--out").arg(folder.path().join("out"));
    let output = command.env("CUDA_STUB_DIR", &traced).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let traces = std::fs::read_dir(&traced).unwrap().map(|entry| entry.unwrap().path());
    let mut traces = traces.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("trace."));
    let trace = std::fs::read_to_string(traces.next().unwrap()).unwrap();
    let lines: Vec<Vec<&str>> = trace.lines().map(|line| line.split(' ').collect()).collect();
    // These lines have the form `SECONDS tTHREAD stream qQUEUE dDEVICE`.
    let streams: BTreeMap<&str, &str> =
        lines.iter().filter(|line| line[2] == "stream").map(|line| (line[3], line[4])).collect();
    // These lines have the form `SECONDS tTHREAD copy h2d BYTES qQUEUE`.
    let copies = lines.iter().filter(|line| line[2] == "copy" && line[3] == "h2d");
    let copies: Vec<(usize, &str)> =
        copies.map(|line| (line[4].parse().unwrap(), streams.get(line[5]).copied().unwrap_or("?"))).collect();
    let [n_nodes, n_edges, dim] = sizes(&text(&output.stdout));
    // Copies are recognized by their sizes in bytes: no weight, gradient or batch of this run has the size of such an
    // array.
    let arrays = [("offsets", 8 * (n_nodes + 1)), ("sources", 4 * n_edges), ("features", 4 * n_nodes * dim)];
    for device in ["d0", "d1"] {
        let n_launches = lines.iter().filter(|line| line[2] == "launch" && line.contains(&device)).count();
        assert!(50 < n_launches, "{n_launches} launches on {device}");
        for (array, n_bytes) in arrays {
            let n_copies = copies.iter().filter(|copy| **copy == (n_bytes, device)).count();
            assert_eq!(n_copies, 1, "copies of the {array}, {n_bytes} bytes, to {device}");
        }
    }
    let on_third = lines.iter().find(|line| line.contains(&"d2"));
    assert!(on_third.is_none(), "the third device is not used: {on_third:?}");
}

/// Parses the numbers of nodes, edges and feature columns from the program's first line: `fake: N nodes, N edges, N
/// features, ..`.
fn sizes(said: &str) -> [usize; 3] {
    ["nodes", "edges", "features"].map(|what| {
        let number = said.split(&format!(" {what}")).next().unwrap().rsplit([' ', ',']).next();
        number.unwrap().parse().unwrap_or_else(|_| panic!("expected the number of {what} in: {said}"))
    })
}

/// Each of the two thread ranks has its own device, and NCCL sums their gradients.
#[test]
fn thread_ranks_on_two_devices_sum_gradients_by_nccl() {
    if std::env::var_os("CUDA_STUB_DIR").is_none() || !cfg!(feature = "nccl") {
        let mut out = std::io::stdout();
        return writeln!(out, "kiln-skip: gpu: programs with NCCL: not on its stub").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let traced = folder.path().join("nccl");
    let flags = "--data fake:600 --hidden 8 --layers 1 --fanouts 2 --batch-size 64 --epochs 1 --ranks 2 \
                 --device cuda:0,cuda:1 --engine nccl";
    let mut command = command(flags);
    command.arg("--out").arg(folder.path().join("out"));
    let output = command.env("NCCL_STUB_TRACE", &traced).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let trace = std::fs::read_to_string(traced).unwrap();
    for rank in [0, 1] {
        let init = format!("init-in-group rank {rank} of 2 device {rank} ");
        assert_eq!(trace.lines().filter(|line| line.starts_with(&init)).count(), 1, "{trace}");
        let sum = format!("all-reduce rank {rank} of 2 device {rank} ");
        assert!(2 < trace.lines().filter(|line| line.starts_with(&sum)).count(), "{trace}");
    }
}
