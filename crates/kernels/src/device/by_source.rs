use std::sync::OnceLock;

use kiln_graph::Transposed;

/// A block's edges by source, where they have been listed: on the host, on a device, or both. All clones of a block on a
/// device share it, so that its edges are listed and copied once.
#[derive(Debug, Default)]
pub(crate) struct BySource {
    host: OnceLock<Transposed>,
    #[cfg(feature = "cube")]
    device: OnceLock<crate::cube::Transposed>,
}

impl BySource {
    /// With what a block carries.
    pub(crate) fn of(carried: Option<Transposed>) -> Self {
        Self {
            host: carried.map_or_else(OnceLock::new, OnceLock::from),
            #[cfg(feature = "cube")]
            device: OnceLock::new(),
        }
    }

    /// Bytes of the lists that have been made.
    pub(crate) fn n_bytes(&self) -> usize {
        let on_host = self.host.get().map_or(0, Transposed::n_bytes);
        #[cfg(feature = "cube")]
        let on_device = self.device.get().map_or(0, crate::cube::Transposed::n_bytes);
        #[cfg(not(feature = "cube"))]
        let on_device = 0;
        on_host + on_device
    }

    /// The list on the host, if it has been made.
    #[cfg(any(test, feature = "cube"))]
    pub(crate) fn host(&self) -> Option<&Transposed> {
        self.host.get()
    }

    /// The list on the host, made if it is not there.
    pub(crate) fn host_or(&self, list: impl FnOnce() -> Transposed) -> &Transposed {
        self.host.get_or_init(list)
    }

    /// The list on the device, made if it is not there.
    #[cfg(feature = "cube")]
    pub(crate) fn device_or(
        &self,
        list: impl FnOnce(Option<&Transposed>) -> crate::cube::Transposed,
    ) -> &crate::cube::Transposed {
        self.device.get_or_init(|| list(self.host()))
    }
}
