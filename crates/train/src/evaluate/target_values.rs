//! Target values and outputs of an evaluation, for files and reports.

use kiln_feature::TargetKind;

use crate::evaluate::evaluation::Evaluation;

/// A target value and the model's output for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetAndOutput {
    /// The target: 1 or 0 for a label, otherwise a number.
    pub target: f32,
    /// The output: a logit for a label, otherwise a number.
    pub output: f32,
}

impl Evaluation {
    /// Returns the targets and the outputs of one column, without missing targets; none for class labels.
    pub fn column(&self, column: usize) -> Vec<TargetAndOutput> {
        let rows = self.values.chunks_exact(self.n_outputs.max(1)).zip(self.rows());
        let pairs = rows.filter_map(|(values, outputs)| {
            let (target, output) = (*values.get(column)?, *outputs.get(column)?);
            (!target.is_nan()).then_some(TargetAndOutput { target, output })
        });
        pairs.collect()
    }

    /// Returns the number of outputs of an item.
    pub fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    /// Returns the content of `test_predictions.csv`.
    pub(crate) fn to_csv(&self) -> String {
        if self.kind() == TargetKind::Links {
            return self.links_to_csv();
        }
        target_values_csv(&self.items, &self.values, &self.outputs, self.n_outputs)
    }
}

/// Returns the CSV text of a run's `test_predictions.csv` for several labels or regression: items with their target
/// values and outputs, `[n_items, n_outputs]` each, sorted by the item's id. A missing target (NaN, or no row) is an
/// empty field.
///
/// # Panics
/// Panics if there is not one row of outputs per item.
pub fn target_values_csv(items: &[u32], targets: &[f32], outputs: &[f32], n_outputs: usize) -> String {
    assert_eq!(outputs.len(), items.len() * n_outputs, "expected one row of {n_outputs} outputs per item");
    let mut csv = String::from("item");
    for name in ["target", "output"] {
        (0..n_outputs).for_each(|column| csv.push_str(&format!(",{name}_{column}")));
    }
    csv.push('\n');
    let missing = vec![f32::NAN; n_outputs];
    let mut rows: Vec<(u32, usize)> = items.iter().copied().zip(0..).collect();
    rows.sort_by_key(|(item, _)| *item);
    for (item, position) in rows {
        let row = position * n_outputs..(position + 1) * n_outputs;
        let targets = targets.get(row.clone()).unwrap_or(&missing);
        csv.push_str(&item.to_string());
        for value in targets.iter().chain(&outputs[row]) {
            let text = if value.is_nan() { String::new() } else { value.to_string() };
            csv.push_str(&format!(",{text}"));
        }
        csv.push('\n');
    }
    csv
}
