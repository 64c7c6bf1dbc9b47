//! Tests of paths that exist but are not readable files, such as dangling links and pipes. They must not count as
//! absent, and opening them must not block.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fmt::Debug;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Error, format, npy, synthetic};
use kiln_store::Error as StoreError;

/// Writes a ring in the kiln format.
fn set() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    format::write(&synthetic::ring(6).unwrap(), &folder).unwrap();
    (root, folder)
}

/// Writes the ring without its manifest, as a folder of arrays.
fn arrays() -> (tempfile::TempDir, PathBuf) {
    let (root, folder) = set();
    fs::remove_file(folder.join("kiln.json")).unwrap();
    npy::open(&folder).unwrap();
    (root, folder)
}

fn leave_dangling(path: &Path) {
    let _ = fs::remove_file(path);
    std::os::unix::fs::symlink("nowhere", path).unwrap();
}

#[test]
fn rejects_dangling_output_link_before_any_work() {
    let (root, folder) = set();
    let out = root.path().join("out");
    leave_dangling(&out);
    let error = convert(&folder, &out, &ConvertOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::Store(StoreError::NotEmpty { path }) if *path == out), "{error}");
    // The output is checked before the input is read, so the error is about the output even if the input is damaged.
    fs::remove_file(folder.join("indptr.npy")).unwrap();
    let error = convert(&folder, &out, &ConvertOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Store(StoreError::NotEmpty { .. })), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
}

fn assert_unreachable<T: Debug>(result: Result<T, Error>, path: &Path) {
    let error = result.unwrap_err();
    let Error::Store(StoreError::Io { path: at, source }) = &error else { panic!("{error}") };
    assert_eq!((at.as_path(), source.kind()), (path, ErrorKind::NotFound));
}

#[test]
fn dangling_manifest_link_is_an_error() {
    let (_root, folder) = set();
    let manifest = folder.join("kiln.json");
    leave_dangling(&manifest);
    assert_unreachable(format::open(&folder), &manifest);
    assert_unreachable(format::verify(&folder), &manifest);
    assert_unreachable(kiln_data::open(&folder), &manifest);
    let out = folder.with_extension("out");
    assert_unreachable(convert(&folder, &out, &ConvertOptions::default()), &manifest);
    assert!(!out.exists());
}

#[test]
fn dangling_array_link_is_an_error() {
    for name in ["weights.npy", "edge_types.npy", "features_indptr.npy", "train.npy"] {
        let (_root, folder) = arrays();
        let path = folder.join(name);
        match name {
            "features_indptr.npy" => fs::remove_file(folder.join("features.npy")).unwrap(),
            "train.npy" => fs::rename(&path, folder.join("train_idx.npy")).unwrap(),
            _ => {}
        }
        leave_dangling(&path);
        assert_unreachable(npy::open(&folder), &path);
        assert_unreachable(format::verify(&folder), &path);
        assert_unreachable(convert(&folder, folder.with_extension("out"), &ConvertOptions::default()), &path);
    }
}

#[test]
fn dangling_weights_link_of_an_edge_list_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("weights.npy");
    fs::write(root.path().join("edges.csv"), "0,1\n").unwrap();
    leave_dangling(&path);
    assert_unreachable(convert(root.path(), root.path().join("out"), &ConvertOptions::default()), &path);
}

#[test]
fn rejects_dangling_link_that_the_manifest_does_not_list() {
    let (_root, folder) = set();
    leave_dangling(&folder.join("weights.npy"));
    let error = format::open(&folder).unwrap_err().to_string();
    let expected = "files.weights.npy is none, expected an entry, because the file exists";
    assert!(error.ends_with(expected), "{error}");
}

/// Replaces a file by a pipe without a writer. Opening such a pipe blocks.
fn leave_pipe(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn assert_no_file<T: Debug>(result: Result<T, Error>, path: &Path) {
    let error = result.unwrap_err();
    let Error::Store(StoreError::Io { path: at, source }) = &error else { panic!("{error}") };
    assert_eq!((at.as_path(), source.kind()), (path, ErrorKind::InvalidInput));
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn rejects_pipes_and_folders_without_blocking() {
    for leave in [leave_pipe, |path: &Path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }] {
        for name in ["kiln.json", "indices.npy", "features.npy"] {
            let (_root, folder) = set();
            leave(&folder.join(name));
            assert_no_file(format::open(&folder), &folder.join(name));
        }
        let root = tempfile::tempdir().unwrap();
        for name in ["edges.csv", "edges.csv.gz", "edges.npy"] {
            let path = root.path().join(name);
            fs::write(&path, "").unwrap();
            leave(&path);
            assert_no_file(convert(root.path(), root.path().join("out"), &ConvertOptions::default()), &path);
            fs::rename(&path, root.path().join(format!("{name}.aside"))).unwrap();
        }
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("graphs.txt");
    leave_pipe(&path);
    assert_no_file(kiln_data::detect_format(&path), &path);
    assert_no_file(kiln_data::gin::read(&path), &path);
}

#[test]
fn rejects_oversized_manifests() {
    let (_root, folder) = set();
    let path = folder.join("kiln.json");
    fs::File::options().write(true).open(&path).unwrap().set_len((16 << 20) + 1).unwrap();
    let error = format::open(&folder).unwrap_err().to_string();
    assert!(error.contains("the file size is over the limit, expected at most 16777216 bytes"), "{error}");
}
