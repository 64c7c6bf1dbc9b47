use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use kiln_feature::{FeatureBuffer, FeatureStore, Targets};
use kiln_graph::{Block, BlockParts, Csc, EdgeId, GraphId, LocalId, NodeId, SharedArray};
use kiln_sample::{RngKey, TimesError};

use crate::{BatchError, Batcher, Result, SeedBatch, StageTimes};

/// A batcher for tasks on whole graphs. The whole set is one block-diagonal graph, from which the batcher copies the
/// graphs of a batch one after the other.
///
/// Nothing is sampled, so a batch does not depend on its key.
///
/// In training, the loader's worker also transposes the block, so that the backward pass need not do it. All layers
/// except the first use the transposed block; the input of the first layer usually needs no gradient.
pub struct GraphBatcher<F: ?Sized> {
    graph: Arc<Csc>,
    node_offsets: SharedArray<u32>,
    features: Arc<F>,
    targets: Targets<GraphId>,
}

impl<F: FeatureStore + ?Sized> GraphBatcher<F> {
    /// Creates a batcher from a set of graphs. The nodes of graph `g` are `node_offsets[g]..node_offsets[g + 1]` of
    /// `graph`; `targets` has the targets of each graph: labels, or [`Targets`].
    ///
    /// Runs in constant time. The offsets and edges of a graph are checked when a batch contains it.
    ///
    /// # Panics
    /// Panics unless there are targets for each graph and one feature row per node.
    pub fn new(
        graph: Arc<Csc>,
        node_offsets: SharedArray<u32>,
        features: Arc<F>,
        targets: impl Into<Targets<GraphId>>,
    ) -> Self {
        let targets = targets.into();
        let n_graphs = node_offsets.len().saturating_sub(1);
        assert_eq!(targets.len(), n_graphs, "expected one label per graph");
        assert_eq!(features.n_rows(), graph.n_nodes(), "expected one feature row per node");
        Self { graph, node_offsets, features, targets }
    }
}

impl<F: ?Sized> GraphBatcher<F> {
    /// Returns the number of graphs.
    pub fn n_graphs(&self) -> usize {
        self.targets.len()
    }
}

impl<F: ?Sized> fmt::Debug for GraphBatcher<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphBatcher").field("n_graphs", &self.n_graphs()).finish_non_exhaustive()
    }
}

/// The inputs of a model and its loss for one step of a task on whole graphs.
#[derive(Debug, Clone)]
pub struct GraphBatch {
    /// The step within the phase, from 0.
    pub step: usize,
    /// The key for all random draws of this step.
    pub key: RngKey,
    /// The graphs in the given order, including duplicates. Each duplicate has its own copy in the arrays below.
    pub graphs: Vec<GraphId>,
    /// All edges of the batch's graphs. The sources and the destinations are all nodes of the batch, graph by graph, so
    /// all layers use the same block. `edge_ids` are those of the block-diagonal graph.
    pub block: Block,
    /// The start of each graph's nodes in the batch, `n_graphs + 1` entries: `node_offsets[i]..node_offsets[i + 1]` are
    /// the rows of `graphs[i]`, an empty range for a graph without nodes.
    pub node_offsets: Vec<u32>,
    /// The features of `block.srcs()` in their stored type, `[n_nodes, x_dim]`.
    pub x: FeatureBuffer,
    /// The number of feature columns.
    pub x_dim: usize,
    /// The class of each graph, aligned with `graphs`; never negative. Empty for target values.
    pub labels: Vec<i32>,
    /// The target values of each graph, `[n_graphs, n_columns]`, NaN if missing. Empty for class labels.
    pub target_values: Vec<f32>,
    /// The durations of the stages that made this batch.
    pub times: StageTimes,
}

impl GraphBatch {
    /// Returns the size of the batch's arrays in bytes.
    pub fn n_bytes(&self) -> usize {
        self.block.n_bytes()
            + size_of_val(self.graphs.as_slice())
            + size_of_val(self.node_offsets.as_slice())
            + self.x.n_bytes()
            + size_of_val(self.labels.as_slice())
            + size_of_val(self.target_values.as_slice())
    }
}

impl<F: FeatureStore + ?Sized + 'static> Batcher for GraphBatcher<F> {
    type Item = GraphId;
    type Batch = GraphBatch;
    type Scratch = ();

    fn batch(
        &self,
        seeds: SeedBatch<GraphId>,
        _: &mut (),
        times: &mut StageTimes,
    ) -> Result<GraphBatch, BatchError> {
        let SeedBatch { phase, step, key, seeds: graphs, times: seed_times, .. } = seeds;
        if seed_times.is_some() {
            return Err(kiln_sample::Error::Times(TimesError::OfGraphs).into());
        }
        let start = Instant::now();
        let (mut block, node_offsets) = self.copy(&graphs)?;
        if phase.is_training() {
            block.transpose();
        }
        let copied_at = Instant::now();
        let mut x = FeatureBuffer::empty(self.features.dtype());
        self.features.gather(block.srcs(), &mut x)?;
        let mut labels = Vec::new();
        let mut target_values = Vec::new();
        self.targets.gather(&graphs, &mut labels, &mut target_values)?;
        times.sample += copied_at - start;
        times.gather += copied_at.elapsed();
        let x_dim = self.features.dim();
        let times = *times;
        Ok(GraphBatch { step, key, graphs, block, node_offsets, x, x_dim, labels, target_values, times })
    }

    fn n_bytes(batch: &GraphBatch) -> usize {
        batch.n_bytes()
    }
}

impl<F: ?Sized> GraphBatcher<F> {
    /// Copies the graphs one after the other into a block. Returns the block and the start of each graph's nodes in it,
    /// followed by the number of nodes.
    fn copy(&self, graphs: &[GraphId]) -> Result<(Block, Vec<u32>), BatchError> {
        let mut ranges = Vec::with_capacity(graphs.len());
        let mut n_nodes = 0_u64;
        let mut n_edges = 0_u64;
        for (position, &graph) in graphs.iter().enumerate() {
            let nodes = self.nodes(graph, position)?;
            let edges = self.edges(&nodes)?;
            n_nodes += nodes.len() as u64;
            n_edges += edges.len() as u64;
            ranges.push((nodes, edges));
        }
        for (what, n) in [("nodes", n_nodes), ("edges", n_edges)] {
            if n > u32::MAX.into() {
                return Err(BatchError::BatchTooLarge { what, n });
            }
        }
        let n_nodes = n_nodes as usize;
        let n_edges = n_edges as usize;
        let mut parts = BlockParts {
            srcs: Vec::with_capacity(n_nodes),
            indptr: Vec::with_capacity(n_nodes + 1),
            indices: Vec::with_capacity(n_edges),
            edge_ids: Vec::with_capacity(n_edges),
            ..BlockParts::default()
        };
        let mut node_offsets = Vec::with_capacity(graphs.len() + 1);
        node_offsets.push(0);
        parts.indptr.push(0);
        for ((nodes, edges), &graph) in ranges.into_iter().zip(graphs) {
            self.append(graph, nodes, edges, &mut parts)?;
            node_offsets.push(parts.srcs.len() as u32);
        }
        Ok((Block::new(parts), node_offsets))
    }

    /// Returns the range of a graph's nodes, which is checked to be within `0..n_nodes`.
    fn nodes(&self, graph: GraphId, position: usize) -> Result<Range<usize>, BatchError> {
        let n_graphs = self.n_graphs();
        if graph.index() >= n_graphs {
            return Err(BatchError::GraphOutOfRange { graph, position, n_graphs });
        }
        let start = self.node_offsets[graph.index()];
        let end = self.node_offsets[graph.index() + 1];
        let n_nodes = self.graph.n_nodes();
        if start > end || end as usize > n_nodes {
            let file = self.node_offsets.path().map(Path::to_owned);
            return Err(BatchError::BadNodeRange { graph, start, end, n_nodes, file });
        }
        Ok(start as usize..end as usize)
    }

    /// Returns the range in `indices` of the edges into `nodes`, which is checked to be within `0..n_edges`. An empty
    /// range of nodes has no edges, whatever `indptr` contains there.
    ///
    /// The nodes exist, so `indptr`, which has one more entry than there are nodes, contains both ends of the range.
    /// `append` checks that the offsets between them do not decrease, so each node's edges are within the range.
    fn edges(&self, nodes: &Range<usize>) -> Result<Range<usize>, BatchError> {
        if nodes.is_empty() {
            return Ok(0..0);
        }
        let start = self.graph.indptr()[nodes.start];
        let end = self.graph.indptr()[nodes.end];
        if start > end || end > self.graph.n_edges() {
            return Err(self.bad_edge_range(nodes));
        }
        Ok(start as usize..end as usize)
    }

    /// Appends one graph to the block. All its nodes keep their order and are shifted by the same number of positions.
    fn append(
        &self,
        graph: GraphId,
        nodes: Range<usize>,
        edges: Range<usize>,
        to: &mut BlockParts,
    ) -> Result<(), BatchError> {
        let indptr = &self.graph.indptr()[nodes.start..=nodes.end];
        if indptr.windows(2).any(|pair| pair[1] < pair[0]) {
            return Err(self.bad_edge_range(&nodes));
        }
        // No cast truncates: `copy` has checked that the batch's nodes and edges fit 32 bits.
        let first_node = nodes.start as u32;
        let first_edge = edges.start as u64;
        let node_base = to.srcs.len() as u32;
        let edge_base = to.indices.len() as u64;
        let srcs = &self.graph.indices()[edges.clone()];
        // The subtraction wraps for a source before the first node, so one comparison checks both bounds.
        let largest = srcs.iter().map(|src| src.0.wrapping_sub(first_node)).max().unwrap_or(0);
        if !srcs.is_empty() && largest as usize >= nodes.len() {
            return Err(self.edge_leaves_graph(graph, nodes, edges));
        }
        to.srcs.extend((first_node..nodes.end as u32).map(NodeId));
        to.indptr.extend(indptr[1..].iter().map(|end| (end - first_edge + edge_base) as u32));
        to.indices.extend(srcs.iter().map(|src| LocalId(src.0 - first_node + node_base)));
        to.edge_ids.extend((first_edge..edges.end as u64).map(EdgeId));
        Ok(())
    }

    /// Returns the error for the first node of `nodes` whose edge range is invalid.
    fn bad_edge_range(&self, nodes: &Range<usize>) -> BatchError {
        let indptr = self.graph.indptr();
        let n_edges = self.graph.n_edges();
        let node = nodes
            .clone()
            .find(|&node: &usize| indptr[node + 1] < indptr[node] || indptr[node + 1] > n_edges)
            .unwrap_or(nodes.start);
        BatchError::Sample(kiln_sample::Error::DamagedGraph(kiln_sample::DamagedGraphError::BadEdgeRange {
            node: NodeId(node as u32),
            start: indptr[node],
            end: indptr[node + 1],
            n_edges,
            file: self.graph.indptr_path().map(Path::to_owned),
        }))
    }

    /// Returns the error for the first edge of `edges` whose source is not in `nodes`.
    fn edge_leaves_graph(&self, graph: GraphId, nodes: Range<usize>, edges: Range<usize>) -> BatchError {
        let edge = edges
            .clone()
            .find(|&edge: &usize| !nodes.contains(&self.graph.indices()[edge].index()))
            .unwrap_or(edges.start);
        BatchError::EdgeLeavesGraph {
            edge: edge as u64,
            node: self.graph.indices()[edge],
            graph,
            start: nodes.start as u32,
            end: nodes.end as u32,
            file: self.graph.indices_path().map(Path::to_owned),
        }
    }
}
