use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor};
use kiln_feature::EdgeFeatures;
use kiln_graph::EdgeId;

use crate::device::error::UploadError;
use crate::device::features::RowMemory;
use crate::device::read::read_i64;
use crate::device::rows::gather_rows;
use crate::sampling::graph::{DeviceGraph, GraphMemory};

/// The rows of a column of edges, such as their features, for batches on a device. They are where the edges of the graph are.
///
/// For a graph in the device's memory, all rows are copied there once, and the rows of a batch are gathered by the ids of
/// its edges. For a graph on the host ([`DeviceGraph::host_staged`]), the rows stay on the host, which gathers and sends
/// those of each batch. On the CPU the rows are shared and may be memory-mapped. The values are exactly those of the
/// source.
#[derive(Debug)]
pub struct DeviceEdgeColumn {
    name: Arc<str>,
    source: EdgeFeatures,
    memory: RowMemory,
    device: Device,
}

impl DeviceEdgeColumn {
    /// Copies the rows of a graph's edges to its device, in their element type or as f32 if the device does not support
    /// that type, or shares them if the graph is on the host. If the rows exceed the largest allocation of the device, they
    /// are split into parts, and a gather takes a launch per part.
    ///
    /// # Errors
    /// Returns [`UploadError::EdgeFeatureRows`] if there is not one row per edge, [`UploadError::OutOfMemory`] if the device
    /// does not have the memory for the rows, [`UploadError::TooLarge`] if it cannot allocate one row, and
    /// [`UploadError::Device`] if it fails.
    pub fn new(
        name: impl Into<Arc<str>>,
        rows: EdgeFeatures,
        graph: &DeviceGraph,
    ) -> Result<Self, UploadError> {
        Self::in_parts(name, rows, u64::MAX, graph)
    }

    /// Same as [`DeviceEdgeColumn::new`], but in parts of at most `part_bytes` bytes.
    pub(crate) fn in_parts(
        name: impl Into<Arc<str>>,
        source: EdgeFeatures,
        part_bytes: u64,
        graph: &DeviceGraph,
    ) -> Result<Self, UploadError> {
        let n_rows = source.n_edges();
        let n_edges = graph.n_edges();
        if n_rows != n_edges {
            return Err(UploadError::EdgeFeatureRows { n_rows, n_edges });
        }
        let device = graph.device().clone();
        let memory = match graph.memory {
            #[cfg(feature = "cube")]
            GraphMemory::Cube(_) => RowMemory::all(&source, part_bytes, &device)?,
            #[cfg(feature = "cube")]
            GraphMemory::Staged(..) => RowMemory::Host,
            GraphMemory::Host(_) => RowMemory::Host,
        };
        #[cfg(not(feature = "cube"))]
        let _ = part_bytes;
        Ok(Self { name: name.into(), source, memory, device })
    }

    /// The name of the column.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The number of values per edge.
    pub fn dim(&self) -> usize {
        self.source.dim()
    }

    /// The number of parts of the table in the device's memory; 1 if the rows are on the host.
    pub(crate) fn n_parts(&self) -> usize {
        self.memory.n_parts()
    }

    /// Gathers the rows of edges as f32, `[n] -> [n, dim]`. The ids are i64 on the device, such as those of
    /// [`DeviceBlock::edge_ids`](crate::DeviceBlock::edge_ids). If the rows are on the host, it waits once for the ids, gathers the rows, and sends them.
    ///
    /// # Errors
    /// Returns [`kiln_feature::Error::EdgeOutOfRange`] if the rows are on the host and an id has no row.
    ///
    /// # Panics
    /// Panics if the device fails or the ids are on another device. May panic on a GPU if an id has no row; samplers
    /// never return such ids.
    pub fn gather(&self, edges: &Tensor<1, Int>) -> kiln_feature::Result<Tensor<2>> {
        match &self.memory {
            RowMemory::Host => {
                let edges: Vec<EdgeId> =
                    read_i64(edges.clone()).into_iter().map(|edge| EdgeId(edge as u64)).collect();
                gather_rows(&self.source, &edges, &self.device)
            }
            #[cfg(feature = "cube")]
            RowMemory::Cube(rows) => {
                let edges = edges.clone().try_into_primitive::<burn_cubecl::CubeBackend>();
                let edges = edges.expect("the edges should be on the device of the features");
                Ok(Tensor::from_primitive::<burn_cubecl::CubeBackend>(rows.gather_all(&edges)))
            }
        }
    }

    /// Gathers the rows of edges whose ids the host has, and sends them, `[n] -> [n, dim]`.
    ///
    /// # Errors
    /// Returns [`kiln_feature::Error::EdgeOutOfRange`] if an id has no row.
    pub(crate) fn gather_on_host(&self, edges: &[EdgeId]) -> kiln_feature::Result<Tensor<2>> {
        gather_rows(&self.source, edges, &self.device)
    }
}
