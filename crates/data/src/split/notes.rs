//! Notes on the populations of the parts of a split, which may make a score meaningless.

use std::collections::BTreeMap;
use std::ops::Range;

use kiln_feature::Targets;
use kiln_graph::ItemId;

use super::Split;
use crate::Note;

/// The number of classes that a note lists.
const N_LISTED: usize = 5;

/// The share of one class in an evaluated part from which the part has a note.
const LARGEST_SHARE: f64 = 0.95;

/// The number of items of a part below which one class may have most of them by chance.
const FEW_ITEMS: usize = 20;

/// The number of items that are counted at a time, so that the memory does not grow with the data.
const ITEMS_AT_ONCE: usize = 1 << 26;

impl<I: ItemId> Split<I> {
    /// Returns notes on parts that share items, on items that a part repeats, on classes of an evaluated part that training
    /// lacks, and on an evaluated part of which nearly all items have the same class. The rows of `targets` are the items from
    /// `first` on.
    ///
    /// ```
    /// use kiln_data::{Note, Split};
    /// use kiln_feature::Labels;
    /// use kiln_graph::NodeId;
    /// let split = Split {
    ///     train: vec![NodeId(0), NodeId(1)].into(),
    ///     val: vec![NodeId(1), NodeId(2)].into(),
    ///     ..Split::default()
    /// };
    /// let labels = Labels::new(vec![0, 0, 1], 2);
    /// let notes = split.notes(&labels.into(), 0);
    /// assert_eq!(
    ///     notes.iter().map(Note::to_string).collect::<Vec<_>>(),
    ///     [
    ///         "the train and the val split share 1 node: scores on val do not measure unseen nodes",
    ///         "the val split has 1 node (50.0 %) of classes that no training node has (1): a model cannot predict them",
    ///     ]
    /// );
    /// ```
    pub fn notes(&self, targets: &Targets<I>, first: u32) -> Vec<Note> {
        let mut notes = Vec::new();
        self.note_repetitions(first as usize..first as usize + targets.len(), &mut notes);
        if let Targets::Classes(labels) = targets {
            self.note_classes(
                |item| item.get().checked_sub(first).and_then(|row| labels.get(I::new(row))),
                labels.n_classes(),
                &mut notes,
            );
        }
        notes
    }

    /// Adds a note for each pair of parts that share items, and for each part that repeats items.
    fn note_repetitions(&self, all_items: Range<usize>, notes: &mut Vec<Note>) {
        let pairs = [(0b011, ["train", "val"]), (0b101, ["train", "test"]), (0b110, ["val", "test"])];
        let mut n_in_both = [0; 3];
        let mut n_repeated = [0; 3];
        for first in all_items.clone().step_by(ITEMS_AT_ONCE) {
            let mut parts_of = vec![0_u8; ITEMS_AT_ONCE.min(all_items.end - first)];
            for (part, (_, items)) in self.parts().into_iter().enumerate() {
                for item in items {
                    let position = (item.get() as usize).checked_sub(first);
                    if let Some(parts) = position.and_then(|position| parts_of.get_mut(position)) {
                        n_repeated[part] += usize::from(*parts >> part & 1);
                        *parts |= 1 << part;
                    }
                }
            }
            let mut n_items_of = [0; 8];
            parts_of.iter().for_each(|&parts| n_items_of[usize::from(parts & 7)] += 1);
            for (n, (mask, _)) in n_in_both.iter_mut().zip(pairs) {
                *n +=
                    (0..8).filter(|parts| parts & mask == mask).map(|parts| n_items_of[parts]).sum::<usize>();
            }
        }
        for (n_items, (_, parts)) in n_in_both.into_iter().zip(pairs).filter(|(n, _)| *n > 0) {
            notes.push(Note::SplitsOverlap { item: I::NAME, parts, n_items });
        }
        for (n_repeated, (part, items)) in n_repeated.into_iter().zip(self.parts()).filter(|(n, _)| *n > 0) {
            notes.push(Note::RepeatedItems { item: I::NAME, part, n_repeated, n_all: items.len() });
        }
    }

    /// Adds notes on classes that no training item has, which a model cannot predict, and on a class that nearly all items of
    /// an evaluated part have, so that a constant prediction has nearly the best accuracy.
    fn note_classes(&self, class_of: impl Fn(I) -> Option<u32>, n_classes: usize, notes: &mut Vec<Note>) {
        let [(_, train), evaluated @ ..] = self.parts();
        let in_training = count_classes(train, &class_of);
        for (part, items) in evaluated {
            let counts = count_classes(items, &class_of);
            let n_all = items.len();
            let unknown = || counts.iter().filter(|(class, _)| !in_training.contains_key(class));
            let n_unknown: usize = unknown().map(|(_, count)| count).sum();
            if !train.is_empty() && 0 < n_unknown {
                let classes = unknown().map(|(&class, _)| class).take(N_LISTED).collect();
                notes.push(Note::UntrainedClasses {
                    item: I::NAME,
                    part,
                    n_items: n_unknown,
                    n_all,
                    classes,
                });
            }
            let largest = counts.into_iter().max_by_key(|(_, count)| *count);
            if let Some((class, n_items)) = largest
                && 1 < n_classes
                && FEW_ITEMS <= n_all
                && LARGEST_SHARE * n_all as f64 <= n_items as f64
            {
                notes.push(Note::LargestClass { item: I::NAME, part, class, n_items, n_all });
            }
        }
    }
}

/// Counts the items of each class that occurs. A single large label causes a large number of classes, so the memory does not
/// grow with that number.
fn count_classes<I: ItemId>(items: &[I], class_of: impl Fn(I) -> Option<u32>) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for class in items.iter().filter_map(|item| class_of(*item)) {
        *counts.entry(class as usize).or_default() += 1;
    }
    counts
}
