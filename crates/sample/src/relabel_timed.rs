use kiln_graph::{LocalId, NodeId};
use kiln_mem::prefetch_far;

/// The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio (Knuth, "The Art of Computer Programming",
/// volume 3, section 6.4).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The prefetch distance in edges for random reads of the table.
const AHEAD: usize = 64;

/// The local ids of pairs of a node and a time: a hash table with linear probing, at most half full.
///
/// A new batch takes a new stamp, so the table is not cleared.
#[derive(Debug, Default)]
pub(crate) struct TimedTable {
    /// The length is a power of two, or 0.
    slots: Vec<Slot>,
    stamp: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    pair: u64,
    stamp: u32,
    local: u32,
}

/// Returns a pair of a node and the position of its time among the batch's times as one number.
#[inline]
pub(crate) fn pair(node: NodeId, time: u32) -> u64 {
    u64::from(time) << 32 | u64::from(node.0)
}

impl TimedTable {
    /// Forgets all pairs.
    pub(crate) fn begin(&mut self) {
        if self.stamp == u32::MAX {
            self.slots.clear();
            self.stamp = 0;
        }
        self.stamp += 1;
    }

    /// Makes room for `n_pairs` pairs in all. `known` are the pairs in the table, in the order of their local ids.
    pub(crate) fn reserve(&mut self, n_pairs: usize, known: impl Iterator<Item = u64>) {
        let n_slots = (2 * n_pairs).next_power_of_two().max(64);
        if n_slots <= self.slots.len() {
            return;
        }
        self.slots = vec![Slot::default(); n_slots];
        self.stamp = 1;
        for (pair, next) in known.zip(0..) {
            self.local(pair, next);
        }
    }

    /// Returns the local id of a pair, which is `next` if the pair is new. There must be room.
    #[inline]
    pub(crate) fn local(&mut self, pair: u64, next: u32) -> LocalId {
        let mut slot = self.first_slot(pair);
        loop {
            let found = &mut self.slots[slot];
            if found.stamp != self.stamp {
                *found = Slot { pair, stamp: self.stamp, local: next };
                return LocalId(next);
            }
            if found.pair == pair {
                return LocalId(found.local);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Asks for the slot of the pair that is numbered some edges later.
    #[inline]
    pub(crate) fn prefetch(&self, pairs: &[u64], position: usize) {
        if let Some(&later) = pairs.get(position + AHEAD) {
            prefetch_far(&self.slots, self.first_slot(later));
        }
    }

    /// The upper bits of the product depend on all bits of the pair, so they select the slot.
    #[inline]
    fn first_slot(&self, pair: u64) -> usize {
        (pair.wrapping_mul(GOLDEN) >> (64 - self.slots.len().trailing_zeros())) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_their_ids_while_the_table_grows() {
        let mut table = TimedTable::default();
        for _ in 0..3 {
            table.begin();
            let mut known: Vec<u64> = Vec::new();
            for step in 0..2_000_u32 {
                let found = pair(NodeId(step % 700), step % 3);
                table.reserve(known.len() + 1, known.iter().copied());
                let expected = known.iter().position(|other| *other == found).unwrap_or(known.len());
                assert_eq!(table.local(found, known.len() as u32), LocalId(expected as u32));
                if expected == known.len() {
                    known.push(found);
                }
            }
        }
    }
}
