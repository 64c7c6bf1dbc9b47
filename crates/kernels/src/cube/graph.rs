//! A graph's topology in a device's memory, and sampling of hops from it.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use kiln_graph::{Csc, NodeId};
use kiln_sample::{ExcludedEdges, HopRequest};
use rayon::prelude::*;

use crate::cube::edge_times::{DeviceEdgeTimes, DstTimes};
use crate::cube::edge_types::EdgeTypes;
use crate::cube::excluded;
use crate::cube::launch;
use crate::device::error::UploadError;

/// The arrays of a [`Csc`] on a device.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(super) indptr: CubeTensor,
    pub(super) indices: CubeTensor,
    pub(super) weights: Option<CubeTensor>,
    pub(super) edge_types: Option<EdgeTypes>,
    pub(super) times: Option<DeviceEdgeTimes>,
    pub(super) n_rows: usize,
    pub(super) largest_degree: u32,
    /// The largest number of (parallel) self loops of a node. If the neighbours of a node are not sorted, this is
    /// `u32::MAX`, because the result of a binary search for loops is then undefined.
    pub(super) most_loops: u32,
}

/// The destinations of a hop.
#[derive(Debug, Clone)]
pub(crate) struct HopNodes {
    /// The ids of the nodes, which key the random draws. They are distinct or, with times, distinct with them.
    pub(crate) nodes: CubeTensor,
    /// For each node, the position in the graph's `indptr` at which its neighbour list is found.
    pub(crate) rows: CubeTensor,
    /// The edges to leave out, as [`excluded::upload`] copies them; `None` to leave out none.
    pub(crate) excluded: Option<CubeTensor>,
    /// The times of the nodes; `None` if items have none.
    pub(crate) times: Option<DstTimes>,
}

impl HopNodes {
    /// Returns the edges to leave out. If there are none, returns another array: a kernel has the same number of
    /// arguments in both cases.
    pub(super) fn excluded_or_any(&self) -> &CubeTensor {
        self.excluded.as_ref().unwrap_or(&self.nodes)
    }
}

impl Graph {
    /// Copies a graph to the device of a tensor, except for the edge types, which [`Graph::store_edge_types`] copies. The
    /// ids of the graph and the order of its edges by time must have been checked.
    ///
    /// # Errors
    /// Returns [`UploadError::DegreeTooLarge`] if a node has 2^32 or more edges, [`UploadError::TooLarge`] if the
    /// device cannot allocate an array, and [`UploadError::Device`] if it fails.
    pub(crate) fn new(anchor: &CubeTensor, graph: &Csc) -> Result<Self, UploadError> {
        let nodes = (0..graph.n_nodes() as u32).into_par_iter();
        let bounds = nodes
            .map(|node: u32| Bounds::of(NodeId(node), graph.in_neighbors(NodeId(node))))
            .reduce(Bounds::default, Bounds::or);
        let copy = Self::of_lists(anchor, graph.indptr(), graph.indices(), graph.weights(), &bounds)?;
        let times = graph.edge_times().map(|times| DeviceEdgeTimes::new(anchor, times)).transpose()?;
        Ok(Self { edge_types: graph.shared_edge_types().map(EdgeTypes::new), times, ..copy })
    }

    /// Copies neighbour lists without edge types and times to the device of a tensor.
    ///
    /// # Errors
    /// Same as [`Graph::new`].
    pub(crate) fn of_lists(
        anchor: &CubeTensor,
        indptr: &[u64],
        indices: &[NodeId],
        weights: Option<&[f32]>,
        bounds: &Bounds,
    ) -> Result<Self, UploadError> {
        let &Bounds { largest_degree, node, most_loops } = bounds;
        let largest_degree = u32::try_from(largest_degree)
            .map_err(|_| UploadError::DegreeTooLarge { node, degree: largest_degree })?;
        let weights =
            weights.map(|weights| launch::upload_large(anchor, "the edge weights", weights, DType::F32));
        Ok(Self {
            indptr: launch::upload_large(anchor, "the graph's indptr", indptr, DType::U64)?,
            indices: launch::upload_large(anchor, "the graph's indices", ids(indices), DType::U32)?,
            weights: weights.transpose()?,
            edge_types: None,
            times: None,
            n_rows: indptr.len() - 1,
            largest_degree,
            most_loops: most_loops.map_or(u32::MAX, |most| most as u32),
        })
    }

    /// Copies the edge types to the graph's device, unless they are there or the graph has none.
    ///
    /// # Errors
    /// Returns [`UploadError::TooLarge`] if the device cannot allocate the array, and [`UploadError::Device`] if it
    /// fails.
    pub(crate) fn store_edge_types(&self) -> Result<(), UploadError> {
        self.edge_types.as_ref().map_or(Ok(()), |types| types.store(&self.indptr))
    }

    /// Returns true if the edge types are on the graph's device.
    pub(crate) fn stores_edge_types(&self) -> bool {
        self.edge_types.as_ref().is_some_and(EdgeTypes::is_stored)
    }

    /// Copies ids to the graph's device.
    pub(crate) fn upload_nodes(&self, nodes: &[NodeId]) -> CubeTensor {
        self.upload_positions(ids(nodes))
    }

    /// Copies the edges to leave out to the graph's device.
    pub(crate) fn upload_excluded(&self, edges: Option<&ExcludedEdges>) -> Option<CubeTensor> {
        edges.map(|edges| excluded::upload(&self.indptr, edges, self.n_rows))
    }

    /// Returns the destinations of a hop in a whole graph, in which a node's id is also its position in `indptr`.
    pub(crate) fn hop_of(
        nodes: CubeTensor,
        excluded: Option<CubeTensor>,
        times: Option<DstTimes>,
    ) -> HopNodes {
        HopNodes { rows: nodes.clone(), nodes, excluded, times }
    }

    /// Returns the times of the destinations of a hop: `distinct[index[i]]` is that of destination `i`.
    pub(crate) fn times_of(&self, distinct: &[i64], index: CubeTensor, request: &HopRequest) -> DstTimes {
        DstTimes::new(distinct, index, self.times.as_ref(), request)
    }

    /// Copies positions to the graph's device.
    pub(crate) fn upload_positions(&self, positions: &[u32]) -> CubeTensor {
        launch::upload_as(&self.indptr, positions, DType::U32)
    }
}

fn ids(nodes: &[NodeId]) -> &[u32] {
    bytemuck::cast_slice(nodes)
}

/// Bounds on the neighbour lists of a set of nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    largest_degree: u64,
    /// A node with the largest degree.
    node: NodeId,
    /// The largest number of self loops of a node, or `None` if the neighbours of a node are not sorted.
    most_loops: Option<usize>,
}

impl Default for Bounds {
    /// Returns the bounds of the empty set.
    fn default() -> Self {
        Self { largest_degree: 0, node: NodeId(0), most_loops: Some(0) }
    }
}

impl Bounds {
    /// Returns the bounds of one node with these neighbours.
    pub(crate) fn of(node: NodeId, neighbors: &[NodeId]) -> Self {
        let n_below = |is_below: fn(&NodeId, &NodeId) -> bool| {
            neighbors.partition_point(|other| is_below(other, &node))
        };
        let most_loops = neighbors.is_sorted().then(|| n_below(NodeId::le) - n_below(NodeId::lt));
        Self { largest_degree: neighbors.len() as u64, node, most_loops }
    }

    /// Returns the bounds of the union of both sets.
    pub(crate) fn or(self, other: Self) -> Self {
        let most_loops = self.most_loops.zip(other.most_loops).map(|(one, other)| one.max(other));
        let larger = if self.largest_degree < other.largest_degree { other } else { self };
        Self { most_loops, ..larger }
    }
}
