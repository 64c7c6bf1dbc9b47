//! Tests of the errors for damaged folders in the kiln format, of both layouts.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use kiln_data::convert::{ConvertOptions, convert, convert_heterogeneous};
use kiln_data::{Dataset, Error, format};
use kiln_store::Error as StoreError;
use kiln_store::npy::{self, Element};

use crate::common::notes_of_reading;
use crate::sets::{edit, papers, rows, small, sparse_rows, written};

fn arrays(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().unwrap() == "npy").collect()
}

fn name_of(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Returns sets with all optional data, and the number of their arrays: plain ones with dense and with sparse features, and
/// one whose files have numbers.
fn sets() -> [(Dataset, usize); 3] {
    [(small(rows()), 11), (small(sparse_rows()), 13), (papers(), 17)]
}

/// Calls `check` with each array of each set, and restores the array afterwards.
fn for_each_array(check: impl Fn(&Path, &Path)) {
    for (data, n_arrays) in sets() {
        let (_root, folder) = written(&data);
        let paths = arrays(&folder);
        assert_eq!(paths.len(), n_arrays);
        for path in paths {
            let whole = fs::read(&path).unwrap();
            check(&folder, &path);
            fs::write(&path, whole).unwrap();
            format::verify(&folder).unwrap();
        }
    }
}

#[test]
fn open_rejects_truncated_and_missing_arrays() {
    for_each_array(|folder, path| {
        let whole = fs::read(path).unwrap();
        let mut damaged: Vec<Vec<u8>> =
            [0, 5, 60, 127, whole.len() - 1].map(|length| whole[..length].to_vec()).into();
        damaged.push([&whole[..], b"more"].concat());
        for bytes in damaged {
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
fn convert_rejects_damaged_sets() {
    for_each_array(|folder, path| {
        let mut bytes = fs::read(path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
        let out = folder.with_extension("out");
        let error = match kiln_data::is_heterogeneous(folder).unwrap() {
            true => convert_heterogeneous(folder, &out, 1 << 20).unwrap_err(),
            false => convert(folder, &out, &ConvertOptions::default()).unwrap_err(),
        };
        let is_named =
            matches!(&error, Error::Store(StoreError::HashMismatch { path: at, .. }) if at == path);
        assert!(is_named, "{error}");
        assert!(!out.exists());
    });
}

#[test]
fn verify_detects_a_flipped_bit() {
    for_each_array(|folder, path| {
        let whole = fs::read(path).unwrap();
        // One byte of the header's padding is changed, and then the last byte of the values. In `indptr`, a byte of the
        // second offset is changed instead, because the last offset must be the number of edges and an earlier check
        // would fail.
        let last = if name_of(path).contains("indptr") { 128 + 8 } else { whole.len() - 1 };
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

/// Replaces the values of an array and its hash in the manifest, so that only the values are wrong.
fn forge<T: Element>(folder: &Path, name: &str, values: &[T]) {
    let header = fs::read(folder.join(name)).unwrap()[..128].to_vec();
    let values = npy::write(values, &[values.len()]).split_off(128);
    fs::write(folder.join(name), [header, values].concat()).unwrap();
    let Err(Error::Store(StoreError::HashMismatch { expected, got, .. })) = format::verify(folder) else {
        panic!("the hash of {name} should differ");
    };
    edit(folder, &expected, &got);
}

/// Checks that a set with a forged array opens, and that `verify` fails with the expected error, which names the array.
fn check_forged<T: Element>(data: &Dataset, name: &str, values: &[T], expected: &str) {
    let (_root, folder) = written(data);
    forge(&folder, name, values);
    format::open(&folder).unwrap();
    let error = format::verify(&folder).unwrap_err();
    let Error::Store(StoreError::BadValue { path, .. }) = &error else { panic!("{error}") };
    assert_eq!(*path, folder.join(name));
    let expected = format!("{name}: {expected}");
    assert!(error.to_string().contains(&expected), "{error}\n    expected {expected}");
}

#[test]
fn verify_reports_invalid_values_with_file_and_position() {
    let set = small(rows());
    let expected = "entry 2 is 1, expected at least 3, the entry before it";
    check_forged(&set, "indptr.npy", &[0_u64, 3, 1, 4, 4], expected);
    let expected = "the source of edge 2 is 4, expected a node id below 4";
    check_forged(&set, "indices.npy", &[0_u32, 0, 4, 3], expected);
    let expected = "the weight of edge 1 is inf, expected finite numbers";
    check_forged(&set, "weights.npy", &[0.5, f32::INFINITY, 1.5, 2.0], expected);
    let expected = "the type of edge 3 is 2, expected a type below 2, the number of types that have names";
    check_forged(&set, "edge_types.npy", &[0_u8, 1, 0, 2], expected);
    let expected = "the label of node 1 is 3, expected a class below 3 or a negative number";
    check_forged(&set, "labels.npy", &[1, 3, 2, -1], expected);
    let expected = "val split entry 0 is node 4, expected a node id below 4";
    check_forged(&set, "val.npy", &[4_u32], expected);
    let expected = "test split entry 0 is node 3, expected a node that has a label";
    check_forged(&set, "test.npy", &[3_u32], expected);
    let expected = "a feature of node 2 is NaN, expected finite numbers";
    check_forged(&set, "features.npy", &[0.0, 0.5, 1.0, 1.5, 2.0, f32::NAN, 3.0, 3.5], expected);
    let expected = "the name of node 2 is 11, expected the end of UTF-8 text from byte 4";
    check_forged(&set, "names_ends.npy", &[4_u32, 4, 11, 13], expected);
    let set = small(sparse_rows());
    let expected = "the values of row 1 is 3 to 2, expected a range within 0 to 4";
    check_forged(&set, "features_indptr.npy", &[0_u64, 3, 2, 3, 4], expected);
    let expected = "a column of row 1 is 500, expected a column below 500";
    check_forged(&set, "features_indices.npy", &[1_u32, 0, 500, 0], expected);
    let expected = "value 3 is -inf, expected finite numbers";
    check_forged(&set, "features_data.npy", &[0.5, 1.0, 1.5, f32::NEG_INFINITY], expected);
}

#[test]
fn verify_reports_invalid_values_of_numbered_files() {
    let set = papers();
    check_forged(&set, "indptr.2.npy", &[0_u64, 2, 1, 2, 2], "entry 2 is 1, expected at least 2");
    let expected = "the source of edge 1 is 6, expected a node of type `venue`, which are 7..9";
    check_forged(&set, "indices.2.npy", &[8_u32, 6], expected);
    let expected = "the source of edge 3 is 3, expected a node of type `author`";
    check_forged(&set, "indices.0.npy", &[0_u32, 2, 0, 3, 2], expected);
    check_forged(&set, "weights.0.npy", &[0.5, f32::NAN, 1.0, 1.5, 2.0], "the weight of edge 1 is NaN");
    check_forged(&set, "labels.npy", &[1, 3, 2, -1], "the label of node 1 is 3, expected a class below 3");
    let range = "expected a node of the type with targets, which are 3..7";
    check_forged(&set, "val.npy", &[7_u32], &format!("val split entry 0 is node 7, {range}"));
    check_forged(&set, "train.npy", &[2_u32], &format!("train split entry 0 is node 2, {range}"));
    let expected = "test split entry 0 is node 6, expected a node that has a label";
    check_forged(&set, "test.npy", &[6_u32], expected);
    let expected = "a feature of node 2 is NaN, expected finite numbers";
    check_forged(&set, "features.1.npy", &[0.0, 0.5, 1.0, 1.5, 2.0, f32::NAN, 3.0, 3.5], expected);
    check_forged(&set, "features_indptr.0.npy", &[0_u64, 3, 2, 3], "the values of row 1 is 3 to 2");
    check_forged(&set, "features_indices.0.npy", &[1_u32, 500, 0], "a column of row 1 is 500");
    check_forged(&set, "features_data.0.npy", &[1.0, f32::INFINITY, 2.0], "value 1 is inf");
    let expected = "the name of node 1 is 2, expected the end of UTF-8 text from byte 3 of names_text.0.npy";
    check_forged(&set, "names_ends.0.npy", &[3_u32, 2, 8], expected);
    let expected = "the end of name 2 is 4, expected 8, the length of names_text.0.npy";
    check_forged(&set, "names_ends.0.npy", &[3_u32, 3, 4], expected);
}

#[test]
fn open_rejects_offsets_that_do_not_fit_the_edges() {
    let check = |data: &Dataset, name: &str, values: &[u64], expected: &str| {
        let (_root, folder) = written(data);
        fs::write(folder.join(name), npy::write(values, &[values.len()])).unwrap();
        let error = format::open(&folder).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n    expected {expected}");
    };
    let (set, numbered) = (small(sparse_rows()), papers());
    check(&set, "indptr.npy", &[1, 2, 2, 3, 4], "indptr.npy: entry 0 is 1, expected 0");
    check(&set, "indptr.npy", &[0, 0, 1, 4, 5], "indices.npy: the number of entries is 4, expected 5");
    check(&set, "features_indptr.npy", &[0, 1, 3, 3, 5], "features_indptr.npy: ");
    check(&numbered, "indptr.1.npy", &[1, 2, 2, 3, 3], "indptr.1.npy: entry 0 is 1, expected 0");
    let expected = "indices.1.npy: the number of entries is 3, expected 4";
    check(&numbered, "indptr.1.npy", &[0, 2, 2, 3, 4], expected);
    check(&numbered, "features_indptr.0.npy", &[0, 1, 3, 4], "features_indptr.0.npy: ");
}

#[test]
fn verify_checks_the_values_of_a_folder_without_hashes() {
    let (_root, folder) = written(&small(rows()));
    fs::remove_file(folder.join("kiln.json")).unwrap();
    let verified = format::verify(&folder).unwrap();
    assert_eq!((verified.n_nodes, verified.n_edges, verified.n_hashed), (4, 4, 0));
    let overlap = npy::write(&[0_u32, 1], &[2]);
    fs::write(folder.join("train.npy"), overlap).unwrap();
    let notes = notes_of_reading(&format::verify(&folder).unwrap().notes);
    // The other note is about the names, which only the manifest makes known.
    assert!(notes.len() == 2 && notes[1].to_string().contains("names_text.npy"), "{notes:?}");
    fs::write(folder.join("indices.npy"), npy::write(&[0_u32, 0, 9, 3], &[4])).unwrap();
    let error = format::verify(&folder).unwrap_err().to_string();
    assert!(error.contains("indices.npy: the source of edge 2 is 9"), "{error}");
}

#[test]
fn rejects_inconsistent_manifests() {
    // Edits of the text that both manifests have, of that of a plain set, and of that of a set with numbered files.
    let both = [
        ("'format': 1", "'format': 2", "the set has format 2, expected 1"),
        ("'name'", "'title'", "unknown field `title`"),
        ("'n_nodes': 4", "'n_nodes': 5", "is [4, 2], expected [5, 2]"),
        ("'n_classes': 3", "'n_classes': 4", "class_names is 3 names, expected 4 names or none"),
        ("labels.npy", "layers.npy", "files.layers.npy is unknown, expected a file of the format"),
    ];
    let plain = [
        ("'dim': 2", "'dim': 0", "dim is 0, expected 1 to 16777216"),
        ("'n_edges': 4", "'n_edges': 3", "is [4], expected [3]"),
        ("'dim': 2", "'dim': 3", "files.features.npy.shape is [4, 2], expected [4, 3]"),
        ("'dim': 2", "'dim': null", "n_classes is 3, expected null, because dim is null"),
        ("'n_classes': 3,", "", "n_classes is null, expected a number, because dim is a number"),
        ("'n_classes': 3", "'n_classes': -3", "invalid value"),
        ("'f32'", "'f16'", "features.npy: the elements are <f4, expected <f2"),
        ("'f32'", "'i32'", "files.features.npy.dtype is i32, expected f32 or f16 or bf16"),
        ("'f32'", "'complex'", "unknown variant `complex`"),
        ("weights.npy", "../weights.npy", "files.../weights.npy is unknown, expected a file of the format"),
        ("'names_text.npy': {", "'features_data.npy': {", "files.features_data.npy.dtype is u8"),
    ];
    let numbered = [
        ("'n_nodes': 3", "'n_nodes': 4", "files.features_indptr.0.npy.shape is [4], expected [5]"),
        ("'n_nodes': 4", "'n_nodes': 4294967295", "node_types is "),
        ("'n_edges': 3", "'n_edges': 2", "files.indices.1.npy.shape is [3], expected [2]"),
        ("'dim': 2", "'dim': 0", "node_types[1].dim is 0, expected 1 to 16777216, or null"),
        ("'dim': 2", "'dim': null", "files.features.1.npy is an entry, expected no entry"),
        ("'dim': null", "'dim': 1", "files is none, expected an entry features.2.npy"),
        ("'dim': 2", "'width': 2", "unknown field `width`"),
        ("'name': 'venue'", "'name': 'paper'", "invalid node type `paper`: it occurs twice"),
        ("'name': 'cites'", "'name': 'writes'", "invalid relation `writes`: it occurs twice"),
        ("'name': 'cites'", "'name': ''", "invalid relation ``: it is empty"),
        (
            "'src_type': 'venue'",
            "'src_type': 'editor'",
            "relations[2].src_type is \"editor\", expected the name of a node type",
        ),
        ("'dst_type': 'paper'", "'dst_type': 'author'", "files.indptr.0.npy.shape is [5], expected [4]"),
        ("'target_type': 'paper'", "'target_type': 'editor'", "target_type is \"editor\""),
        ("'target_type': 'paper'", "'target_type': null", "n_classes is 3, expected null"),
        ("'n_classes': 3", "'n_classes': null", "n_classes is null, expected a number"),
        ("indptr.2.npy", "indptr.3.npy", "files.indptr.3.npy is unknown, expected a file of the format"),
        ("'f32'", "'i32'", ".dtype is i32, expected f32"),
        ("weights.0.npy", "../weights.0.npy", "files.../weights.0.npy is unknown"),
    ];
    for (data, cases) in [(small(rows()), &plain[..]), (papers(), &numbered[..])] {
        for (from, to, expected) in both.iter().chain(cases) {
            let (_root, folder) = written(&data);
            edit(&folder, &from.replace('\'', "\""), &to.replace('\'', "\""));
            let error = format::open(&folder).unwrap_err();
            let Error::Store(source) = &error else { panic!("{error}") };
            let is_of_manifest = matches!(
                source,
                StoreError::Metadata { .. }
                    | StoreError::Manifest { .. }
                    | StoreError::Format { .. }
                    | StoreError::Npy { .. }
            );
            assert!(
                is_of_manifest && error.to_string().contains(expected),
                "{error}\n    expected {expected}"
            );
            assert_eq!(format::verify(&folder).unwrap_err().to_string(), error.to_string());
        }
    }
}

#[test]
fn missing_manifest_entry_is_reported() {
    for (data, _) in sets() {
        let (_root, folder) = written(&data);
        let manifest = folder.join("kiln.json");
        let whole: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        for path in arrays(&folder) {
            let name = name_of(&path);
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
            check(["weights.npy", "edge_types.npy", "weights.0.npy"].contains(&name));
            fs::write(&path, bytes).unwrap();
        }
    }
}

#[test]
fn rejects_known_file_that_the_manifest_does_not_list() {
    for (data, from, to) in [
        (small(sparse_rows()), "features_data.npy", "features.npy"),
        (papers(), "names_text.0.npy", "names_text.2.npy"),
    ] {
        let (_root, folder) = written(&data);
        fs::write(folder.join("README"), "other files are ignored").unwrap();
        format::open(&folder).unwrap();
        fs::copy(folder.join(from), folder.join(to)).unwrap();
        let error = format::open(&folder).unwrap_err().to_string();
        let expected = format!("files.{to} is none, expected an entry, because the file exists");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn rejects_missing_and_invalid_manifests() {
    for (data, _) in sets() {
        let (_root, folder) = written(&data);
        let path = folder.join("kiln.json");
        for garbage in ["", "{", "null", "[1]", "{\"format\": \"one\"}", "\u{0}"] {
            fs::write(&path, garbage).unwrap();
            let error = format::open(&folder).unwrap_err();
            let is_named =
                matches!(&error, Error::Store(StoreError::Manifest { path: at, .. }) if *at == path);
            assert!(is_named, "{error}");
            assert!(matches!(format::verify(&folder), Err(Error::Store(StoreError::Manifest { .. }))));
        }
        fs::remove_file(&path).unwrap();
        let error = format::open(&folder).unwrap_err();
        assert!(matches!(&error, Error::Store(StoreError::Missing { .. })), "{error}");
        let expected = "has no kiln.json (the manifest of a set in the kiln format)";
        assert!(error.to_string().contains(expected), "{error}");
        assert!(matches!(
            format::open(folder.join("nowhere")),
            Err(Error::Store(StoreError::Missing { .. }))
        ));
    }
}

#[test]
fn a_set_without_targets_has_no_files_of_targets() {
    let (_root, folder) = written(&Dataset { targets: None, ..papers() });
    format::verify(&folder).unwrap();
    assert!(format::open(&folder).unwrap().targets.is_none());
    let (_other, with) = written(&papers());
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
        let (_root, folder) = written(&papers());
        let more = format!(
            ",\n    {{ \"name\": \"nothing\", \"n_nodes\": {n_nodes}, \"dim\": null }}\n  ],\n  \"relations\""
        );
        edit(&folder, "\n  ],\n  \"relations\"", &more);
        format::open(&folder).map(drop)
    };
    // Two nodes of another type count, too.
    with_nodes(134_217_726).unwrap();
    let many = with_nodes(134_217_727).unwrap_err().to_string();
    let expected = "at most 134217728 nodes without features, names, targets and edges to them";
    assert!(many.contains(expected), "{many}");
}
