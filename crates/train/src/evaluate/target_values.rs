//! Target values and outputs of an evaluation, for files and reports.

use kiln_feature::TargetKind;
use kiln_store::csv::finite;

use crate::evaluate::evaluation::Evaluation;
use crate::run::item_columns::ItemColumns;

/// A target value and the model's output for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetAndOutput {
    /// The target: 1 or 0 for a label, otherwise a number.
    pub target: f32,
    /// The output: a logit for a label, otherwise a number.
    pub output: f32,
}

impl Evaluation {
    /// Returns the targets and the outputs of one column, without missing targets and without items whose outputs are not
    /// finite; none for class labels.
    pub fn column(&self, column: usize) -> Vec<TargetAndOutput> {
        let rows = self.values.chunks_exact(self.n_outputs.max(1)).zip(self.rows());
        let rows = rows.filter(|(_, outputs)| self.has_prediction(outputs));
        let pairs = rows.filter_map(|(values, outputs)| {
            let target = *values.get(column)?;
            let output = *outputs.get(column)?;
            (!target.is_nan()).then_some(TargetAndOutput { target, output })
        });
        pairs.collect()
    }

    /// Returns the number of outputs of an item.
    pub fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    /// Returns the content of `test_predictions.csv`, in which `columns` follow the item.
    pub(crate) fn to_csv(&self, columns: Option<&ItemColumns>) -> String {
        match self.kind() {
            TargetKind::Links => self.links_to_csv(columns),
            TargetKind::Classes | TargetKind::MultiLabel | TargetKind::Regression => {
                self.target_values_to_csv(columns)
            }
        }
    }

    /// Returns the CSV text of a run's `test_predictions.csv` for several labels or regression: items with their target
    /// values and outputs, sorted by the item's id.
    fn target_values_to_csv(&self, columns: Option<&ItemColumns>) -> String {
        let n_outputs = self.n_outputs;
        let mut csv = "item".to_owned();
        columns.into_iter().for_each(|columns| columns.push_header(&mut csv));
        push_target_columns(&mut csv, n_outputs);
        let mut rows: Vec<(u32, usize)> = self.items.iter().copied().zip(0..).collect();
        rows.sort_by_key(|(item, _)| *item);
        for (item, position) in rows {
            let row = position * n_outputs..(position + 1) * n_outputs;
            csv.push_str(&item.to_string());
            columns.into_iter().for_each(|columns| columns.push_fields(&mut csv, item));
            push_target_fields(&mut csv, &self.values[row.clone()], &self.outputs[row]);
        }
        csv
    }
}

/// Appends the columns of target values and outputs to the first line of a CSV file such as `test_predictions.csv`, and
/// ends the line.
pub fn push_target_columns(csv: &mut String, n_outputs: usize) {
    for name in ["target", "output"] {
        (0..n_outputs).for_each(|column| csv.push_str(&format!(",{name}_{column}")));
    }
    csv.push('\n');
}

/// Appends the target values and outputs of an item, `[n_outputs]` each, to its line, and ends the line. A missing target
/// (NaN) and an output that is not finite are empty fields.
pub fn push_target_fields(csv: &mut String, targets: &[f32], outputs: &[f32]) {
    for &value in targets.iter().chain(outputs) {
        csv.push_str(&format!(",{}", finite(Some(value))));
    }
    csv.push('\n');
}
