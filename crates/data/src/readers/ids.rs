//! Reads lists of node or graph ids.

use std::path::Path;

use kiln_graph::{ItemId, NodeId, SharedArray};
use kiln_store::npy::DType;
use kiln_store::text::TextTable;
use kiln_store::{ArrayFile, Error as StoreError, check_count};

use crate::arrays::nodes_of;
use crate::mask::{is_mask, mask_as_ids};
use crate::{Note, Result};

/// Reads a list of ids of nodes ([`NodeId`]) or graphs ([`GraphId`](kiln_graph::GraphId)), all below `n_items`: a `.npy`
/// array of integers, `[n]` or `[n, 1]`, or a text file with one id per line. Ids may repeat. A `.npy` array of `n_items`
/// booleans is a mask: the list has the positions of the true elements, in ascending order.
///
/// # Errors
/// Returns [`kiln_store::Error::BadLine`] or [`kiln_store::Error::BadValue`] for an id that is no whole number below
/// `n_items`, and for a mask that was saved as integers, [`kiln_store::Error::Inconsistent`] for a mask of another length,
/// and the errors of reading the file.
pub fn read_ids<I: ItemId>(path: impl AsRef<Path>, n_items: usize) -> Result<Vec<I>> {
    let path = path.as_ref();
    let expected = format!("an id below {n_items}");
    let mut ids = Vec::<I>::new();
    let mut is_array_of_booleans = false;
    if path.extension().is_some_and(|extension| extension == "npy") {
        let array = ArrayFile::open(path)?;
        for_each_listed(&array, n_items, |id| {
            ids.push(id);
            Ok(())
        })?;
        is_array_of_booleans = array.dtype() == DType::Bool;
    } else {
        let mut table = TextTable::open(path)?;
        while let Some(row) = table.next_row()? {
            if 1 < row.n_fields() {
                return Err(row.bad(1, "one id per line").into());
            }
            let value: i128 = row.parse(0, &expected)?;
            ids.push(id_of(value, n_items).ok_or_else(|| row.bad(0, &expected))?);
        }
    }
    if !is_array_of_booleans && is_mask(n_items, ids.iter().map(|id| id.get())) {
        let (path, expected, found) = (path.to_owned(), mask_as_ids(n_items), ids[0].get().to_string());
        return Err(StoreError::BadValue { path, what: "entry", position: 0, expected, found }.into());
    }
    Ok(ids)
}

/// Returns the nodes of a part of a split: an array of ids like that of [`nodes_of`], which 32-bit ids leave mapped, or a
/// mask.
pub(crate) fn listed_nodes(
    array: &ArrayFile,
    n_nodes: usize,
    notes: &mut Vec<Note>,
) -> Result<SharedArray<NodeId>> {
    if array.dtype() != DType::Bool && array.n_values() != 0 {
        return nodes_of(array, "entry", n_nodes, notes);
    }
    let mut nodes: Vec<NodeId> = Vec::new();
    for_each_listed(array, n_nodes, |node| {
        nodes.push(node);
        Ok(())
    })?;
    Ok(nodes.into())
}

/// Calls `visit` with each item of an array of ids below `n_items`, or of a mask of `n_items` booleans. An empty array may
/// have any element type, because NumPy makes an empty list an array of floats.
pub(crate) fn for_each_listed<I: ItemId>(
    array: &ArrayFile,
    n_items: usize,
    mut visit: impl FnMut(I) -> Result<()>,
) -> Result<()> {
    array.check_vector()?;
    if array.dtype() == DType::Bool {
        check_count(array.path(), "the number of elements of the mask", n_items, array.n_values())?;
        return array.for_each_integer_or_bool(|position, value| match value {
            0 => Ok(()),
            _ => visit(I::new(position as u32)),
        });
    }
    if array.n_values() == 0 {
        return Ok(());
    }
    array.for_each_integer(|position, value| {
        let expected = || format!("a {} id below {n_items}", I::NAME);
        let id = id_of(value, n_items);
        visit(id.ok_or_else(|| array.bad_value("entry", position, expected(), value))?)
    })
}

fn id_of<I: ItemId>(value: i128, n_items: usize) -> Option<I> {
    u32::try_from(value).ok().filter(|&id| (id as usize) < n_items).map(I::new)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reads_ids_of_arrays_and_of_lines() -> Result<()> {
        let folder = tempfile::tempdir().expect("a temporary folder should be creatable");
        let (npy, csv) = (folder.path().join("ids.npy"), folder.path().join("ids.csv"));
        fs::write(&npy, kiln_store::npy::write(&[2_i64, 0, 2], &[3])).expect("the file should be writable");
        fs::write(&csv, "2\n0\n\n2").expect("the file should be writable");
        for path in [npy, csv] {
            assert_eq!(read_ids::<NodeId>(path, 3)?, [NodeId(2), NodeId(0), NodeId(2)]);
        }
        Ok(())
    }

    #[test]
    fn rejects_ids_that_are_negative_or_too_large() {
        let folder = tempfile::tempdir().expect("a temporary folder should be creatable");
        for (name, bytes, expected) in [
            (
                "a.npy",
                kiln_store::npy::write(&[0_i64, -1], &[2]),
                "entry 1 is -1, expected a node id below 3",
            ),
            ("b.npy", kiln_store::npy::write(&[3_u64], &[1]), "entry 0 is 3, expected a node id below 3"),
            ("c.csv", b"0\nnode".to_vec(), "line 2: \"node\", expected an id below 3"),
            ("d.csv", b"4294967296".to_vec(), "line 1: \"4294967296\", expected an id below 3"),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("the file should be writable");
            let error = read_ids::<NodeId>(&path, 3).expect_err("the id should be rejected").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn reads_masks_and_rejects_those_of_another_length_or_type() {
        let folder = tempfile::tempdir().expect("a temporary folder should be creatable");
        let read = |name: &str, bytes: Vec<u8>| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("the file should be writable");
            read_ids::<NodeId>(&path, 4).map_err(|error| error.to_string())
        };
        let mask = kiln_store::npy::write_mask;
        assert_eq!(read("a.npy", mask(&[true, false, true, true])), Ok([0, 2, 3].map(NodeId).to_vec()));
        assert_eq!(read("b.npy", mask(&[false; 4])), Ok(Vec::new()));
        assert_eq!(read("c.npy", kiln_store::npy::write::<f64>(&[], &[0])), Ok(Vec::new()));
        // Two entries of 0 and 1 are ids, and so are four of which one is 2.
        assert_eq!(read("d.npy", kiln_store::npy::write(&[1_i64, 0], &[2])), Ok([1, 0].map(NodeId).to_vec()));
        let ids = read("e.npy", kiln_store::npy::write(&[1_i64, 0, 2, 1], &[4]));
        assert_eq!(ids, Ok([1, 0, 2, 1].map(NodeId).to_vec()));
        for (name, bytes, expected) in [
            (
                "f.npy",
                mask(&[true, false, true]),
                "f.npy: the number of elements of the mask is 3, expected 4",
            ),
            (
                "g.npy",
                kiln_store::npy::write(&[1_u8, 0, 1, 1], &[4]),
                "all 4 entries are 0 or 1, as in a mask",
            ),
            (
                "h.npy",
                kiln_store::npy::write(&[1_i64, 0, 0, 1], &[4]),
                "all 4 entries are 0 or 1, as in a mask",
            ),
            ("i.csv", b"1\n0\n0\n1\n".to_vec(), "all 4 entries are 0 or 1, as in a mask"),
        ] {
            let error = read(name, bytes).expect_err("the file should be rejected");
            assert!(error.contains(expected) && error.contains(name), "{error}");
        }
    }
}
