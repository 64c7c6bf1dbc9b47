use std::sync::Arc;

use burn::tensor::Device;
use kiln_graph::Csc;

use crate::{DeviceGraph, UploadError};

/// Where neighbours are sampled and features are gathered. The batches do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GraphMode {
    /// On the host, from the graph as it is.
    #[default]
    Host,
    /// On the device that computes, from a copy in its memory.
    Device,
    /// On the device that computes, to which the host sends the neighbour lists of each hop.
    ZeroCopy,
}

impl GraphMode {
    /// Returns the graph as the device samples it; `None` for [`GraphMode::Host`].
    ///
    /// # Errors
    /// [`UploadError`] where the device has no room, or cannot sample.
    pub fn upload(self, graph: Arc<Csc>, device: &Device) -> Result<Option<DeviceGraph>, UploadError> {
        match self {
            Self::Host => Ok(None),
            Self::Device => DeviceGraph::new(graph, device).map(Some),
            Self::ZeroCopy => DeviceGraph::host_staged(graph, device).map(Some),
        }
    }
}
