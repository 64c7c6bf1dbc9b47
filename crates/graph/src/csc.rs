use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::{
    ColumnError, ColumnValues, EdgeColumn, EdgeColumns, EdgeId, EdgeTimes, Error, NodeId, RelationEdgesError,
    Result, SharedArray,
};

/// A directed graph in compressed sparse column (CSC) form: the in-neighbours of each node. They ascend in graphs
/// built by [`CscBuilder`](crate::CscBuilder); graphs made from existing arrays keep the given order
/// ([`Csc::sort_neighbors`]).
///
/// ```text
/// 0 -> 2, 1 -> 2, 2 -> 0        indptr  = [0, 1, 1, 3]
///                               indices = [2, 0, 1]
/// ```
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `indptr` | `u64` | `n_nodes + 1` | destination; `indptr[v]..indptr[v + 1]` are the edges into `v` |
/// | `indices` | [`NodeId`] | `n_edges` | [`EdgeId`]; the edge's source |
/// | [`columns`](Csc::columns) | any | `n_edges` | [`EdgeId`] |
///
/// Cloning shares the arrays. Edges may have any number of [`EdgeColumns`], such as weights, types and features.
#[derive(Debug, Clone)]
pub struct Csc {
    indptr: SharedArray<u64>,
    indices: SharedArray<NodeId>,
    columns: EdgeColumns,
    /// The values of the column of weights. Samplers read it for each destination, so it is not looked up by name.
    weights: Option<SharedArray<f32>>,
    /// The values of the column of types.
    edge_types: Option<SharedArray<u8>>,
    /// The order of the edges by time, which is no column: it belongs to the destinations' lists of edges.
    edge_times: Option<EdgeTimes>,
}

impl Csc {
    /// Creates a graph from owned or mapped arrays. It runs in constant time, so that opening a mapped graph does not
    /// read it: only the lengths and the ends of `indptr` are checked. [`Csc::validate`] checks all values, and
    /// samplers check each range and id that they read.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] if `indptr` is empty or does not end at the number of `indices`,
    /// [`Error::IndptrNotMonotone`] if it does not start at 0, and [`Error::TooMany`] for more than 2^32 - 1 nodes.
    pub fn new(indptr: SharedArray<u64>, indices: SharedArray<NodeId>) -> Result<Self> {
        let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
            return Err(Error::LengthMismatch { what: "indptr", expected: 1, got: 0 });
        };
        if first != 0 {
            return Err(Error::IndptrNotMonotone { node: 0, before: 0, after: first });
        }
        if last != indices.len() as u64 {
            return Err(Error::LengthMismatch { what: "indices", expected: last, got: indices.len() as u64 });
        }
        check_node_count(indptr.len() - 1)?;
        let columns = EdgeColumns::default();
        Ok(Self { indptr, indices, columns, weights: None, edge_types: None, edge_times: None })
    }

    /// Sets a weight for each edge, in CSC order.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] unless there is one weight per edge.
    pub fn with_weights(self, weights: SharedArray<f32>) -> Result<Self> {
        self.check_edge_data("weights", weights.len())?;
        self.with_column(EdgeColumns::WEIGHTS, EdgeColumn::new(weights, 1)?)
    }

    /// Sets a type for each edge, in CSC order.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] unless there is one type per edge.
    pub fn with_edge_types(self, edge_types: SharedArray<u8>) -> Result<Self> {
        self.check_edge_data("edge_types", edge_types.len())?;
        self.with_column(EdgeColumns::TYPES, EdgeColumn::new(edge_types, 1)?)
    }

    /// Sets a column of the edges, in CSC order. It replaces the column of this name, if there is one.
    ///
    /// # Errors
    /// Returns [`ColumnError::Length`] unless there is one row per edge, and the errors of [`EdgeColumns::with`].
    pub fn with_column(self, name: &str, column: EdgeColumn) -> Result<Self> {
        let expected = self.n_edges();
        let got = column.n_rows() as u64;
        if got != expected {
            return Err(ColumnError::Length { name: name.to_owned(), expected, got }.into());
        }
        let columns = self.columns.clone().with(name, column)?;
        let graph = self.with_checked_columns(columns);
        // An order of other times would be wrong.
        Ok(if name == EdgeColumns::TIMES { graph.set_edge_times(None) } else { graph })
    }

    /// Sets all columns of the edges, in CSC order, instead of those that the graph has.
    ///
    /// # Errors
    /// Returns the errors of [`Csc::with_column`].
    pub fn with_columns(self, columns: &EdgeColumns) -> Result<Self> {
        let mut graph = self.with_checked_columns(EdgeColumns::default()).set_edge_times(None);
        for (name, column) in columns.iter() {
            graph = graph.with_column(name, column.clone())?;
        }
        Ok(graph)
    }

    /// Sets the columns, which have a row per edge.
    fn with_checked_columns(self, columns: EdgeColumns) -> Self {
        let weights = match columns.get(EdgeColumns::WEIGHTS).map(EdgeColumn::values) {
            Some(ColumnValues::F32(weights)) => Some(weights.clone()),
            _ => None,
        };
        let edge_types = match columns.get(EdgeColumns::TYPES).map(EdgeColumn::values) {
            Some(ColumnValues::U8(types)) => Some(types.clone()),
            _ => None,
        };
        Self { columns, weights, edge_types, ..self }
    }

    /// Scatters the rows (destinations) of this graph to a graph of `n_nodes` nodes: destination `nodes[row]` gets the
    /// edges of `row`, the other destinations get none. `nodes` must ascend. The arrays of the edges are shared.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] unless there is one node per row, [`Error::BadRow`] for nodes that do not
    /// ascend or are not below `n_nodes`, [`Error::IndptrNotMonotone`] if `indptr` decreases, and [`Error::TooMany`]
    /// for too many nodes. Errors in the values of a mapped array are wrapped in [`Error::InFile`].
    pub fn scatter_rows(&self, nodes: &SharedArray<NodeId>, n_nodes: usize) -> Result<Self> {
        check_node_count(n_nodes)?;
        let expected = self.n_nodes() as u64;
        let got = nodes.len() as u64;
        if expected != got {
            return Err(Error::LengthMismatch { what: "nodes", expected, got });
        }
        let mut indptr = Vec::with_capacity(n_nodes + 1);
        for (row, node) in nodes.iter().enumerate() {
            if node.index() < indptr.len() || n_nodes <= node.index() {
                return Err(Error::BadRow { row, node: node.0, n_nodes }.in_file(nodes.path()));
            }
            let before = self.indptr[row];
            let after = self.indptr[row + 1];
            if after < before {
                let error = Error::IndptrNotMonotone { node: row as u64, before, after };
                return Err(error.in_file(self.indptr.path()));
            }
            // The nodes between two rows have no edges: their ranges start and end at the start of the next row.
            indptr.resize(node.index() + 1, before);
        }
        indptr.resize(n_nodes + 1, self.n_edges());
        Ok(Self { indptr: indptr.into(), ..self.clone() })
    }

    /// Returns the rows (destinations) of a range of nodes as a graph of their own, the inverse of [`Csc::scatter_rows`].
    /// The arrays of the edges are shared, so all edges must be into these nodes.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] if the range exceeds the nodes, or if other nodes have edges.
    pub fn narrow_rows(&self, nodes: Range<u32>) -> Result<Self> {
        let Some(indptr) = self.indptr.get(nodes.start as usize..=nodes.end.max(nodes.start) as usize) else {
            let expected = self.n_nodes() as u64;
            let got = u64::from(nodes.end);
            return Err(Error::LengthMismatch { what: "the range of rows", expected, got });
        };
        let expected = self.n_edges();
        let first = indptr[0];
        let last = indptr[indptr.len() - 1];
        if (first, last) != (0, expected) {
            let got = last.saturating_sub(first);
            return Err(Error::LengthMismatch { what: "the edges into the range of rows", expected, got });
        }
        Ok(Self { indptr: indptr.to_vec().into(), ..self.clone() })
    }

    pub(crate) fn check_edge_data(&self, what: &'static str, got: usize) -> Result<()> {
        if got as u64 != self.n_edges() {
            return Err(Error::LengthMismatch { what, expected: self.n_edges(), got: got as u64 });
        }
        Ok(())
    }

    /// Reads the whole graph once and checks what [`Csc::new`] does not: `indptr` never decreases and every node id
    /// is in range.
    ///
    /// # Errors
    /// Returns [`Error::IndptrNotMonotone`] or [`Error::NodeOutOfRange`] for the first invalid value, wrapped in
    /// [`Error::InFile`] if the array is mapped.
    pub fn validate(&self) -> Result<()> {
        self.validate_indptr()?;
        let n_nodes = self.n_nodes();
        match self.indices.par_iter().position_first(|src| src.index() >= n_nodes) {
            Some(edge) => {
                let node = self.indices[edge].0;
                let error = Error::NodeOutOfRange { edge: edge as u64, node, n_nodes };
                Err(error.in_file(self.indices.path()))
            }
            None => Ok(()),
        }
    }

    /// Checks a graph whose sources are nodes of the type `name`, with the ids `srcs`.
    pub(crate) fn validate_rows(&self, srcs: Range<u32>, name: &str) -> Result<()> {
        self.validate_indptr()?;
        match self.indices.par_iter().position_first(|src| !srcs.contains(&src.0)) {
            Some(edge) => {
                let node = self.indices[edge].0;
                let name = name.to_owned();
                let error = Error::RelationEdges(RelationEdgesError::NotOfType {
                    edge: edge as u64,
                    node,
                    name,
                    start: srcs.start,
                    end: srcs.end,
                });
                Err(error.in_file(self.indices.path()))
            }
            None => Ok(()),
        }
    }

    /// Checks that `indptr` does not decrease, so that each node has a range of edges.
    ///
    /// # Errors
    /// Returns [`Error::IndptrNotMonotone`] if it does.
    pub fn validate_indptr(&self) -> Result<()> {
        match self.indptr.par_windows(2).position_first(|pair: &[u64]| pair[1] < pair[0]) {
            Some(node) => {
                let before = self.indptr[node];
                let after = self.indptr[node + 1];
                let error = Error::IndptrNotMonotone { node: node as u64, before, after };
                Err(error.in_file(self.indptr.path()))
            }
            None => Ok(()),
        }
    }

    /// Returns the times of the edges and their order; `None` without [`Csc::with_edge_times`].
    #[inline]
    pub fn edge_times(&self) -> Option<&EdgeTimes> {
        self.edge_times.as_ref()
    }

    /// Sets or removes the times, which have a row per edge.
    pub(crate) fn set_edge_times(self, edge_times: Option<EdgeTimes>) -> Self {
        Self { edge_times, ..self }
    }

    /// Returns the number of nodes.
    #[inline]
    pub fn n_nodes(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Returns the number of edges.
    #[inline]
    pub fn n_edges(&self) -> u64 {
        self.indices.len() as u64
    }

    /// Returns the offsets of the edges by destination: those into `v` are `indptr[v]..indptr[v + 1]`.
    #[inline]
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// Returns the offsets of the edges by destination, without a copy.
    pub fn shared_indptr(&self) -> SharedArray<u64> {
        self.indptr.clone()
    }

    /// Returns the source of each edge, without a copy.
    pub fn shared_indices(&self) -> SharedArray<NodeId> {
        self.indices.clone()
    }

    /// Returns the source of each edge, in CSC order.
    #[inline]
    pub fn indices(&self) -> &[NodeId] {
        &self.indices
    }

    /// Returns the columns of the edges, in CSC order.
    pub fn columns(&self) -> &EdgeColumns {
        &self.columns
    }

    /// Returns the file from which the weights are mapped; `None` if the graph has no weights or owns them.
    pub fn weights_path(&self) -> Option<&Path> {
        self.weights.as_ref().and_then(SharedArray::path)
    }

    /// Returns the weight of each edge in CSC order; `None` if the graph has no weights.
    #[inline]
    pub fn weights(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    /// Returns the type of each edge in CSC order; `None` if the graph has no types.
    #[inline]
    pub fn edge_types(&self) -> Option<&[u8]> {
        self.edge_types.as_deref()
    }

    /// Returns one more than the largest edge type, in one pass over all edges; 0 without edges, and `None` if the graph
    /// has no types.
    pub fn n_edge_types(&self) -> Option<usize> {
        let types = self.edge_types.as_ref()?;
        Some(types.par_iter().max().map_or(0, |&largest| usize::from(largest) + 1))
    }

    /// Returns the type of each edge as a shared array, without a copy; `None` if the graph has no types.
    pub fn shared_edge_types(&self) -> Option<SharedArray<u8>> {
        self.edge_types.clone()
    }

    /// Returns the file from which `indptr` is mapped; `None` if the graph owns it.
    pub fn indptr_path(&self) -> Option<&Path> {
        self.indptr.path()
    }

    /// Returns the file from which `indices` are mapped; `None` if the graph owns them.
    pub fn indices_path(&self) -> Option<&Path> {
        self.indices.path()
    }

    /// Returns the sources of the edges into `dst`.
    ///
    /// # Panics
    /// Panics if `dst` is not a node of the graph, or if `indptr` decreases there ([`Csc::validate`]).
    pub fn in_neighbors(&self, dst: NodeId) -> &[NodeId] {
        &self.indices[self.indptr[dst.index()] as usize..self.indptr[dst.index() + 1] as usize]
    }

    /// Returns the id of the first edge into `dst`; the other edges into `dst` have the ids that follow.
    ///
    /// # Panics
    /// Panics if `dst` is not a node of the graph.
    pub fn first_edge(&self, dst: NodeId) -> EdgeId {
        EdgeId(self.indptr[dst.index()])
    }

    /// Returns the number of edges into `dst`; 0 if `indptr` decreases there ([`Csc::validate`]).
    ///
    /// # Panics
    /// Panics if `dst` is not a node of the graph.
    pub fn in_degree(&self, dst: NodeId) -> u64 {
        self.indptr[dst.index() + 1].saturating_sub(self.indptr[dst.index()])
    }

    /// Returns the destination of each edge, `[n_edges]`, in CSC order. With [`Csc::indices`] it is the graph's edge list.
    ///
    /// # Panics
    /// Panics if `indptr` decreases ([`Csc::validate`]).
    pub fn dsts(&self) -> Vec<NodeId> {
        let mut dsts = Vec::with_capacity(self.indices.len());
        for (dst, bounds) in self.indptr.windows(2).enumerate() {
            assert!(bounds[0] <= bounds[1], "indptr should not decrease, but {bounds:?} do at node {dst}");
            dsts.resize(bounds[1] as usize, NodeId(dst as u32));
        }
        dsts
    }

    /// Counts the outgoing edges of each node, in one pass over all edges. Counts saturate at `u32::MAX`.
    ///
    /// ```
    /// use kiln_graph::CscBuilder;
    /// // 0 -> 1 twice, 0 -> 2 and 2 -> 2.
    /// let graph = CscBuilder::new(4).build(&[0, 0, 2, 0], &[1, 2, 2, 1])?;
    /// assert_eq!(graph.out_degrees(), [3, 0, 1, 0]);
    /// # Ok::<(), kiln_graph::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if an edge comes from a node that the graph does not have ([`Csc::validate`]).
    pub fn out_degrees(&self) -> Vec<u32> {
        let mut degrees = vec![0_u32; self.n_nodes()];
        for src in self.indices() {
            let degree = &mut degrees[src.index()];
            *degree = degree.saturating_add(1);
        }
        degrees
    }

    /// Returns the positions in `indices`, ascending, of the edges for which `is_found` returns true, from the position of an edge,
    /// its source and its destination.
    ///
    /// ```
    /// use kiln_graph::{CscBuilder, NodeId};
    /// let graph = CscBuilder::new(3).build(&[0, 1, 2], &[1, 2, 2])?;
    /// assert_eq!(graph.find_edges(|_, src, dst| src == dst)?, [2]);
    /// # Ok::<(), kiln_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::IndptrNotMonotone`] if `indptr` decreases.
    pub fn find_edges(&self, is_found: impl Fn(usize, NodeId, NodeId) -> bool + Sync) -> Result<Vec<u64>> {
        self.validate_indptr()?;
        let is_found = &is_found;
        let dsts = (0..self.n_nodes()).into_par_iter();
        Ok(dsts
            .flat_map_iter(|dst| {
                let edges = self.indptr[dst]..self.indptr[dst + 1];
                edges.filter(move |&edge| {
                    let edge = edge as usize;
                    is_found(edge, self.indices[edge], NodeId(dst as u32))
                })
            })
            .collect())
    }

    /// Returns the graph with the edges at some positions in `indices`, which ascend ([`Csc::find_edges`]). Edges keep their order
    /// and their columns, and get new ids.
    ///
    /// # Errors
    /// Returns [`ColumnError::OutOfMemory`] if the rows of columns do not fit in memory.
    ///
    /// # Panics
    /// Panics if there is no edge at a position.
    pub fn select_edges(&self, positions: &[u64]) -> Result<Self> {
        let indptr: Vec<u64> =
            self.indptr.par_iter().map(|end| positions.partition_point(|edge| edge < end) as u64).collect();
        let indices: Vec<NodeId> = positions.iter().map(|edge| self.indices[*edge as usize]).collect();
        let columns = self.columns.select(positions.iter().copied())?;
        Self::new(indptr.into(), indices.into())?.with_columns(&columns)
    }

    /// Copies the mapped arrays into the process's memory; owned arrays are shared.
    ///
    /// The copy takes 8 bytes per node, 4 per edge, and the size of the columns. Later errors
    /// about invalid values contain no file path. If the allocator backs large buffers with huge pages
    /// ([`SharedArray::in_memory`]), sampling from the copy of a large graph is faster than from the mapped graph.
    pub fn in_memory(&self) -> Self {
        let columns = self.columns.map(EdgeColumn::in_memory);
        let indptr = self.indptr.in_memory();
        let indices = self.indices.in_memory();
        let edge_times = self.edge_times.as_ref().map(EdgeTimes::in_memory);
        Self { indptr, indices, edge_times, ..self.clone() }.with_checked_columns(columns)
    }

    /// Returns the memory of the owned arrays in bytes; mapped arrays count as zero.
    pub fn owned_bytes(&self) -> usize {
        self.indptr.owned_bytes()
            + self.indices.owned_bytes()
            + self.columns.iter().map(|(_, column)| column.owned_bytes()).sum::<usize>()
            + self.edge_times.as_ref().map_or(0, EdgeTimes::owned_bytes)
    }
}

pub(crate) fn check_node_count(n_nodes: usize) -> Result<()> {
    const MAX: u64 = u32::MAX as u64;
    if n_nodes as u64 > MAX {
        return Err(Error::TooMany { what: "nodes", n: n_nodes as u64, max: MAX });
    }
    Ok(())
}
