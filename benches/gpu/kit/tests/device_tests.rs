//! The device tests of several crates as one program, for a machine with a GPU: the modules are the crates' own test
//! programs of the name `device`. Fixtures are found below the folder that the environment variable `CARGO_MANIFEST_DIR`
//! names.

#[path = "../../../../crates/kernels/tests/device/main.rs"]
mod kernels;
#[cfg(feature = "nccl")]
#[path = "../../../../crates/nccl/tests/device/main.rs"]
mod nccl;
#[path = "../../../../crates/nn/tests/device/main.rs"]
mod nn;
#[path = "../../../../crates/train/tests/device/main.rs"]
mod train;
