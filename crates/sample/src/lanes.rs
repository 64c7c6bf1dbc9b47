//! Uniform picks without replacement for many destinations at once. Each lane of a vector belongs to a destination, so
//! draws, comparisons and exchanges of the sort are vector instructions without branches. `tests/suite/plain.rs` compares the
//! blocks with those of a sampler that handles one destination at a time.

use kiln_graph::NodeId;
use kiln_mem::vector;

use crate::RngKey;
use crate::rng::mul_hi;

/// The maximum number of destinations that are picked together.
pub(crate) const MOST_DSTS: usize = 64;

/// The largest fanout for which destinations are picked together, a multiple of 4. The comparisons grow with its square.
pub(crate) const MOST_PICKS: usize = 32;

/// One value for each destination.
type Lanes = [u32; MOST_DSTS];

/// The picks of destinations that have more neighbours than the fanout.
#[derive(Debug, Clone)]
pub(crate) struct LanePicks {
    /// The number of destinations.
    n_dsts: usize,
    /// The ids that key the draws.
    nodes: Lanes,
    /// The words of each destination's key, which is used if destinations have keys of their own.
    keys: [Lanes; 2],
    degrees: Lanes,
    fanout: usize,
    /// The picks of each destination, ascending.
    picks: [Lanes; MOST_PICKS],
}

impl Default for LanePicks {
    fn default() -> Self {
        let lanes = [0; MOST_DSTS];
        let keys = [lanes; 2];
        Self { n_dsts: 0, nodes: lanes, keys, degrees: lanes, fanout: 0, picks: [lanes; MOST_PICKS] }
    }
}

impl LanePicks {
    /// Removes all destinations.
    pub(crate) fn clear(&mut self) {
        self.n_dsts = 0;
    }

    /// Adds a destination, whose degree must be above the fanout, and returns its place. There must be fewer than
    /// [`MOST_DSTS`].
    #[inline]
    pub(crate) fn push(&mut self, node: NodeId, degree: u32) -> usize {
        let place = self.n_dsts;
        (self.nodes[place], self.degrees[place]) = (node.0, degree);
        self.n_dsts += 1;
        place
    }

    /// Adds a destination with a key of its own.
    #[inline]
    pub(crate) fn push_keyed(&mut self, key: RngKey, node: NodeId, degree: u32) -> usize {
        let place = self.push(node, degree);
        let [low, high] = key.words();
        self.keys[0][place] = low;
        self.keys[1][place] = high;
        place
    }

    /// Picks `fanout` neighbours of each destination, the same as [`pick_uniformly`](crate::uniform::pick_uniformly).
    pub(crate) fn pick(&mut self, key: RngKey, fanout: usize) {
        self.fanout = fanout;
        vector::run(PickLanes { lanes: self, key });
    }

    /// Picks `fanout` neighbours of each destination with its own key, in the order of the draws.
    pub(crate) fn pick_keyed(&mut self, fanout: usize) {
        self.fanout = fanout;
        vector::run(PickKeyedLanes { lanes: self });
    }

    /// Sorts the picks of each destination.
    pub(crate) fn sort(&mut self) {
        vector::run(SortLanes { lanes: self });
    }

    /// Returns the picks at a place, to replace them by others.
    #[inline]
    pub(crate) fn picks_of_mut(&mut self, place: usize) -> impl Iterator<Item = &mut u32> {
        self.picks[..self.fanout].iter_mut().map(move |lanes| &mut lanes[place])
    }

    /// Returns the picks at a place, which ascend.
    #[inline]
    pub(crate) fn picks_of(&self, place: usize) -> impl ExactSizeIterator<Item = u32> {
        self.picks[..self.fanout].iter().map(move |lanes| lanes[place])
    }
}

struct PickLanes<'a> {
    lanes: &'a mut LanePicks,
    key: RngKey,
}

/// All loops over destinations have a length that the compiler does not know. It would unroll loops of a known length
/// completely, and then not find the vectors.
impl vector::VectorTask for PickLanes<'_> {
    #[inline(always)]
    fn run(self) {
        let LanePicks { n_dsts, nodes, degrees, fanout, picks, .. } = self.lanes;
        draw(self.key, &nodes[..*n_dsts], &mut picks.as_chunks_mut().0[..fanout.div_ceil(4)]);
        let picks = &mut picks[..*fanout];
        floyd(&degrees[..*n_dsts], picks);
        sort(picks, *n_dsts);
    }
}

struct PickKeyedLanes<'a> {
    lanes: &'a mut LanePicks,
}

impl vector::VectorTask for PickKeyedLanes<'_> {
    #[inline(always)]
    fn run(self) {
        let LanePicks { n_dsts, nodes, keys: [low, high], degrees, fanout, picks } = self.lanes;
        let n_dsts = *n_dsts;
        let draws = &mut picks.as_chunks_mut().0[..fanout.div_ceil(4)];
        draw_keyed([&low[..n_dsts], &high[..n_dsts]], &nodes[..n_dsts], draws);
        floyd(&degrees[..n_dsts], &mut picks[..*fanout]);
    }
}

struct SortLanes<'a> {
    lanes: &'a mut LanePicks,
}

impl vector::VectorTask for SortLanes<'_> {
    #[inline(always)]
    fn run(self) {
        let LanePicks { n_dsts, fanout, picks, .. } = self.lanes;
        sort(&mut picks[..*fanout], *n_dsts);
    }
}

/// Writes the draws of each node with its own key, like [`draw`].
#[inline(always)]
fn draw_keyed(keys: [&[u32]; 2], nodes: &[u32], out: &mut [[Lanes; 4]]) {
    for (group, out) in (0..).zip(out) {
        let [first, second, third, fourth] = out.each_mut().map(|lanes| &mut lanes[..nodes.len()]);
        for lane in 0..nodes.len() {
            let key = RngKey::join_words([keys[0][lane], keys[1][lane]]);
            [first[lane], second[lane], third[lane], fourth[lane]] = key.draw4_inline(0, nodes[lane], group);
        }
    }
}

/// Writes the draws of each node, in groups of four: `out[i]` are draws number `i`.
#[inline(always)]
fn draw(key: RngKey, nodes: &[u32], out: &mut [[Lanes; 4]]) {
    for (group, out) in (0..).zip(out) {
        let [first, second, third, fourth] = out.each_mut().map(|lanes| &mut lanes[..nodes.len()]);
        for lane in 0..nodes.len() {
            [first[lane], second[lane], third[lane], fourth[lane]] = key.draw4_inline(0, nodes[lane], group);
        }
    }
}

/// Replaces draws by the picks of Floyd's method, in the order of the draws.
#[inline(always)]
fn floyd(degrees: &[u32], draws: &mut [Lanes]) {
    let n_dsts = degrees.len();
    for at in 0..draws.len() {
        let before = (draws.len() - at) as u32;
        let (picks, rest) = draws.split_at_mut(at);
        let numbers = &mut rest[0][..n_dsts];
        for (number, degree) in numbers.iter_mut().zip(degrees) {
            *number = mul_hi(*number, degree - before + 1);
        }
        // The smallest difference in bits is 0 for a number that is picked already.
        let mut all_differences = [u32::MAX; MOST_DSTS];
        let differences = &mut all_differences[..n_dsts];
        for pick in picks {
            for ((difference, pick), number) in differences.iter_mut().zip(pick).zip(&*numbers) {
                *difference = (*difference).min(*pick ^ *number);
            }
        }
        for ((number, difference), degree) in numbers.iter_mut().zip(&*differences).zip(degrees) {
            *number = if *difference == 0 { degree - before } else { *number };
        }
    }
}

/// Sorts the values of each of the first `n_dsts` lanes in ascending order: Batcher's odd-even merge sort (Knuth, "The
/// Art of Computer Programming", volume 3, section 5.2.2, algorithm M), whose exchanges do not depend on the values.
#[inline(always)]
fn sort(values: &mut [Lanes], n_dsts: usize) {
    let first = values.len().next_power_of_two() / 2;
    let mut p = first;
    while 0 < p {
        let mut q = first;
        let mut r = 0;
        let mut d = p;
        loop {
            for low in (0..values.len().saturating_sub(d)).filter(|low| low & p == r) {
                let (lower, upper) = values.split_at_mut(low + d);
                let lower = &mut lower[low][..n_dsts];
                let upper = &mut upper[0][..n_dsts];
                for (low, high) in lower.iter_mut().zip(upper) {
                    (*low, *high) = ((*low).min(*high), (*low).max(*high));
                }
            }
            if q == p {
                break;
            }
            (d, q, r) = (q - p, q / 2, p);
        }
        p /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selection;
    use crate::uniform::pick_uniformly;

    struct Checked<F> {
        lanes: LanePicks,
        key: RngKey,
        check: F,
    }

    impl<F: FnMut(&LanePicks)> vector::VectorTask for Checked<F> {
        #[inline(always)]
        fn run(mut self) {
            PickLanes { lanes: &mut self.lanes, key: self.key }.run();
            (self.check)(&self.lanes);
        }
    }

    #[test]
    fn picks_are_those_of_one_destination_at_a_time_on_all_instruction_sets() {
        // The bitset of `alone` is large, so it is created once.
        let key = RngKey::new(7);
        let mut lanes = LanePicks::default();
        let mut alone = Selection::default();
        for fanout in 1..=MOST_PICKS as u32 {
            for n_dsts in [1, 15, 16, 17, 40, MOST_DSTS as u32] {
                let degree = |dst: u32| match dst % 4 {
                    0 => fanout + 1,
                    1 => fanout + 2 + dst,
                    2 => 1000 * dst,
                    _ => u32::MAX - dst,
                };
                lanes.clear();
                let places: Vec<usize> =
                    (0..n_dsts).map(|dst| lanes.push(NodeId(dst * 77), degree(dst))).collect();
                lanes.fanout = fanout as usize;
                let expected: Vec<Vec<u32>> = (0..n_dsts)
                    .map(|dst: u32| {
                        alone.clear();
                        pick_uniformly(degree(dst), fanout, key.node(NodeId(dst * 77)), &mut alone);
                        alone.sort();
                        alone.positions().to_vec()
                    })
                    .collect();
                let check = |lanes: &LanePicks| {
                    for (&place, expected) in places.iter().zip(&expected) {
                        let picks: Vec<u32> = lanes.picks_of(place).collect();
                        assert_eq!(&picks, expected, "{fanout} of destination {place} of {n_dsts}");
                    }
                };
                // Each task picks with another instruction set, and checks the picks at the end.
                vector::run_with_each(|| Checked { lanes: lanes.clone(), key, check });
            }
        }
    }
}
