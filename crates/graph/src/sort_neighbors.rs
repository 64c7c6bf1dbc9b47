use std::ops::Range;

use rayon::prelude::*;

use crate::{Csc, EdgeColumns, NodeId, Result};

/// The number of edges that one task sorts.
const EDGES_A_TASK: u64 = 1 << 16;

impl Csc {
    /// Returns true if the neighbours of each node ascend, as in every graph that [`CscBuilder`](crate::CscBuilder)
    /// builds; false also if `indptr` decreases. Reads the whole graph once, in parallel.
    pub fn has_sorted_neighbors(&self) -> bool {
        self.indptr().par_windows(2).with_min_len(256).all(|bounds| {
            let neighbors = self.indices().get(bounds[0] as usize..bounds[1] as usize);
            neighbors.is_some_and(<[NodeId]>::is_sorted)
        })
    }

    /// Returns a copy in which the neighbours of each node ascend. Columns move with their edges, so edges get other
    /// ids. Parallel edges keep their order.
    ///
    /// The copy takes 4 bytes per edge and the size of the columns, and with columns 8 more per edge, and 16 per
    /// edge into one node, while edges are sorted; `indptr` is shared. Errors about invalid values of the copy contain no file path.
    ///
    /// ```
    /// use kiln_graph::{Csc, NodeId};
    /// // 7 -> 0 and 3 -> 0.
    /// let indptr = vec![0, 2, 2, 2, 2, 2, 2, 2, 2];
    /// let graph = Csc::new(indptr.into(), vec![7_u32, 3].into())?;
    /// assert!(!graph.has_sorted_neighbors());
    /// assert_eq!(graph.sort_neighbors()?.in_neighbors(NodeId(0)), [NodeId(3), NodeId(7)]);
    /// # Ok::<(), kiln_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Csc::validate`].
    pub fn sort_neighbors(&self) -> Result<Self> {
        self.validate()?;
        let mut indices = self.indices().to_vec();
        if self.columns().is_empty() {
            Lists { indices: &mut indices, edges: None }.sort(self.indptr());
            return self.with_indices(indices, &EdgeColumns::default());
        }
        let mut edges: Vec<u64> = (0..self.n_edges()).collect();
        Lists { indices: &mut indices, edges: Some(&mut edges) }.sort(self.indptr());
        self.with_indices(indices, &self.columns().select(edges.into_iter())?)
    }

    /// Returns a graph of other edges with the same number of edges into each node.
    fn with_indices(&self, indices: Vec<NodeId>, columns: &EdgeColumns) -> Result<Self> {
        Csc::new(self.shared_indptr(), indices.into())?.with_columns(columns)
    }
}

/// The edges of consecutive destinations.
struct Lists<'a> {
    indices: &'a mut [NodeId],
    /// The id of each edge before it is sorted; `None` if edges have no columns.
    edges: Option<&'a mut [u64]>,
}

impl<'a> Lists<'a> {
    /// Sorts the edges of each destination. `indptr` are the offsets of these destinations in the whole graph.
    fn sort(self, indptr: &[u64]) {
        let n_dsts = indptr.len() - 1;
        if n_dsts == 1 || indptr[n_dsts] - indptr[0] <= EDGES_A_TASK {
            return self.sort_each(indptr);
        }
        let middle = n_dsts / 2;
        let (left, right) = self.split_at((indptr[middle] - indptr[0]) as usize);
        rayon::join(|| left.sort(&indptr[..=middle]), || right.sort(&indptr[middle..]));
    }

    fn split_at(self, edge: usize) -> (Self, Self) {
        let (left, right) = self.indices.split_at_mut(edge);
        let (left_edges, right_edges) = self.edges.map(|edges| edges.split_at_mut(edge)).unzip();
        (Self { indices: left, edges: left_edges }, Self { indices: right, edges: right_edges })
    }

    fn sort_each(mut self, indptr: &[u64]) {
        let mut pairs: Vec<(NodeId, u64)> = Vec::new();
        for bounds in indptr.windows(2) {
            let edges = (bounds[0] - indptr[0]) as usize..(bounds[1] - indptr[0]) as usize;
            if !self.indices[edges.clone()].is_sorted() {
                self.sort_one(edges, &mut pairs);
            }
        }
    }

    /// Sorts the edges of one destination. `pairs` is a buffer.
    fn sort_one(&mut self, range: Range<usize>, pairs: &mut Vec<(NodeId, u64)>) {
        let neighbors = &mut self.indices[range.clone()];
        let Some(edges) = &mut self.edges else { return neighbors.sort_unstable() };
        let edges = &mut edges[range];
        pairs.clear();
        pairs.extend(neighbors.iter().copied().zip(edges.iter().copied()));
        // Equal neighbours ascend by their ids, so the sort is stable.
        pairs.sort_unstable();
        for ((neighbor, edge), pair) in neighbors.iter_mut().zip(edges).zip(pairs) {
            *neighbor = pair.0;
            *edge = pair.1;
        }
    }
}
