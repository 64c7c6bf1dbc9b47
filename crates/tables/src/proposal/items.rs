//! The items of lists, and of texts with a separator.

use std::collections::BTreeMap;

use crate::table::Items;

/// The separators of lists in texts.
const SEPARATORS: [&str; 3] = ["|", ";", ","];

/// The maximum number of different items that are counted, and of their bytes.
const MAX_ITEMS: usize = 64;
const MAX_BYTES: usize = 1 << 13;

/// The items of a column.
#[derive(Debug, Default)]
pub(super) struct ItemCounts {
    /// Those of lists.
    lists: Counts,
    /// The smallest and the largest length of a list.
    lengths: Option<[usize; 2]>,
    /// True if an item is no finite number.
    has_others: bool,
    /// True if an item is no category, or missing.
    has_unreadable: bool,
    /// Those of texts, for each of [`SEPARATORS`].
    texts: [Counts; SEPARATORS.len()],
    /// True if a text is one of a list in Python or JSON.
    has_brackets: bool,
}

#[derive(Debug, Default)]
struct Counts {
    items: BTreeMap<String, u64>,
    n_bytes: usize,
    is_full: bool,
    /// The number of texts with the separator.
    n_separated: u64,
    n_texts: u64,
}

impl Counts {
    fn add(&mut self, item: &str) {
        if self.is_full {
            return;
        }
        if let Some(n) = self.items.get_mut(item) {
            *n += 1;
            return;
        }
        self.n_bytes += item.len();
        self.is_full = self.items.len() == MAX_ITEMS || MAX_BYTES < self.n_bytes;
        match self.is_full {
            true => self.items.clear(),
            false => drop(self.items.insert(item.to_owned(), 1)),
        }
    }
}

impl ItemCounts {
    pub(super) fn add_list(&mut self, items: &Items<'_>, buffer: &mut String) {
        let n = items.len();
        let [least, most] = self.lengths.unwrap_or([n; 2]);
        self.lengths = Some([least.min(n), most.max(n)]);
        if self.lists.is_full && self.has_others {
            return;
        }
        for position in 0..n {
            let item = items.cell(position);
            let number = crate::transform::number(&item).ok().flatten();
            self.has_others |= number.is_none();
            // Vectors have many numbers, whose texts need not be written after the first ones.
            if self.lists.is_full {
                continue;
            }
            match item.text(buffer) {
                Ok(Some(text)) => self.lists.add(text),
                Ok(None) => {}
                Err(_) => self.has_unreadable = true,
            }
        }
    }

    pub(super) fn add_text(&mut self, text: &str) {
        self.has_brackets |= text.trim_start().starts_with('[');
        for (separator, counts) in SEPARATORS.iter().zip(&mut self.texts) {
            counts.n_texts += 1;
            counts.n_separated += u64::from(text.contains(separator));
            // A text of a sentence fills the list of items soon.
            if !counts.is_full {
                text.split(separator).for_each(|item| counts.add(item.trim()));
            }
        }
    }

    /// Returns the length of lists of numbers, if all have the same.
    pub(super) fn vector_length(&self) -> Option<usize> {
        let [least, most] = self.lengths?;
        (least == most && least > 0 && !self.has_others).then_some(least)
    }

    /// Returns the lists of the column with the rows of each item, if they have few different ones: of lists, or of texts with a
    /// separator that every second text has.
    pub(super) fn list_items(&self) -> Option<(Option<&'static str>, &BTreeMap<String, u64>)> {
        if self.lengths.is_some() {
            let is_list = !self.lists.is_full && !self.has_unreadable && !self.lists.items.is_empty();
            return is_list.then_some((None, &self.lists.items));
        }
        let found = SEPARATORS.iter().zip(&self.texts).find(|(_, counts)| {
            !counts.is_full && counts.n_texts <= 2 * counts.n_separated && counts.n_separated > 0
        });
        let (separator, counts) = found.filter(|_| !self.has_brackets)?;
        // Items that occur once are no categories.
        let n_items = counts.items.values().sum::<u64>();
        (2 * counts.items.len() as u64 <= n_items).then_some((Some(*separator), &counts.items))
    }
}
