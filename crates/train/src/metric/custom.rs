use std::fmt;
use std::hash::{Hash, Hasher};

use kiln_feature::TargetKind;

/// A metric of one's own. It selects the best epoch, ends the patience, and is in the summary and the report, as the built-in
/// ones are. It converts to a [`Metric`](crate::Metric).
///
/// Rank 0 gets the outputs of all items that the ranks have evaluated, as for the area under the ROC curve, and all ranks get its
/// value. All outputs are in its memory then, with 4 bytes each.
///
/// ```
/// use kiln_feature::TargetKind;
/// use kiln_train::{CustomMetric, Metric, MetricItems};
/// /// The share of items whose class is among the `k` largest outputs.
/// struct TopK {
///     k: usize,
/// }
/// impl CustomMetric for TopK {
///     fn name(&self) -> &str {
///         "top-k"
///     }
///     fn target_kind(&self) -> TargetKind {
///         TargetKind::Classes
///     }
///     fn value(&self, items: &MetricItems<'_>) -> Option<f64> {
///         let mut n_hits = 0;
///         for (row, &class) in items.rows().zip(items.classes) {
///             let n_above = row.iter().filter(|&&output| row[class as usize] < output).count();
///             n_hits += usize::from(n_above < self.k);
///         }
///         (0 < items.n_items).then(|| n_hits as f64 / items.n_items as f64)
///     }
/// }
/// let metric = Metric::from(TopK { k: 2 });
/// assert_eq!(metric.name(), "top-k");
/// assert!(metric.is_better(Some(0.5), Some(0.4)));
/// ```
pub trait CustomMetric: Send + Sync {
    /// Returns the name, by which files and messages name the metric: letters, digits and `-_.@+`, and not the name of a built-in
    /// metric. A run by a metric of another name does not resume it.
    fn name(&self) -> &str;

    /// Returns the kind of targets for which the metric is defined.
    fn target_kind(&self) -> TargetKind;

    /// Returns true if larger values are better, which is the default, and false for errors.
    fn higher_is_better(&self) -> bool {
        true
    }

    /// Computes the metric of the items of a split; `None` if it is undefined. The order of the items depends on the ranks.
    fn value(&self, items: &MetricItems<'_>) -> Option<f64>;
}

/// The items of a split for a metric of one's own: their targets and the model's outputs, without items whose outputs are not
/// finite.
#[derive(Debug, Clone, Copy)]
pub struct MetricItems<'a> {
    /// The number of items.
    pub n_items: usize,
    /// The number of outputs of an item; for links 1 plus the number of negatives.
    pub n_outputs: usize,
    /// The class of each item, `[n_items]`; empty for other targets.
    pub classes: &'a [i32],
    /// The target values, `[n_items, n_outputs]`, row-major: 1 or 0 for labels, or numbers, NaN if missing. Empty for classes and
    /// links.
    pub values: &'a [f32],
    /// The outputs, `[n_items, n_outputs]`, row-major: logits of classes and labels, numbers in the units of the targets, or the
    /// score of a link and the scores of its negatives.
    pub outputs: &'a [f32],
}

impl<'a> MetricItems<'a> {
    /// Iterates over the outputs of each item, `[n_outputs]`.
    ///
    /// ```
    /// let outputs = &[0.5, 1.5, -1.0, 2.0][..];
    /// let items = kiln_train::MetricItems { n_items: 2, n_outputs: 2, classes: &[0, 1], values: &[], outputs };
    /// assert_eq!(items.rows().collect::<Vec<_>>(), [[0.5, 1.5], [-1.0, 2.0]]);
    /// ```
    pub fn rows(&self) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        self.outputs.chunks_exact(self.n_outputs.max(1))
    }

    /// Iterates over the target values of each item, `[n_outputs]`; none for classes and links.
    ///
    /// ```
    /// let items = kiln_train::MetricItems { n_items: 2, n_outputs: 1, classes: &[], values: &[1.0, 2.0], outputs: &[1.5, 1.5] };
    /// let error: f32 = items.rows().zip(items.target_rows()).map(|(row, target)| (row[0] - target[0]).abs()).sum();
    /// assert_eq!(error, 1.0);
    /// ```
    pub fn target_rows(&self) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        self.values.chunks_exact(self.n_outputs.max(1))
    }
}

/// A reference to a metric of one's own. References of equal names and directions are equal.
#[derive(Clone, Copy)]
pub struct MetricRef(&'static dyn CustomMetric);

impl MetricRef {
    /// Returns the metric.
    pub fn get(self) -> &'static dyn CustomMetric {
        self.0
    }

    /// Keeps the metric for the rest of the process, so that references to it are small values that are copied.
    pub(crate) fn keep(metric: impl CustomMetric + 'static) -> Self {
        Self(Box::leak(Box::new(metric)))
    }

    /// Returns true if the name is a word, as names of metrics in files are.
    pub(crate) fn is_named_by_word(self) -> bool {
        let name = self.0.name();
        !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || "-_.@+".contains(letter))
    }
}

impl PartialEq for MetricRef {
    fn eq(&self, other: &Self) -> bool {
        (self.0.name(), self.0.higher_is_better()) == (other.0.name(), other.0.higher_is_better())
    }
}

impl Eq for MetricRef {}

impl Hash for MetricRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

impl fmt::Debug for MetricRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.name(), f)
    }
}

/// A metric of one's own that a file names. Its values are in the file; it cannot compute others.
pub(crate) struct RecordedMetric {
    pub(crate) name: String,
    pub(crate) higher_is_better: bool,
    pub(crate) target_kind: TargetKind,
}

impl CustomMetric for RecordedMetric {
    fn name(&self) -> &str {
        &self.name
    }

    fn target_kind(&self) -> TargetKind {
        self.target_kind
    }

    fn higher_is_better(&self) -> bool {
        self.higher_is_better
    }

    fn value(&self, _: &MetricItems<'_>) -> Option<f64> {
        None
    }
}
