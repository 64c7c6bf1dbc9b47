use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::{Device, Int, Tensor};
use kiln_feature::FeatureStore;
use kiln_graph::NodeId;

#[cfg(feature = "cube")]
use crate::cube::features::{FeatureRows, RowTypes};
#[cfg(feature = "cube")]
use crate::cube::launch::anchor;
#[cfg(feature = "cube")]
use crate::device::devices::run_on_load_stream;
use crate::device::error::UploadError;
use crate::device::read::read_i64;
use crate::device::row_source::NodeRows;
#[cfg(feature = "cube")]
use crate::device::row_source::RowSource;
use crate::device::rows::gather_features;

/// Feature rows in a device's memory: all of them, or a static cache of the hottest. The host sends the missing rows of
/// each batch.
///
/// On the CPU nothing is copied, and rows are gathered from their source. The values are exactly those of the source,
/// whether a row was cached or not.
#[derive(Debug)]
pub struct DeviceFeatures {
    source: Arc<dyn FeatureStore>,
    memory: RowMemory,
    device: Device,
    n_rows: AtomicU64,
    n_hits: AtomicU64,
}

/// The memory that holds the rows.
#[derive(Debug)]
pub(crate) enum RowMemory {
    Host,
    #[cfg(feature = "cube")]
    Cube(Box<FeatureRows>),
}

/// The hit statistics of a feature cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The number of gathered rows.
    pub n_rows: u64,
    /// The number of gathered rows that were on the device.
    pub n_hits: u64,
}

impl CacheStats {
    /// The share of gathered rows that were on the device; 1 if no row was gathered.
    pub fn hit_rate(self) -> f64 {
        if self.n_rows == 0 { 1.0 } else { self.n_hits as f64 / self.n_rows as f64 }
    }

    /// Adds the counts of two devices.
    pub fn and(self, other: Self) -> Self {
        Self { n_rows: self.n_rows + other.n_rows, n_hits: self.n_hits + other.n_hits }
    }
}

impl DeviceFeatures {
    /// Copies all rows to a device in the element type of the store, or as f32 if the device does not support that
    /// type, or as bf16 if layers read it there ([`MatmulPrecision::Bf16`](crate::ops::MatmulPrecision::Bf16) on CUDA). If
    /// the rows exceed the largest allocation of the device, they are split into parts, and a gather takes a launch per part.
    ///
    /// # Errors
    /// Returns [`UploadError::Features`] if the store cannot be read, [`UploadError::OutOfMemory`] if the device does not
    /// have the memory for the rows, [`UploadError::TooLarge`] if it cannot allocate one row or the table of the cached
    /// nodes, and [`UploadError::Device`] if it fails. On the CPU it never fails.
    pub fn new(source: Arc<dyn FeatureStore>, device: &Device) -> Result<Self, UploadError> {
        Self::in_parts(source, u64::MAX, device)
    }

    /// Copies the hottest rows that fit in `n_bytes` to a device. The lookup table takes 4 of these bytes per node.
    /// `hotness[v]` is the number of times that batches read the row of node `v`: an estimate from
    /// [`kiln_graph::Csc::out_degrees`], or a count from [`kiln_sample::count_node_accesses`]. Of nodes with equal
    /// hotness, those with lower ids are preferred. If all rows fit, this is the same as [`DeviceFeatures::new`].
    ///
    /// # Errors
    /// Returns [`UploadError::HotnessLength`] if there is not one number per row, and the errors of
    /// [`DeviceFeatures::new`].
    pub fn hottest(
        source: Arc<dyn FeatureStore>,
        hotness: &[u32],
        n_bytes: u64,
        device: &Device,
    ) -> Result<Self, UploadError> {
        Self::hottest_in_parts(source, hotness, n_bytes, u64::MAX, device)
    }

    /// Same as [`DeviceFeatures::new`], but in parts of at most `part_bytes` bytes.
    fn in_parts(
        source: Arc<dyn FeatureStore>,
        part_bytes: u64,
        device: &Device,
    ) -> Result<Self, UploadError> {
        let device = device.clone().inner();
        let memory = RowMemory::all(&NodeRows(&*source), part_bytes, &device)?;
        Ok(Self { source, memory, device, n_rows: AtomicU64::new(0), n_hits: AtomicU64::new(0) })
    }

    /// Same as [`DeviceFeatures::hottest`], but in parts of at most `part_bytes` bytes.
    pub(crate) fn hottest_in_parts(
        source: Arc<dyn FeatureStore>,
        hotness: &[u32],
        n_bytes: u64,
        part_bytes: u64,
        device: &Device,
    ) -> Result<Self, UploadError> {
        let n_rows = source.n_rows();
        if hotness.len() != n_rows {
            return Err(UploadError::HotnessLength { n_rows, got: hotness.len() });
        }
        let device = device.clone().inner();
        let row_bytes = row_bytes(&source, &device) as u64;
        if n_rows as u64 * row_bytes <= n_bytes {
            return Self::in_parts(source, part_bytes, &device);
        }
        let n_cached = n_bytes.saturating_sub(4 * n_rows as u64) / row_bytes;
        let memory = RowMemory::some(&source, || hottest(hotness, n_cached as usize), part_bytes, &device)?;
        Ok(Self { source, memory, device, n_rows: AtomicU64::new(0), n_hits: AtomicU64::new(0) })
    }

    /// The number of columns.
    pub fn dim(&self) -> usize {
        self.source.dim()
    }

    /// The number of rows, one per node.
    pub fn n_rows(&self) -> usize {
        self.source.n_rows()
    }

    /// The number of rows in the device's memory. On the CPU, this is the number of all rows.
    pub fn n_cached(&self) -> usize {
        match &self.memory {
            RowMemory::Host => self.source.n_rows(),
            #[cfg(feature = "cube")]
            RowMemory::Cube(rows) => rows.n_rows(),
        }
    }

    /// The number of parts of the table in the device's memory.
    pub(crate) fn n_parts(&self) -> usize {
        self.memory.n_parts()
    }

    /// Gathers the rows of nodes, `[n] -> [n, dim]`, as f32, or on the CPU in the element type of the store, as
    /// [`gather_features`] does. On CUDA, they are bf16 if the precision was
    /// [`MatmulPrecision::Bf16`](crate::ops::MatmulPrecision::Bf16) when the rows were copied. The ids are u32 on the device,
    /// such as those of [`DeviceBlock::src_nodes`](crate::DeviceBlock::src_nodes). If rows are missing on the device, the host
    /// waits once for their ids, gathers them, and sends them.
    ///
    /// # Errors
    /// Returns an error of the feature store if it cannot gather the rows.
    ///
    /// # Panics
    /// Panics if the device fails or the ids are on another device. May panic on a GPU if an id has no row; samplers
    /// never return such ids.
    pub fn gather(&self, nodes: &Tensor<1, Int>) -> kiln_feature::Result<Tensor<2>> {
        let n_nodes = nodes.dims()[0];
        let (rows, n_sent) = match &self.memory {
            RowMemory::Host => (self.gather_on_host(nodes)?, 0),
            #[cfg(feature = "cube")]
            RowMemory::Cube(rows) => {
                let nodes = nodes.clone().try_into_primitive::<burn_cubecl::CubeBackend>();
                let nodes = nodes.expect("the nodes should be on the device of the features");
                let gathered = rows.gather(&nodes, &*self.source)?;
                (Tensor::from_primitive::<burn_cubecl::CubeBackend>(gathered.rows), gathered.n_sent)
            }
        };
        self.n_rows.fetch_add(n_nodes as u64, Ordering::Relaxed);
        self.n_hits.fetch_add((n_nodes - n_sent) as u64, Ordering::Relaxed);
        Ok(rows)
    }

    /// Returns the number of rows gathered so far, and the number of them that were on the device.
    pub fn cache_stats(&self) -> CacheStats {
        CacheStats {
            n_rows: self.n_rows.load(Ordering::Relaxed),
            n_hits: self.n_hits.load(Ordering::Relaxed),
        }
    }

    fn gather_on_host(&self, nodes: &Tensor<1, Int>) -> kiln_feature::Result<Tensor<2>> {
        let nodes: Vec<NodeId> =
            read_i64(nodes.clone()).into_iter().map(|node| NodeId(node as u32)).collect();
        gather_features(&*self.source, &nodes, &self.device)
    }
}

impl RowMemory {
    pub(crate) fn n_parts(&self) -> usize {
        match self {
            Self::Host => 1,
            #[cfg(feature = "cube")]
            Self::Cube(rows) => rows.n_parts(),
        }
    }

    #[cfg(not(feature = "cube"))]
    pub(crate) fn all<S>(_: &S, _: u64, _: &Device) -> Result<Self, UploadError> {
        Ok(Self::Host)
    }

    #[cfg(not(feature = "cube"))]
    fn some(
        _: &Arc<dyn FeatureStore>,
        _: impl FnOnce() -> Vec<NodeId>,
        _: u64,
        _: &Device,
    ) -> Result<Self, UploadError> {
        Ok(Self::Host)
    }

    /// Copies all rows of nodes or edges to a device. On the CPU, they stay where they are.
    #[cfg(feature = "cube")]
    pub(crate) fn all<S: RowSource + Sync>(
        source: &S,
        part_bytes: u64,
        device: &Device,
    ) -> Result<Self, UploadError> {
        let Some(anchor) = anchor(device) else { return Ok(Self::Host) };
        Ok(Self::Cube(Box::new(run_on_load_stream(device, || {
            FeatureRows::all(&anchor, source, part_bytes)
        })??)))
    }

    #[cfg(feature = "cube")]
    fn some(
        source: &Arc<dyn FeatureStore>,
        nodes: impl FnOnce() -> Vec<NodeId>,
        part_bytes: u64,
        device: &Device,
    ) -> Result<Self, UploadError> {
        let Some(anchor) = anchor(device) else { return Ok(Self::Host) };
        Ok(Self::Cube(Box::new(run_on_load_stream(device, || {
            FeatureRows::some(&anchor, &**source, part_bytes, &nodes())
        })??)))
    }
}

/// Returns the number of bytes that a row occupies in the device's memory.
fn row_bytes(source: &Arc<dyn FeatureStore>, device: &Device) -> usize {
    #[cfg(feature = "cube")]
    if let Some(anchor) = anchor(device) {
        return RowTypes::of(&anchor, &NodeRows(&**source)).row_bytes(source.dim());
    }
    let _ = device;
    source.dim() * source.dtype().bytes()
}

/// Returns the `n_nodes` nodes with the largest hotness, in descending order; nodes with equal hotness are in order of
/// their ids.
#[cfg_attr(not(feature = "cube"), allow(dead_code, reason = "only devices with CubeCL kernels cache rows"))]
fn hottest(hotness: &[u32], n_nodes: usize) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = (0..hotness.len() as u32).map(NodeId).collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(hotness[node.index()]));
    nodes.truncate(n_nodes);
    nodes
}
