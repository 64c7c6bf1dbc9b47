use crate::uniform::Uniform;
use crate::{Neighbors, NodeKey, SamplingRule, Selection};

/// The implementation of [`Rule::MostRecent`](crate::Rule::MostRecent).
pub(crate) struct MostRecent;

/// A list of neighbours has no times, so the picks are those of [`Uniform`]. Those from edges with times are
/// [`pick_last`].
impl SamplingRule for MostRecent {
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        Uniform.pick(neighbors, key, fanout, picks);
    }
}

/// Picks the last `min(fanout, n)` of `n` positions.
pub(crate) fn pick_last(n: u32, fanout: u32, picks: &mut Selection) {
    picks.extend_ascending(n.saturating_sub(fanout)..n);
}
