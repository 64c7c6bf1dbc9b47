//! Masks that were saved as integers.

/// Returns true for the ids of a list that is a mask, saved as integers: an entry for each of more than two items, all of
/// which are 0 or 1.
pub(crate) fn is_mask(n_items: usize, mut ids: impl ExactSizeIterator<Item = u32>) -> bool {
    2 < n_items && ids.len() == n_items && ids.all(|id| id <= 1)
}

/// Returns the expected value for a mask of `n_items` items that was saved as integers.
pub(crate) fn mask_as_ids(n_items: usize) -> String {
    format!("a list of ids: all {n_items} entries are 0 or 1, as in a mask, which must be saved as booleans")
}
