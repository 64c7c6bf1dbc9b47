//! Tests of features on a device: gathered rows are those of the source, cached or not.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use half::{bf16, f16};
use kiln_feature::{DenseFeatures, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore};
use kiln_graph::NodeId;
use kiln_kernels::ops;
use kiln_kernels::testing::{
    Reads, Uploads, device, features_in_parts, largest_page_bytes, n_parts, reads_of, uploads_of, values,
};
use kiln_kernels::{CacheStats, DeviceFeatures, UploadError, gather_features, is_cpu, upload_features};

const N_ROWS: usize = 500;

/// Returns the values of rows, which on the CPU are of the type of the store.
fn widened(rows: Tensor<2>) -> Vec<f32> {
    values(ops::widen(rows))
}

/// Returns a value that f16 and bf16 represent exactly.
pub(crate) fn value(place: usize) -> f32 {
    (place * 37 % 251) as f32 - 125.0
}

fn sources(dim: usize) -> [Arc<dyn FeatureStore>; 3] {
    let values = (0..N_ROWS * dim).map(value);
    let dense = |rows| Arc::new(DenseFeatures::new(rows, dim).unwrap()) as Arc<dyn FeatureStore>;
    [
        dense(FeatureArray::F32(values.clone().collect::<Vec<_>>().into())),
        dense(FeatureArray::F16(values.clone().map(f16::from_f32).collect::<Vec<_>>().into())),
        dense(FeatureArray::BF16(values.map(bf16::from_f32).collect::<Vec<_>>().into())),
    ]
}

fn upload(ids: &[u32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(ids.to_vec(), [ids.len()]), (device, DType::U32))
}

fn expected(source: &dyn FeatureStore, ids: &[u32]) -> Vec<f32> {
    let ids: Vec<NodeId> = ids.iter().copied().map(NodeId).collect();
    let mut rows = FeatureBuffer::default();
    source.gather(&ids, &mut rows).unwrap();
    rows.into_f32()
}

#[test]
pub(crate) fn gathered_rows_equal_the_source_for_any_cache_size() {
    let device = device();
    let ids: Vec<u32> = (0..300).map(|place| place * 91 % N_ROWS as u32).collect();
    let hotness: Vec<u32> = (0..N_ROWS as u32).map(|row| row % 10).collect();
    for dim in [1, 3, 4, 100, 128] {
        for source in sources(dim) {
            let row_bytes = (dim * source.dtype().bytes()) as u64;
            let places = 4 * N_ROWS as u64;
            for n_cached in [0, 1, 200, N_ROWS as u64] {
                let n_bytes = places + n_cached * row_bytes;
                let features = DeviceFeatures::hottest(source.clone(), &hotness, n_bytes, &device).unwrap();
                for ids in [&ids[..], &ids[..1], &[]] {
                    let got = features.gather(&upload(ids, &device)).unwrap();
                    assert_eq!(got.dims(), [ids.len(), dim]);
                    assert_eq!(widened(got), expected(&*source, ids), "dim {dim}, {n_cached} cached");
                }
            }
            let features = DeviceFeatures::new(source.clone(), &device).unwrap();
            assert_eq!(widened(features.gather(&upload(&ids, &device)).unwrap()), expected(&*source, &ids));
            assert_eq!(features.cache_stats(), CacheStats { n_rows: 300, n_hits: 300 });
        }
    }
}

#[test]
fn caches_the_hottest_rows_and_counts_hits() {
    let device = device();
    // On the CPU, all rows count as cached.
    let is_host = is_cpu(&device);
    let [source, ..] = sources(8);
    // Rows 3, 103, 203, ... are the hottest five.
    let hotness: Vec<u32> = (0..N_ROWS).map(|row| u32::from(row % 100 == 3)).collect();
    let n_bytes = 4 * N_ROWS as u64 + 5 * 32;
    let features = DeviceFeatures::hottest(source.clone(), &hotness, n_bytes, &device).unwrap();
    assert_eq!(features.cache_stats().hit_rate(), 1.0);
    let ids = [3, 4, 103, 203, 303, 403, 9, 10];
    let mut got = None;
    let reads = reads_of(|| got = Some(features.gather(&upload(&ids, &device)).unwrap()));
    assert_eq!(widened(got.unwrap()), expected(&*source, &ids));
    assert_eq!(features.cache_stats(), CacheStats { n_rows: 8, n_hits: if is_host { 8 } else { 5 } });
    assert_eq!(reads.n_reads, u64::from(!is_host), "the host should wait once for the missing ids");
    let all = DeviceFeatures::new(source, &device).unwrap();
    let reads = reads_of(|| drop(all.gather(&upload(&ids, &device)).unwrap()));
    assert_eq!(reads, Reads::default(), "nothing should be read from the device without missing rows");
}

#[test]
fn rejects_hotness_of_the_wrong_length() {
    let [source, ..] = sources(2);
    let error = DeviceFeatures::hottest(source, &[1, 2], 100, &device()).unwrap_err();
    assert!(matches!(error, UploadError::HotnessLength { n_rows: N_ROWS, got: 2 }), "{error}");
}

#[test]
fn a_table_in_parts_gathers_the_rows_of_the_source() {
    let device = device();
    let ids: Vec<u32> = (0..300).map(|place| place * 91 % N_ROWS as u32).collect();
    let hotness: Vec<u32> = (0..N_ROWS as u32).map(|row| row % 10).collect();
    for dim in [1, 3, 8] {
        for source in sources(dim) {
            // A device without the type stores f32.
            let is_supported = device.supports_dtype(values_type(source.dtype()));
            let value_bytes = if is_supported { source.dtype().bytes() } else { 4 };
            let row_bytes = (dim * value_bytes) as u64;
            for (n_cached, rows_per_part) in [(0, 1), (200, 199), (200, 60), (N_ROWS, 499), (N_ROWS, 67)] {
                let n_bytes = 4 * N_ROWS as u64 + n_cached as u64 * row_bytes;
                // A part has no room for a partial row.
                let part_bytes = rows_per_part as u64 * row_bytes + row_bytes - 1;
                let features =
                    features_in_parts(source.clone(), &hotness, n_bytes, part_bytes, &device).unwrap();
                let what = format!("dim {dim}, {n_cached} cached, {rows_per_part} per part");
                if !is_cpu(&device) {
                    // A table of few bytes per row fits with its lookup table, so all rows are cached without one.
                    let n_rows = features.n_cached();
                    assert_eq!(n_parts(&features), n_rows.div_ceil(rows_per_part).max(1), "{what}");
                }
                for ids in [&ids[..], &ids[..1], &[]] {
                    let got = features.gather(&upload(ids, &device)).unwrap();
                    assert_eq!(got.dims(), [ids.len(), dim]);
                    assert_eq!(widened(got), expected(&*source, ids), "{what}");
                }
            }
        }
    }
}

/// A pool's pages have the size of its largest allocation. With the table in a pool, the next page for a batch would
/// take as much memory as the table.
#[test]
fn a_table_does_not_set_the_size_of_pages() {
    const N_ROWS: usize = 1 << 15;
    let device = device();
    // No array of another test has this size.
    let table_bytes = (N_ROWS * 1024 * 4) as u64;
    let source = DenseFeatures::from_f32(vec![0.5; N_ROWS * 1024], 1024).unwrap();
    let features = DeviceFeatures::new(Arc::new(source), &device).unwrap();
    let got = features.gather(&upload(&[3; 100], &device)).unwrap();
    assert!(values(got) == [0.5; 100 * 1024]);
    assert!(largest_page_bytes(&device).is_none_or(|page_bytes| page_bytes < table_bytes));
}

#[test]
fn rejects_rows_that_do_not_fit_in_a_part() {
    let device = device();
    let [source, ..] = sources(8);
    let features = features_in_parts(source, &[1; N_ROWS], u64::MAX, 31, &device);
    match is_cpu(&device) {
        true => assert_eq!(features.unwrap().n_cached(), N_ROWS),
        false => {
            let error = features.unwrap_err();
            assert!(matches!(error, UploadError::TooLarge { n_bytes: 32, most: 31, .. }), "{error}");
        }
    }
}

/// A store of eight terabytes, whose rows must not be gathered.
#[derive(Debug)]
struct Huge;

impl FeatureStore for Huge {
    fn dim(&self) -> usize {
        1000
    }

    fn n_rows(&self) -> usize {
        1 << 31
    }

    fn dtype(&self) -> FeatureDType {
        FeatureDType::F32
    }

    fn gather(&self, ids: &[NodeId], _: &mut FeatureBuffer) -> kiln_feature::Result<()> {
        panic!("{} rows were gathered", ids.len());
    }
}

#[test]
fn rejects_a_table_that_exceeds_the_device_before_gathering_rows() {
    let device = device();
    // WGPU does not know the memory of a device, and a software driver allocates it when it is first written.
    let is_wgpu = std::env::var("KILN_DEVICE").is_ok_and(|name| name.starts_with("wgpu"));
    if is_cpu(&device) || is_wgpu {
        return;
    }
    let error = DeviceFeatures::new(Arc::new(Huge), &device).unwrap_err();
    let n_expected = 4000 << 31;
    assert!(matches!(error, UploadError::OutOfMemory { n_bytes, .. } if n_bytes == n_expected), "{error}");
}

/// Returns the counts of rows that are all sent from pinned memory, if the device is a CUDA device.
pub(crate) fn sent(n_bytes: usize) -> Uploads {
    let is_cuda = std::env::var("KILN_DEVICE").is_ok_and(|name| name.starts_with("cuda"));
    let n_bytes = if is_cpu(&device()) { 0 } else { n_bytes as u64 };
    Uploads { n_bytes, n_pinned_bytes: if is_cuda { n_bytes } else { 0 } }
}

#[test]
fn rows_of_the_host_are_sent_as_stored_from_pinned_memory() {
    let device = device();
    let ids: Vec<u32> = (0..100).map(|place| place * 91 % N_ROWS as u32).collect();
    let nodes: Vec<NodeId> = ids.iter().copied().map(NodeId).collect();
    for dim in [1, 3, 100] {
        for source in sources(dim) {
            if !device.supports_dtype(values_type(source.dtype())) {
                continue;
            }
            let row_bytes = dim * source.dtype().bytes();
            for nodes in [&nodes[..], &nodes[..1], &[]] {
                let mut rows = FeatureBuffer::default();
                source.gather(nodes, &mut rows).unwrap();
                let expected = rows.clone().into_f32();
                let mut got = Vec::new();
                let uploads = uploads_of(|| {
                    got.push(gather_features(&*source, nodes, &device).unwrap());
                    got.push(upload_features(rows, dim, &device));
                });
                assert_eq!(
                    uploads,
                    sent(2 * nodes.len() * row_bytes),
                    "{} of {}",
                    nodes.len(),
                    source.dtype()
                );
                for got in got {
                    let is_as_stored = is_cpu(&device);
                    let expected_type = if is_as_stored { values_type(source.dtype()) } else { DType::F32 };
                    assert_eq!((got.dims(), got.dtype()), ([nodes.len(), dim], expected_type));
                    assert_eq!(widened(got), expected);
                }
            }
            // The rows of a table, and later those that the table lacks.
            let mut features = None;
            let n_bytes = (4 * N_ROWS + 20 * row_bytes) as u64;
            if (N_ROWS * row_bytes) as u64 <= n_bytes {
                continue;
            }
            let uploads = uploads_of(|| {
                let hotness: Vec<u32> = (0..N_ROWS as u32).collect();
                features = Some(DeviceFeatures::hottest(source.clone(), &hotness, n_bytes, &device).unwrap());
            });
            assert_eq!(uploads, sent(20 * row_bytes), "the table of {}", source.dtype());
            let features = features.unwrap();
            let uploads = uploads_of(|| drop(features.gather(&upload(&ids, &device)).unwrap()));
            let stats = features.cache_stats();
            let n_missing = (stats.n_rows - stats.n_hits) as usize;
            assert!(is_cpu(&device) || 0 < n_missing);
            assert_eq!(uploads, sent(n_missing * row_bytes), "the missing rows of {}", source.dtype());
        }
    }
}

pub(crate) fn values_type(row_type: FeatureDType) -> DType {
    match row_type {
        FeatureDType::F16 => DType::F16,
        FeatureDType::BF16 => DType::BF16,
        _ => DType::F32,
    }
}

#[test]
fn every_half_precision_value_is_widened_exactly_on_the_device() {
    let device = device();
    let numbers = |is_number: fn(u16) -> bool| (0..=u16::MAX).filter(move |&bits| is_number(bits));
    let halves = numbers(|bits| !f16::from_bits(bits).is_nan()).map(f16::from_bits).collect();
    let brains = numbers(|bits| !bf16::from_bits(bits).is_nan()).map(bf16::from_bits).collect();
    for rows in [FeatureBuffer::F16(halves), FeatureBuffer::BF16(brains)] {
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let got = widened(upload_features(rows.clone(), 2, &device));
        assert!(bits(got) == bits(rows.clone().into_f32()), "values of {} changed", rows.dtype());
    }
}

#[test]
fn rejects_gathered_nodes_without_a_row() {
    let [source, ..] = sources(2);
    let error = gather_features(&*source, &[NodeId(N_ROWS as u32)], &device()).unwrap_err();
    assert!(matches!(error, kiln_feature::Error::NodeOutOfRange { n_rows: N_ROWS, .. }), "{error}");
}
