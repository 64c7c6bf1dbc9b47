//! Opening a folder of arrays and converting it accept and refuse the same element types of every array, with the same text.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use half::f16;
use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, format};

use crate::common::put;

/// The element types of NumPy, in its notation.
const TYPES: [&str; 16] = [
    "|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", ">i4", ">f4", "<c8",
    "<U1",
];

/// An array of the folder: its file, its values and its shape.
type Array = (&'static str, &'static [f64], &'static [usize]);

/// The arrays of a ring of four nodes with the adjacency in CSC order.
const RING: [Array; 7] = [
    ("indptr.npy", &[0.0, 1.0, 2.0, 3.0, 4.0], &[5]),
    ("indices.npy", &[3.0, 0.0, 1.0, 2.0], &[4]),
    ("features.npy", &[0.0, 1.0, 2.0, 3.0], &[4, 1]),
    ("labels.npy", &[1.0, 0.0, 1.0, 0.0], &[4]),
    ("train.npy", &[0.0, 2.0], &[2]),
    ("val.npy", &[1.0], &[1]),
    ("test.npy", &[3.0], &[1]),
];

/// The arrays of edge lists, each of which replaces the adjacency, and optional arrays.
const OTHERS: [(&[Array], bool); 13] = [
    (&[("edges.npy", &[3.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0], &[2, 4])], true),
    (&[("src.npy", &[3.0, 0.0, 1.0, 2.0], &[4]), ("dst.npy", &[0.0, 1.0, 2.0, 3.0], &[4])], true),
    (&[("weights.npy", &[1.0, 2.0, 1.0, 2.0], &[4])], false),
    (&[("edge_types.npy", &[1.0, 0.0, 1.0, 0.0], &[4])], false),
    (&[("edge_features.npy", &[1.0, 2.0, 3.0, 4.0], &[4, 1])], false),
    (&[("edge_price.npy", &[1.0, 2.0, 3.0, 4.0], &[4, 1])], false),
    (&[("targets.npy", &[1.0, 0.0, 0.0, 1.0], &[4, 1])], false),
    (&[("train_edges.npy", &[0.0, 1.0, 2.0, 3.0, 1.0, 2.0], &[3, 2])], false),
    (&[("val_edges.npy", &[0.0, 1.0, 2.0, 3.0, 1.0, 2.0], &[3, 2])], false),
    (&[("test_edges.npy", &[0.0, 1.0, 2.0, 3.0, 1.0, 2.0], &[3, 2])], false),
    (&[("val_negatives.npy", &[2.0, 3.0], &[2, 1])], false),
    (&[("test_negative_srcs.npy", &[2.0, 3.0], &[2, 1])], false),
    (&[("features_indices.npy", &[0.0, 1.0, 0.0, 1.0], &[4])], false),
];

/// Returns a file of NumPy with these values.
fn encoded(descr: &str, values: &[f64], shape: &[usize]) -> Vec<u8> {
    let lengths: Vec<String> = shape.iter().map(|length| format!("{length},")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", lengths.concat());
    let padded = format!("{header:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((padded.len() as u16).to_le_bytes());
    bytes.extend(padded.as_bytes());
    for &value in values {
        match descr {
            "|b1" => bytes.push(u8::from(value != 0.0)),
            "|i1" => bytes.extend((value as i8).to_le_bytes()),
            "|u1" => bytes.push(value as u8),
            "<i2" => bytes.extend((value as i16).to_le_bytes()),
            "<u2" => bytes.extend((value as u16).to_le_bytes()),
            "<i4" => bytes.extend((value as i32).to_le_bytes()),
            "<u4" => bytes.extend((value as u32).to_le_bytes()),
            "<i8" => bytes.extend((value as i64).to_le_bytes()),
            "<u8" => bytes.extend((value as u64).to_le_bytes()),
            "<f2" => bytes.extend(f16::from_f64(value).to_le_bytes()),
            "<f4" => bytes.extend((value as f32).to_le_bytes()),
            "<f8" => bytes.extend(value.to_le_bytes()),
            ">i4" => bytes.extend((value as i32).to_be_bytes()),
            ">f4" => bytes.extend((value as f32).to_be_bytes()),
            "<c8" => bytes.extend([(value as f32).to_le_bytes(), [0; 4]].concat()),
            "<U1" => bytes.extend((u32::from('0') + value as u32).to_le_bytes()),
            _ => panic!("{descr}"),
        }
    }
    bytes
}

/// Writes the ring, with the arrays of `others`; the array at a position of these has the element type.
fn write(at: &Path, others: &[Array], replaces_adjacency: bool, changed: &str, descr: &str) {
    let has_links = others.iter().any(|(name, ..)| name.contains("_edges") || name.contains("negative"));
    let links: [Array; 2] = [
        ("val_edges.npy", &[0.0, 1.0, 2.0, 3.0], &[2, 2]),
        ("test_edges.npy", &[0.0, 1.0, 2.0, 3.0], &[2, 2]),
    ];
    let is_sparse = others.iter().any(|(name, ..)| name.starts_with("features_"));
    let sparse: [Array; 2] = [
        ("features_indptr.npy", &[0.0, 1.0, 2.0, 3.0, 4.0], &[5]),
        ("features_data.npy", &[1.0, 2.0, 3.0, 4.0], &[4]),
    ];
    let has_targets = others.iter().any(|(name, ..)| *name == "targets.npy");
    let mut arrays: Vec<Array> = others.to_vec();
    let defaults = RING.iter().chain(links.iter().filter(|_| has_links));
    for array in defaults.chain(sparse.iter().filter(|_| is_sparse)) {
        let is_replaced = (replaces_adjacency && array.0.starts_with("ind"))
            || (is_sparse && array.0 == "features.npy")
            || (has_targets && array.0 == "labels.npy")
            || arrays.iter().any(|(name, ..)| *name == array.0);
        if !is_replaced {
            arrays.push(*array);
        }
    }
    for (name, values, shape) in arrays {
        let usual = match name {
            "features.npy" | "features_data.npy" | "weights.npy" | "edge_features.npy" | "edge_price.npy" => {
                "<f4"
            }
            "edge_types.npy" | "targets.npy" => "|u1",
            "indptr.npy" | "features_indptr.npy" => "<i8",
            _ => "<i4",
        };
        let descr = if name == changed { descr } else { usual };
        fs::write(at.join(name), encoded(descr, values, shape)).unwrap();
    }
}

/// Returns the hash of a set, or the error without the path of the folder.
fn outcome(folder: &Path, set: kiln_data::Result<Dataset>) -> Result<String, String> {
    let text = |error: kiln_data::Error| error.to_string().replace(folder.to_str().unwrap(), "FOLDER");
    set.map_err(text)?.hash().map_err(text)
}

#[test]
fn open_and_convert_accept_and_refuse_the_same_element_types_with_the_same_text() {
    let mut n_accepted = 0;
    let mut n_refused = 0;
    let mut differences = Vec::new();
    let of_ring = RING.iter().map(|array| (std::slice::from_ref(array), false));
    for (arrays, replaces_adjacency) in of_ring.chain(OTHERS) {
        for (changed, ..) in arrays {
            for descr in TYPES {
                let folder = tempfile::tempdir().unwrap();
                let at = folder.path().join("set");
                fs::create_dir(&at).unwrap();
                write(&at, arrays, replaces_adjacency, changed, descr);
                let opened = outcome(&at, Dataset::open(&at));
                let out = folder.path().join("out");
                let converted = convert(&at, &out, &ConvertOptions::default());
                let converted = outcome(&at, converted.and_then(|_| Dataset::open(&out)));
                n_accepted += usize::from(opened.is_ok());
                n_refused += usize::from(opened.is_err());
                if opened != converted {
                    differences.push(format!("{changed} as {descr}: open {opened:?}, convert {converted:?}"));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(100 < n_accepted && 100 < n_refused, "{n_accepted} accepted, {n_refused} refused");
}

/// What writes a set refuses values that `verify` refuses. Opening a mapped array does not read them.
#[test]
fn values_that_are_not_finite_are_refused_by_what_writes_a_set() {
    let edge_weights: (&[Array], &str) = (&[("weights.npy", &[], &[4])], "<f4");
    let sparse_values: (&[Array], &str) =
        (&[("features_indices.npy", &[0.0, 1.0, 0.0, 1.0], &[4]), ("features_data.npy", &[], &[4])], "<f4");
    let mut cases = vec![edge_weights, sparse_values];
    let rows: [&[Array]; 3] = [
        &[("features.npy", &[], &[4, 1])],
        &[("edge_features.npy", &[], &[4, 1])],
        &[("edge_price.npy", &[], &[4, 1])],
    ];
    for descr in ["<f2", "<f4", "<f8"] {
        cases.extend(rows.map(|array| (array, descr)));
    }
    for (arrays, descr) in cases {
        let (name, _, shape) = arrays[arrays.len() - 1];
        for value in [f64::NAN, f64::INFINITY] {
            let folder = tempfile::tempdir().unwrap();
            let at = folder.path().join("set");
            fs::create_dir(&at).unwrap();
            write(&at, arrays, false, name, descr);
            fs::write(at.join(name), encoded(descr, &[1.0, 2.0, value, 3.0], shape)).unwrap();
            let out = folder.path().join("out");
            let error = convert(&at, &out, &ConvertOptions::default()).unwrap_err().to_string();
            let found =
                if value.is_nan() { "2 is NaN, expected finite" } else { "2 is inf, expected finite" };
            assert!(error.contains(name) && error.contains(found), "{name} as {descr}: {error}");
            let opened = Dataset::open(&at).and_then(|data| format::write(&data, &out));
            let error = opened.unwrap_err().to_string();
            assert!(error.contains(found), "{name} as {descr}: {error}");
            assert!(!out.exists(), "{name} as {descr}");
        }
    }
}

/// The files that the test writes are those of NumPy.
#[test]
fn written_arrays_are_those_of_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a.npy", &[1_i32, 2], &[2]);
    let bytes = fs::read(folder.path().join("a.npy")).unwrap();
    assert_eq!(encoded("<i4", &[1.0, 2.0], &[2]), bytes);
}
