use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::{Device, Int, Tensor, TensorData};
use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::NodeId;

#[cfg(feature = "cube")]
use crate::cube::features::{FeatureRows, row_bytes as bytes_of_row};
#[cfg(feature = "cube")]
use crate::cube::launch::anchor;
#[cfg(feature = "cube")]
use crate::device::devices::run_on_load_stream;
use crate::device::error::UploadError;
use crate::device::read::read_i64;

/// Feature rows where a device reads them: all of them, or the hottest, while the others come from the host batch by
/// batch.
///
/// On the processor nothing is copied: rows are gathered from their source. Values are the source's, to the bit, wherever
/// a row was.
#[derive(Debug)]
pub struct DeviceFeatures {
    source: Arc<dyn FeatureStore>,
    place: Place,
    device: Device,
    n_rows: AtomicU64,
    n_hits: AtomicU64,
}

/// Where rows are.
#[derive(Debug)]
enum Place {
    Host,
    #[cfg(feature = "cube")]
    Cube(Box<FeatureRows>),
}

/// Counts of the rows that were gathered so far, and of those that the device had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Rows that were asked for.
    pub n_rows: u64,
    /// Rows that were on the device.
    pub n_hits: u64,
}

impl CacheStats {
    /// The share of rows that were on the device; 1 where none were asked for.
    pub fn hit_rate(self) -> f64 {
        if self.n_rows == 0 { 1.0 } else { self.n_hits as f64 / self.n_rows as f64 }
    }

    /// The counts of two devices together.
    pub fn and(self, other: Self) -> Self {
        Self { n_rows: self.n_rows + other.n_rows, n_hits: self.n_hits + other.n_hits }
    }
}

impl DeviceFeatures {
    /// Brings all rows to a device, as they are stored, or as f32 where the device does not read that.
    ///
    /// # Errors
    /// [`UploadError::Features`] and [`UploadError::TooLarge`]; on the processor none.
    pub fn new(source: Arc<dyn FeatureStore>, device: &Device) -> Result<Self, UploadError> {
        let device = device.clone().inner();
        let place = Place::all(&source, &device)?;
        Ok(Self { source, place, device, n_rows: AtomicU64::new(0), n_hits: AtomicU64::new(0) })
    }

    /// Brings the hottest rows to a device, as many as `n_bytes` hold, next to 4 bytes a node for where they are.
    /// `hotness` says of each row how often it is asked for: by [`kiln_graph::Csc::out_degrees`], or counted by
    /// [`kiln_sample::count_node_accesses`]; of equal ones the lower id counts as hotter. Where all rows fit, all are
    /// brought.
    ///
    /// # Errors
    /// [`UploadError::HotnessLength`], and as [`DeviceFeatures::new`].
    pub fn hottest(
        source: Arc<dyn FeatureStore>,
        hotness: &[u32],
        n_bytes: u64,
        device: &Device,
    ) -> Result<Self, UploadError> {
        let n_rows = source.n_rows();
        if hotness.len() != n_rows {
            return Err(UploadError::HotnessLength { n_rows, got: hotness.len() });
        }
        let device = device.clone().inner();
        let row_bytes = row_bytes(&source, &device) as u64;
        if n_rows as u64 * row_bytes <= n_bytes {
            return Self::new(source, &device);
        }
        let n_cached = n_bytes.saturating_sub(4 * n_rows as u64) / row_bytes;
        let place = Place::some(&source, || hottest(hotness, n_cached as usize), &device)?;
        Ok(Self { source, place, device, n_rows: AtomicU64::new(0), n_hits: AtomicU64::new(0) })
    }

    /// Number of columns.
    pub fn dim(&self) -> usize {
        self.source.dim()
    }

    /// How many rows are where the device reads them; on the processor all.
    pub fn n_cached(&self) -> usize {
        match &self.place {
            Place::Host => self.source.n_rows(),
            #[cfg(feature = "cube")]
            Place::Cube(rows) => rows.n_rows(),
        }
    }

    /// `[n] -> [n, dim]`: the rows of nodes, given by their ids on the device (u32, as [`crate::DeviceBlock::src_nodes`]),
    /// as f32. Where rows are missing on the device, the host waits once for their ids, gathers them, and sends them.
    ///
    /// # Errors
    /// What the source says.
    ///
    /// # Panics
    /// When the device fails, the ids are on another device, or, on a GPU, an id has no row: samplers give none.
    pub fn gather(&self, nodes: &Tensor<1, Int>) -> kiln_feature::Result<Tensor<2>> {
        let n_nodes = nodes.dims()[0];
        let (rows, n_sent) = match &self.place {
            Place::Host => (self.gather_on_host(nodes)?, 0),
            #[cfg(feature = "cube")]
            Place::Cube(rows) => {
                let nodes = nodes.clone().try_into_primitive::<burn_cubecl::CubeBackend>();
                let nodes = nodes.expect("nodes should be on the features' device");
                let gathered = rows.gather(&nodes, &*self.source)?;
                (Tensor::from_primitive::<burn_cubecl::CubeBackend>(gathered.rows), gathered.n_sent)
            }
        };
        self.n_rows.fetch_add(n_nodes as u64, Ordering::Relaxed);
        self.n_hits.fetch_add((n_nodes - n_sent) as u64, Ordering::Relaxed);
        Ok(rows)
    }

    /// The counts of rows that were gathered so far, and of those that the device had.
    pub fn cache_stats(&self) -> CacheStats {
        CacheStats {
            n_rows: self.n_rows.load(Ordering::Relaxed),
            n_hits: self.n_hits.load(Ordering::Relaxed),
        }
    }

    fn gather_on_host(&self, nodes: &Tensor<1, Int>) -> kiln_feature::Result<Tensor<2>> {
        let nodes: Vec<NodeId> =
            read_i64(nodes.clone()).into_iter().map(|node| NodeId(node as u32)).collect();
        let mut rows = FeatureBuffer::empty(self.source.dtype());
        self.source.gather(&nodes, &mut rows)?;
        let rows = TensorData::new(rows.into_f32(), [nodes.len(), self.source.dim()]);
        Ok(Tensor::from_data(rows, &self.device))
    }
}

impl Place {
    #[cfg(not(feature = "cube"))]
    fn all(_: &Arc<dyn FeatureStore>, _: &Device) -> Result<Self, UploadError> {
        Ok(Self::Host)
    }

    #[cfg(not(feature = "cube"))]
    fn some(
        _: &Arc<dyn FeatureStore>,
        _: impl FnOnce() -> Vec<NodeId>,
        _: &Device,
    ) -> Result<Self, UploadError> {
        Ok(Self::Host)
    }

    #[cfg(feature = "cube")]
    fn all(source: &Arc<dyn FeatureStore>, device: &Device) -> Result<Self, UploadError> {
        let Some(anchor) = anchor(device) else { return Ok(Self::Host) };
        Ok(Self::Cube(Box::new(run_on_load_stream(device, || FeatureRows::all(&anchor, &**source))??)))
    }

    #[cfg(feature = "cube")]
    fn some(
        source: &Arc<dyn FeatureStore>,
        nodes: impl FnOnce() -> Vec<NodeId>,
        device: &Device,
    ) -> Result<Self, UploadError> {
        let Some(anchor) = anchor(device) else { return Ok(Self::Host) };
        Ok(Self::Cube(Box::new(run_on_load_stream(device, || {
            FeatureRows::some(&anchor, &**source, &nodes())
        })??)))
    }
}

/// Bytes of a row where the device reads it.
fn row_bytes(source: &Arc<dyn FeatureStore>, device: &Device) -> usize {
    #[cfg(feature = "cube")]
    if let Some(anchor) = anchor(device) {
        return bytes_of_row(&anchor, &**source);
    }
    let _ = device;
    source.dim() * source.dtype().bytes()
}

/// The nodes of the largest numbers, those of equal ones by their ids.
#[cfg_attr(not(feature = "cube"), allow(dead_code, reason = "only devices ask"))]
fn hottest(hotness: &[u32], n_nodes: usize) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = (0..hotness.len() as u32).map(NodeId).collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(hotness[node.index()]));
    nodes.truncate(n_nodes);
    nodes
}
