//! Devices by name.

use std::str::FromStr;

#[cfg(feature = "cube")]
use burn::tensor::StreamId;
use burn::tensor::{Device, Tensor};

use crate::device::error::DeviceError;

/// A device and its name.
#[derive(Debug, Clone)]
pub struct NamedDevice {
    /// The name, with an index if there may be several devices of the kind, for example `cuda:1`.
    pub name: String,
    /// The opened device.
    pub device: Device,
}

/// The devices that the ranks of one machine share: the rank with local rank `i` computes on device `i mod n` of the
/// `n` devices.
#[derive(Debug, Clone)]
pub struct Devices {
    /// The devices, at least one.
    devices: Vec<NamedDevice>,
}

impl Devices {
    /// Opens the devices of a name, or of several names separated by commas. `cuda` without an index stands for all
    /// CUDA devices, and `wgpu` for all adapters of the same kind as the first one, so that an integrated GPU or a
    /// software rasterizer is not used together with discrete GPUs. `cuda:0,cuda:2` stands for these two. A device that
    /// is named twice counts as two.
    ///
    /// ```
    /// # use kiln_kernels::Devices;
    /// // With the feature `cuda`, also "cuda" or "cuda:0,cuda:2".
    /// let devices = Devices::open("cpu")?;
    /// let error = Devices::open("gpu:0").unwrap_err();
    /// assert!(error.to_string().contains("gpu:0"), "{error}");
    /// # Ok::<(), kiln_kernels::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// Returns the error of [`open_device`] for the first name that cannot be opened.
    pub fn open(names: &str) -> Result<Self, DeviceError> {
        let mut devices = Vec::new();
        for name in names.split(',') {
            match name {
                "cuda" => Kind::Cuda.add_all(name, &mut devices)?,
                "wgpu" => Kind::Wgpu.add_all(name, &mut devices)?,
                _ => devices.push(NamedDevice { name: name.to_owned(), device: open_device(name)? }),
            }
        }
        Ok(Self { devices })
    }

    /// The number of devices, at least one.
    ///
    /// ```
    /// # use kiln_kernels::Devices;
    /// // Two ranks on the CPU.
    /// assert_eq!(Devices::open("cpu,cpu")?.len(), 2);
    /// # Ok::<(), kiln_kernels::DeviceError>(())
    /// ```
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Returns the index of a local rank's device in this list.
    ///
    /// ```
    /// # use kiln_kernels::Devices;
    /// let devices = Devices::open("cpu,cpu,cpu")?;
    /// // The ranks of a machine use the devices in turn.
    /// assert_eq!([0, 1, 2, 3, 4].map(|local_rank| devices.place(local_rank)), [0, 1, 2, 0, 1]);
    /// # Ok::<(), kiln_kernels::DeviceError>(())
    /// ```
    pub fn place(&self, local_rank: usize) -> usize {
        local_rank % self.devices.len()
    }

    /// Returns the device of a local rank.
    ///
    /// ```
    /// # use kiln_kernels::Devices;
    /// let devices = Devices::open("cpu,cpu")?;
    /// let named = devices.of_rank(3);
    /// println!("rank 3 computes on {}", named.name);
    /// # assert_eq!(named.name, "cpu");
    /// # Ok::<(), kiln_kernels::DeviceError>(())
    /// ```
    pub fn of_rank(&self, local_rank: usize) -> &NamedDevice {
        &self.devices[self.place(local_rank)]
    }

    /// Returns a list with only the device of a local rank.
    ///
    /// ```
    /// # use kiln_kernels::Devices;
    /// // The third rank of the machine trains a model of its own, on its device.
    /// let devices = Devices::open("cpu,cpu,cpu")?.only(2);
    /// assert_eq!(devices.len(), 1);
    /// # Ok::<(), kiln_kernels::DeviceError>(())
    /// ```
    #[must_use]
    pub fn only(&self, local_rank: usize) -> Self {
        Self { devices: vec![self.of_rank(local_rank).clone()] }
    }

    /// The CUDA index of a local rank's device, or `None` if the device is not a CUDA device.
    ///
    /// ```
    /// # use kiln_kernels::Devices;
    /// // On `cuda`, rank 1 has index 1 if there are two GPUs. The CPU has no index.
    /// assert_eq!(Devices::open("cpu")?.cuda_index(1), None);
    /// # Ok::<(), kiln_kernels::DeviceError>(())
    /// ```
    pub fn cuda_index(&self, local_rank: usize) -> Option<usize> {
        self.of_rank(local_rank).name.strip_prefix("cuda:")?.parse().ok()
    }

    /// Returns true if all devices are of a kind, such as `cuda`.
    ///
    /// ```
    /// # use kiln_kernels::Devices;
    /// assert!(Devices::open("cpu,cpu")?.are_all("cpu"));
    /// # Ok::<(), kiln_kernels::DeviceError>(())
    /// ```
    pub fn are_all(&self, kind: &str) -> bool {
        self.devices.iter().all(|device| device.name.starts_with(kind))
    }

    /// Iterates over the devices in order.
    ///
    /// ```
    /// # use kiln_kernels::Devices;
    /// let names: Vec<_> = Devices::open("cpu,cpu")?.iter().map(|device| device.name.clone()).collect();
    /// assert_eq!(names, ["cpu", "cpu"]);
    /// # Ok::<(), kiln_kernels::DeviceError>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = &NamedDevice> {
        self.devices.iter()
    }
}

/// Opens devices by their names, as [`Devices::open`] does, so that a command line can have them as a flag.
impl FromStr for Devices {
    type Err = DeviceError;

    fn from_str(names: &str) -> Result<Self, DeviceError> {
        Self::open(names)
    }
}

/// A kind of device that CubeCL has a runtime for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cuda,
    Wgpu,
    CubeCpu,
}

/// Opens a device by its name.
///
/// | name | device |
/// |---|---|
/// | `cpu` | the CPU, with Burn's Flex backend and the loops of this crate |
/// | `cuda`, `cuda:N` | an NVIDIA GPU, numbered from 0 (feature `cuda`); without an index, the first |
/// | `wgpu`, `wgpu:N` | a GPU through Vulkan, Metal or DirectX, numbered from 0 (feature `wgpu`) |
/// | `cube-cpu` | the CPU, with the kernels of the GPUs (feature `cube-cpu`); slow, meant for tests |
///
/// # Errors
/// Returns [`DeviceError::Unknown`] if the name is invalid, [`DeviceError::NotBuilt`] if the build lacks the feature,
/// [`DeviceError::NotFound`] if the machine has no device with that index, and [`DeviceError::NoLibdevice`] if the CUDA
/// toolkit is missing.
pub fn open_device(name: &str) -> Result<Device, DeviceError> {
    let unknown = || DeviceError::Unknown { name: name.to_owned() };
    let (kind, index) = match name.split_once(':') {
        Some((kind, index)) => (kind, Some(index.parse::<usize>().map_err(|_| unknown())?)),
        None => (name, None),
    };
    match (kind, index) {
        ("cpu", None) => Ok(Device::flex()),
        ("cube-cpu", None) => Kind::CubeCpu.device(name, 0),
        ("cuda", index) => Kind::Cuda.device(name, index.unwrap_or(0)),
        ("wgpu", index) => Kind::Wgpu.device(name, index.unwrap_or(0)),
        _ => Err(unknown()),
    }
}

/// Returns true if a device is the CPU with Burn's Flex backend, which needs no copies and no synchronisation.
pub fn is_cpu(device: &Device) -> bool {
    device.clone().inner() == Device::flex()
}

/// Returns true if a device is an NVIDIA GPU.
pub(crate) fn is_cuda(device: &Device) -> bool {
    #[cfg(feature = "cuda")]
    {
        let device = device.clone().inner();
        matches!(device.as_dispatch(), burn::backend::DispatchDevice::Cube(cubecl::Device::Cuda(_)))
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}

/// Runs a function that uploads data or builds batches on the load stream of a device, and waits until the device has
/// finished.
///
/// The load stream is separate from the stream of the training steps and the same for all threads. Any thread can
/// therefore use the results, and short-lived threads do not leave memory behind that the device keeps for their
/// streams.
///
/// # Errors
/// Returns [`DeviceError::Failed`] if the device failed. A failed allocation may surface only when the result is read,
/// or in [`wait`].
pub fn run_on_load_stream<R>(device: &Device, load: impl FnOnce() -> R) -> Result<R, DeviceError> {
    in_loading_queue(|| {
        let loaded = load();
        let waited = device.sync();
        waited.map(|()| loaded).map_err(|error| DeviceError::Failed { reason: error.to_string() })
    })
}

/// Waits until the device has written a tensor, to detect a failure before the tensor is read.
///
/// # Errors
/// Returns [`DeviceError::Failed`] if the device could not write it.
pub fn wait(tensor: &Tensor<2>) -> Result<(), DeviceError> {
    #[cfg(feature = "cube")]
    if let Ok(array) = tensor.clone().try_into_primitive::<burn_cubecl::CubeBackend>() {
        crate::cube::launch::wait(&array)?;
    }
    let _ = tensor;
    Ok(())
}

#[cfg(not(feature = "cube"))]
pub(crate) fn in_loading_queue<R>(load: impl FnOnce() -> R) -> R {
    load()
}

#[cfg(feature = "cube")]
pub(crate) fn in_loading_queue<R>(load: impl FnOnce() -> R) -> R {
    // By default, CubeCL creates a stream with its own memory for each thread. All loads share one stream instead.
    static QUEUE: std::sync::OnceLock<StreamId> = std::sync::OnceLock::new();
    QUEUE.get_or_init(StreamId::allocate).executes(load)
}

impl Kind {
    fn device(self, name: &str, index: usize) -> Result<Device, DeviceError> {
        let name = name.to_owned();
        let Some(found) = self.found() else {
            return Err(DeviceError::NotBuilt { name, feature: self.feature() });
        };
        let n_found = found.len();
        let device = found.into_iter().nth(index);
        let device = device.ok_or_else(|| {
            let name = name.clone();
            DeviceError::NotFound { name, looked_for: self.looked_for(), n_found }
        })?;
        #[cfg(feature = "cuda")]
        if self == Self::Cuda {
            crate::device::cuda::check_toolkit(&name)?;
        }
        Ok(device)
    }

    /// Appends the first device of this kind and all others that ranks may use together with it. Returns an error if
    /// there is no device of this kind.
    fn add_all(self, name: &str, devices: &mut Vec<NamedDevice>) -> Result<(), DeviceError> {
        let first = self.device(name, 0)?;
        let found = self.found().unwrap_or_default().into_iter().enumerate();
        let alike = found.filter(|(_, device)| self.is_alike(&first, device));
        devices.extend(alike.map(|(index, device)| NamedDevice { name: format!("{name}:{index}"), device }));
        Ok(())
    }

    /// Returns true if ranks of one job may use both devices together. Only WGPU adapters can be of different kinds.
    fn is_alike(self, first: &Device, other: &Device) -> bool {
        #[cfg(feature = "wgpu")]
        if self == Self::Wgpu {
            return adapter_kind(first) == adapter_kind(other);
        }
        let _ = (first, other);
        true
    }

    fn feature(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
            Self::CubeCpu => "cube-cpu",
        }
    }

    fn looked_for(self) -> &'static str {
        match self {
            Self::Cuda => "GPUs through the NVIDIA driver (libcuda; check CUDA_VISIBLE_DEVICES)",
            Self::Wgpu => "adapters through Vulkan, Metal or DirectX",
            Self::CubeCpu => "CPUs",
        }
    }

    /// The devices of this kind on the machine, or `None` if the build lacks their feature.
    fn found(self) -> Option<Vec<Device>> {
        #[cfg(feature = "cube")]
        use burn::tensor::DeviceType;
        #[cfg(feature = "kernel-cache")]
        crate::device::kernel_cache::enable();
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda => Some(Device::enumerate(DeviceType::Cuda).into_iter().collect()),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => Some(Device::enumerate(DeviceType::Wgpu).into_iter().collect()),
            #[cfg(feature = "cube-cpu")]
            Self::CubeCpu => Some(Device::enumerate(DeviceType::Cpu).into_iter().collect()),
            #[allow(unreachable_patterns, reason = "a build may have all features")]
            _ => None,
        }
    }
}

/// The index of an adapter's kind in a list of kinds, or `None` if it is not in the list.
#[cfg(feature = "wgpu")]
fn adapter_kind(device: &Device) -> Option<usize> {
    use burn::tensor::DeviceKind::{Cpu, DiscreteGpu, IntegratedGpu, VirtualGpu};
    // 64 exceeds the number of adapters of one kind in any machine.
    let kinds = [DiscreteGpu, IntegratedGpu, VirtualGpu, |_| Cpu];
    kinds.iter().position(|kind| (0..64).any(|index| Device::wgpu(kind(index)) == *device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_ranks_use_devices_round_robin() {
        let devices = Devices::open("cpu,cpu,cpu").expect("every build should support the CPU");
        assert_eq!(devices.len(), 3);
        assert_eq!([0, 1, 2, 3, 7].map(|local_rank| devices.place(local_rank)), [0, 1, 2, 0, 1]);
        assert_eq!(devices.of_rank(4).name, "cpu");
        assert_eq!(devices.iter().count(), 3);
    }

    #[test]
    fn rejects_a_list_with_an_unknown_name() {
        for names in ["", "cpu,", "cpu,gpu", "cuda:x"] {
            let error = names.parse::<Devices>().expect_err("the list should be rejected");
            assert!(matches!(error, DeviceError::Unknown { .. }), "{names}: {error}");
        }
    }
}

#[cfg(all(test, feature = "cube"))]
mod queue_tests {
    use super::*;

    #[test]
    fn all_threads_share_one_load_stream_separate_from_the_steps() {
        let queue =
            || run_on_load_stream(&Device::flex(), StreamId::current).expect("the CPU should not fail");
        let here = queue();
        assert_ne!(here, StreamId::current());
        let there = std::thread::spawn(move || (queue(), StreamId::current())).join();
        let (there, of_thread) = there.expect("the thread should not panic");
        assert_eq!(there, here);
        assert_ne!(of_thread, here);
    }

    #[test]
    fn nested_loads_run_on_the_load_stream() {
        let before = StreamId::current();
        let queues = run_on_load_stream(&Device::flex(), || {
            (StreamId::current(), in_loading_queue(StreamId::current))
        });
        let (outer, inner) = queues.expect("the CPU should not fail");
        assert_eq!(outer, inner);
        assert_eq!(in_loading_queue(StreamId::current), outer);
        assert_eq!(StreamId::current(), before);
    }
}
