use crate::excluded::RemovedEdges;

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
