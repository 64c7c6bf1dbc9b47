use burn::backend::tensor::IntTensor;
use burn::backend::{Backend, Dispatch, ExtensionType};
use burn::tensor::{DType, Device, Element, Int, Tensor, TensorData};
use bytemuck::cast_vec;
use kiln_graph::Block;

use crate::transpose::Transposed;

/// A [`Block`] on a device, with its edges listed by destination and by source.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `edge_ids` | i64 | `n_edges` | position of the edge in the block; the graph's edge |
/// | `weights` | f32 | `n_edges` | the same; `None` when the sampler was not asked for weights |
/// | `src_nodes` | u32 | `n_src` | source; its global id, destinations first |
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceBlock {
    n_src: usize,
    n_dst: usize,
    n_edges: usize,
    indptr: Tensor<1, Int>,
    indices: Tensor<1, Int>,
    out_indptr: Tensor<1, Int>,
    out_dsts: Tensor<1, Int>,
    out_edges: Tensor<1, Int>,
    edge_ids: Tensor<1, Int>,
    weights: Option<Tensor<1>>,
    src_nodes: Tensor<1, Int>,
    dst_nodes: Tensor<1, Int>,
}

impl DeviceBlock {
    /// Copies a block to a device, with its edges sorted by source for the gradients.
    ///
    /// # Panics
    /// When the block has 2^31 edges or sources, or more: split the batch.
    pub fn upload(block: &Block, device: &Device) -> Self {
        check_limit(block.n_edges(), "edges");
        check_limit(block.n_src(), "sources");
        let transposed = Transposed::of(block);
        // Index tensors carry no gradient, and on the plain device they mix with tensors of either kind.
        let device = &device.clone().inner();
        let src_nodes: Vec<u32> = block.srcs().iter().map(|node| node.0).collect();
        let src_nodes = upload(src_nodes, DType::U32, device);
        Self {
            n_src: block.n_src(),
            n_dst: block.n_dst(),
            n_edges: block.n_edges(),
            indptr: upload_u32(block.indptr().to_vec(), device),
            indices: upload_u32(bytemuck::cast_slice(block.indices()).to_vec(), device),
            out_indptr: upload_u32(transposed.indptr, device),
            out_dsts: upload_u32(transposed.dsts, device),
            out_edges: upload_u32(transposed.edges, device),
            edge_ids: upload(bytemuck::cast_slice::<_, i64>(block.edge_ids()).to_vec(), DType::I64, device),
            weights: block.weights().map(|weights| Tensor::from_data(weights, device)),
            dst_nodes: src_nodes.clone().slice(0..block.n_dst()),
            src_nodes,
        }
    }

    /// Number of sources.
    pub fn n_src(&self) -> usize {
        self.n_src
    }

    /// Number of destinations.
    pub fn n_dst(&self) -> usize {
        self.n_dst
    }

    /// Number of edges.
    pub fn n_edges(&self) -> usize {
        self.n_edges
    }

    /// Each edge's id in the graph, `[n_edges]`, as i64.
    pub fn edge_ids(&self) -> &Tensor<1, Int> {
        &self.edge_ids
    }

    /// Each edge's weight, `[n_edges]`, if the sampler was asked for weights.
    pub fn weights(&self) -> Option<&Tensor<1>> {
        self.weights.as_ref()
    }

    /// Global ids of the sources, destinations first, `[n_src]`, as u32.
    pub fn src_nodes(&self) -> &Tensor<1, Int> {
        &self.src_nodes
    }

    /// Global ids of the destinations, `[n_dst]`, as u32.
    pub fn dst_nodes(&self) -> &Tensor<1, Int> {
        &self.dst_nodes
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        Adjacency {
            indptr: self.indptr.clone().into_dispatch(),
            indices: self.indices.clone().into_dispatch(),
            out_indptr: self.out_indptr.clone().into_dispatch(),
            out_dsts: self.out_dsts.clone().into_dispatch(),
            out_edges: self.out_edges.clone().into_dispatch(),
            n_src: self.n_src,
            n_dst: self.n_dst,
            n_edges: self.n_edges,
        }
    }
}

/// The index tensors of a [`DeviceBlock`] as a backend sees them; all are i32.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct Adjacency<B: Backend> {
    /// Where each destination's edges start, `[n_dst + 1]`.
    pub(crate) indptr: IntTensor<B>,
    /// Each edge's source, `[n_edges]`.
    pub(crate) indices: IntTensor<B>,
    /// Where each source's edges start in the next two, `[n_src + 1]`.
    pub(crate) out_indptr: IntTensor<B>,
    /// By source: each edge's destination, `[n_edges]`.
    pub(crate) out_dsts: IntTensor<B>,
    /// By source: each edge's position in `indices`, `[n_edges]`.
    pub(crate) out_edges: IntTensor<B>,
    /// Number of sources.
    pub(crate) n_src: usize,
    /// Number of destinations.
    pub(crate) n_dst: usize,
    /// Number of edges.
    pub(crate) n_edges: usize,
}

/// Index tensors are i32, and one past the last position must be one, too.
pub(crate) fn check_limit(count: usize, what: &str) {
    let limit = i32::MAX as usize;
    assert!(count <= limit, "{count} {what} in a batch, at most {limit}: split it");
}

pub(crate) fn upload_u32(values: Vec<u32>, device: &Device) -> Tensor<1, Int> {
    upload(cast_vec::<u32, i32>(values), DType::I32, device)
}

pub(crate) fn upload<E: Element>(values: Vec<E>, dtype: DType, device: &Device) -> Tensor<1, Int> {
    let n_values = values.len();
    Tensor::from_data(TensorData::new(values, [n_values]), (device, dtype))
}
