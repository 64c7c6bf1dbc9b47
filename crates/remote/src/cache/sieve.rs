use std::sync::{Mutex, MutexGuard, PoisonError};

use kiln_graph::NodeId;

/// The value that stands for no slot: the node is not cached, or the queue ends here.
const NONE: u32 = u32::MAX;

/// A dynamic cache of remote feature rows.
///
/// It evicts by SIEVE (Zhang et al. 2024, "SIEVE is Simpler than LRU: an Efficient Turn-Key Eviction Algorithm for Web
/// Caches"). Rows are in a queue from new to old. A hit marks the row and moves nothing. To evict, a hand moves from
/// old to new, and from the newest back to the oldest; it removes marks until it finds a row without one, which is
/// evicted. So rows that only one batch reads are evicted soon.
///
/// **Memory.** In addition to the rows: 16 bytes per row and 4 bytes per node of the graph. All address space is
/// reserved at the start, so that nothing is moved later; pages take memory once they are written.
#[derive(Debug)]
pub(crate) struct Sieve {
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// The slot of each node, or [`NONE`].
    slots: Vec<u32>,
    queue: Queue,
    /// The row of each slot.
    rows: Vec<u8>,
    row_bytes: usize,
}

impl Sieve {
    /// Creates a cache for `n_bytes` of rows. Returns `None` if not even one row fits.
    pub(crate) fn new(n_nodes: usize, row_bytes: usize, n_bytes: usize) -> Option<Self> {
        let n_slots = n_bytes.checked_div(row_bytes)?.min(n_nodes);
        if n_slots == 0 {
            return None;
        }
        let rows = Vec::with_capacity(n_slots * row_bytes);
        let kept = Kept { slots: vec![NONE; n_nodes], queue: Queue::new(n_slots), rows, row_bytes };
        Some(Self { kept: Mutex::new(kept) })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let kept = self.lock();
        let n_slots = kept.queue.n_slots;
        n_slots * (kept.row_bytes + size_of::<QueueEntry>()) + kept.slots.len() * size_of::<u32>()
    }

    /// Removes the cached items from `wanted`, marks their rows, and calls `found` with each item and its row.
    /// `node_of` returns the node of an item.
    pub(crate) fn find<T>(
        &self,
        wanted: &mut Vec<T>,
        node_of: impl Fn(&T) -> NodeId,
        mut found: impl FnMut(&T, &[u8]),
    ) {
        let kept = &mut *self.lock();
        wanted.retain(|item| {
            let slot = kept.slots[node_of(item).index()];
            if slot != NONE {
                kept.queue.mark(slot);
                found(item, &kept.rows[slot as usize * kept.row_bytes..][..kept.row_bytes]);
            }
            slot == NONE
        });
    }

    /// Inserts rows, and evicts others if there is no room.
    pub(crate) fn keep<'a>(&self, rows: impl Iterator<Item = (NodeId, &'a [u8])>) {
        let kept = &mut *self.lock();
        for (node, row) in rows {
            // Another thread may have inserted the same row.
            if kept.slots[node.index()] != NONE {
                continue;
            }
            let (slot, gone) = kept.queue.enter(node);
            kept.slots[node.index()] = slot;
            match gone {
                Some(gone) => {
                    kept.slots[gone.index()] = NONE;
                    kept.rows[slot as usize * kept.row_bytes..][..kept.row_bytes].copy_from_slice(row);
                }
                // New slots are used in order, so the row belongs at the end.
                None => kept.rows.extend_from_slice(row),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cached nodes, from new to old, as a doubly linked list.
#[derive(Debug)]
struct Queue {
    /// The list entry of each slot.
    entries: Vec<QueueEntry>,
    newest: u32,
    oldest: u32,
    hand: u32,
    n_slots: usize,
}

#[derive(Debug, Clone, Copy)]
struct QueueEntry {
    node: NodeId,
    is_marked: bool,
    newer: u32,
    older: u32,
}

impl Queue {
    fn new(n_slots: usize) -> Self {
        Self { entries: Vec::with_capacity(n_slots), newest: NONE, oldest: NONE, hand: NONE, n_slots }
    }

    fn mark(&mut self, slot: u32) {
        self.entries[slot as usize].is_marked = true;
    }

    /// Inserts a node as the newest. Returns its slot, and the node that was evicted from this slot, if any.
    fn enter(&mut self, node: NodeId) -> (u32, Option<NodeId>) {
        let entry = QueueEntry { node, is_marked: false, newer: NONE, older: NONE };
        let (slot, gone) = match self.entries.len() < self.n_slots {
            true => {
                self.entries.push(entry);
                (self.entries.len() as u32 - 1, None)
            }
            false => {
                let (slot, gone) = self.throw_out();
                self.entries[slot as usize] = entry;
                (slot, Some(gone))
            }
        };
        self.entries[slot as usize].older = self.newest;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.entries[newest as usize].newer = slot,
        }
        self.newest = slot;
        (slot, gone)
    }

    /// Removes the first entry without a mark from the queue, and returns its slot and node. The search starts at the
    /// hand and ends after at most one round, because it removes marks on the way.
    fn throw_out(&mut self) -> (u32, NodeId) {
        let from_hand = |hand: u32, oldest: u32| if hand == NONE { oldest } else { hand };
        let mut slot = from_hand(self.hand, self.oldest);
        while self.entries[slot as usize].is_marked {
            self.entries[slot as usize].is_marked = false;
            slot = from_hand(self.entries[slot as usize].newer, self.oldest);
        }
        let QueueEntry { node, newer, older, .. } = self.entries[slot as usize];
        self.hand = newer;
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        (slot, node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference implementation of the paper's algorithm, with linear search.
    struct Paper {
        /// The nodes from old to new, with marks.
        list: Vec<(u32, bool)>,
        hand: usize,
        room: usize,
    }

    impl Paper {
        /// Requests a node and inserts it if it is missing. Returns true on a hit.
        fn ask(&mut self, node: u32) -> bool {
            if let Some(entry) = self.list.iter_mut().find(|entry| entry.0 == node) {
                entry.1 = true;
                return true;
            }
            if self.list.len() == self.room {
                loop {
                    self.hand = if self.hand < self.list.len() { self.hand } else { 0 };
                    if !self.list[self.hand].1 {
                        break;
                    }
                    self.list[self.hand].1 = false;
                    self.hand += 1;
                }
                self.list.remove(self.hand);
                // If the hand was at the newest node, it returns to the oldest one and skips the node that is inserted
                // below.
                self.hand = if self.hand < self.list.len() { self.hand } else { usize::MAX };
            }
            self.list.push((node, false));
            false
        }
    }

    /// Requests a node's row, which is its id, and inserts it if it is missing. Returns true on a hit.
    fn ask(sieve: &Sieve, node: u32) -> bool {
        let mut wanted = vec![NodeId(node)];
        let check = |item: &NodeId, row: &[u8]| assert_eq!(row, item.0.to_le_bytes());
        sieve.find(&mut wanted, |node| *node, check);
        let row = node.to_le_bytes();
        sieve.keep(wanted.iter().map(|node| (*node, &row[..])));
        wanted.is_empty()
    }

    #[test]
    fn hits_equal_those_of_the_reference_implementation() {
        for room in [1, 2, 3, 10, 40] {
            let sieve = Sieve::new(50, 4, room * 4 + 3).unwrap();
            let mut paper = Paper { list: Vec::new(), hand: 0, room };
            let (mut state, mut n_hits) = (1_u64, 0);
            for step in 0..20_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let draw = (state >> 33) as u32;
                // Some nodes are requested more often than others.
                let node = if draw.is_multiple_of(3) { draw / 3 % 50 } else { draw / 3 % 12 };
                let was_there = ask(&sieve, node);
                assert_eq!(was_there, paper.ask(node), "step {step}, room for {room} rows");
                n_hits += u32::from(was_there);
            }
            assert!(0 < n_hits && n_hits < 20_000, "{n_hits} hits, room for {room} rows");
        }
    }

    #[test]
    fn frequently_read_rows_are_not_evicted() {
        let sieve = Sieve::new(1000, 4, 10 * 4).unwrap();
        ask(&sieve, 7);
        for node in 100..900 {
            assert!(ask(&sieve, 7));
            ask(&sieve, node);
        }
    }

    #[test]
    fn new_returns_none_if_no_row_fits() {
        assert!(Sieve::new(10, 4, 3).is_none());
        assert!(Sieve::new(10, 0, 100).is_none());
        assert!(Sieve::new(0, 4, 100).is_none());
    }
}
