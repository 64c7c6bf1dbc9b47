//! Metrics of the order in which scores rank items: the areas under the ROC curve and the precision-recall curve.

/// Returns the area under the ROC curve: the probability that a positive's score is above a negative's, where a tie
/// counts half. It is `U / (n_positive n_negative)` with the statistic `U` of Mann and Whitney 1947 (Hanley and McNeil
/// 1982, section III), computed in integers after one sort.
///
/// Returns `None` without a positive, without a negative, or if a score is NaN.
///
/// # Panics
/// Panics if the lengths differ.
pub fn roc_auc(scores: &[f64], is_positive: &[bool]) -> Option<f64> {
    let ascending = sorted(scores, is_positive)?;
    let mut n_positive = 0_u64;
    let mut n_negative = 0_u64;
    let mut twice_u = 0_u128;
    for tied in ascending.chunk_by(|one, other| one.0 == other.0) {
        let (positives, negatives) = count(tied);
        // Each positive item is above all negatives counted so far. A negative with an equal score counts half.
        twice_u += u128::from(positives) * u128::from(2 * n_negative + negatives);
        n_positive += positives;
        n_negative += negatives;
    }
    let n_pairs = u128::from(n_positive) * u128::from(n_negative);
    (0 < n_pairs).then(|| twice_u as f64 / (2 * n_pairs) as f64)
}

/// Returns the average precision: the sum over the distinct scores, from the largest, of the precision at that score
/// times the increase of the recall (Zhu 2004, section 2; no interpolation). Items with equal scores enter together. It
/// is scikit-learn's `average_precision_score`, also without positives: the value is then 0.
///
/// Returns `None` without items, or if a score is NaN.
///
/// # Panics
/// Panics if the lengths differ.
pub fn average_precision(scores: &[f64], is_positive: &[bool]) -> Option<f64> {
    let ascending = sorted(scores, is_positive)?;
    let n_positive = count(&ascending).0;
    if ascending.is_empty() {
        return None;
    }
    let mut sum = 0.0;
    let mut n_found = 0_u64;
    let mut n_ranked = 0_u64;
    for tied in ascending.chunk_by(|one, other| one.0 == other.0).rev() {
        let (positives, negatives) = count(tied);
        n_found += positives;
        n_ranked += positives + negatives;
        if 0 < positives {
            sum += positives as f64 / n_positive as f64 * (n_found as f64 / n_ranked as f64);
        }
    }
    Some(sum)
}

/// A point of a precision-recall curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrecisionRecall {
    /// The share of the items at or above a score that are positive.
    pub precision: f64,
    /// The share of the positives that are at or above the score.
    pub recall: f64,
}

/// Returns the precision-recall curve: a point for each distinct score, from the largest. Recall never decreases and
/// ends at 1. Empty without positives, or if a score is NaN.
///
/// # Panics
/// Panics if the lengths differ.
pub fn precision_recall_curve(scores: &[f64], is_positive: &[bool]) -> Vec<PrecisionRecall> {
    let ascending = sorted(scores, is_positive).unwrap_or_default();
    let n_positive = count(&ascending).0;
    if n_positive == 0 {
        return Vec::new();
    }
    let mut n_found = 0;
    let mut n_ranked = 0;
    let tied = ascending.chunk_by(|one, other| one.0 == other.0).rev();
    let points = tied.map(|tied| {
        n_found += count(tied).0;
        n_ranked += tied.len() as u64;
        let precision = n_found as f64 / n_ranked as f64;
        PrecisionRecall { precision, recall: n_found as f64 / n_positive as f64 }
    });
    points.collect()
}

/// Returns the mean over the classes of a metric of ranked items, for class labels and logits. A class's positives are
/// the items with this label, and the score is the class's probability. Two classes count as one, class 1. Classes
/// whose metric is undefined are left out; `None` if none is left, or if an output is not finite.
pub(crate) fn mean_over_classes(
    labels: &[i32],
    outputs: &[f32],
    n_classes: usize,
    metric: fn(&[f64], &[bool]) -> Option<f64>,
) -> Option<f64> {
    // Without classes there are no rows, but the chunk length must not be 0.
    let rows = || outputs.chunks_exact(n_classes.max(1));
    // Log-probabilities have the order of the probabilities, but do not round to 1.
    let log_sums: Vec<f64> = rows().map(log_sum_exp).collect();
    let of_class = |class: usize| {
        let scores = rows().zip(&log_sums).map(|(row, log_sum)| f64::from(row[class]) - log_sum);
        let is_positive: Vec<bool> = labels.iter().map(|&label| label as usize == class).collect();
        metric(&scores.collect::<Vec<_>>(), &is_positive)
    };
    if log_sums.iter().any(|log_sum| !log_sum.is_finite()) {
        return None;
    }
    if n_classes == 2 {
        return of_class(1);
    }
    mean((0..n_classes).filter_map(of_class))
}

/// Returns the mean over the labels of a metric of ranked items, for items with several labels. `targets` are 1, 0, or
/// NaN if missing; missing targets are left out, and so are labels whose metric is undefined. `None` if none is left.
pub(crate) fn mean_over_labels(
    targets: &[f32],
    outputs: &[f32],
    n_labels: usize,
    metric: fn(&[f64], &[bool]) -> Option<f64>,
) -> Option<f64> {
    mean((0..n_labels).filter_map(|label| {
        let [targets, outputs] =
            [targets, outputs].map(|values| values.iter().skip(label).step_by(n_labels).copied());
        of_known(targets.zip(outputs), metric)
    }))
}

/// Returns a metric of ranked items over all known labels of all items together, each an item of its own, as
/// scikit-learn's `average="micro"`. `targets` are 1, 0, or NaN if missing. `None` if the metric is undefined.
pub(crate) fn over_all_labels(
    targets: &[f32],
    outputs: &[f32],
    metric: fn(&[f64], &[bool]) -> Option<f64>,
) -> Option<f64> {
    of_known(targets.iter().copied().zip(outputs.iter().copied()), metric)
}

/// Returns a metric of ranked items for all links and all their negatives together. The first of the `n_scores` scores
/// of a link is its own. `None` if the metric is undefined.
pub(crate) fn over_all_links(
    scores: &[f32],
    n_scores: usize,
    metric: fn(&[f64], &[bool]) -> Option<f64>,
) -> Option<f64> {
    let is_link: Vec<bool> = (0..scores.len()).map(|pair| pair.is_multiple_of(n_scores.max(1))).collect();
    let scores: Vec<f64> = scores.iter().map(|&score| f64::from(score)).collect();
    metric(&scores, &is_link)
}

/// Computes a metric of ranked items for pairs of a target and an output, without those whose target is missing.
fn of_known(
    pairs: impl Iterator<Item = (f32, f32)>,
    metric: fn(&[f64], &[bool]) -> Option<f64>,
) -> Option<f64> {
    let known = pairs.filter(|(target, _)| !target.is_nan());
    let (is_positive, scores): (Vec<bool>, Vec<f64>) =
        known.map(|(target, output)| (target > 0.5, f64::from(output))).unzip();
    metric(&scores, &is_positive)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Computes `ln(sum of exp(row))`, with the largest value factored out to avoid overflow.
pub(crate) fn log_sum_exp(row: &[f32]) -> f64 {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    largest + row.iter().map(|&value| (f64::from(value) - largest).exp()).sum::<f64>().ln()
}

/// Returns the pairs of a score and its label with ascending scores; `None` if a score is NaN.
fn sorted(scores: &[f64], is_positive: &[bool]) -> Option<Vec<(f64, bool)>> {
    assert_eq!(scores.len(), is_positive.len(), "expected one label per score");
    if scores.iter().any(|score| score.is_nan()) {
        return None;
    }
    let mut ascending: Vec<(f64, bool)> = scores.iter().copied().zip(is_positive.iter().copied()).collect();
    ascending.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    Some(ascending)
}

/// Returns the numbers of positives and negatives.
fn count(items: &[(f64, bool)]) -> (u64, u64) {
    let n_positive = items.iter().filter(|(_, is_positive)| *is_positive).count() as u64;
    (n_positive, items.len() as u64 - n_positive)
}
