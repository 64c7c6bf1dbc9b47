use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Int, Tensor};
use kiln_graph::{Block, GraphId, LocalId, TransposedBlock};

use crate::device::block::{Adjacency, DeviceBlock, DeviceEdges, check_limit, upload};

/// Rows cut into consecutive segments, on a device: the nodes of many graphs, graph after graph.
///
/// To the ops a segmentation is one more adjacency: a segment is a destination whose edges are its rows, in
/// their order, and every row is a source with one edge.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `offsets` | i32 | `n_segments + 1` | segment; its rows are `offsets[s]..offsets[s + 1]` |
/// | `rows` | i32 | `n_rows` | row; its own number |
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceSegments(DeviceEdges);

impl DeviceSegments {
    /// Copies a segmentation to a device: the rows of segment `s` are `offsets[s]..offsets[s + 1]`, none
    /// where the two are equal.
    ///
    /// # Panics
    /// When there are no offsets, they do not start at 0, or they fall, or there are 2^31 rows or more:
    /// split the batch.
    pub fn upload(offsets: &[u32], device: &Device) -> Self {
        assert!(!offsets.is_empty(), "no offsets, expected n_segments + 1");
        assert_eq!(offsets[0], 0, "the offsets start at {}, expected 0", offsets[0]);
        if let Some(at) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
            panic!("the offsets fall from {} to {} at segment {at}", offsets[at], offsets[at + 1]);
        }
        let n_rows = offsets[offsets.len() - 1];
        check_limit(n_rows as usize, "rows");
        let (rows, by_row): (Vec<u32>, _) = ((0..n_rows).collect(), by_row(offsets));
        // Index tensors carry no gradient, and on the plain device they mix with tensors of either kind.
        let device = &device.clone().inner();
        Self(DeviceEdges::new(rows.len(), offsets.to_vec(), rows, Some(by_row), device))
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.0.n_src
    }

    /// Number of segments.
    pub fn n_segments(&self) -> usize {
        self.0.n_dst
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        self.0.adjacency()
    }
}

/// The segments by row: every gradient asks for it, and it takes no sorting.
fn by_row(offsets: &[u32]) -> TransposedBlock {
    let n_rows = offsets[offsets.len() - 1];
    let rows: Vec<LocalId> = (0..n_rows).map(LocalId).collect();
    TransposedBlock::of_edges(offsets, &rows, rows.len())
}

/// Numbers of rows, on a device: which rows of a matrix are gathered.
///
/// To the ops they are one more adjacency: each is a destination with one edge, from the row of that number.
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceRows(DeviceEdges);

impl DeviceRows {
    /// Copies numbers of rows of a matrix of `n_rows` to a device.
    ///
    /// # Panics
    /// When a number is not below `n_rows`, or there are 2^31 of either or more: split the batch.
    pub fn upload(rows: &[u32], n_rows: usize, device: &Device) -> Self {
        check_limit(rows.len(), "numbers of rows");
        check_limit(n_rows, "rows");
        if let Some(at) = rows.iter().position(|row| n_rows <= *row as usize) {
            panic!("number {at} is row {} of a matrix of {n_rows} rows", rows[at]);
        }
        let offsets = (0..=rows.len() as u32).collect();
        Self(DeviceEdges::new(n_rows, offsets, rows.to_vec(), None, &device.clone().inner()))
    }

    /// Number of rows of the matrix.
    pub fn n_rows(&self) -> usize {
        self.0.n_src
    }

    /// How many rows are gathered.
    pub fn len(&self) -> usize {
        self.0.n_dst
    }

    /// Whether none is gathered.
    pub fn is_empty(&self) -> bool {
        self.0.n_dst == 0
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        self.0.adjacency()
    }
}

/// Many graphs as one block-diagonal block, on a device: the edges, which nodes belong to which graph, and
/// which graphs they are.
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceGraphs {
    block: DeviceBlock,
    segments: DeviceSegments,
    items: Tensor<1, Int>,
}

impl DeviceGraphs {
    /// Bytes of the memory that its arrays keep, as by [`DeviceBlock::n_bytes`].
    pub fn n_bytes(&self) -> usize {
        let n_indices = self.segments.n_segments() + 1 + self.segments.n_rows() + self.items.dims()[0];
        self.block.n_bytes() + 4 * n_indices
    }

    /// Brings graphs to a device; on Flex the block's arrays become tensors without a copy. The block's sources are its destinations: the nodes of all graphs, graph
    /// after graph, those of graph `g` being `node_offsets[g]..node_offsets[g + 1]`. `graphs` are the graphs'
    /// ids in their set, which do not depend on the batch.
    ///
    /// # Panics
    /// When the block has a source that is no destination, the offsets do not end at its number of nodes,
    /// or the numbers of ids and graphs differ; and as [`DeviceBlock::new`] and
    /// [`DeviceSegments::upload`]. That edges stay within their graphs is not checked.
    pub fn new(block: Block, node_offsets: &[u32], graphs: &[GraphId], device: &Device) -> Self {
        let (n_src, n_dst) = (block.n_src(), block.n_dst());
        assert_eq!(n_src, n_dst, "{n_src} sources for {n_dst} destinations, expected the same nodes");
        let segments = DeviceSegments::upload(node_offsets, device);
        let n_rows = segments.n_rows();
        assert_eq!(n_rows, n_src, "the node offsets end at {n_rows}, but the block has {n_src} nodes");
        let (n_graphs, n_segments) = (graphs.len(), segments.n_segments());
        assert_eq!(n_graphs, n_segments, "{n_graphs} ids for {n_segments} graphs");
        let items: Vec<u32> = graphs.iter().map(|graph| graph.0).collect();
        let items = upload(items, DType::U32, &device.clone().inner());
        Self { block: DeviceBlock::new(block, device), segments, items }
    }

    /// Copies graphs to a device.
    ///
    /// # Panics
    /// As [`DeviceGraphs::new`].
    pub fn upload(block: &Block, node_offsets: &[u32], graphs: &[GraphId], device: &Device) -> Self {
        Self::new(block.clone(), node_offsets, graphs, device)
    }

    /// The edges.
    pub fn block(&self) -> &DeviceBlock {
        &self.block
    }

    /// Which nodes belong to which graph: a segment is a graph.
    pub fn segments(&self) -> &DeviceSegments {
        &self.segments
    }

    /// The graphs' own numbers, `[n_graphs]`, as u32: what dropout masks of pooled rows are keyed by.
    pub fn items(&self) -> &Tensor<1, Int> {
        &self.items
    }

    /// Number of graphs.
    pub fn n_graphs(&self) -> usize {
        self.segments.n_segments()
    }
}
