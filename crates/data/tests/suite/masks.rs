//! Tests of arrays of booleans: they are masks where a list of nodes is expected, and an error where ids are.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, format, graphbolt, npy};
use kiln_graph::NodeId;
use tempfile::TempDir;

use crate::common::{put, put_mask};

/// A change of a folder, and the expected error.
type Damage<'a> = (&'a dyn Fn(&Path), &'a str);

/// Writes the ring 0 -> 1 -> 2 -> 3 -> 0 with classes and a split in masks: 0 and 2, 1, and 3.
fn ring() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put(at, "indptr.npy", &[0_i64, 1, 2, 3, 4], &[5]);
    put(at, "indices.npy", &[3_i32, 0, 1, 2], &[4]);
    put(at, "features.npy", &[0.0_f32, 0.5, 1.0, 1.5], &[4, 1]);
    put(at, "labels.npy", &[1_i32, 0, 1, 0], &[4]);
    put_mask(at, "train.npy", &[1, 0, 1, 0]);
    put_mask(at, "val.npy", &[0, 1, 0, 0]);
    put_mask(at, "test.npy", &[0, 0, 0, 1]);
    folder
}

fn parts(data: &Dataset) -> [Vec<NodeId>; 3] {
    data.split().parts().map(|(_, nodes)| nodes.to_vec())
}

fn convert_to(input: &Path, out: &Path) -> Result<Dataset, String> {
    convert(input, out, &ConvertOptions::default()).map_err(|error| error.to_string())?;
    format::verify(out).map_err(|error| error.to_string())?;
    Dataset::open(out).map_err(|error| error.to_string())
}

#[test]
fn masks_are_splits_of_folders_that_are_opened_and_converted() {
    let folder = ring();
    let expected = [vec![NodeId(0), NodeId(2)], vec![NodeId(1)], vec![NodeId(3)]];
    assert_eq!(parts(&npy::open(folder.path()).unwrap()), expected);
    let converted = convert_to(folder.path(), &folder.path().join("out")).unwrap();
    assert_eq!(parts(&converted), expected);
    // An edge list instead of the CSC arrays.
    for name in ["indptr.npy", "indices.npy"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("edges.csv"), "0,1\n1,2\n2,3\n3,0\n").unwrap();
    assert_eq!(parts(&npy::open(folder.path()).unwrap()), expected);
    let converted = convert_to(folder.path(), &folder.path().join("of list")).unwrap();
    assert_eq!(parts(&converted), expected);
}

#[test]
fn masks_of_another_length_and_masks_of_integers_are_errors() {
    let mask_of = |name: &'static str, values: &'static [u8]| move |at: &Path| put_mask(at, name, values);
    let cases: [Damage<'_>; 4] = [
        (&mask_of("val.npy", &[0, 1, 0]), "val.npy: the number of elements of the mask is 3, expected 4"),
        (&mask_of("test.npy", &[0; 5]), "test.npy: the number of elements of the mask is 5, expected 4"),
        (
            &|at| put(at, "train.npy", &[1_i64, 0, 1, 0], &[4]),
            "train.npy: train split entry 0 is node 1, expected a list of ids: all 4 entries are 0 or 1, as in a mask",
        ),
        (
            &|at| put(at, "val.npy", &[0_u32, 1, 0, 0], &[4]),
            "val.npy: val split entry 0 is node 0, expected a list",
        ),
    ];
    for (damage, expected) in cases {
        let folder = ring();
        damage(folder.path());
        let opened = npy::open(folder.path()).unwrap_err().to_string();
        let converted = convert_to(folder.path(), &folder.path().join("out")).unwrap_err();
        for error in [opened, converted] {
            assert!(error.contains(expected), "{error}\n    expected {expected}");
        }
    }
}

#[test]
fn booleans_in_the_place_of_ids_are_errors_that_name_the_file() {
    for (name, n_values) in [("indices.npy", 4), ("indptr.npy", 5)] {
        let folder = ring();
        put_mask(folder.path(), name, &vec![0; n_values]);
        let opened = npy::open(folder.path()).unwrap_err().to_string();
        let converted = convert_to(folder.path(), &folder.path().join("out")).unwrap_err();
        for error in [opened, converted] {
            let expected = format!("{name}: the elements are |b1, expected <i");
            assert!(error.contains(&expected), "{error}\n    expected {expected}");
        }
    }
    for names in [&["src.npy", "dst.npy"][..], &["features_indices.npy"], &["val_negatives.npy"]] {
        let folder = ring();
        let at = folder.path();
        match names[0] {
            "src.npy" => {
                fs::remove_file(at.join("indptr.npy")).unwrap();
                fs::remove_file(at.join("indices.npy")).unwrap();
            }
            "features_indices.npy" => {
                fs::remove_file(at.join("features.npy")).unwrap();
                put(at, "features_indptr.npy", &[0_i64, 1, 2, 3, 4], &[5]);
                put(at, "features_data.npy", &[1.0_f32; 4], &[4]);
            }
            _ => {
                for part in ["train_edges.npy", "val_edges.npy", "test_edges.npy"] {
                    put(at, part, &[0_i64, 1, 1, 2, 2, 3, 3, 0], &[4, 2]);
                }
            }
        }
        names.iter().for_each(|name| put_mask(at, name, &[0, 1, 1, 0]));
        let opened = npy::open(at).unwrap_err().to_string();
        let converted = convert_to(at, &at.join("out")).unwrap_err();
        for error in [opened, converted] {
            assert!(error.contains(names[0]) && error.contains("the elements are |b1"), "{error}");
        }
    }
}

#[test]
fn boolean_labels_are_two_classes() {
    let folder = ring();
    put_mask(folder.path(), "labels.npy", &[1, 0, 1, 0]);
    let opened = npy::open(folder.path()).unwrap();
    let converted = convert_to(folder.path(), &folder.path().join("out")).unwrap();
    for data in [opened, converted] {
        assert_eq!((data.labels().as_slice(), data.labels().n_classes()), (&[1, 0, 1, 0][..], 2));
    }
}

#[test]
fn an_empty_part_of_a_split_may_be_an_empty_list_of_numpy() {
    let folder = ring();
    put::<f64>(folder.path(), "val.npy", &[], &[0]);
    let opened = npy::open(folder.path()).unwrap();
    let converted = convert_to(folder.path(), &folder.path().join("out")).unwrap();
    for data in [opened, converted] {
        assert_eq!(parts(&data), [vec![NodeId(0), NodeId(2)], vec![], vec![NodeId(3)]]);
    }
}

#[test]
fn seeds_of_graphbolt_may_be_a_mask() {
    let folder = ring();
    let at = folder.path();
    put(at, "edges.npy", &[0_i64, 1, 2, 3, 1, 2, 3, 0], &[2, 4]);
    put(at, "train_labels.npy", &[1_i64, 1], &[2]);
    put(at, "val_labels.npy", &[0_i64], &[1]);
    let set = |part: &str| {
        format!(
            "  - data: [{{name: seeds, format: numpy, path: {part}.npy}}, \
             {{name: labels, format: numpy, path: {part}_labels.npy}}]\n"
        )
    };
    let metadata = format!(
        "graph:\n  nodes: [{{num: 4}}]\n  edges: [{{format: numpy, path: edges.npy}}]\nfeature_data:\n\
         - {{domain: node, name: feat, format: numpy, path: features.npy}}\ntasks:\n- name: node_classification\n  \
         train_set:\n{}  validation_set:\n{}",
        set("train"),
        set("val")
    );
    for name in ["indptr.npy", "indices.npy", "labels.npy", "test.npy"] {
        fs::remove_file(at.join(name)).unwrap();
    }
    fs::write(at.join("metadata.yaml"), metadata).unwrap();
    let data = graphbolt::open(at).unwrap();
    assert_eq!(parts(&data), [vec![NodeId(0), NodeId(2)], vec![NodeId(1)], vec![]]);
    assert_eq!(data.labels().as_slice(), [1, 0, 1, -1]);
    put_mask(at, "train.npy", &[1, 0, 1]);
    let error = graphbolt::open(at).unwrap_err().to_string();
    assert!(error.contains("train.npy: the number of elements of the mask is 3, expected 4"), "{error}");
}
