use std::sync::Arc;

#[cfg(feature = "cube")]
use burn::tensor::DType;
use burn::tensor::Device;
#[cfg(feature = "cube")]
use kiln_graph::NodeId;
use kiln_graph::{Csc, EdgeColumns};
#[cfg(feature = "cube")]
use kiln_sample::check_time_order;
#[cfg(feature = "cube")]
use rayon::prelude::*;

#[cfg(feature = "cube")]
use crate::cube::graph::Graph;
#[cfg(feature = "cube")]
use crate::cube::launch::anchor;
#[cfg(feature = "cube")]
use crate::device::devices::run_on_load_stream;
use crate::device::error::UploadError;

/// A graph's topology for sampling on a device with a [`DeviceSampler`](crate::DeviceSampler).
///
/// On a GPU, and on CubeCL's CPU runtime, the arrays are copied to the device: 8 bytes per node, 4 bytes per edge, 4 more
/// per edge weight, 12 more per edge if the edges are ordered by time, and 1 more per edge type once a sampler returns edge types. With [`DeviceGraph::host_staged`] they stay on the host, and only the neighbour lists of
/// each hop are copied. On the CPU the arrays are shared and may be memory-mapped. A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceGraph {
    pub(crate) memory: GraphMemory,
    pub(crate) device: Device,
    n_nodes: usize,
    n_edges: u64,
    has_weights: bool,
    has_edge_types: bool,
    /// True if the edges have times.
    has_times: bool,
    /// True if the edges have times and no order by time.
    #[cfg_attr(not(feature = "cube"), expect(dead_code, reason = "the host's sampler checks its graph"))]
    lacks_time_order: bool,
}

/// The memory that holds a graph.
#[derive(Debug, Clone)]
pub(crate) enum GraphMemory {
    Host(Arc<Csc>),
    #[cfg(feature = "cube")]
    Cube(Arc<Graph>),
    /// The graph is on the host, and each hop's neighbour lists are copied to the device of the tensor.
    #[cfg(feature = "cube")]
    Staged(Arc<Csc>, Box<burn_cubecl::tensor::CubeTensor>),
}

impl DeviceGraph {
    /// Copies a graph to a device; on the CPU, shares it. Before a copy, every id is checked, because kernels do not
    /// check them.
    ///
    /// # Errors
    /// Returns an [`UploadError`] if the graph is inconsistent, or if the device cannot allocate it or cannot sample.
    /// On the CPU it never fails: there, samplers check the ids that they read.
    pub fn new(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        Self::at(graph, device, GraphMemory::new)
    }

    /// Keeps a graph on the host, memory-mapped or not, for a device that cannot hold it. For each hop, the neighbour
    /// lists of its destinations are copied to the device, which samples from them, and the selected edges are copied
    /// back. It is the closest alternative to the zero-copy or UVA mode of DGL and GraphLearn-for-PyTorch: CubeCL's
    /// kernels cannot read the host's memory.
    ///
    /// All neighbours of a hop's destinations are transferred, independent of the fanout: 4 bytes each (8 with
    /// weights). The selected edges return as 4 bytes per destination and 12 per edge (16 with weights). During a hop,
    /// the host and the device each hold a copy of the lists. Prefer sampling on the host unless drawing is expensive.
    /// Fanouts above 1,024 are rejected, independent of the degrees. The host picks for seeds with times.
    ///
    /// # Errors
    /// Returns [`UploadError::NoWideIntegers`] if the device does not support 64-bit integers. If the lists of a hop
    /// are too large, the sampler returns [`UploadError::HopTooLarge`], wrapped in [`kiln_sample::Error::Elsewhere`].
    pub fn host_staged(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        Self::at(graph, device, GraphMemory::staged)
    }

    fn at(
        graph: Arc<Csc>,
        device: &Device,
        memory: impl FnOnce(Arc<Csc>, &Device) -> Result<GraphMemory, UploadError>,
    ) -> Result<Self, UploadError> {
        let device = device.clone().inner();
        let n_nodes = graph.n_nodes();
        let n_edges = graph.n_edges();
        let has_weights = graph.weights().is_some();
        let has_edge_types = graph.edge_types().is_some();
        let has_times = graph.edge_times().is_some() || graph.columns().get(EdgeColumns::TIMES).is_some();
        let lacks_time_order = graph.edge_times().is_none() && has_times;
        let memory = memory(graph, &device)?;
        Ok(Self {
            memory,
            device,
            n_nodes,
            n_edges,
            has_weights,
            has_edge_types,
            has_times,
            lacks_time_order,
        })
    }

    /// Returns the device, without autodiff.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// The number of edges.
    pub fn n_edges(&self) -> u64 {
        self.n_edges
    }

    /// Returns true if the edges have weights.
    pub fn has_weights(&self) -> bool {
        self.has_weights
    }

    /// Returns true if the edges have types.
    pub fn has_edge_types(&self) -> bool {
        self.has_edge_types
    }

    /// Returns true if the edges have times.
    pub(crate) fn has_times(&self) -> bool {
        self.has_times
    }

    /// Returns true if the edges have times and no order by time.
    #[cfg(feature = "cube")]
    pub(crate) fn lacks_time_order(&self) -> bool {
        self.lacks_time_order
    }

    /// Copies the edge types to the device, unless they are there. Types of a graph on the host stay there.
    ///
    /// # Errors
    /// Returns [`kiln_sample::Error::NoEdgeTypes`] if the graph has none, and an [`UploadError`], wrapped in
    /// [`kiln_sample::Error::Elsewhere`], if the device cannot allocate them.
    pub(crate) fn store_edge_types(&self) -> kiln_sample::Result<()> {
        if !self.has_edge_types {
            return Err(kiln_sample::Error::NoEdgeTypes);
        }
        #[cfg(feature = "cube")]
        if let GraphMemory::Cube(graph) = &self.memory
            && !graph.stores_edge_types()
        {
            let stored = run_on_load_stream(&self.device, || graph.store_edge_types());
            let stored = stored.map_err(UploadError::from).flatten();
            stored.map_err(|error| kiln_sample::Error::Elsewhere(Box::new(error)))?;
        }
        Ok(())
    }
}

#[cfg(not(feature = "cube"))]
impl GraphMemory {
    fn new(graph: Arc<Csc>, _: &Device) -> Result<Self, UploadError> {
        Ok(Self::Host(graph))
    }

    fn staged(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        Self::new(graph, device)
    }
}

#[cfg(feature = "cube")]
impl GraphMemory {
    fn new(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        let Some(anchor) = sampling_anchor(device)? else { return Ok(Self::Host(graph)) };
        graph.validate()?;
        check_order(&graph)?;
        Ok(Self::Cube(Arc::new(run_on_load_stream(device, || Graph::new(&anchor, &graph))??)))
    }

    fn staged(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        Ok(match sampling_anchor(device)? {
            Some(anchor) => Self::Staged(graph, Box::new(anchor)),
            None => Self::Host(graph),
        })
    }
}

/// Checks the order of the edges by time, which kernels do not check.
#[cfg(feature = "cube")]
fn check_order(graph: &Csc) -> kiln_sample::Result<()> {
    let nodes = (0..graph.n_nodes() as u32).into_par_iter().map(NodeId);
    match nodes.find_map_first(|node| check_time_order(graph, node).err()) {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// Returns a small tensor on a device that samples with kernels, or `None` for the CPU, which samples from the shared
/// graph. Returns [`UploadError::NoWideIntegers`] if the device lacks 64-bit integers.
#[cfg(feature = "cube")]
fn sampling_anchor(device: &Device) -> Result<Option<burn_cubecl::tensor::CubeTensor>, UploadError> {
    let anchor = anchor(device);
    if anchor.is_some() && ![DType::U64, DType::I64].into_iter().all(|dtype| device.supports_dtype(dtype)) {
        return Err(UploadError::NoWideIntegers);
    }
    Ok(anchor)
}
