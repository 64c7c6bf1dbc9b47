//! Tests of the errors for damaged folders in the kiln format.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, DatasetTargets, Error, Layout, NodeNames, Split, format};
use kiln_feature::{DenseFeatures, FeatureStore, Labels, SparseFeatures};
use kiln_graph::{CscBuilder, NodeId};
use kiln_store::Error as StoreError;
use kiln_store::npy::{self, Element};

/// Writes a set with the edges 0 -> 1, 0 -> 2, 1 -> 2, 3 -> 2, and with all optional data.
fn set(features: impl FeatureStore + 'static) -> (tempfile::TempDir, PathBuf) {
    let builder = CscBuilder::new(4).weights(&[0.5, 1.0, 1.5, 2.0]).edge_types(&[0, 1, 0, 1]);
    let part = |node| [NodeId(node)].into_iter().collect();
    let data = Dataset {
        name: "small".into(),
        graph: builder.build(&[0, 0, 1, 3], &[1, 2, 2, 2]).unwrap().into(),
        features: vec![Some(Arc::new(features))],
        edge_features: None,
        targets: Some(DatasetTargets {
            node_type: 0,
            values: Labels::new(vec![1, 0, 2, -1], 3).into(),
            split: Split { train: part(0), val: part(1), test: part(2) },
            class_names: ["a", "b", "c"].map(String::from).to_vec(),
        }),
        names: vec![Arc::new(NodeNames::new(["zero", "", "zwei", "três"]))],
        edge_type_names: ["near", "far"].map(String::from).to_vec(),
        preparation: Default::default(),
        layout: Layout::Plain,
        links: None,
        notes: Vec::new(),
    };
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    format::write(&data, &folder).unwrap();
    (root, folder)
}

fn dense() -> DenseFeatures {
    DenseFeatures::from_f32(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], 2).unwrap()
}

fn sparse() -> SparseFeatures {
    let columns: Vec<u32> = vec![1, 0, 99, 0];
    SparseFeatures::new(vec![0, 1, 3, 3, 4].into(), columns.into(), vec![0.5, 1.0, 1.5, 3.0].into(), 500)
        .unwrap()
}

fn arrays(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().unwrap() == "npy").collect()
}

/// Calls `check` with each array of a dense and of a sparse set, and restores the array afterwards.
fn for_each_array(check: impl Fn(&Path, &Path)) {
    for (_root, folder) in [set(dense()), set(sparse())] {
        let paths = arrays(&folder);
        assert!(paths.len() >= 11);
        for path in paths {
            let whole = fs::read(&path).unwrap();
            check(&folder, &path);
            fs::write(&path, whole).unwrap();
            format::verify(&folder).unwrap();
        }
    }
}

#[test]
fn open_rejects_truncated_arrays() {
    for_each_array(|folder, path| {
        let whole = fs::read(path).unwrap();
        for length in [0, 5, 60, 127, whole.len() - 1] {
            fs::write(path, &whole[..length]).unwrap();
            let error = format::open(folder).unwrap_err();
            assert!(
                matches!(&error, Error::Store(StoreError::Npy { path: at, .. }) if at == path),
                "{error}"
            );
        }
        fs::write(path, [&whole[..], b"more"].concat()).unwrap();
        assert!(matches!(format::open(folder), Err(Error::Store(StoreError::Npy { .. }))));
    });
}

#[test]
fn convert_rejects_damaged_sets() {
    for_each_array(|folder, path| {
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.len() - 1;
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
        let out = folder.with_extension("out");
        let error = convert(folder, &out, &ConvertOptions::default()).unwrap_err();
        assert!(
            matches!(&error, Error::Store(StoreError::HashMismatch { path: at, .. }) if at == path),
            "{error}"
        );
        assert!(!out.exists());
    });
}

#[test]
fn missing_array_error_names_the_file() {
    for_each_array(|folder, path| {
        fs::remove_file(path).unwrap();
        let error = format::open(folder).unwrap_err();
        assert!(matches!(&error, Error::Store(StoreError::Io { path: at, .. }) if at == path), "{error}");
    });
}

#[test]
fn verify_detects_a_flipped_bit() {
    for_each_array(|folder, path| {
        let whole = fs::read(path).unwrap();
        // One byte of the header's padding is changed, and then the last byte of the values. In `indptr`, a byte of the
        // second offset is changed instead, because the last offset must be the number of edges and an earlier check
        // would fail.
        let is_indptr = path.to_string_lossy().ends_with("indptr.npy");
        let last = if is_indptr { 128 + 8 } else { whole.len() - 1 };
        for at in [126, last] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(path, &bytes).unwrap();
            let error = format::verify(folder).unwrap_err();
            let Error::Store(StoreError::HashMismatch { path: named, expected, got }) = &error else {
                panic!("{}: {error}", path.display());
            };
            assert!(named == path && expected != got && got.len() == 64, "{error}");
            format::open(folder).unwrap();
        }
    });
}

/// Replaces an array and its hash in the manifest, so that only its values are wrong.
fn forge<T: Element>(folder: &Path, name: &str, values: &[T], shape: &[usize]) {
    let copy = folder.with_file_name("copy");
    let bytes = npy::write(values, shape);
    fs::write(folder.join(name), &bytes).unwrap();
    fs::write(&copy, bytes).unwrap();
    let Err(Error::Store(StoreError::HashMismatch { expected, got, .. })) = format::verify(folder) else {
        panic!("the hash of {name} should differ");
    };
    edit(folder, &expected, &got);
}

fn edit(folder: &Path, from: &str, to: &str) {
    let path = folder.join("kiln.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "the manifest should contain {from}: {text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

/// Checks that a set with a forged array opens, and that `verify` fails with the expected error.
fn check_forged<T: Element>(
    features: impl FeatureStore + 'static,
    name: &str,
    values: &[T],
    shape: &[usize],
    expected: &str,
) {
    let (_root, folder) = set(features);
    forge(&folder, name, values, shape);
    format::open(&folder).unwrap();
    let error = format::verify(&folder).unwrap_err();
    let Error::Store(StoreError::BadValue { path, .. }) = &error else { panic!("{error}") };
    assert!(error.to_string().contains(expected), "{error}\n    expected {expected}");
    assert!(path.starts_with(&folder) && path.extension().unwrap() == "npy", "{error}");
}

#[test]
fn verify_reports_invalid_values_with_file_and_position() {
    check_forged(
        dense(),
        "indptr.npy",
        &[0_u64, 3, 1, 4, 4],
        &[5],
        "indptr.npy: entry 2 is 1, expected at least 3, the entry before it",
    );
    check_forged(
        dense(),
        "indices.npy",
        &[0_u32, 0, 4, 3],
        &[4],
        "indices.npy: the source of edge 2 is 4, expected a node id below 4",
    );
    check_forged(
        dense(),
        "weights.npy",
        &[0.5, f32::INFINITY, 1.5, 2.0],
        &[4],
        "weights.npy: the weight of edge 1 is inf, expected finite numbers",
    );
    check_forged(
        dense(),
        "edge_types.npy",
        &[0_u8, 1, 0, 2],
        &[4],
        "edge_types.npy: the type of edge 3 is 2, expected a type below 2, the number of types that have names",
    );
    check_forged(
        dense(),
        "labels.npy",
        &[1, 3, 2, -1],
        &[4],
        "labels.npy: the label of node 1 is 3, expected a class below 3 or a negative number",
    );
    check_forged(
        dense(),
        "val.npy",
        &[4_u32],
        &[1],
        "val.npy: val split entry 0 is node 4, expected a node id below 4",
    );
    check_forged(dense(), "test.npy", &[3_u32], &[1], "node 3, expected a node that has a label");
    check_forged(
        dense(),
        "features.npy",
        &[0.0, 0.5, 1.0, 1.5, 2.0, f32::NAN, 3.0, 3.5],
        &[4, 2],
        "features.npy: a feature of node 2 is NaN, expected finite numbers",
    );
    check_forged(
        dense(),
        "names_ends.npy",
        &[4_u32, 4, 11, 13],
        &[4],
        "names_ends.npy: the name of node 2 is 11, expected the end of UTF-8 text from byte 4",
    );
}

#[test]
fn verify_reports_invalid_sparse_features_with_file_and_position() {
    check_forged(
        sparse(),
        "features_indptr.npy",
        &[0_u64, 3, 2, 3, 4],
        &[5],
        "features_indptr.npy: the values of row 1 is 3 to 2, expected a range within 0 to 4",
    );
    check_forged(
        sparse(),
        "features_indices.npy",
        &[1_u32, 0, 500, 0],
        &[4],
        "features_indices.npy: a column of row 1 is 500, expected a column below 500",
    );
    check_forged(
        sparse(),
        "features_data.npy",
        &[0.5, 1.0, 1.5, f32::NEG_INFINITY],
        &[4],
        "features_data.npy: value 3 is -inf, expected finite numbers",
    );
}

#[test]
fn verify_checks_the_values_of_a_folder_without_hashes() {
    let (_root, folder) = set(dense());
    fs::remove_file(folder.join("kiln.json")).unwrap();
    let verified = format::verify(&folder).unwrap();
    assert_eq!((verified.n_nodes, verified.n_edges, verified.n_hashed), (4, 4, 0));
    let overlap = npy::write(&[0_u32, 1], &[2]);
    fs::write(folder.join("train.npy"), overlap).unwrap();
    assert_eq!(format::verify(&folder).unwrap().notes.len(), 1);
    fs::write(folder.join("indices.npy"), npy::write(&[0_u32, 0, 9, 3], &[4])).unwrap();
    let error = format::verify(&folder).unwrap_err().to_string();
    assert!(error.contains("indices.npy: the source of edge 2 is 9"), "{error}");
}

/// Checks that opening and verifying fail with the expected error after an edit of the manifest.
fn check_edited(from: &str, to: &str, expected: &str) {
    let (_root, folder) = set(dense());
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
    check_edited("\"n_nodes\": 4", "\"n_nodes\": 5", "is [4, 2], expected [5, 2]");
    check_edited("\"n_edges\": 4", "\"n_edges\": 3", "is [4], expected [3]");
    check_edited("\"dim\": 2", "\"dim\": 3", "files.features.npy.shape is [4, 2], expected [4, 3]");
    check_edited("\"dim\": 2", "\"dim\": 0", "dim is 0, expected 1 to 16777216");
    check_edited("\"dim\": 2", "\"dim\": null", "n_classes is 3, expected null, because dim is null");
    check_edited("\"n_classes\": 3", "\"n_classes\": 4", "class_names is 3 names, expected 4 names or none");
    check_edited("\"n_classes\": 3,", "", "n_classes is null, expected a number, because dim is a number");
    check_edited("\"n_classes\": 3", "\"n_classes\": -3", "invalid value");
    check_edited("\"name\"", "\"title\"", "unknown field `title`");
    check_edited("\"f32\"", "\"f16\"", "features.npy: the elements are <f4, expected <f2");
    check_edited("\"f32\"", "\"i32\"", "files.features.npy.dtype is i32, expected f32 or f16 or bf16");
    check_edited("\"f32\"", "\"complex\"", "unknown variant `complex`");
    check_edited("labels.npy", "layers.npy", "files.layers.npy is unknown, expected a file of the format");
    check_edited(
        "weights.npy",
        "../weights.npy",
        "files.../weights.npy is unknown, expected a file of the format",
    );
    check_edited("\"names_text.npy\": {", "\"features_data.npy\": {", "files.features_data.npy.dtype is u8");
}

#[test]
fn missing_manifest_entry_is_reported() {
    for (_root, folder) in [set(dense()), set(sparse())] {
        let manifest = folder.join("kiln.json");
        let whole: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        for path in arrays(&folder) {
            let name = path.file_name().unwrap().to_str().unwrap();
            let mut without = whole.clone();
            without["files"].as_object_mut().unwrap().remove(name).unwrap();
            fs::write(&manifest, serde_json::to_vec(&without).unwrap()).unwrap();
            // A missing entry is always an error if its file exists. Without its file, it is an error only if the file
            // is required.
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
            check(name == "weights.npy" || name == "edge_types.npy");
            fs::write(&path, bytes).unwrap();
        }
    }
}

#[test]
fn rejects_known_file_that_the_manifest_does_not_list() {
    let (_root, folder) = set(sparse());
    fs::write(folder.join("README"), "other files are ignored").unwrap();
    format::open(&folder).unwrap();
    fs::copy(folder.join("features_data.npy"), folder.join("features.npy")).unwrap();
    let error = format::open(&folder).unwrap_err().to_string();
    assert!(
        error.contains("files.features.npy is none, expected an entry, because the file exists"),
        "{error}"
    );
}

#[test]
fn rejects_missing_and_invalid_manifests() {
    let (_root, folder) = set(dense());
    let path = folder.join("kiln.json");
    for garbage in ["", "{", "null", "[1]", "{\"format\": \"one\"}", "\u{0}"] {
        fs::write(&path, garbage).unwrap();
        let error = format::open(&folder).unwrap_err();
        assert!(
            matches!(&error, Error::Store(StoreError::Manifest { path: at, .. }) if *at == path),
            "{error}"
        );
        assert!(matches!(format::verify(&folder), Err(Error::Store(StoreError::Manifest { .. }))));
    }
    fs::remove_file(&path).unwrap();
    let error = format::open(&folder).unwrap_err();
    assert!(
        error.to_string().contains("has no kiln.json (the manifest of a set in the kiln format)"),
        "{error}"
    );
    assert!(matches!(format::open(folder.join("nowhere")), Err(Error::Store(StoreError::Missing { .. }))));
}
