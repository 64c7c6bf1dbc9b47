use std::sync::{Mutex, MutexGuard, PoisonError};

use kiln_graph::NodeId;

/// No slot.
const NONE: u32 = u32::MAX;

/// Rows of other parts, kept as they come, as many as fit.
///
/// Which one goes when there is no room says SIEVE (Zhang et al. 2024, "SIEVE is Simpler than LRU: an Efficient
/// Turn-Key Eviction Algorithm for Web Caches"): in a queue from new to old, a row that is asked for again stays where it
/// is and is marked; a hand that goes from old to new, and at the end starts anew, takes marks away and throws out the
/// first row without one. So what one batch asks for and no other goes soon, and a hit moves nothing.
///
/// **Memory.** The rows, 16 bytes for each besides, and 4 bytes for each node of the graph; nothing of it moves, as all
/// of its address space is taken at the start, and pages are when they are written.
#[derive(Debug)]
pub(crate) struct Sieve {
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// By node: its slot.
    slots: Vec<u32>,
    queue: Queue,
    /// By slot: its row.
    rows: Vec<u8>,
    row_bytes: usize,
}

impl Sieve {
    /// For so many bytes of rows; `None` where not one fits.
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
        n_slots * (kept.row_bytes + size_of::<Place>()) + kept.slots.len() * size_of::<u32>()
    }

    /// Leaves of `wanted` what is not kept, and gives the other rows to `found`. `node_of` says which node is meant.
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

    /// Keeps these rows.
    pub(crate) fn keep<'a>(&self, rows: impl Iterator<Item = (NodeId, &'a [u8])>) {
        let kept = &mut *self.lock();
        for (node, row) in rows {
            // Another thread may have asked for the same.
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
                // Slots are taken in order until there is none left.
                None => kept.rows.extend_from_slice(row),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The nodes that are kept, from new to old.
#[derive(Debug)]
struct Queue {
    /// By slot.
    places: Vec<Place>,
    newest: u32,
    oldest: u32,
    hand: u32,
    n_slots: usize,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    node: NodeId,
    is_marked: bool,
    newer: u32,
    older: u32,
}

impl Queue {
    fn new(n_slots: usize) -> Self {
        Self { places: Vec::with_capacity(n_slots), newest: NONE, oldest: NONE, hand: NONE, n_slots }
    }

    fn mark(&mut self, slot: u32) {
        self.places[slot as usize].is_marked = true;
    }

    /// Makes a node the newest; its slot, and the node that had to leave it.
    fn enter(&mut self, node: NodeId) -> (u32, Option<NodeId>) {
        let place = Place { node, is_marked: false, newer: NONE, older: NONE };
        let (slot, gone) = match self.places.len() < self.n_slots {
            true => {
                self.places.push(place);
                (self.places.len() as u32 - 1, None)
            }
            false => {
                let (slot, gone) = self.throw_out();
                self.places[slot as usize] = place;
                (slot, Some(gone))
            }
        };
        self.places[slot as usize].older = self.newest;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.places[newest as usize].newer = slot,
        }
        self.newest = slot;
        (slot, gone)
    }

    /// Takes the first place without a mark out of the queue, from the hand on; there is one after a round at most.
    fn throw_out(&mut self) -> (u32, NodeId) {
        let from_hand = |hand: u32, oldest: u32| if hand == NONE { oldest } else { hand };
        let mut slot = from_hand(self.hand, self.oldest);
        while self.places[slot as usize].is_marked {
            self.places[slot as usize].is_marked = false;
            slot = from_hand(self.places[slot as usize].newer, self.oldest);
        }
        let Place { node, newer, older, .. } = self.places[slot as usize];
        self.hand = newer;
        match newer {
            NONE => self.newest = older,
            newer => self.places[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.places[older as usize].newer = newer,
        }
        (slot, node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as its paper has it, with a list that is searched.
    struct Paper {
        /// From old to new, with marks.
        list: Vec<(u32, bool)>,
        hand: usize,
        room: usize,
    }

    impl Paper {
        /// Whether it was there.
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
                // At the newest one's end the hand starts anew, even if a newer one comes now.
                self.hand = if self.hand < self.list.len() { self.hand } else { usize::MAX };
            }
            self.list.push((node, false));
            false
        }
    }

    /// Asks for a node's row, which is its number, and keeps it.
    fn ask(sieve: &Sieve, node: u32) -> bool {
        let mut wanted = vec![NodeId(node)];
        let check = |item: &NodeId, row: &[u8]| assert_eq!(row, item.0.to_le_bytes());
        sieve.find(&mut wanted, |node| *node, check);
        let row = node.to_le_bytes();
        sieve.keep(wanted.iter().map(|node| (*node, &row[..])));
        wanted.is_empty()
    }

    #[test]
    fn it_keeps_what_the_paper_keeps() {
        for room in [1, 2, 3, 10, 40] {
            let sieve = Sieve::new(50, 4, room * 4 + 3).unwrap();
            let mut paper = Paper { list: Vec::new(), hand: 0, room };
            let (mut state, mut n_hits) = (1_u64, 0);
            for step in 0..20_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let draw = (state >> 33) as u32;
                // Some are asked for more often than others.
                let node = if draw.is_multiple_of(3) { draw / 3 % 50 } else { draw / 3 % 12 };
                let was_there = ask(&sieve, node);
                assert_eq!(was_there, paper.ask(node), "{step} of room {room}");
                n_hits += u32::from(was_there);
            }
            assert!(0 < n_hits && n_hits < 20_000, "{n_hits} hits of room {room}");
        }
    }

    #[test]
    fn one_that_is_asked_for_again_stays() {
        let sieve = Sieve::new(1000, 4, 10 * 4).unwrap();
        ask(&sieve, 7);
        for node in 100..900 {
            assert!(ask(&sieve, 7));
            ask(&sieve, node);
        }
    }

    #[test]
    fn there_is_none_without_room() {
        assert!(Sieve::new(10, 4, 3).is_none());
        assert!(Sieve::new(10, 0, 100).is_none());
        assert!(Sieve::new(0, 4, 100).is_none());
    }
}
