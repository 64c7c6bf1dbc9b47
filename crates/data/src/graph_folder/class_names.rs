use std::path::Path;

use kiln_feature::{FeatureColumn, MAX_DIM};
use kiln_store::array_folder::bad_key;

use crate::Result;
use crate::limits::{check_n_classes, numbers};

/// Checks that the numbers of feature columns and of classes are in range, and that there is a name for each class or
/// no name at all.
///
/// # Errors
/// Returns [`kiln_store::Error::Metadata`] if one of the two numbers is out of range, or if the number of names is
/// neither 0 nor the number of classes.
pub fn check_class_names(path: &Path, dim: Option<usize>, n_classes: usize, names: &[String]) -> Result<()> {
    if let Some(dim) = dim.filter(|dim| !(1..=MAX_DIM).contains(dim)) {
        return Err(bad_key(path, "dim", format!("1 to {MAX_DIM}"), dim).into());
    }
    check_n_classes(path, n_classes as u64)?;
    let n_names = names.len();
    if n_names != 0 && n_names != n_classes {
        let expected = format!("{n_classes} names or none");
        return Err(bad_key(path, "class_names", expected, format!("{n_names} names")).into());
    }
    Ok(())
}

/// Checks that the described feature columns of a manifest are as many as there are; none may be described.
///
/// # Errors
/// Returns [`kiln_store::Error::Metadata`] if they are not, or if one has a width of 0.
pub fn check_feature_columns(
    path: &Path,
    key: &str,
    columns: &[FeatureColumn],
    dim: Option<usize>,
) -> Result<()> {
    if columns.is_empty() {
        return Ok(());
    }
    let dim = dim.unwrap_or(0);
    FeatureColumn::check_width(columns, dim).map_err(|width| {
        bad_key(path, key, format!("columns of {dim} in sum, each of at least 1"), width).into()
    })
}

/// Returns the class names to write to a manifest: an empty list if the names are the default names of
/// [`class_names_of`].
pub fn class_names_to_write(names: &[String], n_classes: usize) -> Vec<String> {
    let are_numbers = names.iter().enumerate().all(|(class, name)| *name == class.to_string());
    if are_numbers && names.len() == n_classes { Vec::new() } else { names.to_vec() }
}

/// Returns the names of the classes. `names` are the names in a manifest; if the list is empty, the names are the
/// numbers `0..n_classes`.
pub fn class_names_of(names: Vec<String>, n_classes: usize) -> Vec<String> {
    if names.is_empty() { numbers(n_classes) } else { names }
}
