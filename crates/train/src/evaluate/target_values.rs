//! Target values and outputs of an evaluation, for files and reports.

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

    /// Returns the items with their target values and outputs as CSV text, sorted by the item's id.
    pub(crate) fn to_csv(&self) -> String {
        let mut csv = String::from("item");
        for name in ["target", "output"] {
            (0..self.n_outputs).for_each(|column| csv.push_str(&format!(",{name}_{column}")));
        }
        csv.push('\n');
        let mut rows: Vec<(u32, usize, &[f32])> =
            self.items.iter().zip(self.rows()).enumerate().map(|(i, (&item, row))| (item, i, row)).collect();
        rows.sort_by_key(|(item, ..)| *item);
        for (item, position, outputs) in rows {
            csv.push_str(&item.to_string());
            for value in self.values_of(position).iter().chain(outputs) {
                let text = if value.is_nan() { String::new() } else { value.to_string() };
                csv.push_str(&format!(",{text}"));
            }
            csv.push('\n');
        }
        csv
    }
}
