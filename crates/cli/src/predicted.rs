//! The files of `kiln predict`, as text.

use std::fmt::Write as _;

use kiln::data::NodeNames;
use kiln::feature::Targets;
use kiln::graph::{ItemId, NodeId};
use kiln::prelude::SavedModel;
use kiln::train::{OutputRows, target_values_csv};

/// The predicted items, their names and targets, and the outputs of the model.
pub(crate) struct Predicted<'a> {
    pub(crate) items: Vec<u32>,
    /// The label of each item, if it has one.
    labels: Vec<Option<u32>>,
    /// The target values of the items, `[n_items, n_outputs]`, NaN if missing. Empty for data with class labels.
    target_values: Vec<f32>,
    names: Option<&'a NodeNames>,
    pub(crate) scores: OutputRows,
    pub(crate) embeddings: Option<OutputRows>,
}

impl<'a> Predicted<'a> {
    pub(crate) fn new<I: ItemId>(
        items: &[I],
        targets: &Targets<I>,
        names: Option<&'a NodeNames>,
        scores: OutputRows,
        embeddings: Option<OutputRows>,
    ) -> Self {
        let label = |item: &I| match targets {
            Targets::Classes(labels) => labels.get(*item),
            Targets::Values(_) => None,
        };
        let mut target_values = Vec::new();
        if matches!(targets, Targets::Values(_)) {
            let (mut classes, mut row) = (Vec::new(), Vec::new());
            for item in items {
                // An item without a target is predicted, too.
                if targets.gather(std::slice::from_ref(item), &mut classes, &mut row).is_err() {
                    row = vec![f32::NAN; targets.n_outputs()];
                }
                target_values.extend_from_slice(&row);
            }
        }
        let labels = items.iter().map(label).collect();
        Self {
            items: items.iter().map(|item| item.get()).collect(),
            labels,
            target_values,
            names,
            scores,
            embeddings,
        }
    }

    /// Returns the accuracy on the labelled items and their number; `None` if no item has a label.
    pub(crate) fn accuracy(&self, classes: &[u32]) -> Option<(f64, usize)> {
        let labelled = self.labels.iter().zip(classes).filter(|(label, _)| label.is_some());
        let (n_labelled, n_hits) = labelled
            .fold((0, 0), |(n, hits), (label, class)| (n + 1, hits + usize::from(*label == Some(*class))));
        (0 < n_labelled).then(|| (n_hits as f64 / n_labelled as f64, n_labelled))
    }

    /// Returns the content of `predictions.csv` for classes: the format and the order of a run's
    /// `test_predictions.csv`. Items without a label have an empty field.
    pub(crate) fn predictions_csv(&self, classes: &[u32]) -> String {
        let mut csv = String::from("item,label,predicted\n");
        for row in self.by_item() {
            let label = self.labels[row].map(|label| label.to_string()).unwrap_or_default();
            let _ = writeln!(csv, "{},{label},{}", self.items[row], classes[row]);
        }
        csv
    }

    /// Returns the content of `predictions.csv` for several labels or regression: the format and the order of a run's
    /// `test_predictions.csv`. Missing targets are empty fields.
    pub(crate) fn targets_csv(&self) -> String {
        target_values_csv(&self.items, &self.target_values, self.scores.values(), self.scores.width())
    }

    /// Returns the content of `classes.csv`, in the order of the request: the predicted class with its name and its
    /// probability.
    pub(crate) fn classes_csv(&self, classes: &[u32], model: &SavedModel) -> String {
        let mut csv = String::from("item,name,class,class_name,probability\n");
        let rows = self.items.iter().zip(classes).zip(self.scores.confidences());
        for ((&item, &class), probability) in rows {
            let name = self.names.and_then(|names| names.get(NodeId(item))).unwrap_or_default();
            let class_name = model.class_name(class).unwrap_or_default();
            let _ = writeln!(csv, "{item},{},{class},{},{probability}", quoted(name), quoted(class_name));
        }
        csv
    }

    /// Returns the rows in the order of the items' ids.
    fn by_item(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.items.len()).collect();
        order.sort_by_key(|&row| self.items[row]);
        order
    }
}

/// Returns rows as text: the id of an item, then its values, which are read back to the same f32.
pub(crate) fn rows_csv(items: &[u32], rows: &OutputRows) -> String {
    let mut csv = String::from("item");
    for column in 0..rows.width() {
        let _ = write!(csv, ",{column}");
    }
    csv.push('\n');
    for (item, row) in items.iter().zip(rows.rows()) {
        let _ = write!(csv, "{item}");
        for value in row {
            let _ = write!(csv, ",{value}");
        }
        csv.push('\n');
    }
    csv
}

/// Returns a field of comma-separated text, in quotes if it needs them (RFC 4180).
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_fields_that_contain_separators() {
        assert_eq!(quoted("admin"), "admin");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
