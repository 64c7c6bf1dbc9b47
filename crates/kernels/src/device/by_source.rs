use std::sync::OnceLock;

#[cfg(feature = "cube")]
use burn::tensor::{Int, Tensor};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;
use kiln_graph::TransposedBlock;

#[cfg(feature = "cube")]
use crate::cube::by_source::Transposed as DeviceTransposed;

/// A block's edges by source, where they have been listed: on the host, on a device, or both. All clones of a block on a
/// device share it, so that its edges are listed and copied once.
#[derive(Debug, Default)]
pub(crate) struct BySource {
    host: OnceLock<TransposedBlock>,
    #[cfg(feature = "cube")]
    device: OnceLock<DeviceTransposed>,
}

impl BySource {
    /// With what a block carries.
    pub(crate) fn of(carried: Option<TransposedBlock>) -> Self {
        Self {
            host: carried.map_or_else(OnceLock::new, OnceLock::from),
            #[cfg(feature = "cube")]
            device: OnceLock::new(),
        }
    }

    /// Bytes of the lists that have been made.
    pub(crate) fn n_bytes(&self) -> usize {
        let on_host = self.host.get().map_or(0, TransposedBlock::n_bytes);
        #[cfg(feature = "cube")]
        let on_device = self.device.get().map_or(0, DeviceTransposed::n_bytes);
        #[cfg(not(feature = "cube"))]
        let on_device = 0;
        on_host + on_device
    }

    /// The list on the host, if it has been made.
    #[cfg(any(test, feature = "cube"))]
    pub(crate) fn host(&self) -> Option<&TransposedBlock> {
        self.host.get()
    }

    /// The list on the host, made if it is not there.
    pub(crate) fn host_or(&self, list: impl FnOnce() -> TransposedBlock) -> &TransposedBlock {
        self.host.get_or_init(list)
    }

    /// The list on the device, made if it is not there.
    #[cfg(feature = "cube")]
    pub(crate) fn device_or(
        &self,
        list: impl FnOnce(Option<&TransposedBlock>) -> DeviceTransposed,
    ) -> &DeviceTransposed {
        self.device.get_or_init(|| list(self.host()))
    }

    /// Copies the host's list to the device of the block's `indptr`, if there is one and CubeCL has a runtime for the
    /// device: a gradient will ask for it.
    #[cfg(feature = "cube")]
    pub(crate) fn upload(&self, indptr: &Tensor<1, Int>) {
        if let Some(list) = self.host()
            && let Ok(indptr) = indptr.clone().try_into_primitive::<CubeBackend>()
        {
            self.device.get_or_init(|| DeviceTransposed::upload(&indptr, list));
        }
    }
}
