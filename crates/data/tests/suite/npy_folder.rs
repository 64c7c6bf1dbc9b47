//! Tests of the reader of folders of `.npy` files: mapped arrays, converted arrays and invalid ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use half::f16;
use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, Error, Note};
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;
use kiln_store::npy::{self, Element};
use tempfile::TempDir;

use crate::common::{notes_of_reading, overlap};

fn put<T: Element>(folder: &Path, name: &str, values: &[T], shape: &[usize]) {
    fs::write(folder.join(name), npy::write(values, shape)).unwrap();
}

/// Writes a folder with the edges 0 -> 1, 0 -> 2, 1 -> 2, 3 -> 2. Node 3 has no class and no in-edge.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put(at, "indptr.npy", &[0_i64, 0, 1, 4, 4], &[5]);
    put(at, "indices.npy", &[0_i32, 0, 1, 3], &[4]);
    put(at, "features.npy", &[0.0_f32, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], &[4, 2]);
    put(at, "labels.npy", &[1_i32, 0, 2, -1], &[4]);
    put(at, "train.npy", &[0_i32], &[1]);
    put(at, "val.npy", &[1_i32], &[1]);
    put(at, "test.npy", &[2_i32], &[1]);
    folder
}

fn check(data: &Dataset) {
    assert_eq!(data.csc().unwrap().indptr(), [0, 0, 1, 4, 4]);
    assert_eq!(data.csc().unwrap().in_neighbors(NodeId(2)), [NodeId(0), NodeId(1), NodeId(3)]);
    assert_eq!((data.node_features().unwrap().dim(), data.labels().n_classes()), (2, 3));
    assert_eq!(data.node_features().unwrap().row(NodeId(3)).unwrap(), [3.0, 3.5]);
    assert_eq!(data.labels().as_slice(), [1, 0, 2, -1]);
    let split = data.split().parts().map(|(_, nodes)| nodes.to_vec());
    assert_eq!(split, [0, 1, 2].map(|node| vec![NodeId(node)]));
}

#[test]
fn arrays_of_32_bit_ids_are_mapped() {
    let folder = folder();
    let data = kiln_data::npy::open(folder.path()).unwrap();
    check(&data);
    assert_eq!(notes_of_reading(&data.notes), []);
    assert_eq!(data.csc().unwrap().owned_bytes(), 0);
}

#[test]
fn types_that_cannot_be_mapped_are_converted_with_a_note() {
    let folder = folder();
    let at = folder.path();
    put(at, "indptr.npy", &[0_i32, 0, 1, 4, 4], &[5]);
    put(at, "indices.npy", &[0_i64, 0, 1, 3], &[4]);
    put(at, "features.npy", &[0.0_f64, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], &[4, 2]);
    put(at, "labels.npy", &[1_i64, 0, 2, -7], &[4, 1]);
    put(at, "train_idx.npy", &[0_u64], &[1]);
    fs::remove_file(at.join("train.npy")).unwrap();
    let data = kiln_data::npy::open(at).unwrap();
    check(&data);
    assert_eq!(notes_of_reading(&data.notes).len(), 5, "{:?}", data.notes);
    let said = data.notes[1].to_string();
    assert!(said.contains("indices.npy: 4 elements of <i8 were copied to 32-bit ids"), "{said}");
}

#[test]
fn half_precision_and_sparse_features_are_read() {
    let folder = folder();
    let at = folder.path();
    let halves: Vec<f16> = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5].map(f16::from_f32).to_vec();
    put(at, "features.npy", &halves, &[4, 2]);
    check(&kiln_data::npy::open(at).unwrap());
    fs::remove_file(at.join("features.npy")).unwrap();
    put(at, "features_indptr.npy", &[0_i64, 1, 3, 5, 7], &[5]);
    put(at, "features_indices.npy", &[1_i32, 0, 1, 0, 1, 1, 0], &[7]);
    put(at, "features_data.npy", &[0.5_f32, 1.0, 1.5, 2.0, 2.5, 3.5, 3.0], &[7]);
    check(&kiln_data::npy::open(at).unwrap());
    put(at, "features_indices.npy", &[1_i32, 0, 1, 0, 1, 1], &[6]);
    let error = kiln_data::npy::open(at).unwrap_err().to_string();
    assert!(error.contains("the number of columns is 6, expected 7"), "{error}");
}

#[test]
fn notes_overlapping_splits() {
    let folder = folder();
    put(folder.path(), "test.npy", &[2_i32, 0, 1], &[3]);
    put(folder.path(), "val.npy", &[1_i32], &[1]);
    let expected = [["train", "test"], ["val", "test"]].map(overlap);
    assert_eq!(notes_of_reading(&kiln_data::npy::open(folder.path()).unwrap().notes), expected);
}

/// Returns the error message of `npy::open` after one file was replaced.
fn refusal<T: Element>(name: &str, values: &[T]) -> String {
    let folder = folder();
    put(folder.path(), name, values, &[values.len()]);
    let error = kiln_data::npy::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains(&*folder.path().to_string_lossy()), "{error}");
    error
}

#[test]
fn rejects_invalid_arrays() {
    for (said, expected) in [
        (refusal("indptr.npy", &[0_i64, 0, 1, 4]), "the number of feature rows is 4, expected 3"),
        (refusal::<i64>("indptr.npy", &[]), "the number of entries is 0, expected 1"),
        (refusal("indptr.npy", &[0.0_f32]), "the elements are <f4, expected <i8 or <u8"),
        (refusal("indptr.npy", &[0_i64, 0, 1, 4, 5]), "indices.npy: the number of entries is 4, expected 5"),
        (refusal("indptr.npy", &[1_i64, 1, 1, 4, 4]), "indptr.npy: entry 0 is 1, expected 0, where"),
        (refusal("indices.npy", &[0_i64, 0, 1, 4]), "edge 3 is 4, expected a node id below 4"),
        (refusal("indices.npy", &[0_i64, -1, 1, 3]), "edge 1 is -1, expected a node"),
        (refusal("indices.npy", &[0.0_f32, 1.0, 1.0, 3.0]), "the elements are <f4, expected <i4"),
        (refusal("features.npy", &[0_i32; 4]), "the elements are <i4, expected <f4 or <f2"),
        (refusal("labels.npy", &[0_i32; 3]), "the number of labels is 3, expected 4"),
        (refusal("labels.npy", &[0.0_f32; 4]), "the elements are <f4, expected <i4, <u4, <i8 or <u8"),
        (
            refusal("labels.npy", &[0_i64, 1 << 40, 0, 0]),
            "the label of node 1 is 1099511627776, expected below 2^31",
        ),
        (
            refusal("labels.npy", &[0_u32, 0, 2_147_483_653, 0]),
            "the label of node 2 is 2147483653, expected below 2^31",
        ),
        (
            refusal("labels.npy", &[0_i32, i32::MAX, 0, 0]),
            "the number of classes is 2147483648, expected at most 1048576",
        ),
        (refusal("train.npy", &[4_i32]), "train split entry 0 is node 4, expected a node id below 4"),
        (refusal("train.npy", &[0_i32, -1]), "split entry 1 is node -1 (4294967295 as <u4), expected a node"),
        (refusal("val.npy", &[3_i32]), "0 is node 3, expected a node that has a label"),
        (refusal("test.npy", &[0_i64, 9]), "entry 1 is 9, expected a node"),
    ] {
        assert!(said.contains(expected), "{said}\n    expected {expected}");
    }
}

/// Returns the error message of `npy::open` for features in a CSR matrix with these offsets and columns.
fn sparse_refusal(indptr: &[i64], columns: &[u32]) -> String {
    let folder = folder();
    let at = folder.path();
    fs::remove_file(at.join("features.npy")).unwrap();
    put(at, "features_indptr.npy", indptr, &[indptr.len()]);
    put(at, "features_indices.npy", columns, &[columns.len()]);
    put(at, "features_data.npy", &vec![0.5_f32; columns.len()], &[columns.len()]);
    kiln_data::npy::open(at).unwrap_err().to_string()
}

#[test]
fn rejects_invalid_features_with_their_file() {
    let said = sparse_refusal(&[0, 0, 0, 0, 1], &[u32::MAX]);
    assert!(
        said.contains("features_indices.npy: the number of columns is 4294967296, expected 1 to"),
        "{said}"
    );
    let said = sparse_refusal(&[0, 0, 0, 0, 2], &[0]);
    assert!(said.contains("features_indptr.npy: the last entry of indptr is 2, expected 1"), "{said}");
    let folder = folder();
    put::<f32>(folder.path(), "features.npy", &[], &[4, 0]);
    let said = kiln_data::npy::open(folder.path()).unwrap_err().to_string();
    assert!(said.contains("features.npy: the number of columns is 0, expected 1 to"), "{said}");
}

/// Returns the error message of `npy::open`, after checking that `convert` fails with the same error.
fn refusal_of(folder: &Path) -> String {
    let error = kiln_data::npy::open(folder).unwrap_err().to_string();
    let root = tempfile::tempdir().unwrap();
    let converted = convert(folder, root.path().join("out"), &ConvertOptions::default());
    assert_eq!(converted.unwrap_err().to_string(), error);
    error
}

#[test]
fn rejects_edge_data_and_sparse_features_that_are_not_vectors() {
    let check = |name: &str, expected: &str, change: &dyn Fn(&Path)| {
        let folder = folder();
        change(folder.path());
        let said = refusal_of(folder.path());
        let expected = format!("{name}: the shape is {expected}, expected (n,)");
        assert!(said.contains(&expected), "{said}\n    expected {expected}");
    };
    check("weights.npy", "[2, 2]", &|at| put(at, "weights.npy", &[0.5_f32; 4], &[2, 2]));
    check("edge_types.npy", "[2, 2]", &|at| put(at, "edge_types.npy", &[0_u8; 4], &[2, 2]));
    let sparse = |at: &Path, columns: [usize; 2], values: [usize; 2]| {
        fs::remove_file(at.join("features.npy")).unwrap();
        put(at, "features_indptr.npy", &[0_i64, 1, 2, 3, 4], &[5]);
        put(at, "features_indices.npy", &[0_u32; 4], &columns);
        put(at, "features_data.npy", &[0.5_f32; 4], &values);
    };
    check("features_indices.npy", "[2, 2]", &|at| sparse(at, [2, 2], [4, 1]));
    check("features_data.npy", "[1, 4]", &|at| sparse(at, [4, 1], [1, 4]));
}

#[test]
fn rejects_f64_features_that_are_not_finite_as_f32() {
    for (value, found) in [(1e300, "1e300"), (-1e39, "-1e39"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let folder = folder();
        let rows = [0.0, 0.5, 1.0, 1.5, 2.0, value, 3.0, 3.5];
        put(folder.path(), "features.npy", &rows, &[4, 2]);
        let said = refusal_of(folder.path());
        let expected = format!("features.npy: a feature of node 2 is {found}, expected finite numbers of 32");
        assert!(said.contains(&expected), "{said}\n    expected {expected}");
    }
    // The invalid value is after the first chunk of the conversion.
    let folder = folder();
    let mut rows = vec![0.5; 4 * 50_000];
    rows[3 * 50_000 + 7] = 1e300;
    put(folder.path(), "features.npy", &rows, &[4, 50_000]);
    let said = refusal_of(folder.path());
    assert!(said.contains("a feature of node 3 is 1e300, expected"), "{said}");
}

#[test]
fn notes_ignored_files() {
    let folder = folder();
    let at = folder.path();
    for name in ["edges.csv", "features_indptr.npy", "train_idx.npy", "test_idx.npy"] {
        fs::write(at.join(name), "not read").unwrap();
    }
    let aside = |name: &str, taken: &str| {
        let (aside, taken) = (at.join(name), at.join(taken));
        Note::Other(format!("{} is ignored: {} is read instead", aside.display(), taken.display()))
    };
    let expected = [
        aside("edges.csv", "indptr.npy"),
        aside("features_indptr.npy", "features.npy"),
        aside("train_idx.npy", "train.npy"),
        aside("test_idx.npy", "test.npy"),
    ];
    let data = kiln_data::npy::open(at).unwrap();
    check(&data);
    assert_eq!(notes_of_reading(&data.notes), expected);
    let root = tempfile::tempdir().unwrap();
    let converted = convert(at, root.path().join("out"), &ConvertOptions::default()).unwrap();
    assert_eq!(notes_of_reading(&converted.notes), expected);
}

#[test]
fn missing_file_error_states_the_purpose_of_the_file() {
    for (name, expected) in [
        ("indptr.npy", "has no indptr.npy (where each node's in-edges start)"),
        ("indices.npy", "has no indices.npy (the source of each edge)"),
        (
            "features.npy",
            "has no features.npy or features_indptr.npy (the features of each node: save an array",
        ),
        ("labels.npy", "has no labels.npy (the class of each node)"),
        ("val.npy", "has no val.npy or val_idx.npy (the nodes of one part of the split)"),
    ] {
        let folder = folder();
        fs::remove_file(folder.path().join(name)).unwrap();
        let error = kiln_data::npy::open(folder.path()).unwrap_err();
        assert!(
            matches!(&error, Error::Store(StoreError::Missing { .. }))
                && error.to_string().contains(expected),
            "{error}"
        );
    }
}

/// Checks that a set opens and converts, and that no node has a label.
fn check_unlabelled(at: &Path, n_nodes: usize) {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    convert(at, &out, &ConvertOptions::default()).unwrap();
    for data in [kiln_data::npy::open(at).unwrap(), kiln_data::open(&out).unwrap()] {
        assert_eq!((data.labels().as_slice(), data.labels().n_classes()), (&vec![-1; n_nodes][..], 0));
        assert!(data.split().parts().iter().all(|(_, nodes)| nodes.is_empty()) && data.links.is_none());
        assert_eq!(data.node_features().unwrap().n_rows(), n_nodes);
    }
}

#[test]
fn folders_without_labels_and_split_are_unlabelled_sets() {
    let folder = folder();
    for name in ["labels.npy", "train.npy", "val.npy", "test.npy"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    let n_nodes = kiln_data::npy::open(folder.path()).unwrap().graph.n_nodes();
    check_unlabelled(folder.path(), n_nodes);

    // The number of nodes of an edge list is that of the feature rows.
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "edges.npy", &[0_i64, 2, 1, 1], &[2, 2]);
    put(folder.path(), "features.npy", &[0.0_f32; 10], &[5, 2]);
    check_unlabelled(folder.path(), 5);
    fs::remove_file(folder.path().join("features.npy")).unwrap();
    let error = kiln_data::npy::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("(the features of each node: save an array"), "{error}");
}

#[test]
fn rejects_truncated_files() {
    for name in ["indptr.npy", "indices.npy", "features.npy", "labels.npy", "train.npy"] {
        let folder = folder();
        let path = folder.path().join(name);
        let bytes = fs::read(&path).unwrap();
        for length in [0, 5, 60, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            let error = kiln_data::npy::open(folder.path()).unwrap_err();
            assert!(
                matches!(&error, Error::Store(StoreError::Npy { path: at, .. }) if *at == path),
                "{error}"
            );
        }
    }
}

#[test]
fn validate_checks_values_that_open_does_not() {
    let folder = folder();
    let at = folder.path();
    assert_eq!(notes_of_reading(&kiln_data::npy::open(at).unwrap().validate().unwrap()), []);
    let check = |expected: &str| {
        let error = kiln_data::npy::open(at).unwrap().validate().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    put(at, "features.npy", &[0.0_f32, 0.5, 1.0, f32::NAN, 2.0, 2.5, 3.0, 3.5], &[4, 2]);
    check("a feature of node 1 is NaN, expected finite numbers");
    put(at, "indices.npy", &[0_i32, 0, -1, 3], &[4]);
    check("edge 2 refers to node 4294967295, but the graph has 4 nodes");
    put(at, "indptr.npy", &[0_i64, 0, 5, 4, 4], &[5]);
    check("invalid indptr at node 2: 5 is followed by 4");
}

/// Creates a sparse file: its length matches its header, but its values are not written.
fn put_unfilled(folder: &Path, name: &str, descr: &str, shape: &str, data_bytes: u64) {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut bytes = [&b"\x93NUMPY\x01\x00\x76\x00"[..], format!("{header:117}\n").as_bytes()].concat();
    assert_eq!(bytes.len(), 128);
    let mut file = fs::File::create(folder.join(name)).unwrap();
    std::io::Write::write_all(&mut file, &std::mem::take(&mut bytes)).unwrap();
    file.set_len(128 + data_bytes).unwrap();
}

#[test]
fn rejects_sparse_files_with_wrong_counts() {
    let check = |name: &str, descr: &str, shape: &str, data_bytes: u64, expected: &str| {
        let folder = folder();
        let at = folder.path();
        put_unfilled(at, name, descr, shape, data_bytes);
        let error = kiln_data::npy::open(at).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    };
    let labels = "the number of labels is 4398046511104, expected 4";
    check("labels.npy", "|u1", "(4398046511104,)", 1 << 42, labels);
    let rows = "the number of feature rows is 549755813888, expected 4";
    check("features.npy", "<f8", "(549755813888, 1)", 1 << 42, rows);
    check("indptr.npy", "<i4", "(1099511627776,)", 1 << 42, "1099511627775 nodes do not fit");
    let folder = folder();
    let at = folder.path();
    fs::remove_file(at.join("features.npy")).unwrap();
    put_unfilled(at, "features_indptr.npy", "<i4", "(1099511627776,)", 1 << 42);
    let error = kiln_data::npy::open(at).unwrap_err().to_string();
    assert!(error.contains("the number of feature rows is 1099511627775, expected 4"), "{error}");
}
