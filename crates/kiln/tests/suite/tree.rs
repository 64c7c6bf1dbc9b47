//! A test of the dependencies that the crate has with default features.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::process::Command;

#[test]
fn default_features_bring_no_grpc_mpi_cuda_or_plots() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--locked", "-p", "kiln", "-e", "normal", "--prefix", "none"]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let has = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    assert!(has("kiln-train") && has("burn"), "{tree}{}", String::from_utf8_lossy(&output.stderr));
    for name in ["tonic", "prost", "mpi", "cudarc", "plotters"] {
        assert!(!has(name), "kiln should not depend on {name}");
    }
}
