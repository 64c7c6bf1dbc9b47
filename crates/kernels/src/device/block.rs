use std::sync::Arc;

use burn::backend::tensor::IntTensor;
use burn::backend::{Backend, Dispatch, ExtensionType};
use burn::tensor::{DType, Device, Element, Int, Tensor, TensorData};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;
use bytemuck::cast_vec;
use kiln_graph::{Block, BlockParts, TransposedBlock};

use crate::device::by_source::BySource;

/// A [`Block`] on a device. Its transposed block, which gradients flow back over, is the one that the block
/// carried, or is made when a gradient first asks for it: once for all clones.
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
    edges: DeviceEdges,
    edge_ids: Tensor<1, Int>,
    weights: Option<Tensor<1>>,
    src_nodes: Tensor<1, Int>,
    dst_nodes: Tensor<1, Int>,
}

impl DeviceBlock {
    /// Brings a block to a device. On Flex its arrays become the tensors, without a copy.
    ///
    /// # Panics
    /// When the block has 2^31 edges or sources, or more: split the batch.
    pub fn new(mut block: Block, device: &Device) -> Self {
        let (n_src, n_dst, n_edges) = (block.n_src(), block.n_dst(), block.n_edges());
        check_limit(n_edges, "edges");
        check_limit(n_src, "sources");
        // Index tensors carry no gradient, and on the plain device they mix with tensors of either kind.
        let device = &device.clone().inner();
        let carried = block.take_transposed();
        let BlockParts { srcs, indptr, indices, edge_ids, weights } = block.into_parts();
        let src_nodes = upload(cast_vec::<_, u32>(srcs), DType::U32, device);
        let edges = DeviceEdges::new(n_src, indptr, cast_vec(indices), carried, device);
        #[cfg(feature = "cube")]
        edges.by_source.upload(&edges.indptr);
        Self {
            edges,
            edge_ids: upload(cast_vec::<_, i64>(edge_ids), DType::I64, device),
            weights: weights.map(|weights| Tensor::from_data(TensorData::new(weights, [n_edges]), device)),
            dst_nodes: src_nodes.clone().slice(0..n_dst),
            src_nodes,
        }
    }

    /// Copies a block to a device.
    ///
    /// # Panics
    /// As [`DeviceBlock::new`].
    pub fn upload(block: &Block, device: &Device) -> Self {
        Self::new(block.clone(), device)
    }

    /// A block of tensors that are on the device already, such as one that was sampled there.
    #[cfg(feature = "cube")]
    pub(crate) fn of_tensors(tensors: BlockTensors) -> Self {
        let BlockTensors { indptr, indices, edge_ids, weights, src_nodes } = tensors;
        let edges = DeviceEdges {
            n_src: src_nodes.dims()[0],
            n_dst: indptr.dims()[0] - 1,
            n_edges: indices.dims()[0],
            indptr,
            indices,
            by_source: Arc::default(),
        };
        let dst_nodes = src_nodes.clone().slice(0..edges.n_dst);
        Self { edges, edge_ids, weights, src_nodes, dst_nodes }
    }

    /// Number of sources.
    pub fn n_src(&self) -> usize {
        self.edges.n_src
    }

    /// Number of destinations.
    pub fn n_dst(&self) -> usize {
        self.edges.n_dst
    }

    /// Number of edges.
    pub fn n_edges(&self) -> usize {
        self.edges.n_edges
    }

    /// Bytes of the memory that its arrays keep, the edges by source as far as they have been listed included. Where a
    /// block was sampled on its device, some have more room than they need.
    pub fn n_bytes(&self) -> usize {
        let indices = [&self.edges.indptr, &self.edges.indices, &self.edge_ids, &self.src_nodes];
        let of_weights = if self.weights.is_some() { 4 * self.n_edges() } else { 0 };
        indices.into_iter().map(n_bytes_kept).sum::<usize>() + of_weights + self.edges.by_source.n_bytes()
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
        self.edges.adjacency()
    }
}

/// The arrays of a block on its device.
#[cfg(feature = "cube")]
pub(crate) struct BlockTensors {
    /// Where each destination's edges start, `[n_dst + 1]`, i32.
    pub(crate) indptr: Tensor<1, Int>,
    /// Each edge's source, `[n_edges]`, i32.
    pub(crate) indices: Tensor<1, Int>,
    /// Each edge's id in the graph, `[n_edges]`, i64.
    pub(crate) edge_ids: Tensor<1, Int>,
    /// Each edge's weight, `[n_edges]`, f32.
    pub(crate) weights: Option<Tensor<1>>,
    /// The sources' ids in the graph, destinations first, `[n_src]`, u32.
    pub(crate) src_nodes: Tensor<1, Int>,
}

/// Edges on a device, each destination's one after the other: what a block, segments and numbers of rows are to the ops.
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub(crate) struct DeviceEdges {
    pub(crate) n_src: usize,
    pub(crate) n_dst: usize,
    pub(crate) n_edges: usize,
    indptr: Tensor<1, Int>,
    indices: Tensor<1, Int>,
    by_source: Arc<BySource>,
}

impl DeviceEdges {
    /// Brings edges to a device that tracks no gradients, with their list by source where it is known.
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
            indptr: upload_u32(indptr, device),
            indices: upload_u32(indices, device),
            by_source: Arc::new(BySource::of(by_source)),
        }
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        Adjacency {
            indptr: self.indptr.clone().into_dispatch(),
            indices: self.indices.clone().into_dispatch(),
            by_source: Arc::clone(&self.by_source),
            n_src: self.n_src,
            n_dst: self.n_dst,
            n_edges: self.n_edges,
        }
    }
}

/// [`DeviceEdges`] as a backend sees them; the tensors are i32.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct Adjacency<B: Backend> {
    /// Where each destination's edges start, `[n_dst + 1]`.
    pub(crate) indptr: IntTensor<B>,
    /// Each edge's source, `[n_edges]`.
    pub(crate) indices: IntTensor<B>,
    /// The edges by source, as far as they have been listed.
    pub(crate) by_source: Arc<BySource>,
    /// Number of sources.
    pub(crate) n_src: usize,
    /// Number of destinations.
    pub(crate) n_dst: usize,
    /// Number of edges.
    pub(crate) n_edges: usize,
}

/// Bytes of the memory that a tensor keeps, of which it may be a part.
fn n_bytes_kept(tensor: &Tensor<1, Int>) -> usize {
    #[cfg(feature = "cube")]
    if let Ok(array) = tensor.clone().try_into_primitive::<CubeBackend>() {
        return array.handle.size() as usize;
    }
    tensor.dims()[0] * tensor.dtype().size()
}

/// Index tensors are i32, and one past the last position must be one, too.
pub(crate) fn check_limit(count: usize, what: &str) {
    let limit = i32::MAX as usize;
    assert!(count <= limit, "{count} {what} in a batch, at most {limit}: split it");
}

fn upload_u32(values: Vec<u32>, device: &Device) -> Tensor<1, Int> {
    upload(cast_vec::<u32, i32>(values), DType::I32, device)
}

pub(crate) fn upload<E: Element>(values: Vec<E>, dtype: DType, device: &Device) -> Tensor<1, Int> {
    let n_values = values.len();
    Tensor::from_data(TensorData::new(values, [n_values]), (device, dtype))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_graph::{EdgeId, LocalId, NodeId};

    fn host() -> Block {
        Block::new(BlockParts {
            srcs: (0..3).map(NodeId).collect(),
            indptr: vec![0, 2, 3],
            indices: [2, 1, 2].map(LocalId).to_vec(),
            edge_ids: (0..3).map(EdgeId).collect(),
            weights: None,
        })
    }

    #[test]
    fn a_transposed_block_that_a_block_carries_is_taken_over() {
        let mut carrying = host();
        carrying.transpose();
        let place = carrying.transposed().map(|transposed| transposed.dsts().as_ptr());
        let block = DeviceBlock::new(carrying, &Device::flex());
        assert_eq!(block.edges.by_source.host().map(|transposed| transposed.dsts().as_ptr()), place);
        assert_eq!(block.edges.by_source.host(), Some(&TransposedBlock::of(&host())));
    }

    #[test]
    fn arrays_become_tensors_where_they_are() {
        let host = host();
        let place = host.indices().as_ptr().addr();
        let block = DeviceBlock::new(host, &Device::flex());
        #[expect(clippy::disallowed_methods, reason = "on Flex the data is where the tensor's is")]
        let data = block.edges.indices.into_data();
        assert_eq!(data.as_bytes().as_ptr().addr(), place);
    }
}
