//! Tests of features on a device: gathered rows are those of the source, cached or not.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use half::{bf16, f16};
use kiln_feature::{DenseFeatures, FeatureArray, FeatureBuffer, FeatureStore};
use kiln_graph::NodeId;
use kiln_kernels::testing::{Reads, device, reads_of, values};
use kiln_kernels::{CacheStats, DeviceFeatures, UploadError, is_cpu};

const N_ROWS: usize = 500;

/// Returns a value that f16 and bf16 represent exactly.
fn value(place: usize) -> f32 {
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
fn gathered_rows_equal_the_source_for_any_cache_size() {
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
                    assert_eq!(values(got), expected(&*source, ids), "dim {dim}, {n_cached} cached");
                }
            }
            let features = DeviceFeatures::new(source.clone(), &device).unwrap();
            assert_eq!(values(features.gather(&upload(&ids, &device)).unwrap()), expected(&*source, &ids));
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
    assert_eq!(values(got.unwrap()), expected(&*source, &ids));
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
