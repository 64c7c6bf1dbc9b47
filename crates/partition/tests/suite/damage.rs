//! Damaged partitions and the errors that opening and verifying them return.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use kiln_graph::{EdgeId, NodeId};
use kiln_partition::{Error, Part, PartitionRow};
use kiln_store::ArrayFile;
use kiln_store::npy::{self, Element};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::{Stored, VALUES, parts_with_values, six_nodes, typed_parts};

fn arrays(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().unwrap() == "npy").collect()
}

/// Calls `check(folder, array)` for each array of a partition, and restores the array afterwards.
fn for_each_array(check: impl Fn(&Path, &Path)) {
    let class_parts = [six_nodes(Stored::BF16), six_nodes(Stored::Sparse), typed_parts()];
    let value_parts = VALUES.map(|(layout, kind)| parts_with_values(layout, kind));
    for (_root, folder) in class_parts.into_iter().chain(value_parts) {
        let paths = arrays(&folder);
        assert!(paths.len() >= 12, "{paths:?}");
        for path in paths {
            let whole = fs::read(&path).unwrap();
            check(&folder, &path);
            fs::write(&path, whole).unwrap();
            Part::verify(&folder).unwrap();
        }
    }
}

#[test]
fn open_rejects_truncated_arrays() {
    for_each_array(|folder, path| {
        let whole = fs::read(path).unwrap();
        for length in [0, 60, whole.len() - 1] {
            fs::write(path, &whole[..length]).unwrap();
            let error = Part::open(folder).unwrap_err();
            let Error::Store(kiln_store::Error::Npy { path: at, .. }) = &error else { panic!("{error}") };
            assert_eq!(at, path);
        }
    });
}

#[test]
fn open_rejects_missing_and_unlisted_arrays() {
    for_each_array(|folder, path| {
        let whole = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        let error = Part::open(folder).unwrap_err();
        assert!(
            matches!(&error, Error::Store(kiln_store::Error::Io { path: at, .. }) if at == path),
            "{error}"
        );
        fs::write(path, whole).unwrap();
        let manifest = folder.join("part.json");
        let text = fs::read(&manifest).unwrap();
        let mut without: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        without["files"].as_object_mut().unwrap().remove(name).unwrap();
        fs::write(&manifest, serde_json::to_vec(&without).unwrap()).unwrap();
        let error = Part::open(folder).unwrap_err();
        let is_metadata = matches!(&error, Error::Store(kiln_store::Error::Metadata { .. }));
        assert!(is_metadata, "{name}: {error}");
        fs::write(&manifest, text).unwrap();
    });
}

#[test]
fn verify_detects_a_flipped_bit_by_the_hash() {
    for_each_array(|folder, path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[126] ^= 1;
        fs::write(path, &bytes).unwrap();
        Part::open(folder).unwrap();
        let error = Part::verify(folder).unwrap_err();
        assert!(
            matches!(&error, Error::Store(kiln_store::Error::HashMismatch { path: at, .. }) if at == path),
            "{error}"
        );
    });
}

/// Writes a partition to a new folder.
type Stores = fn() -> (tempfile::TempDir, PathBuf);

fn plain() -> (tempfile::TempDir, PathBuf) {
    six_nodes(Stored::F32)
}

/// Checks an array of a new partition as [`check_forged_in`] does. The error names the array.
fn check_forged<T: Element>(store: Stores, name: &str, values: &[T], expected: &str) {
    let (_root, folder) = store();
    let shape = ArrayFile::open(folder.join(name)).unwrap().shape().to_vec();
    check_forged_in(&folder, name, values, &shape, &format!("{name}: {expected}"));
}

/// Checks the error of verifying an array with invalid values whose hash in the manifest is correct. Opening must
/// succeed, because it does not read the values.
pub(crate) fn check_forged_in<T: Element>(
    folder: &Path,
    name: &str,
    values: &[T],
    shape: &[usize],
    expected: &str,
) {
    fs::write(folder.join(name), npy::write(values, shape)).unwrap();
    let Err(Error::Store(kiln_store::Error::HashMismatch { expected: old, got, .. })) = Part::verify(folder)
    else {
        panic!("verifying the changed {name} should find a wrong hash");
    };
    edit(folder, &old, &got);
    Part::open(folder).unwrap();
    let error = Part::verify(folder).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}\n    expected {expected}");
}

fn edit(folder: &Path, from: &str, to: &str) {
    let path = folder.join("part.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "the manifest should contain {from}: {text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

/// Partitions are opened without verification, so `graph_by_node` must check the arrays that it uses.
#[test]
fn graph_by_node_rejects_damaged_rows() {
    let damaged = |store: Stores, name: &str, bytes: Vec<u8>, expected: &str| {
        let (_root, folder) = store();
        fs::write(folder.join(name), bytes).unwrap();
        let error = Part::open(&folder).unwrap().graph_by_node(0).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let expected = "old_ids.npy: partition book: the node of row 1 is 4";
    damaged(plain, "old_ids.npy", npy::write(&[0_u32, 4], &[2]), expected);
    let expected = "indptr.npy: invalid indptr at node 1: 3 is followed by 2";
    damaged(plain, "indptr.npy", npy::write(&[0_u64, 3, 2], &[3]), expected);
    // The relation leads to items, which have the ids 9 to 15.
    let expected = "old_ids.1.npy: partition book: the node of row 1 is 14";
    damaged(typed_parts, "old_ids.1.npy", npy::write(&[10_u32, 14, 12], &[3]), expected);
    let expected = "the node of row 1 is 2, expected the node whose new id";
    damaged(typed_parts, "old_ids.1.npy", npy::write(&[10_u32, 2, 14], &[3]), expected);
    let expected = "invalid indptr at node 1: 5 is followed by 2";
    damaged(typed_parts, "indptr.0.npy", npy::write(&[0_u64, 5, 2, 12], &[4]), expected);
}

/// Features of edges are found through arrays that opening does not check.
#[test]
fn edge_position_rejects_damaged_rows() {
    let damaged = |name: &str, bytes: Vec<u8>, edge: u64| {
        let (_root, folder) = six_nodes(Stored::F32);
        fs::write(folder.join(name), bytes).unwrap();
        let part = Part::open(&folder).unwrap();
        part.edge_position(0, PartitionRow(1), EdgeId(edge)).unwrap_err().to_string()
    };
    // The row has the edges 4 and 5 at the positions 0 and 1.
    for (name, values, edge) in [
        ("first_edges.npy", vec![0_u64, u64::MAX], 4),
        ("first_edges.npy", vec![0, 5], 4),
        ("indptr.npy", vec![0, 1, 2], 5),
        ("indptr.npy", vec![0, u64::MAX, 2], 5),
    ] {
        let error = damaged(name, npy::write(&values, &[values.len()]), edge);
        let expected = format!("first_edges.npy: row 1 of partition 0 has no edge {edge}: ");
        assert!(error.contains(&expected), "{name} {values:?}: {error}");
    }
}

/// The partition has the nodes 0 and 3, the edges 3 -> 3 and 4 -> 3, and caches the row of the remote node 4.
#[test]
fn verify_reports_file_and_position_of_invalid_values() {
    let (_root, folder) = plain();
    let part = Part::open(&folder).unwrap();
    assert_eq!(part.types[0].old_ids.iter().map(|node| node.0).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(
        (part.relations[0].graph.indptr(), &*part.relations[0].first_edges),
        (&[0, 0, 2][..], &[0, 4][..])
    );
    let cache = part.types[0].cache.as_ref().unwrap();
    assert_eq!((cache.ids[0].0, cache.ids.len()), (4, 1));

    let expected = "partition book: the new id of node 5 is 4, expected 5";
    check_forged(plain, "new_ids.npy", &[0_u32, 2, 3, 1, 4, 4], expected);
    let expected = "partition book: the new id of node 5 is 6, expected below 6";
    check_forged(plain, "new_ids.npy", &[0_u32, 2, 3, 1, 4, 6], expected);
    let expected = "the node of row 1 is 2, expected the node whose new id is 1";
    check_forged(plain, "old_ids.npy", &[0_u32, 2], expected);
    let expected = "the node of row 1 is 9, expected the node whose new id is 1";
    check_forged(plain, "old_ids.npy", &[0_u32, 9], expected);
    check_forged(plain, "indptr.npy", &[0_u64, 3, 2], "entry 2 is 2, expected at least 3");
    let expected = "the source of edge 1 is 6, expected a node id below 6";
    check_forged(plain, "indices.npy", &[3_u32, 6], expected);
    let expected = "the first edge of row 1 is 6, expected at least 0 and at most 7 minus the row's 2";
    check_forged(plain, "first_edges.npy", &[0_u64, 6], expected);
    let expected = "the first edge of row 0 is 8, expected at least 0 and at most 7";
    check_forged(plain, "first_edges.npy", &[8_u64, 4], expected);
    let expected = "the first edge of row 1 is 4, expected at least 5 and at most 7";
    check_forged(plain, "first_edges.npy", &[5_u64, 4], expected);
    check_forged(plain, "weights.npy", &[f32::NAN, 0.0], "the weight of edge 0 is NaN");
    check_forged(plain, "edge_types.npy", &[0_u8, 2], "the type of edge 1 is 2");
    let rows = [0.0, 0.0, 0.0, 0.0, f32::NAN, 0.0];
    check_forged(plain, "edge_features.npy", &rows, "a feature of edge 1 is NaN");
    check_forged(plain, "features.npy", &[0.0, 0.0, 3.0, f32::INFINITY], "a feature of node 1 is inf");
    check_forged(plain, "labels.npy", &[0, 1, 0, 1, 0, 2], "the label of node 5 is 2, expected a class");
    check_forged(plain, "val.npy", &[1_u32, 6], "val split entry 1 is node 6");
    let expected = "the node of row 0 is 3, expected a node of another";
    check_forged(plain, "cache_ids.npy", &[3_u32], expected);
    let expected = "the node of row 0 is 6, expected a node of another";
    check_forged(plain, "cache_ids.npy", &[6_u32], expected);
    check_forged(plain, "cache_counts.npy", &[0_u32], "the count of row 0 is 0, expected at least 1");
    check_forged(plain, "cache_features.npy", &[4.0, f32::NAN], "a feature of node 0 is NaN");
}

/// The partition has the even nodes of the graph.
#[test]
fn verify_reports_invalid_values_of_numbered_files() {
    let (_root, folder) = typed_parts();
    let part = Part::open(&folder).unwrap();
    let ids = |node_type: usize| part.types[node_type].old_ids.iter().map(|node| node.0).collect::<Vec<_>>();
    assert_eq!((ids(0), ids(1), ids(2)), (vec![0, 2, 4, 6, 8], vec![10, 12, 14], vec![16, 18]));
    let forged = |name: &str, values: &[u32], at: usize, value: u32, expected: &str| {
        let mut values = values.to_vec();
        values[at] = value;
        check_forged(typed_parts, name, &values, expected);
    };
    let book = part.books.of_type(1).new_ids();
    forged("new_ids.1.npy", book, 1, 2, "partition book: the new id of node 1 is 2");
    let expected = "the node of row 1 is 11, expected the node whose new id is 1";
    forged("old_ids.1.npy", &ids(1), 1, 11, expected);
    let expected = "the node of row 0 is 3, expected the node whose new id is 0";
    forged("old_ids.1.npy", &ids(1), 0, 3, expected);
    let cached: Vec<u32> = part.types[1].cache.as_ref().unwrap().ids.iter().map(|id| id.0).collect();
    let expected = "the node of row 0 is 1, expected a node of another partition";
    forged("cache_ids.1.npy", &cached, 0, 1, expected);
    let counts = vec![1; cached.len()];
    forged("cache_counts.1.npy", &counts, 0, 0, "the count of row 0 is 0, expected at least 1");
    let sources = |relation: usize| -> Vec<u32> {
        part.relations[relation].graph.indices().iter().map(|src| src.0).collect()
    };
    // Node 9 is the first item, and node 16 the first shop.
    let expected = "the source of edge 2 is 9, expected a node id below 9";
    forged("indices.0.npy", &sources(0), 2, 9, expected);
    let expected = "the source of edge 0 is 16, expected a node id from 9 to 15, of the sources' type";
    forged("indices.1.npy", &sources(1), 0, 16, expected);
    let expected = "train split entry 1 is node 3, expected a node of the type with targets";
    forged("train.npy", &[9, 10, 11], 1, 3, expected);
    let mut firsts = part.relations[2].first_edges.to_vec();
    firsts[2] = 21;
    let expected = "the first edge of row 2 is 21, expected at least";
    check_forged(typed_parts, "first_edges.2.npy", &firsts, expected);
    let mut weights = part.relations[0].graph.weights().unwrap().to_vec();
    weights[1] = f32::NAN;
    check_forged(typed_parts, "weights.0.npy", &weights, "the weight of edge 1 is NaN");
}

/// Checks that opening fails with the expected error after an edit of the manifest, and verifying with the same one.
pub(crate) fn check_edited_in(folder: &Path, from: &str, to: &str, expected: &str) {
    edit(folder, from, to);
    let error = Part::open(folder).unwrap_err();
    assert!(matches!(&error, Error::Store(_) | Error::BadBook { .. }), "{error}");
    assert!(error.to_string().contains(expected), "{error}\n    expected {expected}");
    assert_eq!(Part::verify(folder).unwrap_err().to_string(), error.to_string());
}

#[test]
fn open_rejects_inconsistent_manifests() {
    let of_plain = [
        ("'format': 2", "'format': 4", "the set has format 4, expected 3"),
        ("'part': 0", "'part': 2", "part is 2, expected below 2, the number of partitions"),
        ("'part': 0", "'part': 1", "files.features.npy.shape is [2, 2], expected [4, 2]"),
        ("'n_nodes': 6", "'n_nodes': 7", "files.labels.npy.shape is [6], expected [7]"),
        ("'dim': 2", "'dim': 0", "dim is 0, expected 1 to 16777216"),
        ("'edge_dim': 3", "'edge_dim': 0", "edge_dim is 0, expected 1 to 16777216 columns"),
        ("'edge_dim': 3", "'edge_dim': 4", "files.edge_features.npy.shape is [2, 3], expected [2, 4]"),
        ("'edge_dim': 3,", "", "edge_dim is nothing, expected the number of columns"),
        ("'n_classes': 2", "'n_classes': 3", "class_names is 2 names, expected 3 names or none"),
        ("'random'", "'luck'", "unknown variant `luck`"),
        ("'hash'", "'sum'", "unknown field `sum`"),
        ("  2,\n    6\n  ]", "  2,\n    7\n  ]", "the last offset is 7, expected 6, the number of nodes"),
        ("    0,\n    2,\n", "    1,\n    3,\n", "the first offset is 1, expected 0"),
        ("  2,\n    6\n  ]", "  2\n  ]", "the last offset is 2, expected 6"),
        ("    0,\n    2,\n", "    4,\n    2,\n", "an offset is 2, expected at least 4"),
    ];
    let of_shop = [
        ("'format': 1", "'format': 4", "the set has format 4, expected 3"),
        ("'part': 0", "'part': 2", "part is 2, expected below 2, the number of partitions"),
        ("'part': 0", "'part': 1", "files.features.1.npy.shape is [3, 2], expected [4, 2]"),
        ("'n_nodes': 7", "'n_nodes': 8", "files.labels.npy.shape is [7], expected [8]"),
        ("'dim': 2", "'dim': 0", "node_types[1].dim is 0, expected 1 to 16777216, or null"),
        ("'dim': null", "'dim': 2", "files is none, expected an entry features.0.npy"),
        ("'dim': 2", "'dim': null", "files.cache_counts.1.npy is unknown, expected a file of the format"),
        ("'target_type': 1", "'target_type': 3", "target_type is 3, expected below 3"),
        ("'n_classes': 3", "'n_classes': 4", "class_names is 3 names, expected 4 names or none"),
        ("'dst_type': 0", "'dst_type': 3", "there is no node type `3`"),
        ("'rated by'", "'rates'", "invalid relation `rates`: it occurs twice"),
        ("'n_edges': 20", "'n_edges': 2", "expected at most 2, the edges of the whole relation"),
        ("'user'", "'item'", "invalid node type `item`: it occurs twice"),
        ("    5,\n        9\n", "    5\n", "node_types[1].offsets is 3, expected 2 offsets"),
        ("5,\n        9\n", "5,\n        4\n", "node_types[0].offsets is 4, expected at least 5"),
        ("5,\n        9\n", "5,\n        8\n", "the last offset is 8, expected 9"),
    ];
    let sets: [(Stores, _); 2] = [(plain, &of_plain[..]), (typed_parts, &of_shop[..])];
    for (store, cases) in sets {
        for (from, to, expected) in cases {
            let (_root, folder) = store();
            check_edited_in(&folder, &from.replace('\'', "\""), &to.replace('\'', "\""), expected);
        }
    }
}

/// Opening a partition with any changed byte must not panic, and verifying must detect each change.
#[test]
fn changed_bytes_never_panic_and_are_always_detected() {
    let class_parts = [(six_nodes(Stored::Sparse), 1000), (typed_parts(), 400)];
    let value_parts = VALUES.map(|(layout, kind)| (parts_with_values(layout, kind), 100));
    for ((_root, folder), n_cases) in class_parts.into_iter().chain(value_parts) {
        let mut paths = arrays(&folder);
        paths.sort();
        let index = any::<prop::sample::Index>;
        let mut runner = TestRunner::new(ProptestConfig::with_cases(n_cases));
        let result = runner.run(&(index(), index(), any::<u8>()), |(file, at, byte)| {
            let path = file.get(&paths);
            let whole = fs::read(path).unwrap();
            let mut bytes = whole.clone();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            fs::write(path, &bytes).unwrap();
            let place = |node| Part::open(&folder).ok()?.books.place(NodeId(node));
            prop_assert!((0..8).filter_map(place).all(|place| place.part < 2));
            prop_assert_eq!(Part::verify(&folder).is_ok(), byte == whole[at]);
            fs::write(path, whole).unwrap();
            Ok(())
        });
        result.unwrap();
    }
}

#[test]
fn open_rejects_a_folder_without_a_manifest() {
    for (_root, folder) in [plain(), typed_parts()] {
        fs::remove_file(folder.join("part.json")).unwrap();
        let error = Part::open(&folder).unwrap_err().to_string();
        assert!(error.ends_with("has no part.json (the manifest of a partition)"), "{error}");
    }
}

#[test]
fn open_names_folders_that_are_no_partitions() {
    let (_root, folder) = plain();
    let of_partitions = folder.parent().unwrap();
    let set = folder.join("set");
    fs::create_dir(&set).unwrap();
    fs::write(set.join("kiln.json"), "{}").unwrap();
    for (path, expected) in [
        (of_partitions, "part0"),
        (&*set, "a whole dataset: write it as partitions"),
        (&*folder.join("none"), "a path that does not exist"),
    ] {
        let error = Part::open(path).unwrap_err();
        assert!(
            matches!(error, Error::NotAPartition { .. }) && error.to_string().contains(expected),
            "{error}"
        );
    }
}
