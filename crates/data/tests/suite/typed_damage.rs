//! Tests of the errors for damaged folders of heterogeneous sets in the kiln format.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use kiln_data::{Dataset, Error, format};
use kiln_store::Error as StoreError;
use kiln_store::npy::{self, Element};

use crate::typed::papers;
use crate::typed_format::{set, written};

fn arrays(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().unwrap() == "npy").collect()
}

/// Calls `check` with each array of a set, and restores the array afterwards.
fn for_each_array(check: impl Fn(&Path, &Path)) {
    let (_root, folder) = set();
    let paths = arrays(&folder);
    assert_eq!(paths.len(), 17);
    for path in paths {
        let whole = fs::read(&path).unwrap();
        check(&folder, &path);
        fs::write(&path, whole).unwrap();
        format::verify(&folder).unwrap();
    }
}

#[test]
fn open_rejects_truncated_and_missing_arrays() {
    for_each_array(|folder, path| {
        let whole = fs::read(path).unwrap();
        for bytes in [&whole[..60], &whole[..whole.len() - 1], &[&whole[..], b"more"].concat()] {
            fs::write(path, bytes).unwrap();
            let error = format::open(folder).unwrap_err();
            let is_named = matches!(&error, Error::Store(StoreError::Npy { path: at, .. }) if at == path);
            assert!(is_named, "{error}");
        }
        fs::remove_file(path).unwrap();
        let error = format::open(folder).unwrap_err();
        assert!(matches!(&error, Error::Store(StoreError::Io { path: at, .. }) if at == path), "{error}");
    });
}

#[test]
fn verify_detects_a_flipped_bit() {
    for_each_array(|folder, path| {
        let whole = fs::read(path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        // The first and the last offset are checked when the set is opened, so the second is changed.
        let at = if name.contains("indptr") { 128 + 8 } else { whole.len() - 1 };
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(path, &bytes).unwrap();
        let error = format::verify(folder).unwrap_err();
        let is_named =
            matches!(&error, Error::Store(StoreError::HashMismatch { path: at, .. }) if at == path);
        assert!(is_named, "{name}: {error}");
    });
}

fn edit(folder: &Path, from: &str, to: &str) {
    let path = folder.join("kiln.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "the manifest should contain {from}: {text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

/// Replaces an array and its hash in the manifest, so that only its values are wrong.
fn forge<T: Element>(folder: &Path, name: &str, values: &[T], shape: &[usize]) {
    fs::write(folder.join(name), npy::write(values, shape)).unwrap();
    let Err(Error::Store(StoreError::HashMismatch { expected, got, .. })) = format::verify(folder) else {
        panic!("the hash of {name} should differ");
    };
    edit(folder, &expected, &got);
}

/// Checks that a set with a forged array opens, and that `verify` fails with the expected error, which names the array.
fn check_forged<T: Element>(name: &str, values: &[T], shape: &[usize], expected: &str) {
    let (_root, folder) = set();
    forge(&folder, name, values, shape);
    format::open(&folder).unwrap();
    let error = format::verify(&folder).unwrap_err();
    let Error::Store(StoreError::BadValue { path, .. }) = &error else { panic!("{error}") };
    assert_eq!(*path, folder.join(name));
    assert!(error.to_string().contains(expected), "{error}\n    expected {expected}");
}

#[test]
fn verify_reports_invalid_values_with_file_and_position() {
    check_forged("indptr.2.npy", &[0_u64, 2, 1, 2, 2], &[5], "entry 2 is 1, expected at least 2");
    check_forged(
        "indices.2.npy",
        &[8_u32, 6],
        &[2],
        "the source of edge 1 is 6, expected a node of type `venue`, which are 7..9",
    );
    check_forged(
        "indices.0.npy",
        &[0_u32, 2, 0, 3, 2],
        &[5],
        "edge 3 is 3, expected a node of type `author`",
    );
    check_forged("weights.0.npy", &[0.5, f32::NAN, 1.0, 1.5, 2.0], &[5], "the weight of edge 1 is NaN");
    check_forged("labels.npy", &[1, 3, 2, -1], &[4], "the label of node 1 is 3, expected a class below 3");
    let range = "expected a node of the type with targets, which are 3..7";
    check_forged("val.npy", &[7_u32], &[1], &format!("val split entry 0 is node 7, {range}"));
    check_forged("train.npy", &[2_u32], &[1], &format!("train split entry 0 is node 2, {range}"));
    check_forged("test.npy", &[6_u32], &[1], "node 6, expected a node that has a label");
    check_forged(
        "features.1.npy",
        &[0.0, 0.5, 1.0, 1.5, 2.0, f32::NAN, 3.0, 3.5],
        &[4, 2],
        "a feature of node 2 is NaN, expected finite numbers",
    );
    check_forged("features_indptr.0.npy", &[0_u64, 3, 2, 3], &[4], "the values of row 1 is 3 to 2");
    check_forged("features_indices.0.npy", &[1_u32, 500, 0], &[3], "a column of row 1 is 500");
    check_forged("features_data.0.npy", &[1.0, f32::INFINITY, 2.0], &[3], "value 1 is inf");
    check_forged(
        "names_ends.0.npy",
        &[3_u32, 2, 8],
        &[3],
        "the name of node 1 is 2, expected the end of UTF-8 text from byte 3 of names_text.0.npy",
    );
    check_forged(
        "names_ends.0.npy",
        &[3_u32, 3, 4],
        &[3],
        "the end of name 2 is 4, expected 8, the length of names_text.0.npy",
    );
}

#[test]
fn open_rejects_offsets_that_do_not_fit_the_edges() {
    let check = |name: &str, values: &[u64], expected: &str| {
        let (_root, folder) = set();
        fs::write(folder.join(name), npy::write(values, &[values.len()])).unwrap();
        let error = format::open(&folder).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n    expected {expected}");
    };
    check("indptr.1.npy", &[1, 2, 2, 3, 3], "indptr.1.npy: entry 0 is 1, expected 0");
    check("indptr.1.npy", &[0, 2, 2, 3, 4], "indices.1.npy: the number of entries is 3, expected 4");
    check("features_indptr.0.npy", &[0, 1, 3, 4], "features_indptr.0.npy: ");
}

/// Checks that opening, verifying and hashing fail with the expected error after an edit of the manifest.
fn check_edited(from: &str, to: &str, expected: &str) {
    let (_root, folder) = set();
    edit(&folder, from, to);
    let error = format::open(&folder).unwrap_err();
    let is_typed = matches!(
        &error,
        Error::Store(
            StoreError::Metadata { .. }
                | StoreError::Manifest { .. }
                | StoreError::Format { .. }
                | StoreError::Npy { .. }
        )
    );
    assert!(is_typed && error.to_string().contains(expected), "{error}\n    expected {expected}");
    assert_eq!(format::verify(&folder).unwrap_err().to_string(), error.to_string());
}

#[test]
fn rejects_inconsistent_manifests() {
    check_edited("\"format\": 1", "\"format\": 2", "the set has format 2, expected 1");
    check_edited("\"name\": \"papers\"", "\"title\": \"papers\"", "unknown field `title`");
    check_edited(
        "\"n_nodes\": 3",
        "\"n_nodes\": 4",
        "files.features_indptr.0.npy.shape is [4], expected [5]",
    );
    check_edited("\"n_nodes\": 4", "\"n_nodes\": 5", "is [4, 2], expected [5, 2]");
    check_edited("\"n_nodes\": 4", "\"n_nodes\": 4294967295", "node_types is ");
    check_edited("\"n_edges\": 3", "\"n_edges\": 2", "files.indices.1.npy.shape is [3], expected [2]");
    check_edited("\"dim\": 2", "\"dim\": 0", "node_types[1].dim is 0, expected 1 to 16777216, or null");
    check_edited("\"dim\": 2", "\"dim\": null", "files.features.1.npy is an entry, expected no entry");
    check_edited("\"dim\": null", "\"dim\": 1", "files is none, expected an entry features.2.npy");
    check_edited("\"dim\": 2", "\"width\": 2", "unknown field `width`");
    check_edited("\"name\": \"venue\"", "\"name\": \"paper\"", "invalid node type `paper`: it occurs twice");
    check_edited("\"name\": \"cites\"", "\"name\": \"writes\"", "invalid relation `writes`: it occurs twice");
    check_edited("\"name\": \"cites\"", "\"name\": \"\"", "invalid relation ``: it is empty");
    check_edited(
        "\"src_type\": \"venue\"",
        "\"src_type\": \"editor\"",
        "relations[2].src_type is \"editor\", expected the name of a node type",
    );
    check_edited(
        "\"dst_type\": \"paper\"",
        "\"dst_type\": \"author\"",
        "files.indptr.0.npy.shape is [5], expected [4]",
    );
    check_edited("\"target_type\": \"paper\"", "\"target_type\": \"editor\"", "target_type is \"editor\"");
    check_edited("\"target_type\": \"paper\"", "\"target_type\": null", "n_classes is 3, expected null");
    check_edited("\"n_classes\": 3", "\"n_classes\": null", "n_classes is null, expected a number");
    check_edited("\"n_classes\": 3", "\"n_classes\": 4", "class_names is 3 names, expected 4 names or none");
    check_edited("labels.npy", "layers.npy", "files.layers.npy is unknown, expected a file of the format");
    check_edited(
        "indptr.2.npy",
        "indptr.3.npy",
        "files.indptr.3.npy is unknown, expected a file of the format",
    );
    check_edited("weights.0.npy", "../weights.0.npy", "files.../weights.0.npy is unknown");
    check_edited("\"f32\"", "\"i32\"", ".dtype is i32, expected f32");
}

#[test]
fn missing_manifest_entry_is_reported() {
    let (_root, folder) = set();
    let manifest = folder.join("kiln.json");
    let whole: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    for path in arrays(&folder) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut without = whole.clone();
        without["files"].as_object_mut().unwrap().remove(name).unwrap();
        fs::write(&manifest, serde_json::to_vec(&without).unwrap()).unwrap();
        let check = |is_whole: bool| match format::open(&folder) {
            Err(Error::Store(StoreError::Metadata { expected, found, .. })) => {
                assert_eq!((expected.contains("an entry"), &*found), (true, "none"), "{name}");
            }
            Err(error) => panic!("{name}: {error}"),
            Ok(_) => assert!(is_whole, "opening without the entry of {name} should fail"),
        };
        check(false);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        // Without its file, only the entry of an optional file may be missing.
        check(name == "weights.0.npy");
        fs::write(&path, bytes).unwrap();
    }
    fs::write(&manifest, serde_json::to_vec(&whole).unwrap()).unwrap();
    fs::copy(folder.join("names_text.0.npy"), folder.join("names_text.2.npy")).unwrap();
    let error = format::open(&folder).unwrap_err().to_string();
    assert!(error.contains("files.names_text.2.npy is none, expected an entry, because the file"), "{error}");
    fs::remove_file(&manifest).unwrap();
    let error = format::open(&folder).unwrap_err();
    assert!(matches!(&error, Error::Store(StoreError::Missing { .. })), "{error}");
    let expected = "has no kiln.json (the manifest of a set in the kiln format)";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn a_set_without_targets_has_no_files_of_targets() {
    let data = Dataset { targets: None, ..papers().build().unwrap() };
    let (_root, folder) = written(&data);
    format::verify(&folder).unwrap();
    assert!(format::open(&folder).unwrap().targets.is_none());
    let (_other, with) = set();
    fs::copy(with.join("train.npy"), folder.join("train.npy")).unwrap();
    let error = format::open(&folder).unwrap_err().to_string();
    assert!(error.contains("files.train.npy is none, expected an entry, because the file exists"), "{error}");
    let entry = "\"train.npy\": {\"dtype\": \"u32\", \"shape\": [1], \"sha256\": \"\"}, \"weights.0.npy\"";
    edit(&folder, "\"weights.0.npy\"", entry);
    let error = format::open(&folder).unwrap_err().to_string();
    assert!(error.contains("files.train.npy is an entry, expected no entry, because target_type"), "{error}");
}

#[test]
fn a_number_of_nodes_that_no_file_confirms_is_limited() {
    let with_nodes = |n_nodes: usize| {
        let (_root, folder) = set();
        let more = format!(
            ",\n    {{ \"name\": \"nothing\", \"n_nodes\": {n_nodes}, \"dim\": null }}\n  ],\n  \"relations\""
        );
        edit(&folder, "\n  ],\n  \"relations\"", &more);
        format::open(&folder).map(drop)
    };
    // Two nodes of another type count, too.
    with_nodes(134_217_726).unwrap();
    let many = with_nodes(134_217_727).unwrap_err().to_string();
    assert!(
        many.contains("at most 134217728 nodes without features, names, targets and edges to them"),
        "{many}"
    );
}
