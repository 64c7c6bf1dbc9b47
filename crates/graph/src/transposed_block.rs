use kiln_mem::prefetch;

use crate::LocalId;

/// The prefetch distance, in edges, for the running position of an edge's source.
const POSITION_AHEAD: usize = 32;

/// The prefetch distance, in edges, for the output place of an edge. It is below [`POSITION_AHEAD`], because the place
/// is read from the running position, which should be in the cache by then.
const PLACE_AHEAD: usize = 12;

/// A block's edges listed by source (CSR), for the backward pass.
///
/// ```text
/// edges 1 -> 0, 2 -> 0, 1 -> 1 in local ids:
///   indptr = [0, 0, 2, 3]   dsts = [0, 1, 0]   edges = [0, 2, 1]
/// ```
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `indptr` | `u32` | `n_src + 1` | source |
/// | `dsts` | `u32` | `n_edges` | position of the edge by source; its destination |
/// | `edges` | `u32` | `n_edges` | the same; its position in the block, ascending for each source |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransposedBlock {
    indptr: Vec<u32>,
    dsts: Vec<u32>,
    edges: Vec<u32>,
}

impl TransposedBlock {
    /// Same as [`TransposedBlock::of`], but from a block's arrays: the edges of destination `v` are
    /// `indptr[v]..indptr[v + 1]`, and `indices` contains the source of each edge.
    ///
    /// It is a stable counting sort in two passes over the edges. Random accesses are prefetched, and one array serves
    /// as counts, running positions and result.
    ///
    /// # Panics
    /// Panics if the arrays are inconsistent, or a source is not below `n_src`.
    pub fn of_edges(indptr: &[u32], indices: &[LocalId], n_src: usize) -> Self {
        let n_edges = indices.len();
        let listed = indptr.last().copied().unwrap_or(0) as usize;
        assert_eq!(listed, n_edges, "indptr must end at the number of indices");
        let rises = indptr.first().is_none_or(|&first| first == 0) && indptr.is_sorted();
        assert!(rises, "indptr does not start at 0 or decreases");
        // `starts[src + 2]` counts the edges of `src`. After the prefix sum, `starts[src + 1]` is the start of `src`.
        // Placing its edges advances that entry to the end of `src`, which is the start of `src + 1`, as in the result.
        let mut starts = vec![0_u32; n_src + 2];
        for (edge, src) in indices.iter().enumerate() {
            if let Some(later) = indices.get(edge + POSITION_AHEAD) {
                prefetch(&starts, later.index() + 2);
            }
            starts[src.index() + 2] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut dsts = vec![0; n_edges];
        let mut edges = vec![0; n_edges];
        for (dst, range) in indptr.windows(2).enumerate() {
            for edge in range[0]..range[1] {
                if let Some(later) = indices.get(edge as usize + POSITION_AHEAD) {
                    prefetch(&starts, later.index() + 1);
                }
                if let Some(later) = indices.get(edge as usize + PLACE_AHEAD) {
                    let place = starts[later.index() + 1] as usize;
                    prefetch(&dsts, place);
                    prefetch(&edges, place);
                }
                let place = &mut starts[indices[edge as usize].index() + 1];
                dsts[*place as usize] = dst as u32;
                edges[*place as usize] = edge;
                *place += 1;
            }
        }
        starts.truncate(n_src + 1);
        Self { indptr: starts, dsts, edges }
    }

    /// Returns the offsets of the edges by source: those of `u` are `indptr[u]..indptr[u + 1]`.
    pub fn indptr(&self) -> &[u32] {
        &self.indptr
    }

    /// Returns the destination of each edge, in the order of the sources.
    pub fn dsts(&self) -> &[u32] {
        &self.dsts
    }

    /// Returns the position in the block of each edge, in the order of the sources.
    pub fn edges(&self) -> &[u32] {
        &self.edges
    }

    /// Returns the size of the arrays in bytes.
    pub fn n_bytes(&self) -> usize {
        size_of_val(self.indptr()) + size_of_val(self.dsts()) + size_of_val(self.edges())
    }
}
