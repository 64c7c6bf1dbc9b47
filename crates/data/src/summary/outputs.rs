//! The classes, labels and numbers of targets, with the nodes that have them.

use std::ops::Range;

use kiln_feature::{Labels, Targets};
use kiln_graph::NodeId;

use crate::{DatasetTargets, Split};

/// A class, a label or a column of numbers of targets.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OutputSummary {
    /// The name of the class, the label or the column.
    pub name: String,
    /// The number of nodes with the class, the label or a number.
    pub n_nodes: usize,
    /// Those of them for training, validation and test.
    pub n_split: [usize; 3],
    /// The smallest and the largest number; `None` for classes and labels, and without any number.
    pub range: Option<[f32; 2]>,
}

/// Summarises the outputs of targets. `range` has the nodes of the type.
pub(super) fn summarize_outputs(targets: &DatasetTargets, range: Range<u32>) -> Vec<OutputSummary> {
    let DatasetTargets { values, split, class_names, .. } = targets;
    let n_outputs = values.n_outputs();
    let outputs = (0..n_outputs).map(|output| OutputSummary {
        name: class_names.get(output).cloned().unwrap_or_else(|| output.to_string()),
        n_nodes: 0,
        n_split: [0; 3],
        range: None,
    });
    let mut outputs: Vec<OutputSummary> = outputs.collect();
    for node in 0..values.len() {
        for_each_output(values, node, |output, number| {
            let Some(summary) = outputs.get_mut(output) else { return };
            summary.n_nodes += 1;
            if let Some(number) = number {
                let [min, max] = summary.range.unwrap_or([number; 2]);
                summary.range = Some([min.min(number), max.max(number)]);
            }
        });
    }
    count_split(values, split, range, &mut outputs);
    outputs
}

fn count_split(values: &Targets, split: &Split, range: Range<u32>, outputs: &mut [OutputSummary]) {
    for (part, (_, nodes)) in split.parts().into_iter().enumerate() {
        for node in nodes.iter() {
            // A node of another type is an error of the split, which is checked elsewhere.
            let Some(row) = range.contains(&node.0).then(|| (node.0 - range.start) as usize) else {
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

/// Calls `visit` with each class, label or number of a node; the number is that of regression targets.
fn for_each_output(values: &Targets, node: usize, mut visit: impl FnMut(usize, Option<f32>)) {
    match values {
        Targets::Classes(labels) => {
            let class = Labels::get(labels, NodeId(node as u32));
            class.into_iter().for_each(|class| visit(class as usize, None));
        }
        Targets::Values(values) => {
            let row = node * values.n_columns()..(node + 1) * values.n_columns();
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
