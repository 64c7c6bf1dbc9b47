use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{EdgeId, NodeId};

use crate::NodeKey;
use crate::excluded::RemovedEdges;
use crate::uniform::{Uniform, UniformKeepSelfLoops, UniformWithReplacement};

/// The in-neighbours of one destination, in ascending order of edge ids: the input of a sampling rule. Excluded edges
/// ([`ExcludedEdges`](crate::ExcludedEdges)) are not in the list.
///
/// Parallel edges are separate entries. All arrays have the same length.
#[derive(Debug, Clone, Copy)]
pub struct Neighbors<'a> {
    /// The destination.
    pub dst: NodeId,
    /// The node ids of the neighbours.
    pub ids: &'a [NodeId],
    /// The id of the first edge; the other edges have the ids after it, except for `removed` edges.
    pub(crate) first_edge: EdgeId,
    /// The positions of edges that are left out, ascending, in the list with them. They are distinct.
    pub(crate) removed: &'a [u32],
    /// The edges' weights, if the graph has weights.
    pub weights: Option<&'a [f32]>,
    /// The edges' types, if the graph has types.
    pub edge_types: Option<&'a [u8]>,
}

impl<'a> Neighbors<'a> {
    /// Creates the in-neighbours of one destination, whose edges have consecutive ids from `first_edge` on. Weights and
    /// types are `None`; set the fields to provide them.
    pub fn new(dst: NodeId, ids: &'a [NodeId], first_edge: EdgeId) -> Self {
        Self { dst, ids, first_edge, removed: &[], weights: None, edge_types: None }
    }

    /// Returns the number of neighbours.
    pub fn degree(&self) -> usize {
        self.ids.len()
    }

    /// Returns the id of the edge from `ids[position]`.
    pub fn edge_id(&self, position: usize) -> EdgeId {
        // The number of edges before a removed one that are not removed does not decrease, so the number of removed
        // edges before this one is found by binary search.
        let mut low = 0;
        let mut high = self.removed.len();
        while low < high {
            let middle = low.midpoint(high);
            if self.removed[middle] as usize - middle <= position {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        EdgeId(self.first_edge.0 + (position + low) as u64)
    }

    /// Returns the range of the positions of self loops; empty if there are no self loops.
    ///
    /// The range is found by binary search, because neighbours ascend in every graph built by
    /// [`CscBuilder`](kiln_graph::CscBuilder). In other graphs self loops may be missed; they then count as ordinary
    /// neighbours.
    pub fn self_loops(&self) -> Range<usize> {
        let Ok(found) = self.ids.binary_search(&self.dst) else { return 0..0 };
        let is_other = |id: &NodeId| *id != self.dst;
        let start = self.ids[..found].iter().rposition(is_other).map_or(0, |last| last + 1);
        let n_after = self.ids[found..].iter().position(is_other);
        start..n_after.map_or(self.ids.len(), |n_after| found + n_after)
    }
}

/// The positions that a rule picks, each below the destination's degree. They may be pushed in any order and are sorted
/// afterwards. A position may be picked more than once.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    positions: Vec<u32>,
    /// True if the picks are known to ascend, so they need no sort.
    ascend: bool,
    /// A bitset of picked neighbours, for rules that pick without replacement. All bits are clear between calls.
    pub(crate) taken: Vec<u64>,
    /// The positions of the hop's excluded edges: a buffer of the sampler, which rules do not read.
    pub(crate) removed: RemovedEdges,
}

impl Selection {
    /// Adds the neighbour at `position` to the picks.
    #[inline]
    pub fn push(&mut self, position: u32) {
        self.ascend = false;
        self.positions.push(position);
    }

    /// Returns the number of picks.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Returns true if nothing is picked.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Returns the picked positions.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Adds positions to the picks.
    #[inline]
    pub(crate) fn extend(&mut self, positions: &[u32]) {
        self.ascend = false;
        self.positions.extend_from_slice(positions);
    }

    /// Adds positions, which must ascend, to the picks.
    #[inline]
    pub(crate) fn extend_ascending(&mut self, positions: impl Iterator<Item = u32>) {
        self.ascend = self.positions.is_empty();
        self.positions.extend(positions);
    }

    /// Returns a mutable slice of the picks from index `first` on.
    pub(crate) fn positions_from(&mut self, first: usize) -> &mut [u32] {
        self.ascend = false;
        &mut self.positions[first..]
    }

    pub(crate) fn clear(&mut self) {
        self.positions.clear();
        self.ascend = false;
    }

    /// Sorts the picks in ascending order.
    #[inline]
    pub(crate) fn sort(&mut self) {
        match self.positions.len() {
            _ if self.ascend => {}
            ..=16 => sort_by_rank::<16>(&mut self.positions),
            17..=32 => sort_by_rank::<32>(&mut self.positions),
            _ => self.positions.sort_unstable(),
        }
    }
}

/// Sorts at most `N` numbers by rank: the new position of a number is the count of numbers that sort before it. The
/// function has no data-dependent branches, so it is faster than the standard sort for a few random numbers.
#[inline]
fn sort_by_rank<const N: usize>(numbers: &mut [u32]) {
    // Signed comparisons take fewer vector instructions than unsigned ones.
    let mut keys = [i32::MAX; N];
    for (key, number) in keys.iter_mut().zip(&*numbers) {
        *key = (*number ^ 1 << 31) as i32;
    }
    let mut ranks = [0_u32; N];
    for (other_place, &other) in keys.iter().enumerate() {
        for place in 0..N {
            // Equal numbers keep their order, so all ranks are distinct.
            let is_before = if other_place < place { other <= keys[place] } else { other < keys[place] };
            ranks[place] += u32::from(is_before);
        }
    }
    let mut sorted = [0; N];
    for (key, rank) in keys.iter().zip(ranks) {
        sorted[rank as usize % N] = *key as u32 ^ 1 << 31;
    }
    numbers.copy_from_slice(&sorted[..numbers.len()]);
}

/// A sampling rule: picks some of one destination's neighbours. It must be a pure function of its arguments, so that it
/// gives equal picks on the rank that owns the neighbours.
///
/// The sampler calls it only for destinations with at least one neighbour and for fanouts above 0 (also for fanout 0 if
/// the rule keeps self loops), but not for [`Fanout::All`](crate::Fanout::All). The number of neighbours may be below
/// the fanout: a rule that picks all neighbours in this case must check this itself. Closures with the signature of
/// [`SamplingRule::pick`] implement the trait.
pub trait SamplingRule: Send + Sync {
    /// Adds the positions of about `fanout` of the `neighbors` to `picks`. All random draws must come from `key`.
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection);

    /// Returns true if the rule always picks [`Neighbors::self_loops`], in addition to its draws among the others.
    /// [`EdgeWeights::Unbiased`](crate::EdgeWeights::Unbiased) does not scale the weights of these self loops.
    fn keeps_self_loops(&self) -> bool {
        false
    }
}

impl<F> SamplingRule for F
where
    F: Fn(Neighbors<'_>, NodeKey, u32, &mut Selection) + Send + Sync,
{
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        self(neighbors, key, fanout, picks);
    }
}

/// The rule of a sampler: a built-in one, which every device and every owner of a partition supports, or a custom one.
/// A [`SamplingRule`] converts to an unnamed custom rule.
#[derive(Clone, Default)]
pub enum Rule {
    /// Picks `min(fanout, degree)` distinct neighbours; all sets of this size are equally likely.
    #[default]
    Uniform,
    /// Picks `fanout` independent, equally likely neighbours; the same one may be picked more than once. A destination
    /// without neighbours has no picks.
    UniformWithReplacement,
    /// Picks the destination's self loops, plus the picks of [`Rule::Uniform`] among its other neighbours, for models
    /// that include a node in its own neighbourhood ([`kiln_graph::gcn_norm`]).
    ///
    /// Self loops do not count toward the fanout and need no draw; parallel ones are all kept. A node without a self
    /// loop gets exactly the picks of [`Rule::Uniform`]. Neighbours must ascend ([`Neighbors::self_loops`]).
    UniformKeepSelfLoops,
    /// A custom rule.
    Custom {
        /// The name under which the owners of other partitions have registered the rule; `None` for a rule that is not
        /// registered.
        name: Option<Arc<str>>,
        /// The implementation of the rule.
        rule: Arc<dyn SamplingRule>,
    },
}

impl Rule {
    /// The built-in rules.
    pub const BUILT_IN: [Self; 3] = [Self::Uniform, Self::UniformWithReplacement, Self::UniformKeepSelfLoops];

    /// Creates a custom rule that the owners of other partitions have registered under the same name.
    pub fn named(name: &str, rule: impl SamplingRule + 'static) -> Self {
        Self::Custom { name: Some(name.into()), rule: Arc::new(rule) }
    }

    /// Returns the name under which the owners of partitions find the rule; `None` for a rule that only this process
    /// has.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Uniform => Some("uniform"),
            Self::UniformWithReplacement => Some("uniform-with-replacement"),
            Self::UniformKeepSelfLoops => Some("uniform-with-loop"),
            Self::Custom { name, .. } => name.as_deref(),
        }
    }

    /// Returns true if the rule always picks self loops; see [`SamplingRule::keeps_self_loops`].
    pub fn keeps_self_loops(&self) -> bool {
        match self {
            Self::Uniform | Self::UniformWithReplacement => false,
            Self::UniformKeepSelfLoops => true,
            Self::Custom { rule, .. } => rule.keeps_self_loops(),
        }
    }

    /// Picks about `fanout` of `neighbors`, like [`SamplingRule::pick`]. Custom rules can use it to fall back to a
    /// built-in rule.
    pub fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        match self {
            Self::Uniform => Uniform.pick(neighbors, key, fanout, picks),
            Self::UniformWithReplacement => UniformWithReplacement.pick(neighbors, key, fanout, picks),
            Self::UniformKeepSelfLoops => UniformKeepSelfLoops.pick(neighbors, key, fanout, picks),
            Self::Custom { rule, .. } => rule.pick(neighbors, key, fanout, picks),
        }
    }
}

impl<R: SamplingRule + 'static> From<R> for Rule {
    fn from(rule: R) -> Self {
        Self::Custom { name: None, rule: Arc::new(rule) }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("unnamed"))
    }
}
