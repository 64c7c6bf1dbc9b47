//! Targets of other data in the numbering of a model's classes or columns, which are found by name.

use std::sync::Arc;

use kiln_feature::{Labels, TargetKind, TargetValues, Targets, reorder_rows};
use kiln_graph::ItemId;
use kiln_store::counted;

use crate::error::Result;
use crate::saved::model::SavedModel;

/// The number of unknown names that a note lists.
const N_LISTED: usize = 5;

/// Targets in the numbering of a model's classes or columns.
#[derive(Debug, Clone)]
pub struct NamedTargets<I> {
    /// The targets. A class that training did not have has a number that is no class of the model.
    pub targets: Targets<I>,
    /// What could not be compared, or is in one of the two only.
    pub notes: Vec<String>,
}

impl SavedModel {
    /// Returns the targets of data in the numbering of this model's classes or columns, which are found by name. `names` are
    /// those of the data. Names that are the numbers of the classes count as none if the other names are texts: numbers are then
    /// compared, with a note. Targets of another kind than the training's cannot be compared: there are none then, with a note.
    ///
    /// ```no_run
    /// use kiln_feature::{Labels, Targets};
    /// use kiln_graph::NodeId;
    /// use kiln_train::SavedModel;
    /// let model = SavedModel::open("runs/sage")?; // of the classes `a`, `b` and `c`
    /// let targets: Targets<NodeId> = Labels::new(vec![0, 1], 2).into();
    /// let named = model.targets_by_name(&targets, &["b".to_owned(), "c".to_owned()])?; // 1 and 2
    /// # let _ = named;
    /// # Ok::<(), kiln_train::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`TargetValues::multi_label`] and [`TargetValues::regression`].
    pub fn targets_by_name<I: ItemId>(
        &self,
        targets: &Targets<I>,
        names: &[String],
    ) -> Result<NamedTargets<I>> {
        let inputs = &self.info().inputs;
        let of_model = &inputs.class_names;
        let mut notes = Vec::new();
        if inputs.targets != targets.kind() && !targets.is_empty() {
            notes.push(format!(
                "the targets of this data are {}, those of the training were {}: they are not compared with the predictions",
                targets.kind(),
                inputs.targets
            ));
            return Ok(NamedTargets { targets: Labels::new(Vec::<i32>::new(), 0).into(), notes });
        }
        let is_same = of_model == names || targets.is_empty();
        let are_compared = match [of_model, names].map(has_names) {
            [true, true] => true,
            // Numbers that are not all from 0 on are names, and then those of the other are, too.
            [true, false] => are_numbers(of_model),
            [false, true] => are_numbers(names),
            [false, false] => false,
        };
        // Data of a program may have no list at all.
        let are_compared = are_compared && !of_model.is_empty() && !names.is_empty();
        match (is_same, are_compared) {
            (true, _) => {}
            (false, true) => return match_names(of_model, targets, names),
            (false, false) if !has_names(of_model) && !has_names(names) => {}
            (false, false) => notes.push(format!(
                "the {} have no names in {}, so their numbers were compared",
                described(targets.kind()),
                if names.is_empty() || has_names(of_model) { "this data" } else { "the training data" }
            )),
        }
        Ok(NamedTargets { targets: targets.clone(), notes })
    }
}

/// Returns false for names that are the numbers of the classes.
pub(crate) fn has_names(names: &[String]) -> bool {
    names.iter().enumerate().any(|(number, name)| *name != number.to_string())
}

/// Returns true if all names are whole numbers.
fn are_numbers(names: &[String]) -> bool {
    names.iter().all(|name| name.parse::<i64>().is_ok())
}

fn described(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Classes => "classes",
        _ => "columns of the targets",
    }
}

fn match_names<I: ItemId>(
    of_model: &[String],
    targets: &Targets<I>,
    names: &[String],
) -> Result<NamedTargets<I>> {
    let position = |name: &String| of_model.iter().position(|known| known == name);
    let positions: Vec<Option<usize>> = names.iter().map(position).collect();
    let unknown: Vec<&str> = names
        .iter()
        .zip(&positions)
        .filter(|(_, position)| position.is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    let mut notes = Vec::new();
    let targets = match targets {
        Targets::Classes(labels) => {
            let (labels, n_unknown) = renumbered(labels, &positions, of_model.len());
            if 0 < n_unknown {
                notes.push(format!(
                    "{} of classes that training did not have ({}): no prediction of them can be right",
                    counted(n_unknown, "label"),
                    listed(&unknown)
                ));
            }
            labels.into()
        }
        Targets::Values(values) => {
            if !unknown.is_empty() {
                notes.push(format!(
                    "targets that training did not have are not compared: {}",
                    listed(&unknown)
                ));
            }
            let missing: Vec<&str> =
                of_model.iter().filter(|name| !names.contains(name)).map(String::as_str).collect();
            if !missing.is_empty() {
                notes.push(format!(
                    "targets that this data does not have are not compared: {}",
                    listed(&missing)
                ));
            }
            let sources: Vec<Option<usize>> =
                of_model.iter().map(|name| names.iter().position(|other| other == name)).collect();
            reordered(values, &sources)?.into()
        }
    };
    Ok(NamedTargets { targets, notes })
}

/// Returns labels with the number `positions[class]` of each class, or a number from `n_known` if that is `None`, and the number
/// of labels of such classes.
fn renumbered<I: ItemId>(
    labels: &Arc<Labels<I>>,
    positions: &[Option<usize>],
    n_known: usize,
) -> (Labels<I>, u64) {
    let mut n_classes = n_known;
    let mut numbers = Vec::with_capacity(positions.len());
    for position in positions {
        numbers.push(position.unwrap_or(n_classes));
        n_classes += usize::from(position.is_none());
    }
    let mut n_unknown = 0;
    let mut renumbered = Vec::with_capacity(labels.len());
    for &class in labels.as_slice() {
        let number = usize::try_from(class).ok().and_then(|class| numbers.get(class));
        n_unknown += u64::from(number.is_some_and(|number| n_known <= *number));
        renumbered.push(number.map_or(-1, |number| *number as i32));
    }
    (Labels::new(renumbered, n_classes), n_unknown)
}

/// Returns values whose column `i` is the column `sources[i]`; a missing value where that is `None`.
fn reordered<I: ItemId>(
    values: &TargetValues<I>,
    sources: &[Option<usize>],
) -> kiln_feature::Result<TargetValues<I>> {
    let width = values.n_columns();
    match (values.as_labels(), values.as_numbers()) {
        (Some(labels), _) => {
            let labels = reorder_rows(labels, width, sources, TargetValues::<I>::MISSING);
            TargetValues::multi_label(labels, sources.len())
        }
        (None, numbers) => {
            let numbers = reorder_rows(numbers.unwrap_or_default(), width, sources, f32::NAN);
            TargetValues::regression(numbers, sources.len())
        }
    }
}

fn listed(names: &[&str]) -> String {
    let rest = if N_LISTED < names.len() { ", …" } else { "" };
    let first: Vec<String> = names.iter().take(N_LISTED).map(|name| format!("`{name}`")).collect();
    format!("{}{rest}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use kiln_graph::NodeId;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn classes_are_found_by_name() -> Result<()> {
        let targets: Targets<NodeId> = Labels::new(vec![0, 1, 2, -1, 0], 3).into();
        let named = match_names(&names(&["a", "b", "c"]), &targets, &names(&["c", "new", "a"]))?;
        let Targets::Classes(labels) = named.targets else { panic!("classes should stay classes") };
        assert_eq!(labels.as_slice(), [2, 3, 0, -1, 2]);
        assert_eq!(
            named.notes,
            ["1 label of classes that training did not have (`new`): no prediction of them can be right"]
        );
        Ok(())
    }

    #[test]
    fn columns_of_targets_are_found_by_name() -> Result<()> {
        let values: TargetValues<NodeId> = TargetValues::regression(vec![1.0, 2.0, 3.0, 4.0], 2)?;
        let named = match_names(&names(&["x", "y"]), &values.into(), &names(&["z", "x"]))?;
        let Targets::Values(values) = named.targets else { panic!("values should stay values") };
        let numbers = values.as_numbers().expect("the targets should be numbers");
        assert_eq!([numbers[0], numbers[2]], [2.0, 4.0]);
        assert!(numbers[1].is_nan() && numbers[3].is_nan());
        assert_eq!(named.notes.len(), 2);
        let labels: TargetValues<NodeId> = TargetValues::multi_label(vec![1, 0], 2)?;
        let named = match_names(&names(&["x", "y"]), &labels.into(), &names(&["y", "x"]))?;
        let Targets::Values(values) = named.targets else { panic!("values should stay values") };
        assert_eq!(values.as_labels(), Some(&[0, 1][..]));
        Ok(())
    }

    #[test]
    fn numbers_are_no_names() {
        assert!(!has_names(&names(&["0", "1"])) && !has_names(&[]));
        assert!(has_names(&names(&["1", "0"])) && has_names(&names(&["0", "b"])));
    }
}
