use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The metrics of a classifier on a split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// Fraction predicted right; NaN without items.
    pub accuracy: f64,
    /// [`Confusion::f1_micro`].
    pub f1_micro: Option<f64>,
    /// [`Confusion::f1_macro`].
    pub f1_macro: Option<f64>,
    /// [`Evaluation::roc_auc`](crate::Evaluation::roc_auc).
    pub roc_auc: Option<f64>,
}

/// What F1 takes of a confusion matrix: its diagonal and its margins. Those of batches and of ranks add up.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `hits` | `u64` | `n_classes` | class; items of it that were predicted right |
/// | `labelled` | `u64` | `n_classes` | class; items of it |
/// | `predicted` | `u64` | `n_classes` | class; items that were predicted to be of it |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confusion {
    hits: Vec<u64>,
    labelled: Vec<u64>,
    predicted: Vec<u64>,
}

impl Confusion {
    /// Of no items yet.
    pub fn new(n_classes: usize) -> Self {
        let zeros = vec![0; n_classes];
        Self { hits: zeros.clone(), labelled: zeros.clone(), predicted: zeros }
    }

    /// Takes an item.
    ///
    /// # Panics
    /// When one of the two is not a class.
    pub fn add(&mut self, label: u32, predicted: u32) {
        self.hits[label as usize] += u64::from(label == predicted);
        self.labelled[label as usize] += 1;
        self.predicted[predicted as usize] += 1;
    }

    /// Classes, those without items included.
    pub fn n_classes(&self) -> usize {
        self.hits.len()
    }

    /// What the counts say of one class.
    ///
    /// # Panics
    /// When it is not a class.
    pub fn scores(&self, class: u32) -> ClassScores {
        let class = class as usize;
        let (hits, n_labelled, n_predicted) = (self.hits[class], self.labelled[class], self.predicted[class]);
        let share = |of: u64| (0 < of).then(|| hits as f64 / of as f64);
        let (precision, recall) = (share(n_predicted), share(n_labelled));
        ClassScores { n_labelled, n_predicted, precision, recall, f1: f1(hits, n_labelled + n_predicted) }
    }

    /// Fraction predicted right; NaN without items.
    pub fn accuracy(&self) -> f64 {
        let [hits, labelled] = [&self.hits, &self.labelled].map(|counts| counts.iter().sum::<u64>());
        hits as f64 / labelled as f64
    }

    /// F1 of all classes' counts put together: `2 TP / (2 TP + FP + FN)` with sums over the classes. Where
    /// each item has one class and one prediction, every miss is one FP and one FN, and this is the
    /// accuracy. `None` without items.
    pub fn f1_micro(&self) -> Option<f64> {
        let [hits, labelled, predicted] =
            [&self.hits, &self.labelled, &self.predicted].map(|counts| counts.iter().sum::<u64>());
        f1(hits, labelled + predicted)
    }

    /// The mean over the classes of their F1, `2 TP / (2 TP + FP + FN)` (van Rijsbergen 1979, chapter 7,
    /// with equal weights; the mean of F1s, not the F1 of means: Opitz and Burst 2019). Classes that are
    /// neither a label nor a prediction are left out, as scikit-learn's `f1_score(average="macro")` does.
    /// `None` without items.
    pub fn f1_macro(&self) -> Option<f64> {
        let classes = 0..self.n_classes() as u32;
        let of_classes: Vec<f64> = classes.filter_map(|class| self.scores(class).f1).collect();
        (!of_classes.is_empty()).then(|| of_classes.iter().sum::<f64>() / of_classes.len() as f64)
    }
}

impl AddAssign<&Confusion> for Confusion {
    /// # Panics
    /// When the numbers of classes differ.
    fn add_assign(&mut self, other: &Confusion) {
        let (one, two) = (self.hits.len(), other.hits.len());
        assert_eq!(one, two, "the numbers of classes differ");
        let pairs = [
            (&mut self.hits, &other.hits),
            (&mut self.labelled, &other.labelled),
            (&mut self.predicted, &other.predicted),
        ];
        for (sums, counts) in pairs {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
    }
}

/// What a classifier made of one class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassScores {
    /// Items of it.
    pub n_labelled: u64,
    /// Items that were predicted to be of it.
    pub n_predicted: u64,
    /// Fraction right of those predicted; `None` when none was.
    pub precision: Option<f64>,
    /// Fraction right of its items; `None` when it has none.
    pub recall: Option<f64>,
    /// `2 TP / (2 TP + FP + FN)`; `None` when it is neither a label nor a prediction.
    pub f1: Option<f64>,
}

/// A confusion matrix: labels against predictions, with its margins. Only the cells that are not zero are
/// held, so that thousands of classes take no more memory than their items do. Those of batches and of
/// ranks add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix {
    margins: Confusion,
    /// Items by label and prediction; never zero.
    cells: BTreeMap<(u32, u32), u64>,
}

/// A class that was taken for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfusedPair {
    /// The items' class.
    pub label: u32,
    /// What they were predicted to be.
    pub predicted: u32,
    /// How many they are.
    pub n_items: u64,
}

impl ConfusionMatrix {
    /// Of no items yet.
    pub fn new(n_classes: usize) -> Self {
        Self { margins: Confusion::new(n_classes), cells: BTreeMap::new() }
    }

    /// Takes an item.
    ///
    /// # Panics
    /// When one of the two is not a class.
    pub fn add(&mut self, label: u32, predicted: u32) {
        self.margins.add(label, predicted);
        *self.cells.entry((label, predicted)).or_default() += 1;
    }

    /// The counts of each class.
    pub fn margins(&self) -> &Confusion {
        &self.margins
    }

    /// Items of a class that were predicted to be of another, or of the same.
    pub fn count(&self, label: u32, predicted: u32) -> u64 {
        self.cells.get(&(label, predicted)).copied().unwrap_or(0)
    }

    /// The mistakes that were made most often, at most `n_pairs`; among those made as often, in the order
    /// of the labels and then of the predictions.
    pub fn most_confused(&self, n_pairs: usize) -> Vec<ConfusedPair> {
        let mistakes = self.cells.iter().filter(|((label, predicted), _)| label != predicted);
        let mut pairs: Vec<ConfusedPair> = mistakes
            .map(|(&(label, predicted), &n_items)| ConfusedPair { label, predicted, n_items })
            .collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.n_items));
        pairs.truncate(n_pairs);
        pairs
    }
}

impl AddAssign<&ConfusionMatrix> for ConfusionMatrix {
    /// # Panics
    /// When the numbers of classes differ.
    fn add_assign(&mut self, other: &ConfusionMatrix) {
        self.margins += &other.margins;
        for (&pair, n_items) in &other.cells {
            *self.cells.entry(pair).or_default() += n_items;
        }
    }
}

/// `TP + FN` is the class's items and `TP + FP` its predictions, so that the denominator is their sum.
fn f1(hits: u64, labelled_and_predicted: u64) -> Option<f64> {
    (0 < labelled_and_predicted).then(|| 2.0 * hits as f64 / labelled_and_predicted as f64)
}

/// The area under the ROC curve: the probability that a positive's score is above a negative's, a tie
/// counting half. It is `U / (n_positive n_negative)` with the statistic `U` of Mann and Whitney 1947
/// (Hanley and McNeil 1982, section III), counted in whole numbers after one sort.
///
/// `None` without a positive, without a negative, or when a score is NaN.
///
/// # Panics
/// When the lengths differ.
pub fn roc_auc(scores: &[f64], is_positive: &[bool]) -> Option<f64> {
    assert_eq!(scores.len(), is_positive.len(), "one truth a score");
    if scores.iter().any(|score| score.is_nan()) {
        return None;
    }
    let mut ascending: Vec<(f64, bool)> = scores.iter().copied().zip(is_positive.iter().copied()).collect();
    ascending.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let (mut n_positive, mut n_negative, mut twice_u) = (0_u64, 0_u64, 0_u128);
    for tied in ascending.chunk_by(|one, other| one.0 == other.0) {
        let positives = tied.iter().filter(|(_, is_positive)| *is_positive).count() as u64;
        let negatives = tied.len() as u64 - positives;
        // Each positive is above all negatives so far, and half above those that tie.
        twice_u += u128::from(positives) * u128::from(2 * n_negative + negatives);
        n_positive += positives;
        n_negative += negatives;
    }
    let n_pairs = u128::from(n_positive) * u128::from(n_negative);
    (0 < n_pairs).then(|| twice_u as f64 / (2 * n_pairs) as f64)
}
