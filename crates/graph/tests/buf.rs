//! Mapped arrays: equal to owned ones, and refused where they cannot be read.

// Helpers of tests unwrap as tests do.
#![allow(clippy::unwrap_used)]

use std::io::Write;

use kiln_graph::{Buf, Csc, Error, Mapping, NodeId};

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn a_mapped_graph_is_an_owned_graph() {
    let indptr: Vec<u64> = vec![0, 1, 3];
    let indices: Vec<u32> = vec![1, 0, 1];
    let mut bytes = bytemuck::cast_slice::<u64, u8>(&indptr).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&indices));
    let file = file(&bytes);
    let mapping = Mapping::open(file.path()).unwrap();
    let graph = Csc::new(mapping.slice(0..24).unwrap(), mapping.slice(24..36).unwrap()).unwrap();
    assert_eq!(graph.in_neighbors(NodeId(1)), [NodeId(0), NodeId(1)]);
    assert_eq!(graph.owned_bytes(), 0);
    graph.validate().unwrap();
}

#[test]
fn ranges_that_cannot_be_read_are_refused() {
    let file = file(&[0; 20]);
    let mapping = Mapping::open(file.path()).unwrap();
    let reason = |result: Result<Buf<u64>, Error>| match result {
        Err(Error::BadRange { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(mapping.slice(0..24)), "the range leaves the file");
    assert_eq!(reason(mapping.slice(0..12)), "the range is not a whole number of elements");
    assert_eq!(reason(mapping.slice(4..20)), "the range is not aligned");
    assert!(matches!(Mapping::open("/no/such/file"), Err(Error::Io { .. })));
}

#[test]
fn an_empty_file_maps_to_nothing() {
    let file = file(&[]);
    let mapping = Mapping::open(file.path()).unwrap();
    assert!(mapping.slice::<u64>(0..0).unwrap().is_empty());
}
