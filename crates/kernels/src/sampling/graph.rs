use std::sync::Arc;

#[cfg(feature = "cube")]
use burn::tensor::DType;
use burn::tensor::Device;
use kiln_graph::Csc;

#[cfg(feature = "cube")]
use crate::cube::graph::Graph;
#[cfg(feature = "cube")]
use crate::cube::launch::anchor;
#[cfg(feature = "cube")]
use crate::device::devices::run_on_load_stream;
use crate::device::error::UploadError;

/// A graph's topology where a device reads it, for a [`DeviceSampler`](crate::DeviceSampler).
///
/// On a GPU, and on CubeCL's CPU runtime, its arrays are copied: 8 bytes a node, 4 bytes an edge and 4 more for its
/// weight; or they stay with the host, and of each hop the lists that it needs are copied
/// ([`DeviceGraph::host_staged`]). On the processor they are shared and may be mapped. A clone shares the device's
/// memory.
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
    Cube(Arc<Graph>),
    /// With the host, read by the device of the tensor.
    #[cfg(feature = "cube")]
    Staged(Arc<Csc>, Box<burn_cubecl::tensor::CubeTensor>),
}

impl DeviceGraph {
    /// Brings a graph to a device. Where it is copied, every id is checked first, so that kernels need not.
    ///
    /// # Errors
    /// [`UploadError`]; on the processor none, where samplers check the ids that they meet.
    pub fn new(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        Self::at(graph, device, Place::new)
    }

    /// Leaves a graph with the host, mapped or not, for a device that has no room for it: for each hop, the lists of its
    /// destinations are copied to the device, which picks of them, and the picks are copied back. What DGL and
    /// GraphLearn-for-PyTorch call zero-copy or UVA, where kernels read the host's memory themselves, CubeCL does not have.
    ///
    /// All neighbours of a hop's destinations travel, 4 bytes each (8 with their weight), whatever the fanout, and what
    /// was picked comes back, 4 bytes a destination and 12 an edge (16 with its weight). For as long as the hop takes, the
    /// lists are in the host's memory a second time, and in the device's. Only where drawing is costly does that pay; to
    /// sample on the host is the first choice. Fanouts above 1,024 are refused, whatever the degrees.
    ///
    /// # Errors
    /// [`UploadError::NoWideIntegers`]; what a hop meets later comes as a sampler's error, [`UploadError::HopTooLarge`]
    /// as [`kiln_sample::Error::Elsewhere`].
    pub fn host_staged(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        Self::at(graph, device, Place::staged)
    }

    fn at(
        graph: Arc<Csc>,
        device: &Device,
        place: impl FnOnce(Arc<Csc>, &Device) -> Result<Place, UploadError>,
    ) -> Result<Self, UploadError> {
        let device = device.clone().inner();
        let (n_nodes, n_edges, has_weights) = (graph.n_nodes(), graph.n_edges(), graph.weights().is_some());
        let place = place(graph, &device)?;
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

#[cfg(not(feature = "cube"))]
impl Place {
    fn new(graph: Arc<Csc>, _: &Device) -> Result<Self, UploadError> {
        Ok(Self::Host(graph))
    }

    fn staged(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        Self::new(graph, device)
    }
}

#[cfg(feature = "cube")]
impl Place {
    fn new(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        let Some(anchor) = sampling_anchor(device)? else { return Ok(Self::Host(graph)) };
        graph.validate()?;
        Ok(Self::Cube(Arc::new(run_on_load_stream(device, || Graph::new(&anchor, &graph))??)))
    }

    fn staged(graph: Arc<Csc>, device: &Device) -> Result<Self, UploadError> {
        Ok(match sampling_anchor(device)? {
            Some(anchor) => Self::Staged(graph, Box::new(anchor)),
            None => Self::Host(graph),
        })
    }
}

/// A tensor on a device that samples; `None` of the processor, which samples where the graph is.
#[cfg(feature = "cube")]
fn sampling_anchor(device: &Device) -> Result<Option<burn_cubecl::tensor::CubeTensor>, UploadError> {
    let anchor = anchor(device);
    if anchor.is_some() && ![DType::U64, DType::I64].into_iter().all(|dtype| device.supports_dtype(dtype)) {
        return Err(UploadError::NoWideIntegers);
    }
    Ok(anchor)
}
