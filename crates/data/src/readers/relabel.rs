//! Maps arbitrary integer labels to classes.

use std::collections::BTreeSet;

use crate::Result;

/// Labels that were mapped to the classes `0..names.len()` in ascending order of the label.
#[derive(Debug)]
pub(crate) struct Relabelled {
    /// The class of each given label, in the order of the labels.
    pub(crate) classes: Vec<i32>,
    /// The text of the label that each class stands for, by class.
    pub(crate) names: Vec<String>,
}

/// Maps labels of `dim` integers each, row-major, to classes; `dim` is at least 1. Each distinct tuple of integers is
/// one class.
pub(crate) fn relabel(labels: &[i64], dim: usize) -> Result<Relabelled> {
    let mut distinct = BTreeSet::new();
    for label in labels.chunks_exact(dim) {
        distinct.insert(label);
    }
    let distinct: Vec<&[i64]> = distinct.into_iter().collect();
    if i32::try_from(distinct.len()).is_err() {
        let max = i32::MAX as u64;
        return Err(kiln_graph::Error::TooMany { what: "classes", n: distinct.len() as u64, max }.into());
    }
    let class = |label| distinct.partition_point(|&before| before < label) as i32;
    let text = |label: &&[i64]| label.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    Ok(Relabelled {
        classes: labels.chunks_exact(dim).map(class).collect(),
        names: distinct.iter().map(text).collect(),
    })
}
