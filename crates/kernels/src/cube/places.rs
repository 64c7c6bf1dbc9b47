//! The places of a hop, with the table in which relabelling finds the first place of each node.

use burn_cubecl::tensor::CubeTensor;

/// The value that an empty slot has as its content and as its place. A graph has at most this many nodes, so no node has
/// this id.
pub(super) const NOTHING: u32 = u32::MAX;

/// The multiplier of the hash: the upper bits of its product with an id are the slot (Knuth, "Sorting and searching",
/// 6.4: the golden ratio).
pub(super) const SPREAD: u32 = 2_654_435_769;

/// The number of values behind the counts that the host reads.
pub(super) const N_TOTALS: usize = 3;

/// The places of a hop: the destinations followed by the edges' sources.
pub(super) struct Places<'a> {
    pub(super) nodes: &'a CubeTensor,
    pub(super) srcs: &'a CubeTensor,
    /// The first edge of each destination.
    pub(super) offsets: &'a CubeTensor,
    /// For each slot, its content and the first place of it.
    pub(super) table: &'a CubeTensor,
    /// The slot of each place.
    pub(super) slots: &'a CubeTensor,
    /// One count per place, and [`N_TOTALS`] numbers.
    pub(super) counts: &'a CubeTensor,
    /// 32 minus the logarithm of the number of slots.
    pub(super) shift: u32,
}
