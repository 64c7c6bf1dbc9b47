//! Tests of the conversion of heterogeneous sets to the kiln format.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;

use kiln_data::{Dataset, Error, debian_archive, format, graphbolt, ogb};
use kiln_store::Error as StoreError;

use crate::common::contents;

const MEMORY_BYTES: u64 = 1 << 20;

#[test]
fn conversion_writes_the_bytes_of_the_opened_set() {
    let (mag, bolt) = (crate::heterogeneous_ogb::folder(), crate::heterogeneous_graphbolt::folder());
    let scratch = tempfile::tempdir().unwrap();
    let opened =
        [graphbolt::open_heterogeneous(bolt.path()).unwrap(), ogb::open_heterogeneous(mag.path()).unwrap()];
    for (input, data) in [bolt.path(), mag.path()].into_iter().zip(opened) {
        let at = |name: &str| scratch.path().join(format!("{}-{name}", data.graph.types().n_types()));
        let report = kiln_data::convert::convert_heterogeneous(input, at("converted"), MEMORY_BYTES).unwrap();
        format::write(&data, at("written")).unwrap();
        assert_eq!(contents(&at("converted")), contents(&at("written")));
        assert_eq!(report.n_edges, data.graph.n_edges());
        assert_eq!(report.n_nodes, data.graph.n_nodes());
        // The notes that recommend a conversion are left out.
        assert!(report.notes.iter().all(|note| !note.to_string().contains("kiln data convert")));
        kiln_data::convert::convert_heterogeneous(at("converted"), at("again"), MEMORY_BYTES).unwrap();
        assert_eq!(contents(&at("again")), contents(&at("written")));
    }
}

#[test]
fn the_built_in_set_is_converted_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("archive");
    let report = kiln_data::convert::convert_heterogeneous("debian-archive", &out, MEMORY_BYTES).unwrap();
    let expected = "99841 nodes of 4 types, 1033692 edges of 10 relations";
    assert_eq!(report.to_string(), expected);
    assert_eq!(Dataset::open(&out).unwrap().hash().unwrap(), debian_archive().unwrap().hash().unwrap());
    assert!(kiln_data::is_heterogeneous("debian-archive").unwrap());
    assert!(!kiln_data::is_heterogeneous("debian-tags").unwrap());
}

#[test]
fn failed_conversions_leave_no_output() {
    let (mag, scratch) = (crate::heterogeneous_ogb::folder(), tempfile::tempdir().unwrap());
    let (set, out) = (scratch.path().join("set"), scratch.path().join("out"));
    kiln_data::convert::convert_heterogeneous(mag.path(), &set, MEMORY_BYTES).unwrap();
    let occupied = kiln_data::convert::convert_heterogeneous(mag.path(), &set, MEMORY_BYTES).unwrap_err();
    assert!(matches!(occupied, Error::Store(StoreError::NotEmpty { .. })), "{occupied}");
    let memory = kiln_data::convert::convert_heterogeneous(mag.path(), &out, 8).unwrap_err();
    assert!(matches!(memory, Error::Memory { .. } | Error::EdgeListTooLarge { .. }), "{memory}");
    let mut bytes = fs::read(set.join("labels.npy")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(set.join("labels.npy"), bytes).unwrap();
    let damaged = kiln_data::convert::convert_heterogeneous(&set, &out, MEMORY_BYTES).unwrap_err();
    assert!(matches!(damaged, Error::Store(StoreError::HashMismatch { .. })), "{damaged}");
    let names: Vec<_> =
        fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["set"]);
}
