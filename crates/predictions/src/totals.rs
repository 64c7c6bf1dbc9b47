//! The numbers of items in files of predictions, and the parts of a split.

use std::fmt;
use std::sync::Arc;

use kiln_data::Split;
use kiln_graph::ItemId;
use kiln_store::counted;

/// The number of items without finite outputs that are listed.
const N_LISTED: usize = 5;

/// A part of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SplitPart {
    /// The items that a model is trained on.
    Train,
    /// The items that select the best epoch.
    Validation,
    /// The items that a trained model is evaluated on.
    Test,
    /// The items in no part.
    None,
}

impl SplitPart {
    /// All parts, in the order of [`PredictionTotals::parts`].
    pub const ALL: [Self; 4] = [Self::Train, Self::Validation, Self::Test, Self::None];
}

impl fmt::Display for SplitPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "of the training split",
            Self::Validation => "of the validation split",
            Self::Test => "of the test split",
            Self::None => "in no part of the split",
        })
    }
}

/// The part of each item of a dataset. The default has no item in a part. Clones share the array, 1 byte per item.
///
/// ```
/// use kiln_data::Split;
/// use kiln_graph::NodeId;
/// use kiln_predictions::{SplitPart, SplitParts};
/// let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>().into();
/// let parts = SplitParts::new(4, &Split { train: nodes(&[2]), val: nodes(&[1]), test: nodes(&[0]) });
/// assert_eq!(parts.part(NodeId(2)), SplitPart::Train);
/// assert_eq!(parts.part(NodeId(3)), SplitPart::None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct SplitParts {
    /// The part of each item, by its id.
    of_items: Arc<[SplitPart]>,
}

impl SplitParts {
    /// Returns the parts of `n_items` items. Of an item in several parts, the first counts: training, validation, test.
    /// Ids of the split that are not below `n_items` are ignored.
    pub fn new<I: ItemId>(n_items: usize, split: &Split<I>) -> Self {
        let mut of_items = vec![SplitPart::None; n_items];
        let parts = [
            (SplitPart::Test, &split.test),
            (SplitPart::Validation, &split.val),
            (SplitPart::Train, &split.train),
        ];
        for (part, items) in parts {
            for item in items.iter() {
                if let Some(of_item) = of_items.get_mut(item.get() as usize) {
                    *of_item = part;
                }
            }
        }
        Self { of_items: of_items.into() }
    }

    /// Returns the part of an item.
    pub fn part<I: ItemId>(&self, item: I) -> SplitPart {
        self.of_items.get(item.get() as usize).copied().unwrap_or(SplitPart::None)
    }
}

/// The numbers of labelled items with a finite output and of correct predictions among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartCounts {
    /// The number of items with a label and a predicted class.
    pub n_labelled: u64,
    /// The number of items whose predicted class is their label.
    pub n_hits: u64,
}

/// The numbers of items in files of predictions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PredictionTotals {
    /// The number of items, or of links.
    pub n_items: u64,
    /// The number of items with an output that is not finite, of sources without finite scores, or of links without a
    /// finite score. They count in no metric.
    pub n_non_finite: u64,
    /// The ids of the first items of `n_non_finite`, at most 5.
    pub first_non_finite: Vec<String>,
    /// The counts of each part of the split, in the order of [`SplitPart::ALL`].
    pub parts: [PartCounts; 4],
}

impl PredictionTotals {
    /// Returns the sums over consecutive parts of a request.
    pub fn sum(all: &[Self]) -> Self {
        let mut sum = Self::default();
        for totals in all {
            sum.n_items += totals.n_items;
            sum.n_non_finite += totals.n_non_finite;
            sum.first_non_finite.extend_from_slice(&totals.first_non_finite);
            for (sum, counts) in sum.parts.iter_mut().zip(&totals.parts) {
                sum.n_labelled += counts.n_labelled;
                sum.n_hits += counts.n_hits;
            }
        }
        sum.first_non_finite.truncate(N_LISTED);
        sum
    }

    /// Returns the accuracy of each part that has labelled items, as lines of text.
    pub fn accuracies(&self) -> Vec<String> {
        let parts = SplitPart::ALL.into_iter().zip(self.parts).filter(|(_, counts)| 0 < counts.n_labelled);
        parts
            .map(|(part, PartCounts { n_labelled, n_hits })| {
                let accuracy = n_hits as f64 / n_labelled as f64;
                format!("accuracy {accuracy:.4} on {} {part}", counted(n_labelled, "labelled item"))
            })
            .collect()
    }

    /// Returns a line of text about the items without finite outputs; `None` if all are finite.
    pub fn non_finite_note(&self) -> Option<String> {
        let Self { n_non_finite, first_non_finite, .. } = self;
        let rest = if (first_non_finite.len() as u64) < *n_non_finite { ", …" } else { "" };
        (0 < *n_non_finite).then(|| {
            let ids = first_non_finite.join(", ");
            format!(
                "the outputs of {} are not finite: no class or score, and not counted in metrics ({ids}{rest})",
                counted(*n_non_finite, "item")
            )
        })
    }

    /// Serializes the numbers as `u64`, then the ids as text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut numbers = vec![self.n_items, self.n_non_finite];
        numbers.extend(self.parts.iter().flat_map(|counts| [counts.n_labelled, counts.n_hits]));
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend_from_slice(self.first_non_finite.join("\n").as_bytes());
        bytes
    }

    /// Parses the bytes of [`PredictionTotals::to_bytes`]. Missing bytes stand for 0.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut totals = Self::default();
        let (numbers, ids) = bytes.split_at(bytes.len().min(8 * (2 + 2 * totals.parts.len())));
        let mut numbers = numbers
            .chunks_exact(8)
            .map(|bytes| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)));
        totals.n_items = numbers.next().unwrap_or(0);
        totals.n_non_finite = numbers.next().unwrap_or(0);
        for counts in &mut totals.parts {
            counts.n_labelled = numbers.next().unwrap_or(0);
            counts.n_hits = numbers.next().unwrap_or(0);
        }
        totals.first_non_finite = String::from_utf8_lossy(ids).lines().map(str::to_owned).collect();
        totals
    }

    /// Counts an item without finite outputs; `id` identifies it in [`PredictionTotals::non_finite_note`].
    pub fn add_non_finite(&mut self, id: impl fmt::Display) {
        self.n_non_finite += 1;
        if self.first_non_finite.len() < N_LISTED {
            self.first_non_finite.push(id.to_string());
        }
    }

    /// Counts an item with a label and a predicted class.
    pub(crate) fn add_label(&mut self, part: SplitPart, is_hit: bool) {
        let counts = &mut self.parts[part as usize];
        counts.n_labelled += 1;
        counts.n_hits += u64::from(is_hit);
    }
}

#[cfg(test)]
#[path = "../tests/files/totals.rs"]
mod tests;
