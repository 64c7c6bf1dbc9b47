use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use kiln_feature::{FeatureBuffer, FeatureStore, Labels};
use kiln_graph::{Block, BlockParts, Csc, EdgeId, GraphId, LocalId, NodeId, SharedArray};
use kiln_sample::RngKey;

use crate::{BatchError, Batcher, Result, SeedBatch, StageTimes};

/// A batcher for tasks on whole graphs: the graphs of a batch are copied out of one block-diagonal graph that
/// holds all of them, and stand one after the other.
///
/// Nothing is sampled, so a batch does not depend on its key.
///
/// In training the block carries its transposed block, made here, in the loader's worker, where the backward pass would
/// otherwise make it. It serves all layers but the first, whose input usually gets no gradient.
pub struct GraphBatcher<F: ?Sized> {
    graph: Arc<Csc>,
    node_offsets: SharedArray<u32>,
    features: Arc<F>,
    labels: Arc<Labels<GraphId>>,
}

impl<F: FeatureStore + ?Sized> GraphBatcher<F> {
    /// Batches from these parts, which are shared with the caller. The nodes of graph `g` are
    /// `node_offsets[g]..node_offsets[g + 1]` of `graph`; `labels` has one class a graph.
    ///
    /// Runs in constant time: that offsets never fall and that no edge leaves its graph is checked of the
    /// graphs that a batch takes.
    ///
    /// # Panics
    /// When there is not one label a graph and one feature row a node.
    pub fn new(
        graph: Arc<Csc>,
        node_offsets: SharedArray<u32>,
        features: Arc<F>,
        labels: Arc<Labels<GraphId>>,
    ) -> Self {
        let n_graphs = node_offsets.len().saturating_sub(1);
        assert_eq!(labels.len(), n_graphs, "labels and graphs differ in number");
        assert_eq!(features.n_rows(), graph.n_nodes(), "feature rows and nodes differ in number");
        Self { graph, node_offsets, features, labels }
    }
}

impl<F: ?Sized> GraphBatcher<F> {
    /// Number of graphs.
    pub fn n_graphs(&self) -> usize {
        self.labels.len()
    }
}

impl<F: ?Sized> fmt::Debug for GraphBatcher<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphBatcher").field("n_graphs", &self.n_graphs()).finish_non_exhaustive()
    }
}

/// All that a model and its loss need of one step of a task on whole graphs.
#[derive(Debug, Clone)]
pub struct GraphBatch {
    /// The step within the pass, from 0.
    pub step: usize,
    /// The key of whatever is random in this step.
    pub key: RngKey,
    /// The graphs as given, by their positions; a graph that is given twice stands here twice and is two
    /// copies in the arrays below.
    pub graphs: Vec<GraphId>,
    /// All edges of these graphs. Sources and destinations are the same: every node of the batch, graph
    /// after graph, so that one block serves all layers. `edge_ids` are those of the graph that holds all.
    pub block: Block,
    /// Where the nodes of each graph start in the batch, `n_graphs + 1` entries:
    /// `node_offsets[i]..node_offsets[i + 1]` are the rows of `graphs[i]`, none for a graph without nodes.
    pub node_offsets: Vec<u32>,
    /// Features of the nodes as stored, `[n_nodes, x_dim]`: those of `block.srcs()`.
    pub x: FeatureBuffer,
    /// Number of feature columns.
    pub x_dim: usize,
    /// Each graph's class, aligned with `graphs`; never negative.
    pub labels: Vec<i32>,
    /// How long the stages took.
    pub times: StageTimes,
}

impl GraphBatch {
    /// Bytes of the batch's arrays.
    pub fn n_bytes(&self) -> usize {
        self.block.n_bytes()
            + size_of_val(self.graphs.as_slice())
            + size_of_val(self.node_offsets.as_slice())
            + self.x.n_bytes()
            + size_of_val(self.labels.as_slice())
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
        let SeedBatch { phase, step, key, seeds: graphs } = seeds;
        let start = Instant::now();
        let (mut block, node_offsets) = self.copy(&graphs)?;
        if phase.is_training() {
            block.transpose();
        }
        let copied_at = Instant::now();
        let mut x = FeatureBuffer::empty(self.features.dtype());
        self.features.gather(block.srcs(), &mut x)?;
        let mut labels = Vec::new();
        self.labels.gather(&graphs, &mut labels)?;
        times.sample += copied_at - start;
        times.gather += copied_at.elapsed();
        let (x_dim, times) = (self.features.dim(), *times);
        Ok(GraphBatch { step, key, graphs, block, node_offsets, x, x_dim, labels, times })
    }

    fn n_bytes(batch: &GraphBatch) -> usize {
        batch.n_bytes()
    }
}

impl<F: ?Sized> GraphBatcher<F> {
    /// The graphs one after the other as a block, and where each one's nodes start.
    fn copy(&self, graphs: &[GraphId]) -> Result<(Block, Vec<u32>), BatchError> {
        let mut ranges = Vec::with_capacity(graphs.len());
        let (mut n_nodes, mut n_edges) = (0_u64, 0_u64);
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
        let (n_nodes, n_edges) = (n_nodes as usize, n_edges as usize);
        let mut parts = BlockParts {
            srcs: Vec::with_capacity(n_nodes),
            indptr: Vec::with_capacity(n_nodes + 1),
            indices: Vec::with_capacity(n_edges),
            edge_ids: Vec::with_capacity(n_edges),
            weights: None,
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

    /// Where a graph's nodes lie: an existing range of the nodes.
    fn nodes(&self, graph: GraphId, position: usize) -> Result<Range<usize>, BatchError> {
        let n_graphs = self.n_graphs();
        if graph.index() >= n_graphs {
            return Err(BatchError::GraphOutOfRange { graph, position, n_graphs });
        }
        let (start, end) = (self.node_offsets[graph.index()], self.node_offsets[graph.index() + 1]);
        let n_nodes = self.graph.n_nodes();
        if start > end || end as usize > n_nodes {
            let file = self.node_offsets.path().map(Path::to_owned);
            return Err(BatchError::BadNodeRange { graph, start, end, n_nodes, file });
        }
        Ok(start as usize..end as usize)
    }

    /// Where the edges of these nodes lie: an existing range of `indices`. No nodes have no edges, and what
    /// stands at their place in `indptr` belongs to others.
    ///
    /// The nodes exist, so that `indptr`, which has an entry more than there are nodes, has both of theirs. Of
    /// the offsets between these two, `append` checks that none falls; so each node's edges are in the range.
    fn edges(&self, nodes: &Range<usize>) -> Result<Range<usize>, BatchError> {
        if nodes.is_empty() {
            return Ok(0..0);
        }
        let (start, end) = (self.graph.indptr()[nodes.start], self.graph.indptr()[nodes.end]);
        if start > end || end > self.graph.n_edges() {
            return Err(self.bad_edge_range(nodes));
        }
        Ok(start as usize..end as usize)
    }

    /// Copies one graph behind those that are there. Its sources keep their distance to its first node.
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
        // Both fit: the batch's nodes and edges were counted.
        let (first_node, first_edge) = (nodes.start as u32, edges.start as u64);
        let (node_base, edge_base) = (to.srcs.len() as u32, to.indices.len() as u64);
        let srcs = &self.graph.indices()[edges.clone()];
        // A source before the first node becomes a very large number, so one comparison is enough.
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

    /// The error for the first of these nodes whose edges lie where there are none.
    fn bad_edge_range(&self, nodes: &Range<usize>) -> BatchError {
        let (indptr, n_edges) = (self.graph.indptr(), self.graph.n_edges());
        let is_bad = |&node: &usize| indptr[node + 1] < indptr[node] || indptr[node + 1] > n_edges;
        let node = nodes.clone().find(is_bad).unwrap_or(nodes.start);
        BatchError::Sample(kiln_sample::Error::BadEdgeRange {
            node: NodeId(node as u32),
            start: indptr[node],
            end: indptr[node + 1],
            n_edges,
            file: self.graph.indptr_path().map(Path::to_owned),
        })
    }

    /// The error for the first of these edges that comes from none of these nodes.
    fn edge_leaves_graph(&self, graph: GraphId, nodes: Range<usize>, edges: Range<usize>) -> BatchError {
        let is_outside = |&edge: &usize| !nodes.contains(&self.graph.indices()[edge].index());
        let edge = edges.clone().find(is_outside).unwrap_or(edges.start);
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
