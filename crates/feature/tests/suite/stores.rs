//! Dense features in memory and in mapped files: identical rows, and errors for invalid inputs.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;

use half::{bf16, f16};
use kiln_feature::{
    DenseFeatures, Error, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore, MAX_DIM, MappedLayout,
};
use kiln_graph::{MappedFile, NodeId};
use tempfile::NamedTempFile;

/// Three rows of two columns.
const ROWS: [f32; 6] = [0.0, 0.5, 1.0, 1.5, -2.0, 2.5];

fn rows(row_type: FeatureDType) -> FeatureArray {
    match row_type {
        FeatureDType::F32 => FeatureArray::F32(ROWS.to_vec().into()),
        FeatureDType::F16 => FeatureArray::F16(ROWS.map(f16::from_f32).to_vec().into()),
        FeatureDType::BF16 => FeatureArray::BF16(ROWS.map(bf16::from_f32).to_vec().into()),
        other => panic!("unexpected element type {other}"),
    }
}

/// The same rows as little-endian bytes, after a header of `offset_bytes` bytes.
fn file(row_type: FeatureDType, offset_bytes: usize) -> NamedTempFile {
    let mut bytes = vec![0xAB; offset_bytes];
    for value in ROWS {
        match row_type {
            FeatureDType::F32 => bytes.extend(value.to_le_bytes()),
            FeatureDType::F16 => bytes.extend(f16::from_f32(value).to_le_bytes()),
            FeatureDType::BF16 => bytes.extend(bf16::from_f32(value).to_le_bytes()),
            other => panic!("unexpected element type {other}"),
        }
    }
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    file
}

fn layout(row_type: FeatureDType, offset_bytes: u64) -> MappedLayout {
    MappedLayout { dtype: row_type, dim: 2, n_rows: 3, offset_bytes }
}

fn check_source(source: &dyn FeatureStore, row_type: FeatureDType) {
    assert_eq!((source.dim(), source.n_rows(), source.dtype()), (2, 3, row_type));
    // A gather replaces the previous content of the buffer, of any type.
    for before in [
        FeatureBuffer::F32(vec![9.0]),
        FeatureBuffer::F16(vec![f16::ONE]),
        FeatureBuffer::BF16(vec![bf16::ONE]),
    ] {
        let mut out = before;
        source.gather(&[NodeId(2), NodeId(0), NodeId(2)], &mut out).unwrap();
        assert_eq!(out.dtype(), row_type);
        assert_eq!((out.n_values(), out.n_bytes()), (6, 6 * row_type.bytes()));
        assert_eq!(out.into_f32(), [-2.0, 2.5, 0.0, 0.5, -2.0, 2.5]);
    }
    check_bytes(source, &[NodeId(2), NodeId(0), NodeId(2)]);
    check_bytes(source, &[]);
    let mut out = FeatureBuffer::default();
    source.gather(&[], &mut out).unwrap();
    assert_eq!((out.dtype(), out.n_values()), (row_type, 0));
    let error = source.gather(&[NodeId(0), NodeId(3)], &mut out).unwrap_err();
    assert!(matches!(error, Error::NodeOutOfRange { node: NodeId(3), n_rows: 3 }));
    assert_eq!(error.to_string(), "node 3 has no feature row: expected an id below 3");
    let error = source.gather_bytes(&[NodeId(3)], &mut vec![0; 2 * row_type.bytes()]).unwrap_err();
    assert!(matches!(error, Error::NodeOutOfRange { node: NodeId(3), n_rows: 3 }));
}

/// Checks that the rows of `ids` are the same as a buffer and as bytes, at an address without alignment.
pub(crate) fn check_bytes(source: &dyn FeatureStore, ids: &[NodeId]) {
    let mut rows = FeatureBuffer::default();
    source.gather(ids, &mut rows).unwrap();
    let mut bytes = vec![7; 1 + rows.n_bytes()];
    source.gather_bytes(ids, &mut bytes[1..]).unwrap();
    assert_eq!((bytes[0], &bytes[1..]), (7, rows.as_bytes()), "{}", source.dtype());
}

#[test]
fn dense_and_mapped_rows_are_gathered_as_stored() {
    for row_type in [FeatureDType::F32, FeatureDType::F16, FeatureDType::BF16] {
        check_source(&DenseFeatures::new(rows(row_type), 2).unwrap(), row_type);
        for offset_bytes in [0, 8] {
            let file = file(row_type, offset_bytes);
            let mapped = DenseFeatures::open(file.path(), layout(row_type, offset_bytes as u64)).unwrap();
            check_source(&mapped, row_type);
            assert_eq!(mapped.rows().owned_bytes(), 0);
        }
    }
}

#[test]
fn gather_reuses_the_allocation_of_a_buffer_of_the_same_type() {
    let dense = DenseFeatures::from_f32(ROWS.to_vec(), 2).unwrap();
    let mut out = FeatureBuffer::F32(Vec::with_capacity(64));
    dense.gather(&[NodeId(1)], &mut out).unwrap();
    let FeatureBuffer::F32(values) = out else {
        panic!("rows should be gathered as f32, got {}", out.dtype())
    };
    assert_eq!((values.as_slice(), values.capacity()), ([1.0, 1.5].as_slice(), 64));
}

#[test]
#[should_panic(expected = "the output should have the size of 1 rows")]
fn gathering_bytes_panics_on_an_output_of_another_size() {
    let dense = DenseFeatures::from_f32(ROWS.to_vec(), 2).unwrap();
    drop(dense.gather_bytes(&[NodeId(1)], &mut [0; 9]));
}

#[test]
fn into_f32_represents_every_half_precision_value() {
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    let halves: Vec<f16> = bits.iter().map(|&bits| f16::from_bits(bits)).collect();
    let brains: Vec<bf16> = bits.iter().map(|&bits| bf16::from_bits(bits)).collect();
    for (bits, wide) in bits.iter().zip(FeatureBuffer::F16(halves).into_f32()) {
        let narrow = f16::from_f32(wide);
        assert!(
            narrow.to_bits() == *bits || (narrow.is_nan() && f16::from_bits(*bits).is_nan()),
            "{bits:#x}"
        );
    }
    for (bits, wide) in bits.iter().zip(FeatureBuffer::BF16(brains).into_f32()) {
        let is_same = wide.to_bits() == u32::from(*bits) << 16;
        assert!(is_same || (wide.is_nan() && bf16::from_bits(*bits).is_nan()), "{bits:#x}");
    }
}

#[test]
fn dense_features_reject_zero_columns_and_partial_rows() {
    assert!(matches!(DenseFeatures::from_f32(vec![1.0], 0), Err(Error::ZeroDim)));
    let error = DenseFeatures::from_f32(vec![], MAX_DIM + 1).unwrap_err();
    assert!(matches!(error, Error::TooManyColumns { dim, max: MAX_DIM } if dim == MAX_DIM + 1));
    let error = DenseFeatures::from_f32(vec![1.0; 7], 2).unwrap_err();
    assert!(matches!(error, Error::PartialRow { n_values: 7, dim: 2 }));
}

#[test]
fn row_returns_a_single_row_as_f32() {
    let dense = DenseFeatures::new(rows(FeatureDType::BF16), 2).unwrap();
    assert_eq!(dense.row(NodeId(1)).unwrap(), [1.0, 1.5]);
    assert!(matches!(dense.row(NodeId(3)), Err(Error::NodeOutOfRange { node: NodeId(3), .. })));
}

#[test]
fn accepts_zero_rows_and_rejects_a_gather_from_them() {
    let dense = DenseFeatures::from_f32(Vec::new(), 4).unwrap();
    assert_eq!(dense.n_rows(), 0);
    let error = dense.gather(&[NodeId(0)], &mut FeatureBuffer::default()).unwrap_err();
    assert!(matches!(error, Error::NodeOutOfRange { n_rows: 0, .. }));
}

#[test]
fn open_rejects_short_files_and_names_their_path() {
    let file = file(FeatureDType::F32, 0);
    let asked = MappedLayout { n_rows: 4, ..layout(FeatureDType::F32, 0) };
    let error = DenseFeatures::open(file.path(), asked).unwrap_err();
    assert!(matches!(error, Error::FileTooShort { n_rows: 4, expected: 32, got: 24, .. }));
    assert!(error.to_string().starts_with(&file.path().display().to_string()));
    let shifted = DenseFeatures::open(file.path(), layout(FeatureDType::F32, 4)).unwrap_err();
    assert!(matches!(shifted, Error::FileTooShort { expected: 28, got: 24, .. }));
}

#[test]
fn mapped_features_reject_a_misaligned_offset() {
    let file = file(FeatureDType::F32, 4);
    let mapping = MappedFile::open(file.path()).unwrap();
    let error = DenseFeatures::mapped(&mapping, layout(FeatureDType::F32, 2)).unwrap_err();
    assert!(matches!(error, Error::Misaligned { offset_bytes: 2, align_bytes: 4, .. }));
    DenseFeatures::mapped(&mapping, layout(FeatureDType::F16, 2)).unwrap();
}

#[test]
fn mapped_features_reject_zero_columns_and_overflowing_layouts() {
    let file = file(FeatureDType::F32, 0);
    let mapping = MappedFile::open(file.path()).unwrap();
    let base = layout(FeatureDType::F32, 0);
    let error = |layout| DenseFeatures::mapped(&mapping, layout).unwrap_err();
    assert!(matches!(error(MappedLayout { dim: 0, ..base }), Error::ZeroDim));
    assert!(matches!(error(MappedLayout { n_rows: usize::MAX, ..base }), Error::TooLarge { .. }));
    assert!(matches!(error(MappedLayout { offset_bytes: u64::MAX - 3, ..base }), Error::TooLarge { .. }));
}

#[test]
fn open_reports_the_path_of_a_missing_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent");
    let error = DenseFeatures::open(&path, layout(FeatureDType::F32, 0)).unwrap_err();
    assert!(matches!(&error, Error::Graph(kiln_graph::Error::Io { path: named, .. }) if *named == path));
    assert!(error.to_string().contains("absent"));
}

#[test]
fn in_memory_call_copies_mapped_rows_and_shares_owned_rows() {
    for row_type in [FeatureDType::F32, FeatureDType::F16, FeatureDType::BF16] {
        let file = file(row_type, 8);
        let mapped = DenseFeatures::open(file.path(), layout(row_type, 8)).unwrap();
        let in_memory = mapped.in_memory().unwrap();
        drop((mapped, file));
        check_source(&*in_memory, row_type);
    }
    let owned = DenseFeatures::from_f32(ROWS.to_vec(), 2).unwrap();
    let before = owned.rows().owned_bytes();
    check_source(&*owned.in_memory().unwrap(), FeatureDType::F32);
    assert_eq!(owned.rows().owned_bytes(), before);
}
