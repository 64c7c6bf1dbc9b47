//! Sparse features: gathered as dense rows, in memory and in mapped files, and errors for damaged rows.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;

use kiln_feature::{Error, FeatureBuffer, FeatureStore, SparseError, SparseFeatures};
use kiln_graph::{MappedFile, NodeId};

use crate::stores::check_bytes;

/// Features with `v` values in row `v`; the value in column `c` of row `v` is `1000 v + c`.
fn triangle(n_rows: usize) -> SparseFeatures {
    let (mut indptr, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n_rows {
        columns.extend(0..row as u32);
        values.extend((0..row).map(|column| (1000 * row + column) as f32));
        indptr.push(values.len() as u64);
    }
    SparseFeatures::new(indptr.into(), columns.into(), values.into(), n_rows).unwrap()
}

fn reference(n_rows: usize, ids: &[NodeId]) -> Vec<f32> {
    let value = |row: usize, column: usize| if column < row { (1000 * row + column) as f32 } else { 0.0 };
    ids.iter().flat_map(|id| (0..n_rows).map(|column| value(id.index(), column))).collect()
}

#[test]
fn gathers_dense_rows_in_the_order_of_the_ids() {
    let sparse = triangle(300);
    // A gather replaces the previous content of the buffer.
    let mut out = FeatureBuffer::F32(vec![9.0; 7]);
    for n_ids in [0, 1, 7, 8, 9, 17, 500] {
        let ids: Vec<NodeId> = (0..n_ids).map(|at| NodeId(at * 97 % 300)).collect();
        sparse.gather(&ids, &mut out).unwrap();
        assert!(out == FeatureBuffer::F32(reference(300, &ids)), "{n_ids} rows");
        check_bytes(&sparse, &ids);
    }
}

#[test]
fn values_of_the_same_column_are_summed() {
    let columns = vec![1_u32, 1, 0];
    let sparse =
        SparseFeatures::new(vec![0, 3].into(), columns.into(), vec![0.5, 0.25, 4.0].into(), 2).unwrap();
    assert_eq!(sparse.row(NodeId(0)).unwrap(), [4.0, 0.75]);
}

#[test]
fn gather_rejects_invalid_value_ranges() {
    for (start, end) in [(2_u64, 1), (0, 9), (u64::MAX, u64::MAX - 1), (0, u64::MAX)] {
        let indptr = vec![0, start, end, 2];
        let sparse =
            SparseFeatures::new(indptr.into(), vec![0_u32, 1].into(), vec![1.0, 2.0].into(), 2).unwrap();
        let mut ids = vec![NodeId(0); 20];
        ids[18] = NodeId(1);
        let error = sparse.gather(&ids, &mut FeatureBuffer::default()).unwrap_err();
        assert!(matches!(error, Error::Sparse(SparseError::BadSparseRow { .. })), "{start}..{end}: {error}");
    }
}

#[test]
fn in_memory_call_copies_mapped_arrays() {
    let sparse = triangle(40);
    let folder = tempfile::tempdir().unwrap();
    let map = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        MappedFile::open(path).unwrap()
    };
    let indptr = map("indptr", bytemuck::cast_slice(sparse.indptr()));
    let columns = map("columns", bytemuck::cast_slice(sparse.columns()));
    let values = map("values", bytemuck::cast_slice(sparse.values()));
    let all = |mapping: &MappedFile| 0..mapping.bytes().len();
    let mapped = SparseFeatures::new(
        indptr.slice(all(&indptr)).unwrap(),
        columns.slice(all(&columns)).unwrap(),
        values.slice(all(&values)).unwrap(),
        40,
    )
    .unwrap();
    let in_memory = mapped.in_memory().unwrap();
    drop((mapped, indptr, columns, values, folder));
    let ids: Vec<NodeId> = (0..40).map(NodeId).collect();
    let mut out = FeatureBuffer::default();
    in_memory.gather(&ids, &mut out).unwrap();
    assert_eq!(out, FeatureBuffer::F32(reference(40, &ids)));
    assert!(in_memory.as_sparse().is_some());
}
