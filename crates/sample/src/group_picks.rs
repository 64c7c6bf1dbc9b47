use std::ops::Range;

use crate::known_edges::KnownEdges;
use crate::lanes::LanePicks;

/// A group of destinations, for which a uniform rule picks at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupPicks {
    /// The positions of each destination's edges, and the place of its picks in `lanes`; `None` if all edges are taken.
    /// Empty for other rules and fanouts.
    pub(crate) dsts: Vec<(Range<usize>, Option<usize>)>,
    pub(crate) lanes: LanePicks,
}

/// A group of destinations with times, for which a rule that reads only the number of edges picks at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimedPicks {
    /// The known edges of each destination, and the place of its picks in `lanes`; `None` if all edges are known and taken. Empty
    /// for other rules and fanouts.
    pub(crate) dsts: Vec<(KnownEdges, Option<usize>)>,
    /// The positions of each destination's edges: a buffer.
    pub(crate) edges: Vec<Range<usize>>,
    pub(crate) lanes: LanePicks,
}

/// The buffers of the groups of a hop: one group at a time, or two successive ones of destinations with times.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupBuffers {
    pub(crate) picked: GroupPicks,
    pub(crate) timed: [TimedPicks; 2],
}
