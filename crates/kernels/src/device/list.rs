//! A list of the devices of this machine.

use std::time::Instant;

use crate::device::devices::open_device;
use crate::device::error::DeviceError;
use crate::smoke::smoke_test;

/// A device of this machine, or a kind of device without one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The name that [`open_device`] takes, for example `cuda:1`.
    pub name: String,
    /// The model, for example `NVIDIA H200`, if the runtime reports it.
    pub model: Option<String>,
    /// The bytes of device memory, if the runtime reports them.
    pub memory_bytes: Option<u64>,
    /// The version of the interface that the driver supports, for example `CUDA 13.0`, if the runtime reports it.
    pub driver: Option<String>,
    /// Why the device cannot be opened, or why there is no device of this kind.
    pub problem: Option<DeviceError>,
}

impl DeviceInfo {
    /// Runs the [smoke test](smoke_test) of the device. Returns the result as text, and false if the device exists but does not
    /// work.
    ///
    /// ```
    /// for device in kiln_kernels::list_devices() {
    ///     println!("{}: {}", device.name, device.status().0);
    /// }
    /// ```
    pub fn status(&self) -> (String, bool) {
        match &self.problem {
            Some(problem @ (DeviceError::NotBuilt { .. } | DeviceError::NotFound { .. })) => {
                return (problem.to_string(), true);
            }
            Some(problem) => return (problem.to_string(), false),
            None => {}
        }
        let start = Instant::now();
        match open_device(&self.name).and_then(|device| smoke_test(&device)) {
            Ok(()) => (format!("works, smoke test in {:.1} s", start.elapsed().as_secs_f64()), true),
            Err(error) => (error.to_string(), false),
        }
    }
}

/// Lists the devices of all kinds: those that [`open_device`] opens, and for each kind without a device an entry with
/// the reason.
pub fn list_devices() -> Vec<DeviceInfo> {
    ["cpu", "cuda", "wgpu", "cube-cpu"].into_iter().flat_map(of_kind).collect()
}

fn of_kind(kind: &str) -> Vec<DeviceInfo> {
    let problem_of_kind = open_device(kind).err();
    let has_none =
        matches!(problem_of_kind, Some(DeviceError::NotBuilt { .. } | DeviceError::NotFound { .. }));
    if has_none || !["cuda", "wgpu"].contains(&kind) {
        return vec![info(kind.to_owned(), problem_of_kind)];
    }
    let numbered = (0..).map(|index| {
        let name = format!("{kind}:{index}");
        let problem = open_device(&name).err();
        (index, info(name, problem))
    });
    let found =
        numbered.take_while(|(_, device)| !matches!(device.problem, Some(DeviceError::NotFound { .. })));
    found.map(|(index, device)| with_model(index, device)).collect()
}

fn info(name: String, problem: Option<DeviceError>) -> DeviceInfo {
    DeviceInfo { name, model: None, memory_bytes: None, driver: None, problem }
}

#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only CUDA reports models"))]
fn with_model(index: usize, info: DeviceInfo) -> DeviceInfo {
    #[cfg(feature = "cuda")]
    if info.name.starts_with("cuda:") {
        let (name, memory_bytes) =
            crate::device::cuda::model(index).map(|model| (model.name, model.memory_bytes)).unzip();
        return DeviceInfo {
            model: name,
            memory_bytes,
            driver: crate::device::cuda::driver_version(),
            ..info
        };
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_device_or_a_reason() {
        let devices = list_devices();
        assert_eq!(devices[0].name, "cpu");
        assert!(devices[0].problem.is_none());
        for kind in ["cuda", "wgpu", "cube-cpu"] {
            let of_kind: Vec<_> =
                devices.iter().filter(|device| device.name.split(':').next() == Some(kind)).collect();
            assert!(!of_kind.is_empty(), "{kind} is missing");
            assert!(
                of_kind.iter().all(|device| device.problem.is_some() || open_device(&device.name).is_ok())
            );
        }
    }
}
