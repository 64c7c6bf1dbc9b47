//! Tests of arrays in files that change.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_store::{ArrayFile, npy};

#[test]
fn an_array_that_is_written_in_place_is_named_and_one_that_is_replaced_is_not() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("ids.npy");
    std::fs::write(&path, npy::write(&[1_u32, 2, 3], &[3])).unwrap();
    let replaced = ArrayFile::open(&path).unwrap();
    std::fs::write(root.path().join("new.npy"), npy::write(&[4_u32], &[1])).unwrap();
    std::fs::rename(root.path().join("new.npy"), &path).unwrap();
    replaced.check_unchanged().unwrap();
    assert_eq!(*replaced.values::<u32>().unwrap(), [1, 2, 3]);
    let changed = ArrayFile::open(&path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let error = changed.check_unchanged().unwrap_err().to_string();
    assert!(error.contains("ids.npy: the file was changed while it was mapped"), "{error}");
}
