use std::path::Path;

use kiln_feature::MAX_DIM;
use kiln_store::array_folder::bad_key;

use crate::Result;
use crate::limits::{check_n_classes, numbers};

/// Checks the number of columns and of classes, and that names are there for all classes or for none.
///
/// # Errors
/// [`kiln_store::Error::Metadata`].
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

/// Returns the names of the classes for a manifest; none where they are but the numbers that [`class_names_of`] gives to
/// classes without names.
pub fn class_names_to_write(names: &[String], n_classes: usize) -> Vec<String> {
    let are_numbers = names.iter().enumerate().all(|(class, name)| *name == class.to_string());
    if are_numbers && names.len() == n_classes { Vec::new() } else { names.to_vec() }
}

/// Returns the names of the classes by those of a manifest.
pub fn class_names_of(names: Vec<String>, n_classes: usize) -> Vec<String> {
    if names.is_empty() { numbers(n_classes) } else { names }
}
