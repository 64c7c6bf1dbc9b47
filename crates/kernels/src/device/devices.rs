//! Devices by name.

#[cfg(feature = "cube")]
use burn::tensor::StreamId;
use burn::tensor::{Device, Tensor};

use crate::device::error::DeviceError;

/// A device and its name.
#[derive(Debug, Clone)]
pub struct NamedDevice {
    /// The name, with the number where the kind has several: `cuda:1`.
    pub name: String,
    /// The device.
    pub device: Device,
}

/// The devices that the ranks of one machine share: the rank with local rank `i` computes on device `i mod n`.
#[derive(Debug, Clone)]
pub struct Devices {
    /// At least one.
    devices: Vec<NamedDevice>,
}

impl Devices {
    /// Opens the devices of a name, or of several separated by commas: `cuda` without a number is all CUDA devices, `wgpu`
    /// all adapters of the first one's kind (not an integrated GPU or a software rasterizer beside discrete GPUs), and
    /// `cuda:0,cuda:2` those two. A device that is named twice counts as two.
    ///
    /// # Errors
    /// As [`open_device`], for the first name that gives no device.
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
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// The place of a local rank's device among the devices.
    pub fn place(&self, local_rank: usize) -> usize {
        local_rank % self.devices.len()
    }

    /// The device of a local rank.
    pub fn of_rank(&self, local_rank: usize) -> &NamedDevice {
        &self.devices[self.place(local_rank)]
    }

    /// The devices, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &NamedDevice> {
        self.devices.iter()
    }
}

/// A kind of device that CubeCL has a runtime for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cuda,
    Wgpu,
    CubeCpu,
}

/// The device of a name.
///
/// | name | device |
/// |---|---|
/// | `cpu` | the processor, by Burn's Flex and our own code: the fastest way to compute there |
/// | `cuda`, `cuda:N` | an NVIDIA GPU, counted from 0 (feature `cuda`) |
/// | `wgpu`, `wgpu:N` | a GPU by Vulkan, Metal or DirectX, counted from 0 (feature `wgpu`) |
/// | `cube-cpu` | the processor, by the kernels that the GPUs run (feature `cube-cpu`); slow, to test them |
///
/// # Errors
/// When the name means nothing, this build leaves such devices out, or the machine has none of that number.
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

/// Returns whether a device is the processor, by Burn's own backend for it: then nothing has to be brought there or
/// waited for.
pub fn is_cpu(device: &Device) -> bool {
    device.clone().inner() == Device::flex()
}

/// Runs what brings data to a device or makes batches there, in a queue of the device that is apart from the one of the
/// steps and the same whatever thread calls, and waits until the device has done it. So results may be handed to any
/// thread, and no thread that comes and goes leaves memory behind that the device keeps for it.
///
/// # Errors
/// [`DeviceError::Failed`] where the device itself failed; what it could not write for want of memory says so where it is
/// read, or to [`wait`].
pub fn run_on_load_stream<R>(device: &Device, load: impl FnOnce() -> R) -> Result<R, DeviceError> {
    in_loading_queue(|| {
        let loaded = load();
        let waited = device.sync();
        waited.map(|()| loaded).map_err(|error| DeviceError::Failed { reason: error.to_string() })
    })
}

/// Waits until the device has written a tensor, to learn of a failure before anybody reads it.
///
/// # Errors
/// [`DeviceError::Failed`].
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
    // CubeCL has a queue, with memory of its own, for each thread that does not ask for another.
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
        device.ok_or(DeviceError::NotFound { name, looked_for: self.looked_for(), n_found })
    }

    /// Appends all devices of this kind; an error where there is none.
    fn add_all(self, name: &str, devices: &mut Vec<NamedDevice>) -> Result<(), DeviceError> {
        let first = self.device(name, 0)?;
        let found = self.found().unwrap_or_default().into_iter().enumerate();
        let alike = found.filter(|(_, device)| self.is_alike(&first, device));
        devices.extend(alike.map(|(index, device)| NamedDevice { name: format!("{name}:{index}"), device }));
        Ok(())
    }

    /// Whether two devices of this kind are alike enough for ranks of one job: only adapters are of several kinds.
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
            Self::Cuda => "GPUs that an NVIDIA driver (libcuda) shows, as CUDA_VISIBLE_DEVICES allows",
            Self::Wgpu => "adapters that Vulkan, Metal or DirectX show",
            Self::CubeCpu => "processors",
        }
    }

    /// The machine's devices of this kind, unless the build leaves them out.
    fn found(self) -> Option<Vec<Device>> {
        #[cfg(feature = "cube")]
        use burn::tensor::DeviceType;
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda => Some(Device::enumerate(DeviceType::Cuda).into_iter().collect()),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => Some(Device::enumerate(DeviceType::Wgpu).into_iter().collect()),
            #[cfg(feature = "cube-cpu")]
            Self::CubeCpu => Some(Device::enumerate(DeviceType::Cpu).into_iter().collect()),
            #[allow(unreachable_patterns, reason = "a build may have them all")]
            _ => None,
        }
    }
}

/// The place of an adapter's kind in a list of kinds; `None` for others.
#[cfg(feature = "wgpu")]
fn adapter_kind(device: &Device) -> Option<usize> {
    use burn::tensor::DeviceKind::{Cpu, DiscreteGpu, IntegratedGpu, VirtualGpu};
    // More adapters of one kind than a machine has.
    let kinds = [DiscreteGpu, IntegratedGpu, VirtualGpu, |_| Cpu];
    kinds.iter().position(|kind| (0..64).any(|index| Device::wgpu(kind(index)) == *device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_take_the_devices_in_turn() {
        let devices = Devices::open("cpu,cpu,cpu").expect("every build has the processor");
        assert_eq!(devices.len(), 3);
        assert_eq!([0, 1, 2, 3, 7].map(|local_rank| devices.place(local_rank)), [0, 1, 2, 0, 1]);
        assert_eq!(devices.of_rank(4).name, "cpu");
        assert_eq!(devices.iter().count(), 3);
    }

    #[test]
    fn a_list_with_an_unknown_name_is_refused() {
        for names in ["", "cpu,", "cpu,gpu", "cuda:x"] {
            let error = Devices::open(names).expect_err("these names give no devices");
            assert!(matches!(error, DeviceError::Unknown { .. }), "{names}: {error}");
        }
    }
}

#[cfg(all(test, feature = "cube"))]
mod queue_tests {
    use super::*;

    #[test]
    fn all_threads_load_in_one_queue_which_is_not_the_steps() {
        let queue =
            || run_on_load_stream(&Device::flex(), StreamId::current).expect("the processor does not fail");
        let here = queue();
        assert_ne!(here, StreamId::current());
        let there = std::thread::spawn(move || (queue(), StreamId::current())).join();
        let (there, of_thread) = there.expect("the thread should not panic");
        assert_eq!(there, here);
        assert_ne!(of_thread, here);
    }

    #[test]
    fn hops_within_a_load_are_in_its_queue() {
        let before = StreamId::current();
        let queues = run_on_load_stream(&Device::flex(), || {
            (StreamId::current(), in_loading_queue(StreamId::current))
        });
        let (outer, inner) = queues.expect("the processor does not fail");
        assert_eq!(outer, inner);
        assert_eq!(in_loading_queue(StreamId::current), outer);
        assert_eq!(StreamId::current(), before);
    }
}
