//! Ids of the rows of a table: the positions among the rows that are not dropped.

/// A set of rows of a table, such as those that are dropped.
#[derive(Debug, Default)]
pub(crate) struct RowSet {
    /// A bit per row; 1 if it is in the set. Words after the last row of the set may be absent.
    words: Vec<u64>,
    n_rows: u64,
}

/// The ids of the rows of a table.
#[derive(Debug)]
pub(crate) struct RowIds {
    n_rows: u32,
    dropped: RowSet,
    /// The number of dropped rows before each word of 64 rows.
    before: Vec<u32>,
}

impl RowSet {
    pub(crate) fn insert(&mut self, row: u32) {
        let word = row as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let bit = 1 << (row % 64);
        self.n_rows += u64::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    pub(crate) fn contains(&self, row: u32) -> bool {
        self.words.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }
}

impl RowIds {
    pub(crate) fn new(n_rows: u32, dropped: RowSet) -> Self {
        let mut n_before = 0;
        let before = dropped.words.iter().map(|word| {
            n_before += word.count_ones();
            n_before - word.count_ones()
        });
        let before = before.collect();
        Self { n_rows, dropped, before }
    }

    pub(crate) fn n_ids(&self) -> usize {
        (u64::from(self.n_rows) - self.dropped.n_rows) as usize
    }

    pub(crate) fn n_rows(&self) -> u32 {
        self.n_rows
    }

    /// Returns the id of a row; `None` if it is dropped.
    pub(crate) fn id_of(&self, row: u32) -> Option<u32> {
        let word = row as usize / 64;
        match (self.dropped.words.get(word), self.before.get(word)) {
            (Some(bits), Some(before)) => {
                let n_dropped = before + (bits & ((1 << (row % 64)) - 1)).count_ones();
                (bits >> (row % 64) & 1 == 0).then(|| row - n_dropped)
            }
            _ => Some(row - self.dropped.n_rows as u32),
        }
    }

    pub(crate) fn is_dropped(&self, row: u32) -> bool {
        self.dropped.contains(row)
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        (8 * self.dropped.words.capacity() + 4 * self.before.capacity()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_skip_dropped_rows() {
        let mut dropped = RowSet::default();
        let rows = [0, 5, 63, 64, 130, 130];
        rows.into_iter().for_each(|row| dropped.insert(row));
        let ids = RowIds::new(300, dropped);
        assert_eq!(ids.n_ids(), 295);
        let mut next = 0;
        for row in 0..300 {
            let expected = (!rows.contains(&row)).then_some(next);
            assert_eq!(ids.id_of(row), expected, "row {row}");
            next += u32::from(expected.is_some());
        }
        assert_eq!(RowIds::new(3, RowSet::default()).id_of(2), Some(2));
    }
}
