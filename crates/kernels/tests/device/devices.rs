//! Tests of opening devices by name, and of the errors for unavailable ones.

use burn::tensor::Device;
use kiln_kernels::{DeviceError, open_device, smoke_test, testing};

fn error(name: &str) -> DeviceError {
    open_device(name).expect_err("there should be no such device")
}

#[test]
fn the_cpu_is_always_available() {
    assert_eq!(open_device("cpu").expect("the CPU should be available"), Device::flex());
}

#[test]
fn rejects_unknown_device_names() {
    for name in ["", "tpu", "cpu:0", "cube-cpu:0", "cuda:", "cuda:one", "cuda:-1", "wgpu:0:1", "CPU"] {
        assert_eq!(error(name), DeviceError::Unknown { name: name.into() });
    }
    let said = error("tpu").to_string();
    assert_eq!(
        said,
        "unknown device `tpu`: expected cpu, cube-cpu, cuda, cuda:N, wgpu or wgpu:N, or several of them separated by \
         commas (did you mean `cpu`?)"
    );
}

#[test]
fn reports_a_missing_feature_or_the_number_of_devices() {
    let kinds = [("cuda:99", "cuda", cfg!(feature = "cuda")), ("wgpu:99", "wgpu", cfg!(feature = "wgpu"))];
    for (name, feature, is_built) in kinds {
        match error(name) {
            DeviceError::NotBuilt { feature: needed, .. } if !is_built => assert_eq!(needed, feature),
            DeviceError::NotFound { n_found, .. } if is_built => assert!(n_found < 99),
            other => panic!("unexpected error for {name}: {other}"),
        }
    }
}

#[cfg(not(feature = "cube-cpu"))]
#[test]
fn reports_the_missing_feature_of_a_device() {
    let said = error("cube-cpu").to_string();
    assert!(said.ends_with("build with --features cube-cpu"), "{said}");
}

#[cfg(feature = "cube-cpu")]
#[test]
fn opens_the_cpu_with_cubecl_kernels() {
    assert_ne!(open_device("cube-cpu").expect("the CPU should be available"), Device::flex());
}

#[test]
fn the_device_passes_the_smoke_test() {
    let device = testing::device();
    assert_eq!(smoke_test(&device), Ok(()));
    // The loss, and a gradient of two rows and three columns that is not zero.
    let numbers = testing::smoke_test_numbers(&device);
    assert!(numbers.len() == 7 && numbers.iter().all(|number| *number != 0.0), "{numbers:?}");
}
