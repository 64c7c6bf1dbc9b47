//! Devices by name, and what is said of one that is not there.

use burn::tensor::Device;
use kiln_kernels::{DeviceError, open_device};

fn error(name: &str) -> DeviceError {
    open_device(name).expect_err("there should be no such device")
}

#[test]
fn the_processor_is_always_there() {
    assert_eq!(open_device("cpu").expect("a processor should be there"), Device::flex());
}

#[test]
fn names_that_mean_nothing_are_refused() {
    for name in ["", "tpu", "cpu:0", "cube-cpu:0", "cuda:", "cuda:one", "cuda:-1", "wgpu:0:1", "CPU"] {
        assert_eq!(error(name), DeviceError::Unknown { name: name.into() });
    }
    let said = error("tpu").to_string();
    assert_eq!(
        said,
        "`tpu` is no device: expected cpu, cube-cpu, cuda, cuda:N, wgpu or wgpu:N, or several of them separated by commas"
    );
}

#[test]
fn a_device_that_is_not_there_is_named_with_what_was_looked_for() {
    let kinds = [("cuda:99", "cuda", cfg!(feature = "cuda")), ("wgpu:99", "wgpu", cfg!(feature = "wgpu"))];
    for (name, feature, is_built) in kinds {
        match error(name) {
            DeviceError::NotBuilt { feature: needed, .. } if !is_built => assert_eq!(needed, feature),
            DeviceError::NotFound { n_found, .. } if is_built => assert!(n_found < 99),
            other => panic!("{name}: {other}"),
        }
    }
}

#[cfg(not(feature = "cube-cpu"))]
#[test]
fn a_device_that_the_build_leaves_out_is_named_with_its_feature() {
    let said = error("cube-cpu").to_string();
    assert!(said.ends_with("build with --features cube-cpu"), "{said}");
}

#[cfg(feature = "cube-cpu")]
#[test]
fn kernels_run_on_the_processor_too() {
    assert_ne!(open_device("cube-cpu").expect("a processor should be there"), Device::flex());
}
