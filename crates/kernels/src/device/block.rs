use std::sync::{Arc, OnceLock};

use burn::backend::tensor::IntTensor;
use burn::backend::{Backend, Dispatch, ExtensionType};
use burn::tensor::{DType, Device, Element, Int, Tensor, TensorData};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;
use bytemuck::cast_vec;
use kiln_graph::{Block, BlockParts, EdgeColumns, TransposedBlock};

#[cfg(feature = "cube")]
use crate::cube::{by_source::SourceCounts, launch};
use crate::device::block_size::BlockSize;
use crate::device::by_source::BySource;
use crate::device::relation_groups::DeviceRelationGroups;

/// A [`Block`] on a device. The backward pass uses the transposed block. If the block came without one, it is built
/// once for all clones, when a gradient first needs it.
///
/// | array | element | length | indexed by | value |
/// |---|---|---|---|---|
/// | `edge_ids` | i64 | `n_edges` | position of the edge in the block | the edge's id in the graph |
/// | `weights` | f32 | `n_edges` | position of the edge in the block | the edge's weight; `None` without weights |
/// | `edge_types` | i32 | `n_edges` | position of the edge in the block | the edge's type, 0 to 255; `None` without types |
/// | `edge_column(name)` | f32, f16 or bf16 | `[n_edges, d]` | position of the edge in the block | the edge's row; `None` unless the loader reads the column |
/// | `src_nodes` | u32 | `n_src` | source, destinations first | the source's global id |
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceBlock {
    edges: DeviceEdges,
    edge_ids: Tensor<1, Int>,
    weights: Option<Tensor<1>>,
    edge_types: Option<Tensor<1, Int>>,
    /// The columns of the edges, by name.
    edge_columns: Vec<(Arc<str>, Tensor<2>)>,
    pub(super) relation_groups: Option<DeviceRelationGroups>,
    /// The edges as rows of a matrix, once an op has read them.
    edge_rows: Arc<OnceLock<DeviceEdges>>,
    src_nodes: Tensor<1, Int>,
    dst_nodes: Tensor<1, Int>,
    /// The size from which layers choose the order of their computations, if it is not that of the block.
    pub(super) nominal_size: Option<BlockSize>,
}

impl DeviceBlock {
    /// Moves a block to a device. On Flex, the tensors take over the block's arrays without a copy.
    ///
    /// # Panics
    /// Panics if the block has 2^31 or more edges or sources.
    pub fn new(mut block: Block, device: &Device) -> Self {
        let n_src = block.n_src();
        let n_dst = block.n_dst();
        let n_edges = block.n_edges();
        check_limit(n_edges, "edges");
        check_limit(n_src, "sources");
        // The index tensors carry no gradient. They are on the device without autodiff, so that tracked and untracked
        // tensors can be used with them.
        let device = &device.clone().inner();
        let carried = block.take_transposed();
        let BlockParts { srcs, indptr, indices, edge_ids, weights, edge_types } = block.into_parts();
        let src_nodes = upload(cast_vec::<_, u32>(srcs), DType::U32, device);
        let edges = DeviceEdges::new(n_src, indptr, cast_vec(indices), carried, device);
        edges.upload_by_source();
        Self {
            edges,
            edge_ids: upload(cast_vec::<_, i64>(edge_ids), DType::I64, device),
            weights: weights.map(|weights| Tensor::from_data(TensorData::new(weights, [n_edges]), device)),
            edge_types: edge_types.map(|types| upload_edge_types(&types, device)),
            edge_columns: Vec::new(),
            relation_groups: None,
            edge_rows: Arc::default(),
            dst_nodes: first_values(&src_nodes, n_dst),
            src_nodes,
            nominal_size: None,
        }
    }

    /// Copies a block to a device.
    ///
    /// # Panics
    /// Same as [`DeviceBlock::new`].
    pub fn upload(block: &Block, device: &Device) -> Self {
        Self::new(block.clone(), device)
    }

    /// Creates a block from tensors that are already on the device, for example of a block that was sampled there.
    #[cfg(feature = "cube")]
    pub(crate) fn of_tensors(tensors: BlockTensors) -> Self {
        let BlockTensors { indptr, indices, edge_ids, weights, edge_types, src_nodes, most_in_edges, counts } =
            tensors;
        let edges = DeviceEdges {
            n_src: src_nodes.dims()[0],
            n_dst: indptr.dims()[0] - 1,
            n_edges: indices.dims()[0],
            most_in_edges,
            is_gather: false,
            indptr,
            indices,
            by_source: Arc::new(BySource::counted(counts)),
        };
        let dst_nodes = first_values(&src_nodes, edges.n_dst);
        Self {
            edges,
            edge_ids,
            weights,
            edge_types,
            edge_columns: Vec::new(),
            relation_groups: None,
            edge_rows: Arc::default(),
            src_nodes,
            dst_nodes,
            nominal_size: None,
        }
    }

    /// Adds a column of the edges, `[n_edges, d]`, in block order, which is on the block's device.
    ///
    /// # Panics
    /// Panics if there is not one row per edge.
    #[must_use]
    pub fn with_edge_column(mut self, name: impl Into<Arc<str>>, rows: Tensor<2>) -> Self {
        let [n_rows, _] = rows.dims();
        let n_edges = self.n_edges();
        let name = name.into();
        assert_eq!(n_rows, n_edges, "got {n_rows} rows of {name} for {n_edges} edges, expected one per edge");
        self.edge_columns.retain(|(other, _)| *other != name);
        self.edge_columns.push((name, rows));
        self
    }

    /// Lets layers choose the order of their computations as for a block of another size, in evaluations
    /// [`BlockSize::SAMPLED`], so that the order does not depend on the batch.
    #[must_use]
    pub fn standing_for(self, size: BlockSize) -> Self {
        Self { nominal_size: Some(size), ..self }
    }

    /// The number of sources.
    pub fn n_src(&self) -> usize {
        self.edges.n_src
    }

    /// The number of destinations.
    pub fn n_dst(&self) -> usize {
        self.edges.n_dst
    }

    /// The number of edges.
    pub fn n_edges(&self) -> usize {
        self.edges.n_edges
    }

    /// The number of bytes that the arrays occupy, including the transposed block if it has been built. The arrays of a
    /// block that was sampled on its device may be larger than their contents.
    pub fn n_bytes(&self) -> usize {
        let indices = [&self.edge_ids, &self.src_nodes].into_iter().chain(&self.edge_types);
        let of_weights = if self.weights.is_some() { 4 * self.n_edges() } else { 0 };
        let mut of_columns = 0;
        for (_, rows) in &self.edge_columns {
            of_columns += rows.shape().num_elements() * rows.dtype().size();
        }
        let of_groups = self.relation_groups.as_ref().map_or(0, DeviceRelationGroups::n_bytes);
        // The first array is that of the block.
        let of_edge_rows = self
            .edge_rows
            .get()
            .map_or(0, |rows: &DeviceEdges| n_bytes_kept(&rows.indices) + rows.by_source.n_bytes());
        let of_arrays = indices.map(n_bytes_kept).sum::<usize>() + self.edges.n_bytes() + of_edge_rows;
        of_arrays + of_weights + of_columns + of_groups
    }

    /// The id of each edge in the graph, `[n_edges]`, as i64.
    pub fn edge_ids(&self) -> &Tensor<1, Int> {
        &self.edge_ids
    }

    /// The weight of each edge, `[n_edges]`, or `None` if the block has no weights.
    pub fn weights(&self) -> Option<&Tensor<1>> {
        self.weights.as_ref()
    }

    /// The type of each edge, `[n_edges]`, as i32, or `None` if the block has no edge types.
    pub fn edge_types(&self) -> Option<&Tensor<1, Int>> {
        self.edge_types.as_ref()
    }

    /// The features of each edge, `[n_edges, d]`, or `None` if the block has no edge features.
    pub fn edge_features(&self) -> Option<&Tensor<2>> {
        self.edge_column(EdgeColumns::FEATURES)
    }

    /// The rows of a column of the edges, `[n_edges, d]`, or `None` if the block does not have the column.
    pub fn edge_column(&self, name: &str) -> Option<&Tensor<2>> {
        self.edge_columns.iter().find(|(other, _)| &**other == name).map(|(_, rows)| rows)
    }

    /// The global ids of the sources, destinations first, `[n_src]`, as u32.
    pub fn src_nodes(&self) -> &Tensor<1, Int> {
        &self.src_nodes
    }

    /// The global ids of the destinations, `[n_dst]`, as u32.
    pub fn dst_nodes(&self) -> &Tensor<1, Int> {
        &self.dst_nodes
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        self.edges.adjacency()
    }

    /// The transposed block, if the host has it.
    pub(crate) fn transposed_on_host(&self) -> Option<&TransposedBlock> {
        self.edges.by_source.host()
    }

    /// The source of each edge, `[n_edges]`, as i32.
    pub(crate) fn sources(&self) -> &Tensor<1, Int> {
        &self.edges.indices
    }

    /// Same as [`sources`](Self::sources), but the tensor is not shared with a block.
    pub(crate) fn into_sources(self) -> Tensor<1, Int> {
        self.edges.indices
    }

    /// The edges of each destination as the rows of a matrix with one row per edge. They are created once for all clones,
    /// so that the ops of a layer share their transposed block.
    pub(crate) fn rows_of_dsts(&self) -> &DeviceEdges {
        self.edge_rows.get_or_init(|| {
            let DeviceEdges { n_dst, n_edges, most_in_edges, ref indptr, .. } = self.edges;
            let indices = Tensor::arange(0..n_edges as i64, (&indptr.device(), DType::I32));
            let by_source = Arc::new(BySource::default());
            DeviceEdges {
                n_src: n_edges,
                n_dst,
                n_edges,
                most_in_edges,
                is_gather: false,
                indptr: indptr.clone(),
                indices,
                by_source,
            }
        })
    }
}

impl From<&DeviceBlock> for BlockSize {
    /// Returns the size of the block, or the size that stands for it ([`DeviceBlock::standing_for`]).
    fn from(block: &DeviceBlock) -> Self {
        let own = Self { n_src: block.n_src(), n_dst: block.n_dst(), n_edges: block.n_edges() };
        block.nominal_size.unwrap_or(own)
    }
}

/// The arrays of a block on its device.
#[cfg(feature = "cube")]
pub(crate) struct BlockTensors {
    /// The first edge of each destination, `[n_dst + 1]`, i32.
    pub(crate) indptr: Tensor<1, Int>,
    /// The source of each edge, `[n_edges]`, i32.
    pub(crate) indices: Tensor<1, Int>,
    /// The id of each edge in the graph, `[n_edges]`, i64.
    pub(crate) edge_ids: Tensor<1, Int>,
    /// The weight of each edge, `[n_edges]`, f32.
    pub(crate) weights: Option<Tensor<1>>,
    /// The type of each edge, `[n_edges]`, i32.
    pub(crate) edge_types: Option<Tensor<1, Int>>,
    /// The global ids of the sources, destinations first, `[n_src]`, u32.
    pub(crate) src_nodes: Tensor<1, Int>,
    /// An upper bound on the number of edges of a destination.
    pub(crate) most_in_edges: usize,
    /// The counts of the edges by source, if there are edges.
    pub(crate) counts: Option<SourceCounts>,
}

/// Edges on a device, grouped by destination. The ops treat blocks, segments and row indices alike as such edges.
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub(crate) struct DeviceEdges {
    pub(crate) n_src: usize,
    pub(crate) n_dst: usize,
    pub(crate) n_edges: usize,
    most_in_edges: usize,
    is_gather: bool,
    indptr: Tensor<1, Int>,
    indices: Tensor<1, Int>,
    by_source: Arc<BySource>,
}

impl DeviceEdges {
    /// Moves edges to a device without autodiff, with their transposed block if it is known.
    pub(crate) fn new(
        n_src: usize,
        indptr: Vec<u32>,
        indices: Vec<u32>,
        by_source: Option<TransposedBlock>,
        device: &Device,
    ) -> Self {
        Self {
            n_src,
            n_dst: indptr.len() - 1,
            n_edges: indices.len(),
            most_in_edges: indptr.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0) as usize,
            is_gather: false,
            indptr: upload_u32(indptr, device),
            indices: upload_u32(indices, device),
            by_source: Arc::new(BySource::of(by_source)),
        }
    }

    /// Creates one edge per destination, from sources on a device.
    pub(crate) fn one_per_dst(indices: Tensor<1, Int>, n_src: usize) -> Self {
        let n_edges = indices.dims()[0];
        let indptr = Tensor::arange(0..n_edges as i64 + 1, (&indices.device(), DType::I32));
        Self {
            n_src,
            n_dst: n_edges,
            n_edges,
            most_in_edges: 1,
            is_gather: true,
            indptr,
            indices,
            by_source: Arc::new(BySource::default()),
        }
    }

    /// Copies the transposed block to the device, where the backward pass reads it, if it is known.
    pub(crate) fn upload_by_source(&self) {
        #[cfg(feature = "cube")]
        self.by_source.upload(&self.indptr);
    }

    /// Returns the number of bytes that the arrays occupy, including the transposed block if it has been built.
    pub(crate) fn n_bytes(&self) -> usize {
        n_bytes_kept(&self.indptr) + n_bytes_kept(&self.indices) + self.by_source.n_bytes()
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        Adjacency {
            indptr: self.indptr.clone().into_dispatch(),
            indices: self.indices.clone().into_dispatch(),
            by_source: Arc::clone(&self.by_source),
            n_src: self.n_src,
            n_dst: self.n_dst,
            n_edges: self.n_edges,
            most_in_edges: self.most_in_edges,
            is_gather: self.is_gather,
        }
    }
}

/// [`DeviceEdges`] as i32 tensors of a backend.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct Adjacency<B: Backend> {
    /// The first edge of each destination, `[n_dst + 1]`.
    pub(crate) indptr: IntTensor<B>,
    /// The source of each edge, `[n_edges]`.
    pub(crate) indices: IntTensor<B>,
    /// The cache of the edges by source.
    pub(crate) by_source: Arc<BySource>,
    /// The number of sources.
    pub(crate) n_src: usize,
    /// The number of destinations.
    pub(crate) n_dst: usize,
    /// The number of edges.
    pub(crate) n_edges: usize,
    /// An upper bound on the number of edges of a destination.
    pub(crate) most_in_edges: usize,
    /// True if the edges were created as one per destination. Blocks that were sampled are not, whatever their edges are, because
    /// the sampler on a device does not know these.
    pub(crate) is_gather: bool,
}

/// Returns a view of the first `n_values` values. On CubeCL's devices, Burn's slice would copy them.
fn first_values(tensor: &Tensor<1, Int>, n_values: usize) -> Tensor<1, Int> {
    #[cfg(feature = "cube")]
    if let Ok(array) = tensor.clone().try_into_primitive::<CubeBackend>() {
        return launch::int_tensor(launch::prefix(&array, n_values));
    }
    tensor.clone().slice(0..n_values)
}

/// Returns the size in bytes of a tensor's memory, which may be larger than the tensor.
fn n_bytes_kept(tensor: &Tensor<1, Int>) -> usize {
    #[cfg(feature = "cube")]
    if let Ok(array) = tensor.clone().try_into_primitive::<CubeBackend>() {
        return array.handle.size() as usize;
    }
    tensor.dims()[0] * tensor.dtype().size()
}

/// Panics if an i32 index tensor cannot address `count` elements and the position after the last one.
pub(crate) fn check_limit(count: usize, what: &str) {
    let limit = i32::MAX as usize;
    assert!(count <= limit, "{count} {what} in a batch, expected at most {limit}: use smaller batches");
}

fn upload_u32(values: Vec<u32>, device: &Device) -> Tensor<1, Int> {
    upload(cast_vec::<u32, i32>(values), DType::I32, device)
}

/// Copies edge types to a device, as i32, because not all devices support 8-bit integers.
fn upload_edge_types(edge_types: &[u8], device: &Device) -> Tensor<1, Int> {
    let values: Vec<i32> = edge_types.iter().map(|&edge_type| i32::from(edge_type)).collect();
    upload(values, DType::I32, device)
}

pub(crate) fn upload<E: Element>(values: Vec<E>, dtype: DType, device: &Device) -> Tensor<1, Int> {
    let n_values = values.len();
    Tensor::from_data(TensorData::new(values, [n_values]), (device, dtype))
}
