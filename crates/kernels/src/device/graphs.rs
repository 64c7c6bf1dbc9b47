use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Int, Tensor};
use kiln_graph::{Block, GraphId, LocalId, TransposedBlock};

use crate::device::block::{Adjacency, DeviceBlock, DeviceEdges, check_limit, upload};

/// A partition of rows into consecutive segments, on a device: for example the nodes of many graphs, graph after graph.
///
/// The ops treat segments as an adjacency: a segment is a destination whose edges are its rows in their order, and
/// every row is a source with one edge.
///
/// | array | element | length | indexed by | value |
/// |---|---|---|---|---|
/// | `offsets` | i32 | `n_segments + 1` | segment | the rows of segment `s` are `offsets[s]..offsets[s + 1]` |
/// | `rows` | i32 | `n_rows` | row | the row's own index |
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceSegments(DeviceEdges);

impl DeviceSegments {
    /// Copies segments to a device: the rows of segment `s` are `offsets[s]..offsets[s + 1]`, which may be empty.
    ///
    /// # Panics
    /// Panics if there are no offsets, if they do not start at 0, if they decrease, or if there are 2^31 or more rows.
    pub fn upload(offsets: &[u32], device: &Device) -> Self {
        assert!(!offsets.is_empty(), "there are no offsets, expected one more than the number of segments");
        assert_eq!(offsets[0], 0, "the offsets start at {}, expected 0", offsets[0]);
        if let Some(at) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
            panic!("the offsets decrease from {} to {} at segment {at}", offsets[at], offsets[at + 1]);
        }
        let n_rows = offsets[offsets.len() - 1];
        check_limit(n_rows as usize, "rows");
        let rows: Vec<u32> = (0..n_rows).collect();
        let by_row = by_row(offsets);
        // The index tensors carry no gradient. They are on the device without autodiff, so that tracked and untracked
        // tensors can be used with them.
        let device = &device.clone().inner();
        Self(DeviceEdges::new(rows.len(), offsets.to_vec(), rows, Some(by_row), device))
    }

    /// The number of rows.
    pub fn n_rows(&self) -> usize {
        self.0.n_src
    }

    /// The number of segments.
    pub fn n_segments(&self) -> usize {
        self.0.n_dst
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        self.0.adjacency()
    }
}

/// Returns the transposed adjacency of segments. It is built together with the segments and not when first needed,
/// because every gradient reads it and building it needs no sorting.
fn by_row(offsets: &[u32]) -> TransposedBlock {
    let n_rows = offsets[offsets.len() - 1];
    let rows: Vec<LocalId> = (0..n_rows).map(LocalId).collect();
    TransposedBlock::of_edges(offsets, &rows, rows.len())
}

/// The indices of the rows of a matrix to gather, on a device.
///
/// The ops treat them as an adjacency: each index is a destination with one edge, from that row.
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceRows(DeviceEdges);

impl DeviceRows {
    /// Copies indices of rows of a matrix with `n_rows` rows to a device.
    ///
    /// # Panics
    /// Panics if an index is not below `n_rows`, or there are 2^31 or more indices or rows.
    pub fn upload(rows: &[u32], n_rows: usize, device: &Device) -> Self {
        check_limit(rows.len(), "row indices");
        check_limit(n_rows, "rows");
        if let Some(at) = rows.iter().position(|row| n_rows <= *row as usize) {
            panic!("row index {} at position {at} is out of range for {n_rows} rows", rows[at]);
        }
        let offsets = (0..=rows.len() as u32).collect();
        Self(DeviceEdges::new(n_rows, offsets, rows.to_vec(), None, &device.clone().inner()))
    }

    /// Takes indices of rows of a matrix with `n_rows` rows, as i32, that are on their device already. The indices are not
    /// checked.
    pub(crate) fn of_indices(rows: Tensor<1, Int>, n_rows: usize) -> Self {
        Self(DeviceEdges::one_per_dst(rows, n_rows))
    }

    /// Moves a permutation of the rows of a matrix to a device without autodiff, with its transposed adjacency if it is
    /// known.
    pub(crate) fn of_permutation(rows: Vec<u32>, by_row: Option<TransposedBlock>, device: &Device) -> Self {
        let n_rows = rows.len();
        let offsets = (0..=rows.len() as u32).collect();
        let edges = DeviceEdges::new(n_rows, offsets, rows, by_row, device);
        edges.upload_by_source();
        Self(edges)
    }

    /// The number of bytes that the arrays occupy, including the transposed adjacency if it has been built.
    pub(crate) fn n_bytes(&self) -> usize {
        self.0.n_bytes()
    }

    /// The number of rows of the matrix.
    pub fn n_rows(&self) -> usize {
        self.0.n_src
    }

    /// The number of indices.
    pub fn len(&self) -> usize {
        self.0.n_dst
    }

    /// Returns true if there are no indices.
    pub fn is_empty(&self) -> bool {
        self.0.n_dst == 0
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        self.0.adjacency()
    }
}

/// A batch of graphs on a device, as one block-diagonal block, with the nodes of each graph and the graphs' ids.
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceGraphs {
    block: DeviceBlock,
    segments: DeviceSegments,
    items: Tensor<1, Int>,
}

impl DeviceGraphs {
    /// The number of bytes that the arrays occupy (see [`DeviceBlock::n_bytes`]).
    pub fn n_bytes(&self) -> usize {
        let n_indices = self.segments.n_segments() + 1 + self.segments.n_rows() + self.items.dims()[0];
        self.block.n_bytes() + 4 * n_indices
    }

    /// Moves graphs to a device. On Flex, the tensors take over the block's arrays without a copy.
    ///
    /// The sources of the block must be its destinations: the nodes of all graphs, graph after graph. The nodes of
    /// graph `g` are `node_offsets[g]..node_offsets[g + 1]`. `graphs` has the ids of the graphs in their data set,
    /// which do not depend on the batch. Edges between different graphs are not detected.
    ///
    /// # Panics
    /// Panics if the block has a source that is not a destination, the offsets do not end at its number of nodes, or
    /// there is not one id per graph. Also panics as [`DeviceBlock::new`] and [`DeviceSegments::upload`] do.
    pub fn new(block: Block, node_offsets: &[u32], graphs: &[GraphId], device: &Device) -> Self {
        let n_src = block.n_src();
        let n_dst = block.n_dst();
        assert_eq!(
            n_src, n_dst,
            "the block has {n_src} sources and {n_dst} destinations, expected the same nodes"
        );
        let segments = DeviceSegments::upload(node_offsets, device);
        let n_rows = segments.n_rows();
        assert_eq!(n_rows, n_src, "the node offsets end at {n_rows}, but the block has {n_src} nodes");
        let n_graphs = graphs.len();
        let n_segments = segments.n_segments();
        assert_eq!(
            n_graphs, n_segments,
            "got {n_graphs} ids for {n_segments} graphs, expected one per graph"
        );
        let items: Vec<u32> = graphs.iter().map(|graph| graph.0).collect();
        let items = upload(items, DType::U32, &device.clone().inner());
        Self { block: DeviceBlock::new(block, device), segments, items }
    }

    /// Copies graphs to a device.
    ///
    /// # Panics
    /// Same as [`DeviceGraphs::new`].
    pub fn upload(block: &Block, node_offsets: &[u32], graphs: &[GraphId], device: &Device) -> Self {
        Self::new(block.clone(), node_offsets, graphs, device)
    }

    /// Returns the block that has the edges of all graphs.
    pub fn block(&self) -> &DeviceBlock {
        &self.block
    }

    /// Returns the nodes of each graph: segment `g` has the nodes of graph `g` of the batch.
    pub fn segments(&self) -> &DeviceSegments {
        &self.segments
    }

    /// The ids of the graphs in their data set, `[n_graphs]`, as u32. They key the dropout masks of pooled rows.
    pub fn items(&self) -> &Tensor<1, Int> {
        &self.items
    }

    /// The number of graphs.
    pub fn n_graphs(&self) -> usize {
        self.segments.n_segments()
    }
}
