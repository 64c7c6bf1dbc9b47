//! Lists of segments: which positions and items belong to a segment, and which segment a position belongs to.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// The maximum number of positions that one unit aggregates. A segment that is longer is aggregated in chunks.
pub(super) const CHUNK: u32 = 512;

/// Segments of rows: the rows of segment `s` are `items[indptr[s]..indptr[s + 1]]`.
#[derive(Debug, Clone)]
pub(super) struct Segments {
    pub(super) indptr: CubeTensor,
    pub(super) items: CubeTensor,
    pub(super) n_segments: usize,
    pub(super) n_positions: usize,
    /// The edge of each position; `None` if the positions are edges.
    pub(super) edges: Option<CubeTensor>,
    /// An upper bound on the number of positions of a segment.
    pub(super) longest: usize,
}

impl Segments {
    /// Returns true if a segment may have more positions than one unit adds.
    pub(super) fn may_be_long(&self) -> bool {
        (CHUNK as usize) < self.longest.min(self.n_positions)
    }
}

/// The segment of a position, by binary search: the last one that starts at the position or before.
#[cube]
pub(super) fn segment_of(indptr: &[u32], position: u32) -> usize {
    // Invariant: segment `low` starts at `position` or before, and segment `high` after it.
    let mut low = 0usize;
    let mut high = indptr.len() - 1;
    while high - low > 1 {
        let middle = (low + high) / 2;
        if indptr[middle] <= position {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
