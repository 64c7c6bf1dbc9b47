use std::ops::Range;

use crate::known_edges::KnownEdges;
use crate::lanes::LanePicks;

/// A group of destinations, for which a uniform rule picks at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupPicks {
    /// The positions of each destination's edges, and the place of its picks in `lanes`; `None` if all edges are taken.
    /// Empty for other rules and fanouts.
    pub(crate) dsts: Vec<(Range<usize>, Option<usize>)>,
    /// The positions of each destination's edges, a buffer for destinations with times.
    pub(crate) edges: Vec<Range<usize>>,
    /// The known edges of each destination of `dsts`; empty without times.
    pub(crate) known: Vec<KnownEdges>,
    pub(crate) lanes: LanePicks,
}
