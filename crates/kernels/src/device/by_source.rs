use std::sync::OnceLock;

#[cfg(feature = "cube")]
use burn::tensor::{Int, Tensor};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;
#[cfg(feature = "cube")]
use burn_cubecl::tensor::CubeTensor;
use kiln_graph::TransposedBlock;

#[cfg(feature = "cube")]
use crate::cube::by_source::{SourceCounts, Transposed as DeviceTransposed};

/// A cache of the edges of a block by source. The list on the host and the list on the device are each built when first
/// needed. All clones of a block on a device share the cache, so each list is built once.
#[derive(Debug, Default)]
pub(crate) struct BySource {
    host: OnceLock<TransposedBlock>,
    /// The counts from which the device builds its list, if sampling on the device left them.
    #[cfg(feature = "cube")]
    counts: Option<SourceCounts>,
    #[cfg(feature = "cube")]
    device: OnceLock<DeviceTransposed>,
}

impl BySource {
    /// Creates the cache with the transposed block that the block came with, if it came with one.
    pub(crate) fn of(carried: Option<TransposedBlock>) -> Self {
        Self {
            host: carried.map_or_else(OnceLock::new, OnceLock::from),
            #[cfg(feature = "cube")]
            counts: None,
            #[cfg(feature = "cube")]
            device: OnceLock::new(),
        }
    }

    /// Creates the cache of a block that was sampled on the device, with the counts that sampling left.
    #[cfg(feature = "cube")]
    pub(crate) fn counted(counts: Option<SourceCounts>) -> Self {
        Self { counts, ..Self::default() }
    }

    /// Returns the number of bytes of the lists that have been built.
    pub(crate) fn n_bytes(&self) -> usize {
        let on_host = self.host.get().map_or(0, TransposedBlock::n_bytes);
        #[cfg(feature = "cube")]
        let on_device = self.device.get().map_or(0, DeviceTransposed::n_bytes)
            + self.counts.as_ref().map_or(0, SourceCounts::n_bytes);
        #[cfg(not(feature = "cube"))]
        let on_device = 0;
        on_host + on_device
    }

    /// Returns the edges by source on the host, if that list has been built.
    pub(crate) fn host(&self) -> Option<&TransposedBlock> {
        self.host.get()
    }

    /// Returns the edges by source on the host. Builds the list with `list` if it has not been built.
    pub(crate) fn host_or(&self, list: impl FnOnce() -> TransposedBlock) -> &TransposedBlock {
        self.host.get_or_init(list)
    }

    /// Returns the edges by source on the device, for a block with these arrays there. Builds the list if it has not
    /// been built: copies the host's list if that exists.
    #[cfg(feature = "cube")]
    pub(crate) fn device(
        &self,
        indptr: &CubeTensor,
        indices: &CubeTensor,
        n_src: usize,
    ) -> &DeviceTransposed {
        self.device.get_or_init(|| match self.host() {
            Some(list) => DeviceTransposed::upload(indptr, list),
            None => DeviceTransposed::list(indptr, indices, n_src, self.counts.as_ref()),
        })
    }

    /// Copies the host's list to the device of the block's `indptr`, where the backward pass reads it. Does nothing if
    /// there is no such list, or if CubeCL has no runtime for that device.
    #[cfg(feature = "cube")]
    pub(crate) fn upload(&self, indptr: &Tensor<1, Int>) {
        if let Some(list) = self.host()
            && let Ok(indptr) = indptr.clone().try_into_primitive::<CubeBackend>()
        {
            self.device.get_or_init(|| DeviceTransposed::upload(&indptr, list));
        }
    }
}
