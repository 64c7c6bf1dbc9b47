use kiln_feature::{TargetKind, Targets};
use kiln_graph::ItemId;

use crate::error::Result;
use crate::metric::kind::Metric;
use crate::metric::selection_error::SelectionError;
use crate::metric::stats::MetricStats;

/// The maximum number of items whose targets are read at a time.
const ITEMS_AT_ONCE: usize = 4096;

/// The targets of a split that determine whether a metric can rank models on it: a few items for each class, label or
/// target column, or the numbers of links and of their negatives.
///
/// A metric that has one value for every model, or none, cannot select the best epoch: for example the area under the ROC
/// curve of items of one class, R² of equal targets, or the reciprocal ranks of links without negatives.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitTargets {
    kind: TargetKind,
    n_items: usize,
    n_outputs: usize,
    sample: Sample,
}

/// The sampled targets.
#[derive(Debug, Clone, PartialEq)]
enum Sample {
    /// The classes that occur, in the order of their first items.
    Classes(Vec<i32>),
    /// The target values of items that differ in a column from earlier ones, `[n, n_outputs]`; NaN if missing.
    Values(Vec<f32>),
    /// Links, which differ in nothing that a metric depends on.
    Links,
}

/// The target values of one column that were seen so far.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    first: Option<f32>,
    has_second: bool,
    has_other: bool,
}

impl Seen {
    /// Adds a value, and returns true if no metric could be computed without it.
    fn add(&mut self, value: f32) -> bool {
        if value.is_nan() {
            return false;
        }
        let Some(first) = self.first else {
            self.first = Some(value);
            return true;
        };
        let is_needed = !self.has_second || (value != first && !self.has_other);
        self.has_second = true;
        self.has_other |= value != first;
        is_needed
    }
}

impl SplitTargets {
    /// Reads the targets of the items of a split.
    ///
    /// # Errors
    /// Returns [`Error::Feature`](crate::Error::Feature) for an item without a target.
    pub fn of<I: ItemId>(targets: &Targets<I>, items: &[I]) -> Result<Self> {
        let kind = targets.kind();
        let n_items = items.len();
        let n_outputs = targets.n_outputs();
        let mut classes = Vec::new();
        let mut values = Vec::new();
        let mut has_class = vec![false; if kind == TargetKind::Classes { n_outputs } else { 0 }];
        let mut seen = vec![Seen::default(); if kind == TargetKind::Classes { 0 } else { n_outputs }];
        let mut sampled_classes = Vec::new();
        let mut sampled_values = Vec::new();
        for items in items.chunks(ITEMS_AT_ONCE) {
            targets.gather(items, &mut classes, &mut values)?;
            for &class in &classes {
                if !std::mem::replace(&mut has_class[class as usize], true) {
                    sampled_classes.push(class);
                }
            }
            for row in values.chunks_exact(n_outputs.max(1)) {
                let mut is_needed = false;
                for (seen, &value) in seen.iter_mut().zip(row) {
                    is_needed |= seen.add(value);
                }
                if is_needed {
                    sampled_values.extend_from_slice(row);
                }
            }
        }
        let sample = match kind {
            TargetKind::Classes => Sample::Classes(sampled_classes),
            _ => Sample::Values(sampled_values),
        };
        Ok(Self { kind, n_items, n_outputs, sample })
    }

    /// Returns the targets of a split of links with this number of negatives each.
    pub fn of_links(n_links: usize, n_negatives: usize) -> Self {
        let kind = TargetKind::Links;
        let n_outputs = 1 + n_negatives;
        Self { kind, n_items: n_links, n_outputs, sample: Sample::Links }
    }

    /// Returns the number of items of the split.
    pub fn n_items(&self) -> usize {
        self.n_items
    }

    /// Returns true if the metric has different values for different models on the split. A metric of one's own is assumed to
    /// have.
    ///
    /// # Errors
    /// Returns [`crate::MetricError::OtherMetric`] if the metric is not defined for the targets.
    pub fn can_rank(&self, metric: Metric) -> Result<bool> {
        if let Metric::Custom(_) = metric {
            metric.check(self.kind)?;
            return Ok(true);
        }
        let [good, bad] = self.values_of(metric)?;
        Ok(good.is_some() && bad.is_some() && good != bad)
    }

    /// Checks that the metric has different values for different models on the split.
    ///
    /// # Errors
    /// Returns [`SelectionError::CannotRank`] if it has not, with the metrics that have, and
    /// [`crate::MetricError::OtherMetric`] if it is not defined for the targets.
    pub fn check(&self, metric: Metric) -> Result<()> {
        if self.can_rank(metric)? {
            return Ok(());
        }
        let value =
            self.values_of(metric)?[0].map_or_else(|| "undefined".to_owned(), |value| value.to_string());
        let mut able = Vec::new();
        for other in Metric::of_kind(self.kind) {
            if self.can_rank(other)? {
                able.push(other.name());
            }
        }
        let instead = match (able.is_empty(), self.kind) {
            (true, TargetKind::Links) => "use more negatives per link".to_owned(),
            (true, _) => "no metric can, so use other items for validation, or none".to_owned(),
            (false, _) => format!("use one of {}, or other items for validation", able.join(", ")),
        };
        Err(SelectionError::CannotRank { metric: metric.name(), value, reason: self.reason(), instead }
            .into())
    }

    /// Returns the values of a metric for two models, one of which fits all targets better than the other. A metric whose
    /// values are equal has the same value for every model, because the sample has all that the metric depends on.
    fn values_of(&self, metric: Metric) -> Result<[Option<f64>; 2]> {
        let mut of_models = [None; 2];
        for (is_bad, value) in of_models.iter_mut().enumerate() {
            let mut stats = MetricStats::new(metric, self.kind, self.n_outputs)?;
            // The sign of a logit or of a score: positive if it is right.
            let sign = if is_bad == 0 { 1.0 } else { -1.0 };
            match &self.sample {
                _ if self.n_items == 0 => {}
                Sample::Classes(classes) => {
                    let mut logits = vec![0.0; classes.len() * self.n_outputs];
                    for (row, &class) in logits.chunks_exact_mut(self.n_outputs).zip(classes) {
                        row[class as usize] = sign;
                    }
                    stats.add_classes(classes, &logits);
                }
                Sample::Values(values) if self.kind == TargetKind::MultiLabel => {
                    let logits: Vec<f32> =
                        values.iter().map(|&value| if value > 0.5 { sign } else { -sign }).collect();
                    stats.add_targets(values, &logits);
                }
                Sample::Values(values) => {
                    // Neither model is exact: R² is 1 for exact outputs, also if all targets are equal.
                    let error = |value: f32| (1 + is_bad) as f32 * (value.abs() / 1024.0).max(1.0);
                    let outputs: Vec<f32> = values.iter().map(|&value| value + error(value)).collect();
                    stats.add_targets(values, &outputs);
                }
                Sample::Links => {
                    let mut scores = vec![0.0; self.n_outputs];
                    scores[0] = sign;
                    stats.add_links(&scores);
                }
            }
            *value = stats.value();
        }
        Ok(of_models)
    }

    /// Returns the property of the split that makes metrics equal for all models.
    fn reason(&self) -> String {
        let n_items = self.n_items;
        match &self.sample {
            Sample::Classes(classes) if classes.len() == 1 => {
                format!("whose {n_items} items are all of class {}", classes[0])
            }
            Sample::Classes(classes) => format!("whose {n_items} items are of {} classes", classes.len()),
            Sample::Values(_) if self.kind == TargetKind::Regression => {
                format!("whose {n_items} items have equal targets, or one target")
            }
            Sample::Values(values) if !values.iter().any(|&value| value > 0.5) => {
                format!("none of whose {n_items} items has a label")
            }
            Sample::Values(_) => {
                format!("in whose {n_items} items no label is both present and absent")
            }
            Sample::Links => format!("whose {n_items} links have {} negatives each", self.n_outputs - 1),
        }
    }
}
