//! An index of keys in memory: a hash table with linear probing.

use crate::hash::{KeyHash, below, mix};

/// The keys of some rows.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    /// 0 if the slot is free, and otherwise the lower half of the hash of a key, and its position plus 1.
    slots: Vec<u64>,
    /// The keys, one after the other.
    text: Vec<u8>,
    /// The end of each key.
    ends: Vec<u32>,
    /// The row of each key.
    rows: Vec<u32>,
    /// The maximum number of keys and the maximum number of bytes of their text.
    max: [usize; 2],
    hash: KeyHash,
}

impl KeyIndex {
    /// Returns the number of bytes of an index of at most this many keys.
    pub(crate) fn bytes(n_keys: u64, text_bytes: u64) -> u64 {
        8 * n_slots(n_keys) + 8 * n_keys + text_bytes
    }

    pub(crate) fn with_capacity(hash: &KeyHash, n_keys: u64, text_bytes: u64) -> Self {
        Self {
            slots: vec![0; n_slots(n_keys) as usize],
            text: Vec::with_capacity(text_bytes as usize),
            ends: Vec::with_capacity(n_keys as usize),
            rows: Vec::with_capacity(n_keys as usize),
            max: [n_keys as usize, text_bytes as usize],
            hash: hash.clone(),
        }
    }

    /// Returns an index for the different keys among these, which may repeat, of at most `room_bytes`.
    pub(crate) fn within(hash: &KeyHash, room_bytes: u64, n_keys: u64, text_bytes: u64) -> Self {
        let bytes = Self::bytes(n_keys, text_bytes);
        if bytes <= room_bytes && text_bytes <= u32::MAX.into() {
            return Self::with_capacity(hash, n_keys, text_bytes);
        }
        // The same share of the keys and of their text. The product of two 64-bit numbers fits 128 bits.
        let room_bytes = room_bytes.saturating_sub(8).min(bytes);
        let share = |n: u64| (u128::from(n) * u128::from(room_bytes) / u128::from(bytes.max(1))) as u64;
        Self::with_capacity(hash, share(n_keys), share(text_bytes).min(u32::MAX.into()))
    }

    /// Adds a key unless the index has it, and returns its first row; `None` if the index is full.
    pub(crate) fn insert(&mut self, key: &[u8], row: u32) -> Option<u32> {
        let hash = self.hash.of(key);
        match self.find(key, hash) {
            Ok(position) => Some(self.rows[position]),
            Err(_) if self.rows.len() == self.max[0] || self.max[1] < self.text.len() + key.len() => None,
            Err(slot) => {
                self.text.extend_from_slice(key);
                self.ends.push(self.text.len() as u32);
                self.rows.push(row);
                self.slots[slot] = hash << 32 | self.rows.len() as u64;
                Some(row)
            }
        }
    }

    /// Returns the row of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<u32> {
        self.find(key, self.hash.of(key)).ok().map(|position| self.rows[position])
    }

    /// Returns the position of a key, or the free slot for it.
    fn find(&self, key: &[u8], hash: u64) -> Result<usize, usize> {
        // The partition of a key follows from the upper bits of its hash, so the slot must not.
        let mut slot = below(mix(hash), self.slots.len());
        loop {
            let found = self.slots[slot];
            if found == 0 {
                return Err(slot);
            }
            let position = (found as u32 - 1) as usize;
            if found >> 32 == hash & u64::from(u32::MAX) && self.key(position) == key {
                return Ok(position);
            }
            slot = if slot + 1 == self.slots.len() { 0 } else { slot + 1 };
        }
    }

    fn key(&self, position: usize) -> &[u8] {
        let start = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[position] as usize]
    }
}

/// Returns the number of slots: one is always free, so that a search ends.
fn n_slots(n_keys: u64) -> u64 {
    n_keys + n_keys / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_each_key_and_its_first_row() {
        let n = 1000;
        let mut index = KeyIndex::with_capacity(&KeyHash::default(), n, 100_000);
        for row in 0..n as u32 {
            assert_eq!(index.insert(format!("key {row}").as_bytes(), row), Some(row));
            assert_eq!(index.insert(b"key 0", row), Some(0));
        }
        for row in 0..n as u32 {
            assert_eq!(index.get(format!("key {row}").as_bytes()), Some(row));
        }
        assert_eq!(index.get(b"key"), None);
        assert_eq!(index.get(b""), None);
        assert_eq!(KeyIndex::with_capacity(&KeyHash::default(), 0, 0).get(b"a"), None);
    }

    #[test]
    fn an_index_within_a_limit_holds_different_keys() {
        let n_rows = 10_000;
        let limit = KeyIndex::bytes(n_rows, 4 * n_rows) / 10;
        let mut index = KeyIndex::within(&KeyHash::default(), limit, n_rows, 4 * n_rows);
        let mut add = |key: u32, row: u32| index.insert(format!("{key:04}").as_bytes(), row);
        for row in 0..n_rows as u32 {
            assert_eq!(add(row % 900, row), Some(row % 900));
        }
        let n_added = (900..2000).take_while(|key| add(*key, *key).is_some()).count();
        assert!((50..=100).contains(&n_added), "{n_added} keys more");
        assert_eq!(add(7, 0), Some(7));
        assert!(KeyIndex::bytes(index.max[0] as u64, index.max[1] as u64) <= limit);
        assert_eq!(KeyIndex::within(&KeyHash::default(), 0, 5, 5).insert(b"a", 0), None);
    }
}
