//! Reads lists of node or graph ids.

use std::path::Path;

use kiln_graph::ItemId;
use kiln_store::ArrayFile;
use kiln_store::text::TextTable;

use crate::Result;

/// Reads a list of ids of nodes ([`NodeId`](kiln_graph::NodeId)) or graphs ([`GraphId`](kiln_graph::GraphId)), all
/// below `n_items`: a `.npy` array of integers, `[n]` or `[n, 1]`, or a text file with one id per line. Ids may repeat.
///
/// # Errors
/// Returns [`kiln_store::Error::BadLine`] or [`kiln_store::Error::BadValue`] for an id that is no whole number below
/// `n_items`, and the errors of reading the file.
pub fn read_ids<I: ItemId>(path: impl AsRef<Path>, n_items: usize) -> Result<Vec<I>> {
    let path = path.as_ref();
    let expected = format!("an id below {n_items}");
    let id = |value: i128| u32::try_from(value).ok().filter(|&id| (id as usize) < n_items).map(I::new);
    let mut ids = Vec::new();
    if path.extension().is_some_and(|extension| extension == "npy") {
        let array = ArrayFile::open(path)?;
        array.check_vector()?;
        array.for_each_integer(|position, value| -> Result<()> {
            let valid = id(value).ok_or_else(|| array.bad_value("entry", position, &expected, value))?;
            ids.push(valid);
            Ok(())
        })?;
    } else {
        let mut table = TextTable::open(path)?;
        while let Some(row) = table.next_row()? {
            let value: i128 = row.parse(0, &expected)?;
            ids.push(id(value).ok_or_else(|| row.bad(0, &expected))?);
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kiln_graph::NodeId;

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
            ("a.npy", kiln_store::npy::write(&[0_i64, -1], &[2]), "entry 1 is -1, expected an id below 3"),
            ("b.npy", kiln_store::npy::write(&[3_u64], &[1]), "entry 0 is 3, expected an id below 3"),
            ("c.csv", b"0\nnode".to_vec(), "line 2: \"node\", expected an id below 3"),
            ("d.csv", b"4294967296".to_vec(), "line 1: \"4294967296\", expected an id below 3"),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("the file should be writable");
            let error = read_ids::<NodeId>(&path, 3).expect_err("the id should be rejected").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
