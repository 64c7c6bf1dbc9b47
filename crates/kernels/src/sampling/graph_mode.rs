use std::sync::Arc;

use burn::tensor::Device;
use kiln_graph::Csc;
use kiln_sample::Rule;

use crate::sampling::rule::needs_host;
use crate::{DeviceGraph, UploadError};

/// The place where neighbours are sampled and features are gathered. The batches are the same in all modes.
///
/// A rule that is written in Rust, without a [`kiln_sample::SamplingRule::device_rule`], picks on the host in every mode; with
/// [`GraphMode::Device`] and [`GraphMode::ZeroCopy`], the features of nodes are gathered on the device. So it is with
/// [`GraphMode::ZeroCopy`] and seeds with times ([`kiln_sample::Seeds::with_times`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GraphMode {
    /// Samples on the host.
    #[default]
    Host,
    /// Samples on the compute device, from a copy of the graph and its edge features in its memory.
    Device,
    /// Samples on the compute device, to which the host sends the neighbour lists of each hop, and the edge features of
    /// each batch.
    ZeroCopy,
}

impl GraphMode {
    /// Returns the mode in which a rule samples: [`GraphMode::ZeroCopy`] instead of [`GraphMode::Device`] for a rule that picks
    /// on the host only, so that the graph is not copied to the device.
    #[must_use]
    pub fn resolve(self, rule: &Rule) -> Self {
        if self == Self::Device && needs_host(rule) { Self::ZeroCopy } else { self }
    }

    /// Returns the graph for sampling on the device, or `None` for [`GraphMode::Host`].
    ///
    /// # Errors
    /// Returns an [`UploadError`] if the graph is inconsistent, or if the device cannot allocate it or cannot sample.
    pub fn upload(self, graph: Arc<Csc>, device: &Device) -> Result<Option<DeviceGraph>, UploadError> {
        match self {
            Self::Host => Ok(None),
            Self::Device => DeviceGraph::new(graph, device).map(Some),
            Self::ZeroCopy => DeviceGraph::host_staged(graph, device).map(Some),
        }
    }
}
