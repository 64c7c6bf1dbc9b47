use std::sync::Arc;

#[cfg(feature = "cube")]
use burn::tensor::DType;
use burn::tensor::Device;
use kiln_graph::Csc;

use crate::UploadError;
#[cfg(feature = "cube")]
use crate::device::load_on;

/// A graph's topology where a device reads it, for a [`DeviceSampler`](crate::DeviceSampler).
///
/// On a GPU, and on CubeCL's CPU runtime, its arrays are copied: 8 bytes a node, 4 bytes an edge and 4 more for its
/// weight. On the processor they are shared and may be mapped. A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceGraph {
    pub(crate) place: Place,
    pub(crate) device: Device,
    n_nodes: usize,
    n_edges: u64,
    has_weights: bool,
}

/// Where a graph is.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Host(Arc<Csc>),
    #[cfg(feature = "cube")]
    Cube(Arc<crate::cube::Graph>),
}

impl DeviceGraph {
    /// Brings a graph to a device. Where it is copied, every id is checked first, so that kernels need not.
    ///
    /// # Errors
    /// [`UploadError`]; on the processor none, where samplers check the ids that they meet.
    pub fn new(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        let device = device.clone().inner();
        let (n_nodes, n_edges, has_weights) = (graph.n_nodes(), graph.n_edges(), graph.weights().is_some());
        let place = Place::new(graph, &device)?;
        Ok(Self { place, device, n_nodes, n_edges, has_weights })
    }

    /// Where it is, without gradients.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// Number of edges.
    pub fn n_edges(&self) -> u64 {
        self.n_edges
    }

    /// Whether its edges have weights.
    pub fn has_weights(&self) -> bool {
        self.has_weights
    }
}

impl Place {
    #[cfg(not(feature = "cube"))]
    fn new(graph: Arc<Csc>, _: &Device) -> Result<Self, UploadError> {
        Ok(Self::Host(graph))
    }

    #[cfg(feature = "cube")]
    fn new(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        let Some(anchor) = crate::cube::anchor(device) else { return Ok(Self::Host(graph)) };
        if ![DType::U64, DType::I64].into_iter().all(|dtype| device.supports_dtype(dtype)) {
            return Err(UploadError::NoWideIntegers);
        }
        graph.validate()?;
        Ok(Self::Cube(Arc::new(load_on(device, || crate::cube::Graph::new(&anchor, &graph))??)))
    }
}
