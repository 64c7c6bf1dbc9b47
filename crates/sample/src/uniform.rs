use std::ops::Range;

use crate::rng::mul_hi;
use crate::{Neighbors, NodeKey, SamplingRule, Selection};

/// The implementation of [`Rule::Uniform`](crate::Rule::Uniform).
///
/// The algorithm is Floyd's (Bentley and Floyd 1987, "Programming pearls: a sample of brilliance"), which needs one
/// draw per pick, independent of the degree.
pub(crate) struct Uniform;

impl SamplingRule for Uniform {
    #[inline]
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        pick_uniformly(neighbors.degree() as u32, fanout, key, picks);
    }
}

/// The implementation of [`Rule::UniformKeepSelfLoops`](crate::Rule::UniformKeepSelfLoops). Positions are drawn as if
/// the self loops did not exist; picks at or after the position of the loops are then increased by the number of loops.
pub(crate) struct UniformKeepSelfLoops;

impl SamplingRule for UniformKeepSelfLoops {
    #[inline]
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        pick_besides(neighbors.self_loops(), neighbors.degree() as u32, fanout, key, picks);
    }

    fn keeps_self_loops(&self) -> bool {
        true
    }
}

/// The implementation of [`Rule::UniformWithReplacement`](crate::Rule::UniformWithReplacement).
pub(crate) struct UniformWithReplacement;

impl SamplingRule for UniformWithReplacement {
    #[inline]
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        pick_with_replacement(neighbors.degree() as u32, fanout, key, picks);
    }
}

/// Picks `fanout` positions below `degree`, which may repeat.
#[inline]
pub(crate) fn pick_with_replacement(degree: u32, fanout: u32, key: NodeKey, picks: &mut Selection) {
    for first in (0..fanout).step_by(BATCH) {
        let drawn = key.draw16(first / BATCH as u32).map(|draw| mul_hi(draw, degree));
        picks.extend(&drawn[..(fanout - first).min(BATCH as u32) as usize]);
    }
}

/// Picks the positions `loops`, and distinct positions below `degree` among the others.
#[inline]
pub(crate) fn pick_besides(
    loops: Range<usize>,
    degree: u32,
    fanout: u32,
    key: NodeKey,
    picks: &mut Selection,
) {
    let start = loops.start as u32;
    let n_loops = loops.len() as u32;
    let n_before = picks.len();
    pick_uniformly(degree - n_loops, fanout, key, picks);
    if 0 < n_loops {
        for pick in picks.positions_from(n_before).iter_mut().filter(|pick| start <= **pick) {
            *pick += n_loops;
        }
        (start..start + n_loops).for_each(|position| picks.push(position));
    }
}

/// The number of draws that are computed at once.
const BATCH: usize = 16;

/// The largest fanout for which a linear search through the picks is used.
const LINEAR_SEARCH: u32 = 48;

/// The largest degree for which the set of picks fits one `u64`.
const WORD: u32 = 64;

/// Picks `min(fanout, degree)` distinct positions below `degree`.
#[inline]
pub(crate) fn pick_uniformly(degree: u32, fanout: u32, key: NodeKey, picks: &mut Selection) {
    if degree <= fanout {
        picks.extend_ascending(0..degree);
    } else if !picks.is_empty() && fanout <= LINEAR_SEARCH {
        // `picks` contains earlier picks of the caller. The linear search of `floyd` includes them; the other variants
        // search only their own bitsets.
        floyd(degree, fanout, key, picks);
    } else if degree <= WORD {
        floyd_in_a_word(degree, fanout, key, picks);
    } else {
        floyd_with_bits(degree, fanout, key, picks);
    }
}

/// Floyd's method in its simple form, the reference for the other variants.
fn floyd(degree: u32, fanout: u32, key: NodeKey, picks: &mut Selection) {
    let mut rng = key.rng();
    for last in degree - fanout..degree {
        let drawn = rng.below(last + 1);
        let pick = if picks.positions().contains(&drawn) { last } else { drawn };
        picks.push(pick);
    }
}

/// Picks the same positions as [`floyd`], in ascending order, from at most 64 neighbours. This function and
/// [`floyd_with_bits`] are faster: they test one bit instead of searching the picks, and vectorise the draws.
#[inline]
fn floyd_in_a_word(degree: u32, fanout: u32, key: NodeKey, picks: &mut Selection) {
    let mut taken = 0_u64;
    for batch in 0..fanout.div_ceil(BATCH as u32) {
        let drawn = Drawn::new(degree, fanout, key, batch);
        for (last, &drawn) in drawn.lasts().zip(drawn.numbers()) {
            let bit = 1 << drawn;
            taken |= if taken & bit == 0 { bit } else { 1 << last };
        }
    }
    picks.extend_ascending((0..fanout).map(|_| {
        let pick = taken.trailing_zeros();
        taken &= taken.wrapping_sub(1);
        pick
    }));
}

/// Picks the same positions as [`floyd`], in ascending order, with a bitset of one bit per neighbour.
#[inline]
fn floyd_with_bits(degree: u32, fanout: u32, key: NodeKey, picks: &mut Selection) {
    let mut taken = std::mem::take(&mut picks.taken);
    let n_words = degree.div_ceil(64) as usize;
    if taken.len() < n_words {
        taken.resize(n_words, 0);
    }
    let first = picks.len();
    for batch in 0..fanout.div_ceil(BATCH as u32) {
        let mut drawn = Drawn::new(degree, fanout, key, batch);
        let lasts = drawn.lasts();
        let numbers = drawn.numbers_mut();
        for (last, number) in lasts.zip(&mut *numbers) {
            let is_taken = taken[*number as usize / 64] >> (*number % 64) & 1 == 1;
            let pick = if is_taken { last } else { *number };
            taken[pick as usize / 64] |= 1 << (pick % 64);
            *number = pick;
        }
        picks.extend(numbers);
    }
    for pick in &picks.positions()[first..] {
        taken[*pick as usize / 64] = 0;
    }
    picks.taken = taken;
}

/// One batch of draws of Floyd's method.
struct Drawn {
    /// The value of `last` in [`floyd`] for the first draw of the batch.
    first: u32,
    n: usize,
    numbers: [u32; BATCH],
}

impl Drawn {
    #[inline(always)]
    fn new(degree: u32, fanout: u32, key: NodeKey, batch: u32) -> Self {
        let first = degree - fanout + batch * BATCH as u32;
        let draws = key.draw16(batch);
        Self {
            first,
            n: ((degree - first) as usize).min(BATCH),
            numbers: std::array::from_fn(|at: usize| mul_hi(draws[at], first.wrapping_add(at as u32 + 1))),
        }
    }

    #[inline(always)]
    fn lasts(&self) -> std::ops::RangeFrom<u32> {
        self.first..
    }

    #[inline(always)]
    fn numbers(&self) -> &[u32] {
        &self.numbers[..self.n]
    }

    #[inline(always)]
    fn numbers_mut(&mut self) -> &mut [u32] {
        &mut self.numbers[..self.n]
    }
}

#[cfg(test)]
mod tests {
    use kiln_graph::NodeId;

    use super::*;
    use crate::RngKey;

    #[test]
    fn bitset_variants_give_the_picks_of_the_reference() {
        let mut picks = Selection::default();
        for node in 0..200 {
            let key = RngKey::new(7).node(NodeId(node));
            for (degree, fanout) in
                [(2, 1), (64, 16), (64, 17), (64, 63), (40 + node % 20, 33), (65, 15), (1000 + node, 60)]
            {
                let mut plain = Selection::default();
                floyd(degree, fanout, key, &mut plain);
                picks.clear();
                floyd_with_bits(degree, fanout, key, &mut picks);
                assert_eq!(
                    plain.positions(),
                    picks.positions(),
                    "{fanout} of {degree} of node {node} with bits"
                );
                assert!(picks.taken.iter().all(|word| *word == 0), "all bits should be cleared");
                if degree <= WORD {
                    plain.sort();
                    picks.clear();
                    floyd_in_a_word(degree, fanout, key, &mut picks);
                    assert_eq!(
                        plain.positions(),
                        picks.positions(),
                        "{fanout} of {degree} of node {node} in a word"
                    );
                }
            }
        }
    }
}
