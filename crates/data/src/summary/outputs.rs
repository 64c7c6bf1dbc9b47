//! The classes, labels and numbers of targets, with the items that have them.

use std::ops::Range;

use kiln_feature::{Labels, Targets};
use kiln_graph::ItemId;

use crate::Split;

/// A class, a label or a column of numbers of targets.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OutputSummary {
    /// The name of the class, the label or the column.
    pub name: String,
    /// The number of items with the class, the label or a number.
    pub n_items: usize,
    /// Those of them for training, validation and test.
    pub n_split: [usize; 3],
    /// The smallest and the largest number; `None` for classes and labels, and without any number.
    pub range: Option<[f32; 2]>,
}

/// Summarises the outputs of targets. `range` has the items of the targets: the nodes of the type, or all links.
pub(super) fn summarize_outputs<I: ItemId>(
    values: &Targets<I>,
    split: &Split<I>,
    class_names: &[String],
    range: Range<u32>,
) -> Vec<OutputSummary> {
    let n_outputs = values.n_outputs();
    let outputs = (0..n_outputs).map(|output| OutputSummary {
        name: class_names.get(output).cloned().unwrap_or_else(|| output.to_string()),
        n_items: 0,
        n_split: [0; 3],
        range: None,
    });
    let mut outputs: Vec<OutputSummary> = outputs.collect();
    for item in 0..values.len() {
        for_each_output(values, item, |output, number| {
            let Some(summary) = outputs.get_mut(output) else { return };
            summary.n_items += 1;
            if let Some(number) = number {
                let [min, max] = summary.range.unwrap_or([number; 2]);
                summary.range = Some([min.min(number), max.max(number)]);
            }
        });
    }
    count_split(values, split, range, &mut outputs);
    outputs
}

fn count_split<I: ItemId>(
    values: &Targets<I>,
    split: &Split<I>,
    range: Range<u32>,
    outputs: &mut [OutputSummary],
) {
    for (part, (_, items)) in split.parts().into_iter().enumerate() {
        for item in items.iter().map(|item| item.get()) {
            // A node of another type is an error of the split, which is checked elsewhere.
            let Some(row) = range.contains(&item).then(|| (item - range.start) as usize) else {
                continue;
            };
            for_each_output(values, row, |output, _| {
                if let Some(summary) = outputs.get_mut(output) {
                    summary.n_split[part] += 1;
                }
            });
        }
    }
}

/// Calls `visit` with each class, label or number of an item; the number is that of regression targets.
fn for_each_output<I: ItemId>(values: &Targets<I>, item: usize, mut visit: impl FnMut(usize, Option<f32>)) {
    match values {
        Targets::Classes(labels) => {
            let class = Labels::get(labels, I::new(item as u32));
            class.into_iter().for_each(|class| visit(class as usize, None));
        }
        Targets::Values(values) => {
            let row = item * values.n_columns()..(item + 1) * values.n_columns();
            let labels = values.as_labels().and_then(|labels| labels.get(row.clone())).unwrap_or_default();
            labels
                .iter()
                .enumerate()
                .filter(|(_, label)| **label == 1)
                .for_each(|(label, _)| visit(label, None));
            let numbers = values.as_numbers().and_then(|numbers| numbers.get(row)).unwrap_or_default();
            let known = numbers.iter().enumerate().filter(|(_, number)| !number.is_nan());
            known.for_each(|(column, number)| visit(column, Some(*number)));
        }
    }
}
