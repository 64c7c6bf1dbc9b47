//! Mapped arrays: equality with owned arrays, invalid ranges, copies in memory.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::io::Write;

use kiln_graph::{Csc, Error, MappedFile, NodeId, SharedArray};

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn mapped_graph_reads_like_an_owned_one() {
    let indptr: Vec<u64> = vec![0, 1, 3];
    let indices: Vec<u32> = vec![1, 0, 1];
    let mut bytes = bytemuck::cast_slice::<u64, u8>(&indptr).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&indices));
    let file = file(&bytes);
    let mapping = MappedFile::open(file.path()).unwrap();
    let graph = Csc::new(mapping.slice(0..24).unwrap(), mapping.slice(24..36).unwrap()).unwrap();
    assert_eq!(graph.in_neighbors(NodeId(1)), [NodeId(0), NodeId(1)]);
    assert_eq!(graph.owned_bytes(), 0);
    graph.validate().unwrap();
}

#[test]
fn rejects_invalid_ranges_and_missing_files() {
    let file = file(&[0; 20]);
    let mapping = MappedFile::open(file.path()).unwrap();
    let reason = |result: Result<SharedArray<u64>, Error>| match result {
        Err(Error::BadRange { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(mapping.slice(0..24)), "the range exceeds the file");
    assert_eq!(reason(mapping.slice(0..12)), "the range is not a whole number of elements");
    assert_eq!(reason(mapping.slice(4..20)), "the range is not aligned");
    assert!(matches!(MappedFile::open("/no/such/file"), Err(Error::Io { .. })));
}

#[test]
fn empty_file_maps_to_an_empty_array() {
    let file = file(&[]);
    let mapping = MappedFile::open(file.path()).unwrap();
    assert!(mapping.slice::<u64>(0..0).unwrap().is_empty());
}

#[test]
fn copy_in_memory_has_the_mapped_elements_and_no_file() {
    // The copy is split into several parallel tasks, of which the last is shorter than the others.
    let numbers: Vec<u32> = (0..600_001_u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let file = file(bytemuck::cast_slice(&numbers));
    let mapped: SharedArray<u32> =
        MappedFile::open(file.path()).unwrap().slice(0..4 * numbers.len()).unwrap();
    let copy = mapped.in_memory();
    assert_eq!(copy[..], numbers[..]);
    assert_eq!(copy.path(), None);
    assert_eq!(copy.owned_bytes(), 4 * numbers.len());
    // An owned array is shared, not copied again.
    assert!(std::ptr::eq(copy.as_ptr(), copy.in_memory().as_ptr()));
    assert!(mapped.in_memory().as_ptr() != mapped.as_ptr());
}

#[test]
fn graph_copied_to_memory_equals_the_mapped_graph() {
    let mut bytes = bytemuck::cast_slice::<u64, u8>(&[0, 1, 3]).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice::<u32, u8>(&[1, 0, 1]));
    bytes.extend_from_slice(bytemuck::cast_slice::<f32, u8>(&[0.5, 1.5, 2.5]));
    bytes.extend_from_slice(&[7, 8, 9]);
    let file = file(&bytes);
    let mapping = MappedFile::open(file.path()).unwrap();
    let mapped = Csc::new(mapping.slice(0..24).unwrap(), mapping.slice(24..36).unwrap()).unwrap();
    let mapped = mapped.with_weights(mapping.slice(36..48).unwrap()).unwrap();
    let mapped = mapped.with_edge_types(mapping.slice(48..51).unwrap()).unwrap();
    let graph = mapped.in_memory();
    assert_eq!((graph.indptr(), graph.indices()), (mapped.indptr(), mapped.indices()));
    assert_eq!((graph.weights(), graph.edge_types()), (mapped.weights(), mapped.edge_types()));
    assert_eq!((graph.indptr_path(), graph.indices_path(), graph.weights_path()), (None, None, None));
    assert_eq!(graph.owned_bytes(), bytes.len());
}
