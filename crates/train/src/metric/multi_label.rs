use std::ops::AddAssign;

use crate::metric::confusion::Confusion;

/// The counts of true and predicted labels of items with several labels, from which F1 and the subset accuracy are
/// computed. Values of batches and of ranks can be added. Missing labels are not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultiLabelCounts {
    /// For each label, the items that have it, that are predicted to have it, and both.
    labels: Confusion,
    /// For each label, the items whose target for it is known.
    n_known: Vec<u64>,
    /// The items whose known labels are all predicted correctly.
    n_correct: u64,
    /// The items with at least one known label.
    n_items: u64,
}

impl MultiLabelCounts {
    /// Creates the counts of `n_labels` labels, all 0.
    pub fn new(n_labels: usize) -> Self {
        Self { labels: Confusion::new(n_labels), n_known: vec![0; n_labels], n_correct: 0, n_items: 0 }
    }

    /// Adds an item with these targets (1, 0, or NaN if missing) and outputs. An output above 0, that is, a probability
    /// above 1/2, predicts the label.
    ///
    /// # Panics
    /// Panics if the lengths differ from the number of labels.
    pub fn add(&mut self, targets: &[f32], outputs: &[f32]) {
        let n_labels = self.n_known.len();
        assert!(
            targets.len() == n_labels && outputs.len() == n_labels,
            "an item has {} targets and {} outputs, expected {n_labels}",
            targets.len(),
            outputs.len()
        );
        let mut is_known = false;
        let mut is_correct = true;
        for (label, (&target, &output)) in targets.iter().zip(outputs).enumerate() {
            if target.is_nan() {
                continue;
            }
            let has_label = target > 0.5;
            let is_predicted = output > 0.0;
            self.labels.add_label(label, has_label, is_predicted);
            self.n_known[label] += 1;
            is_known = true;
            is_correct &= has_label == is_predicted;
        }
        self.n_items += u64::from(is_known);
        self.n_correct += u64::from(is_known && is_correct);
    }

    /// Returns the number of items with at least one known label.
    pub fn n_items(&self) -> u64 {
        self.n_items
    }

    /// Returns the number of items whose known labels are all predicted correctly.
    pub fn n_correct(&self) -> u64 {
        self.n_correct
    }

    /// Returns the counts per label; its accuracy has no meaning for several labels.
    pub fn labels(&self) -> &Confusion {
        &self.labels
    }

    /// Returns the subset accuracy: the fraction of items whose known labels are all predicted correctly. `None`
    /// without items.
    pub fn accuracy(&self) -> Option<f64> {
        (0 < self.n_items).then(|| self.n_correct as f64 / self.n_items as f64)
    }

    /// Returns the F1 score of the counts summed over the labels. It is 0 without true and predicted labels, as in
    /// scikit-learn, and `None` without items.
    pub fn f1_micro(&self) -> Option<f64> {
        (0 < self.n_items).then(|| self.labels.f1_micro().unwrap_or(0.0))
    }

    /// Returns the mean of the F1 scores of the labels. As in scikit-learn, the score of a label that is neither true
    /// nor predicted is 0. Labels whose targets are all missing are left out; `None` without items.
    pub fn f1_macro(&self) -> Option<f64> {
        let known = (0_u32..).zip(&self.n_known).filter(|(_, n_known)| 0 < **n_known);
        let scores: Vec<f64> = known.map(|(label, _)| self.labels.scores(label).f1.unwrap_or(0.0)).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }

    /// Encodes the counts as 64-bit words.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        [&[self.n_correct, self.n_items], &self.n_known[..], &self.labels.to_words()].concat()
    }

    /// Decodes the words of [`MultiLabelCounts::to_words`] for `n_labels` labels.
    pub(crate) fn from_words(words: &[u64], n_labels: usize) -> Self {
        let (n_known, labels) = words[2..].split_at(n_labels);
        let labels = Confusion::from_words(labels, n_labels);
        Self { labels, n_known: n_known.to_vec(), n_correct: words[0], n_items: words[1] }
    }
}

impl AddAssign<&MultiLabelCounts> for MultiLabelCounts {
    /// Adds the counts of other items.
    ///
    /// # Panics
    /// Panics if the numbers of labels differ.
    fn add_assign(&mut self, other: &MultiLabelCounts) {
        self.labels += &other.labels;
        for (sum, n_known) in self.n_known.iter_mut().zip(&other.n_known) {
            *sum += n_known;
        }
        self.n_correct += other.n_correct;
        self.n_items += other.n_items;
    }
}
