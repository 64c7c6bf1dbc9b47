use std::ops::Range;

use kiln_feature::{EdgeFeatureStore, FeatureDType};
use kiln_graph::NodeId;
use kiln_kernels::BlockSize;
use kiln_nn::LayerMemory;
use kiln_sample::{EdgeWeights, SamplerConfig};

use crate::error::{Error, ExactError, Result};
use crate::evaluate::inference_graph::InferenceGraph;

/// The maximum number of edges, and of sources, of a block on a device ([`kiln_kernels::DeviceBlock::upload`]).
const MAX_EDGES: u64 = i32::MAX as u64 - 1;

/// The default limit of the memory of a range, in bytes.
pub(crate) const DEFAULT_RANGE_BYTES: u64 = 256 << 20;

/// The peak memory of one range of a layer, in bytes per destination, per source and per edge. It is derived from
/// GraphSAGE and GCN; [`RangeCost::with_layer`] adds what other layers need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeCost {
    dst_bytes: u64,
    src_bytes: u64,
    edge_bytes: u64,
}

impl RangeCost {
    pub(crate) fn new(d_in: usize, d_out: usize, stored: FeatureDType, sampling: &SamplerConfig) -> Self {
        let d_in = d_in as u64;
        let d_out = d_out as u64;
        let widened = if stored == FeatureDType::F32 { 0 } else { stored.bytes() as u64 * d_in };
        let weight_bytes = if sampling.weights == EdgeWeights::None { 0 } else { 16 };
        let type_bytes = if sampling.edge_types { 11 } else { 0 };
        Self {
            // The bytes of a destination cover the aggregate, the product, the sum, the activation and its copy on the
            // host, and the index arrays.
            dst_bytes: 4 * d_in + 4 * 4 * d_out + 32,
            // The bytes of a source cover its row as stored and as f32, the product if a layer projects first, and the
            // index arrays.
            src_bytes: widened + 4 * (d_in + d_out) + 32,
            // The bytes of an edge cover its ids in the sampler (24, because its vectors double when they grow), in the
            // block (12), and on the device by destination and by source (20). Weights add 4 bytes in each of these
            // four places. Types add 2 bytes in the sampler, 1 in the block, and 4 each on the host, which converts
            // them, and on the device.
            edge_bytes: 56 + weight_bytes + type_bytes,
        }
    }

    /// Adds the bytes of columns of the edges: their rows as stored and as f32.
    pub(crate) fn with_edge_columns<'a>(
        mut self,
        columns: impl Iterator<Item = &'a dyn EdgeFeatureStore>,
    ) -> Self {
        for rows in columns {
            self.edge_bytes += (rows.dtype().bytes() as u64 + 4) * rows.dim() as u64;
        }
        self
    }

    /// Adds the bytes of a layer's intermediate tensors.
    pub(crate) fn with_layer(self, layer: LayerMemory) -> Self {
        let LayerMemory { dst_bytes, src_bytes, edge_bytes } = layer;
        Self {
            dst_bytes: self.dst_bytes.saturating_add(dst_bytes),
            src_bytes: self.src_bytes.saturating_add(src_bytes),
            edge_bytes: self.edge_bytes.saturating_add(edge_bytes),
        }
    }

    /// Returns the size that stands for the blocks of all ranges: that of the whole graph, with the sources that ranges of the
    /// default size would repeat. So the order of a layer's computations depends on the graph and the layer only.
    pub(crate) fn nominal_size(self, graph: &InferenceGraph) -> BlockSize {
        let n_nodes = graph.n_nodes() as u64;
        let n_edges = graph.n_edges();
        let n_ranges = self.bytes(n_nodes, n_edges, n_nodes).div_ceil(DEFAULT_RANGE_BYTES).max(1);
        let n_repeated = n_edges.min((n_ranges - 1).saturating_mul(n_nodes));
        BlockSize {
            n_src: (n_nodes + n_repeated) as usize,
            n_dst: n_nodes as usize,
            n_edges: n_edges as usize,
        }
    }

    fn bytes(self, n_dst: u64, n_edges: u64, n_nodes: u64) -> u64 {
        // Each edge adds at most one source.
        let n_src = (n_dst + n_edges).min(n_nodes);
        let parts = [(n_dst, self.dst_bytes), (n_src, self.src_bytes), (n_edges, self.edge_bytes)];
        parts.iter().fold(0, |sum: u64, (n, bytes)| sum.saturating_add(n.saturating_mul(*bytes)))
    }
}

/// Splits a graph's nodes into the longest ranges that need at most `max_bytes` each. A single node that needs more is
/// a range of its own.
#[derive(Debug)]
pub(crate) struct Ranges<'a> {
    graph: &'a InferenceGraph,
    cost: RangeCost,
    max_bytes: u64,
    next: u32,
}

impl<'a> Ranges<'a> {
    pub(crate) fn new(graph: &'a InferenceGraph, cost: RangeCost, max_bytes: u64) -> Self {
        Self { graph, cost, max_bytes, next: 0 }
    }
}

impl Iterator for Ranges<'_> {
    type Item = Result<Range<u32>>;

    fn next(&mut self) -> Option<Self::Item> {
        let n_nodes = self.graph.n_nodes() as u32;
        let start = self.next;
        let mut end = start;
        let mut n_edges = 0;
        while end < n_nodes {
            let degree = self.graph.in_degree(NodeId(end));
            let with_dst = u64::from(end - start) + 1;
            let with_edges = degree.saturating_add(n_edges);
            let is_block = with_dst.saturating_add(with_edges) <= MAX_EDGES;
            let bytes = self.cost.bytes(with_dst, with_edges.min(MAX_EDGES), u64::from(n_nodes));
            if start == end && !is_block {
                self.next = n_nodes;
                return Some(Err(Error::Exact(ExactError::TooManyEdges {
                    node: end,
                    n_edges: degree,
                    max: MAX_EDGES - 1,
                })));
            }
            if start < end && (!is_block || self.max_bytes < bytes) {
                break;
            }
            (end, n_edges) = (end + 1, with_edges);
        }
        self.next = end;
        (start < end).then_some(Ok(start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use kiln_graph::{Csc, SharedArray};

    /// Builds a graph of six nodes with the in-degrees 2, 0, 1, 5, 0, 0.
    fn graph() -> InferenceGraph {
        let indices = [1, 2, 0, 0, 1, 2, 4, 5].map(NodeId).to_vec();
        let graph = Csc::new(vec![0, 2, 2, 3, 8, 8, 8].into(), indices.into());
        Arc::new(graph.expect("the arrays should match")).into()
    }

    fn ranges(max_bytes: u64) -> Vec<Range<u32>> {
        // A range costs one byte per edge and ten per destination.
        let cost = RangeCost { dst_bytes: 10, src_bytes: 0, edge_bytes: 1 };
        Ranges::new(&graph(), cost, max_bytes)
            .map(|nodes| nodes.expect("each node should fit in a block"))
            .collect()
    }

    #[test]
    fn ranges_are_as_long_as_the_budget_allows() {
        // All six nodes and eight edges need 68 bytes.
        assert_eq!(ranges(68).len(), 1);
        assert_eq!(ranges(67), [0..5, 5..6]);
        assert_eq!(ranges(22), [0..2, 2..3, 3..4, 4..6]);
        assert_eq!(ranges(26), [0..2, 2..4, 4..6]);
        // No node fits in this budget.
        assert_eq!(ranges(0), [0..1, 1..2, 2..3, 3..4, 4..5, 5..6]);
    }

    #[test]
    fn the_nominal_size_repeats_sources_only_if_the_graph_needs_several_ranges() {
        let size = |dst_bytes| RangeCost { dst_bytes, src_bytes: 0, edge_bytes: 1 }.nominal_size(&graph());
        let of_graph = |n_src| BlockSize { n_src, n_dst: 6, n_edges: 8 };
        assert_eq!(size(1), of_graph(6));
        // Six nodes of a sixth of a range each, and a few bytes of edges, are two ranges: at most six more sources.
        assert_eq!(size(DEFAULT_RANGE_BYTES / 6), of_graph(12));
        assert_eq!(size(DEFAULT_RANGE_BYTES), of_graph(14));
    }

    #[test]
    fn limits_the_number_of_sources_to_the_number_of_nodes() {
        let cost = RangeCost { dst_bytes: 0, src_bytes: 1, edge_bytes: 0 };
        assert_eq!(cost.bytes(2, 3, 100), 5);
        assert_eq!(cost.bytes(2, 300, 100), 100);
    }

    /// The graph's `indptr` is forged, because a real graph with such a node would not fit in memory.
    #[test]
    fn rejects_a_node_with_too_many_edges() {
        let indptr: SharedArray<u64> = vec![0, 1, 1 << 31, 3].into();
        let graph = Csc::new(indptr, vec![NodeId(0); 3].into()).expect("the arrays should match");
        let graph = InferenceGraph::from(Arc::new(graph));
        let cost = RangeCost::new(4, 4, FeatureDType::F32, &SamplerConfig::full(1));
        let ranges: Vec<_> = Ranges::new(&graph, cost, u64::MAX).collect();
        assert!(matches!(ranges[0], Ok(Range { start: 0, end: 1 })), "{ranges:?}");
        assert!(
            matches!(ranges[1], Err(Error::Exact(ExactError::TooManyEdges { node: 1, .. }))),
            "{ranges:?}"
        );
        assert_eq!(ranges.len(), 2);
    }
}
