use std::ops::Range;

use kiln_graph::{EdgeId, NodeId};

use crate::NodeKey;

/// What a rule sees of one destination: its in-neighbours in ascending edge order.
///
/// Parallel edges are entries of their own. The arrays have equal lengths.
#[derive(Debug, Clone, Copy)]
pub struct Neighbors<'a> {
    /// The destination.
    pub dst: NodeId,
    /// The neighbours.
    pub ids: &'a [NodeId],
    /// The id of the first edge; the others follow it.
    pub(crate) first_edge: EdgeId,
    /// The edges' weights, if the graph has weights.
    pub weights: Option<&'a [f32]>,
    /// The edges' types, if the graph has types.
    pub edge_types: Option<&'a [u8]>,
}

impl<'a> Neighbors<'a> {
    /// The in-neighbours of one destination, whose edges follow each other from `first_edge` on; weights
    /// and types can be set on it.
    pub fn new(dst: NodeId, ids: &'a [NodeId], first_edge: EdgeId) -> Self {
        Self { dst, ids, first_edge, weights: None, edge_types: None }
    }

    /// Number of neighbours.
    pub fn degree(&self) -> usize {
        self.ids.len()
    }

    /// The id of the edge to `ids[position]`.
    pub fn edge_id(&self, position: usize) -> EdgeId {
        EdgeId(self.first_edge.0 + position as u64)
    }

    /// The positions of the edges from the destination to itself, one after the other; empty when there
    /// are none.
    ///
    /// By binary search, for the neighbours ascend in every graph that
    /// [`CscBuilder`](kiln_graph::CscBuilder) made. Where they do not, loops may be missed, and are then
    /// neighbours like the others.
    pub fn self_loops(&self) -> Range<usize> {
        let Ok(found) = self.ids.binary_search(&self.dst) else { return 0..0 };
        let is_other = |id: &NodeId| *id != self.dst;
        let start = self.ids[..found].iter().rposition(is_other).map_or(0, |last| last + 1);
        let n_after = self.ids[found..].iter().position(is_other);
        start..n_after.map_or(self.ids.len(), |n_after| found + n_after)
    }
}

/// Collects the positions that a rule picks, below the destination's degree. Their order does not
/// matter: they are put in ascending order afterwards. A position may be picked more than once.
#[derive(Debug, Clone, Default)]
pub struct Picks {
    positions: Vec<u32>,
    /// A bit for each neighbour, used by rules that pick many.
    taken: Vec<u64>,
}

impl Picks {
    /// Picks the neighbour at `position`.
    #[inline]
    pub fn push(&mut self, position: u32) {
        self.positions.push(position);
    }

    /// How many positions were picked.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether nothing was picked.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The picks so far.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    pub(crate) fn clear(&mut self) {
        self.positions.clear();
    }

    pub(crate) fn sort(&mut self) {
        self.positions.sort_unstable();
    }
}

/// Which of one destination's neighbours to pick. A rule is a pure function of what it is given, so that
/// it can run where the neighbours are.
///
/// It is asked only for destinations with more than zero neighbours and a fanout above zero (or any, where
/// the rule keeps self loops), whatever their number: a rule that wants to keep small neighbourhoods whole
/// says so itself. Closures of the method's shape are rules.
pub trait PickRule: Send + Sync {
    /// Picks about `fanout` of `neighbors`, drawing from `key` only.
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Picks);

    /// Whether the rule always picks [`Neighbors::self_loops`], next to what it draws among the others.
    /// [`NeighborSampler::estimate_sums`](crate::NeighborSampler::estimate_sums) leaves their weights as
    /// they are.
    fn keeps_self_loops(&self) -> bool {
        false
    }
}

impl<F> PickRule for F
where
    F: Fn(Neighbors<'_>, NodeKey, u32, &mut Picks) + Send + Sync,
{
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Picks) {
        self(neighbors, key, fanout, picks);
    }
}

/// `min(fanout, degree)` distinct neighbours, each set of that size being equally likely.
///
/// The picks are Floyd's (Bentley and Floyd 1987, "Programming pearls: a sample of brilliance"): one
/// draw for each pick, whatever the degree.
#[derive(Debug, Clone, Copy, Default)]
pub struct Uniform;

impl PickRule for Uniform {
    #[inline]
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Picks) {
        pick_uniformly(neighbors.degree() as u32, fanout, key, picks);
    }
}

/// The destination's self loop, if it has one, and [`Uniform`]'s picks among its other neighbours: what
/// models want that count a node among its own neighbours ([`kiln_graph::gcn_norm`]).
///
/// The loop does not count for the fanout and takes no draw: positions are drawn as if the node had no
/// loop, and those from the loop's position on move behind it. A node without a loop gets exactly what
/// [`Uniform`] picks. Parallel loops are all kept. Neighbours must ascend
/// ([`Neighbors::self_loops`]).
#[derive(Debug, Clone, Copy, Default)]
pub struct UniformWithLoop;

impl PickRule for UniformWithLoop {
    #[inline]
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Picks) {
        let loops = neighbors.self_loops();
        let (start, n_loops) = (loops.start as u32, loops.len() as u32);
        let n_before = picks.len();
        pick_uniformly(neighbors.degree() as u32 - n_loops, fanout, key, picks);
        if 0 < n_loops {
            for pick in picks.positions[n_before..].iter_mut().filter(|pick| start <= **pick) {
                *pick += n_loops;
            }
            picks.positions.extend(start..start + n_loops);
        }
    }

    fn keeps_self_loops(&self) -> bool {
        true
    }
}

/// `fanout` independent neighbours, each equally likely; the same one may come more than once.
#[derive(Debug, Clone, Copy, Default)]
pub struct UniformWithReplacement;

impl PickRule for UniformWithReplacement {
    #[inline]
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Picks) {
        let degree = neighbors.degree() as u32;
        let mut draws = key.draws();
        picks.positions.extend((0..fanout).map(|_| draws.below(degree)));
    }
}

/// Up to this many picks, looking through them all is faster than a bit for each neighbour.
const LINEAR_SEARCH: u32 = 48;

/// `min(fanout, degree)` distinct positions below `degree`.
#[inline]
fn pick_uniformly(degree: u32, fanout: u32, key: NodeKey, picks: &mut Picks) {
    if degree <= fanout {
        picks.positions.extend(0..degree);
    } else if fanout <= LINEAR_SEARCH {
        floyd(degree, fanout, key, picks);
    } else {
        floyd_with_bits(degree, fanout, key, picks);
    }
}

#[inline]
fn floyd(degree: u32, fanout: u32, key: NodeKey, picks: &mut Picks) {
    let mut draws = key.draws();
    for last in degree - fanout..degree {
        let drawn = draws.below(last + 1);
        let pick = if picks.positions.contains(&drawn) { last } else { drawn };
        picks.positions.push(pick);
    }
}

/// The same picks as [`floyd`], found through a bit for each neighbour.
fn floyd_with_bits(degree: u32, fanout: u32, key: NodeKey, picks: &mut Picks) {
    let mut draws = key.draws();
    picks.taken.clear();
    picks.taken.resize(degree.div_ceil(64) as usize, 0);
    for last in degree - fanout..degree {
        let drawn = draws.below(last + 1);
        let drawn_is_taken = picks.taken[drawn as usize / 64] >> (drawn % 64) & 1 == 1;
        let pick = if drawn_is_taken { last } else { drawn };
        picks.taken[pick as usize / 64] |= 1 << (pick % 64);
        picks.positions.push(pick);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RngKey;

    #[test]
    fn floyd_with_bits_picks_what_floyd_picks() {
        for node in 0..200 {
            let key = RngKey::new(7).node(NodeId(node));
            let (mut plain, mut bits) = (Picks::default(), Picks::default());
            floyd(1000 + node, 60, key, &mut plain);
            floyd_with_bits(1000 + node, 60, key, &mut bits);
            assert_eq!(plain.positions, bits.positions, "node {node}");
        }
    }
}
