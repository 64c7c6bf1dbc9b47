//! SHA-256 hashes of bytes and files.

use kiln_store::{Error, Hasher, sha256, sha256_of_file};

/// The SHA-256 of `abc` (FIPS 180-4, the first example).
const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn bytes_chunks_and_files_have_equal_hashes() {
    assert_eq!(sha256(b"abc"), OF_ABC);
    let mut hasher = Hasher::default();
    hasher.update("a");
    hasher.update(b"bc");
    assert_eq!(hasher.finish(), OF_ABC);
    let folder = tempfile::tempdir().expect("the temporary folder should be created");
    let path = folder.path().join("abc");
    std::fs::write(&path, "abc").expect("the folder should be writable");
    assert_eq!(sha256_of_file(&path).expect("the file should be readable"), OF_ABC);
    let error = sha256_of_file(&folder.path().join("absent")).expect_err("a missing file should fail");
    assert!(matches!(&error, Error::Io { path, .. } if path.ends_with("absent")), "{error}");
}
