use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The metrics of a classifier on a split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// The fraction of correct predictions; NaN without items.
    pub accuracy: f64,
    /// The value of [`Confusion::f1_micro`].
    pub f1_micro: Option<f64>,
    /// The value of [`Confusion::f1_macro`].
    pub f1_macro: Option<f64>,
    /// The value of [`Evaluation::roc_auc`](crate::Evaluation::roc_auc).
    pub roc_auc: Option<f64>,
}

/// The diagonal and the margins of a confusion matrix, from which F1 is computed. Values of batches and of ranks can be
/// added.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `hits` | `u64` | `n_classes` | class; its correctly predicted items |
/// | `labelled` | `u64` | `n_classes` | class; the items with this label |
/// | `predicted` | `u64` | `n_classes` | class; the items with this prediction |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confusion {
    hits: Vec<u64>,
    labelled: Vec<u64>,
    predicted: Vec<u64>,
}

impl Confusion {
    /// Creates the counts of `n_classes` classes, all 0.
    pub fn new(n_classes: usize) -> Self {
        let zeros = vec![0; n_classes];
        Self { hits: zeros.clone(), labelled: zeros.clone(), predicted: zeros }
    }

    /// Adds an item.
    ///
    /// # Panics
    /// Panics if `label` or `predicted` is not below the number of classes.
    pub fn add(&mut self, label: u32, predicted: u32) {
        self.hits[label as usize] += u64::from(label == predicted);
        self.labelled[label as usize] += 1;
        self.predicted[predicted as usize] += 1;
    }

    /// Counts one label of an item with several labels.
    pub(crate) fn add_label(&mut self, label: usize, has_label: bool, is_predicted: bool) {
        self.hits[label] += u64::from(has_label && is_predicted);
        self.labelled[label] += u64::from(has_label);
        self.predicted[label] += u64::from(is_predicted);
    }

    /// Encodes the counts as 64-bit words.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        [&self.hits[..], &self.labelled, &self.predicted].concat()
    }

    /// Decodes the words of [`Confusion::to_words`] for `n_classes` classes.
    pub(crate) fn from_words(words: &[u64], n_classes: usize) -> Self {
        let [hits, labelled, predicted] =
            [0, 1, 2].map(|i| words[i * n_classes..(i + 1) * n_classes].to_vec());
        Self { hits, labelled, predicted }
    }

    /// Returns the number of classes, including those without items.
    pub fn n_classes(&self) -> usize {
        self.hits.len()
    }

    /// Returns the scores of one class.
    ///
    /// # Panics
    /// Panics if `class` is not below the number of classes.
    pub fn scores(&self, class: u32) -> ClassScores {
        let class = class as usize;
        let hits = self.hits[class];
        let n_labelled = self.labelled[class];
        let n_predicted = self.predicted[class];
        let share = |of: u64| (0 < of).then(|| hits as f64 / of as f64);
        let precision = share(n_predicted);
        let recall = share(n_labelled);
        ClassScores { n_labelled, n_predicted, precision, recall, f1: f1(hits, n_labelled + n_predicted) }
    }

    /// Returns the fraction of correct predictions; NaN without items.
    pub fn accuracy(&self) -> f64 {
        let [hits, labelled] = [&self.hits, &self.labelled].map(|counts| counts.iter().sum::<u64>());
        hits as f64 / labelled as f64
    }

    /// Returns the F1 score of the summed counts: `2 TP / (2 TP + FP + FN)` with sums over the classes. It equals the
    /// accuracy, because each item has one label and one prediction, so that every miss is one FP and one FN. `None`
    /// without items.
    pub fn f1_micro(&self) -> Option<f64> {
        let [hits, labelled, predicted] =
            [&self.hits, &self.labelled, &self.predicted].map(|counts| counts.iter().sum::<u64>());
        f1(hits, labelled + predicted)
    }

    /// Returns the mean of the F1 scores of the classes, `2 TP / (2 TP + FP + FN)` (van Rijsbergen 1979, chapter 7,
    /// with equal weights; the mean of F1s, not the F1 of means: Opitz and Burst 2019). Classes with neither labels nor
    /// predictions are left out, as in scikit-learn's `f1_score(average="macro")`. `None` without items.
    pub fn f1_macro(&self) -> Option<f64> {
        let classes = 0..self.n_classes() as u32;
        let of_classes: Vec<f64> = classes.filter_map(|class| self.scores(class).f1).collect();
        (!of_classes.is_empty()).then(|| of_classes.iter().sum::<f64>() / of_classes.len() as f64)
    }
}

impl AddAssign<&Confusion> for Confusion {
    /// Adds the counts of other items.
    ///
    /// # Panics
    /// Panics if the numbers of classes differ.
    fn add_assign(&mut self, other: &Confusion) {
        let one = self.hits.len();
        let two = other.hits.len();
        assert_eq!(one, two, "the numbers of classes should be equal");
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

/// The scores of one class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassScores {
    /// The number of items with this label.
    pub n_labelled: u64,
    /// The number of items with this prediction.
    pub n_predicted: u64,
    /// The fraction of the predictions that are correct; `None` without predictions.
    pub precision: Option<f64>,
    /// The fraction of the items with this label that are predicted to have it; `None` without such items.
    pub recall: Option<f64>,
    /// The F1 score, `2 TP / (2 TP + FP + FN)`; `None` if the class has neither items nor predictions.
    pub f1: Option<f64>,
}

/// A confusion matrix (labels against predictions) and its margins. Only nonzero cells are stored, so the memory
/// depends on the items and not on the square of the number of classes. Values of batches and of ranks can be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix {
    margins: Confusion,
    /// The number of items for each pair of a label and a prediction that occurs.
    cells: BTreeMap<(u32, u32), u64>,
}

/// A label and another class that items with this label were predicted to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfusedPair {
    /// The items' label.
    pub label: u32,
    /// The predicted class.
    pub predicted: u32,
    /// The number of items with this label and this prediction.
    pub n_items: u64,
}

impl ConfusionMatrix {
    /// Creates a matrix without items.
    pub fn new(n_classes: usize) -> Self {
        Self { margins: Confusion::new(n_classes), cells: BTreeMap::new() }
    }

    /// Adds an item.
    ///
    /// # Panics
    /// Panics if `label` or `predicted` is not below the number of classes.
    pub fn add(&mut self, label: u32, predicted: u32) {
        self.margins.add(label, predicted);
        *self.cells.entry((label, predicted)).or_default() += 1;
    }

    /// Returns the counts per class: the diagonal and the margins of the matrix.
    pub fn margins(&self) -> &Confusion {
        &self.margins
    }

    /// Returns the number of items with this label and this prediction.
    pub fn count(&self, label: u32, predicted: u32) -> u64 {
        self.cells.get(&(label, predicted)).copied().unwrap_or(0)
    }

    /// Returns the `n_pairs` most frequent mistakes, most frequent first; ties are ordered by label, then by
    /// prediction.
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
    /// Adds the counts of other items.
    ///
    /// # Panics
    /// Panics if the numbers of classes differ.
    fn add_assign(&mut self, other: &ConfusionMatrix) {
        self.margins += &other.margins;
        for (&pair, n_items) in &other.cells {
            *self.cells.entry(pair).or_default() += n_items;
        }
    }
}

/// Computes the F1 score of a class. The denominator is the sum of the class's items (`TP + FN`) and its predictions
/// (`TP + FP`). Returns `None` if the denominator is 0.
fn f1(hits: u64, labelled_and_predicted: u64) -> Option<f64> {
    (0 < labelled_and_predicted).then(|| 2.0 * hits as f64 / labelled_and_predicted as f64)
}
