//! Devices by name.

use burn::tensor::Device;

/// Why a name gave no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The name means nothing.
    #[error("`{name}` is no device: expected cpu, cube-cpu, cuda, cuda:N, wgpu or wgpu:N")]
    Unknown {
        /// What was given.
        name: String,
    },
    /// The build leaves this kind of device out.
    #[error(
        "`{name}` needs the feature `{feature}`, which this build leaves out: build with --features {feature}"
    )]
    NotBuilt {
        /// What was given.
        name: String,
        /// What turns it on.
        feature: &'static str,
    },
    /// The machine has no such device.
    #[error("there is no `{name}`: of {looked_for}, {n_found} found")]
    NotFound {
        /// What was given.
        name: String,
        /// What was asked for devices, and how.
        looked_for: &'static str,
        /// How many there are of that kind; the first is number 0.
        n_found: usize,
    },
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
