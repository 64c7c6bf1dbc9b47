//! Cases of gathered rows, with and without rows that a cache lacks, and of other copies.

use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use kiln_benches::Result;
use kiln_feature::{DenseFeatures, FeatureArray, FeatureStore};
use kiln_kernels::testing::{ramp, values};
use kiln_kernels::{DeviceFeatures, DeviceRows, ops};
use kiln_sample::RngKey;

use super::Case;
use crate::outcome::Outcome;

const N_ROWS: usize = 500;

/// The element type of the rows of a case.
#[derive(Debug, Clone, Copy)]
enum Rows {
    F32,
    F16,
    Bf16,
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        gather("gather-1", 1, N_ROWS, Rows::F32),
        gather("gather-100", 100, N_ROWS, Rows::F32),
        gather("gather-128", 128, N_ROWS, Rows::F32),
        gather("gather-128-f16", 128, N_ROWS, Rows::F16),
        gather("gather-100-bf16", 100, N_ROWS, Rows::Bf16),
        gather("gather-100-missing-rows", 100, 200, Rows::F32),
        gather("gather-3-no-cached-rows", 3, 0, Rows::F32),
    ];
    cases.push(Case::new("rows-by-index", |device| {
        let picked: Vec<u32> = (0..700).map(|row| row * 13 % 90).collect();
        let rows = DeviceRows::upload(&picked, 90, device);
        Ok(Outcome::copies(&values(ops::gather_rows(&rows, ramp([90, 33], device)))))
    }));
    cases.push(Case::new("dropout", |device| {
        let kept = ops::dropout(ramp([300, 40], device), &ids(300, device), RngKey::new(5), 1, 0.5);
        // Devices write 0 for dropped values, and the CPU also -0, which become equal by adding 0.
        Ok(Outcome::copies(&values(kept).into_iter().map(|value| value + 0.0).collect::<Vec<_>>()))
    }));
    cases
}

fn ids(n: u32, device: &Device) -> Tensor<1, Int> {
    let ids = (0..n).map(|place| place * 91 % N_ROWS as u32).collect::<Vec<u32>>();
    Tensor::from_data(TensorData::new(ids, [n as usize]), (device, DType::U32))
}

/// Returns a table of numbers that f16 and bf16 represent exactly.
fn table(dim: usize, rows: Rows) -> Result<Arc<dyn FeatureStore>> {
    let values = (0..N_ROWS * dim).map(|place| (place * 37 % 251) as f32 - 125.0);
    let array = match rows {
        Rows::F32 => FeatureArray::F32(values.collect::<Vec<_>>().into()),
        Rows::F16 => FeatureArray::F16(values.map(half::f16::from_f32).collect::<Vec<_>>().into()),
        Rows::Bf16 => FeatureArray::BF16(values.map(half::bf16::from_f32).collect::<Vec<_>>().into()),
    };
    Ok(Arc::new(DenseFeatures::new(array, dim)?))
}

/// A device that has only `n_cached` rows reads the others from the host.
fn gather(name: &str, dim: usize, n_cached: usize, rows: Rows) -> Case {
    Case::new(name, move |device| {
        let table = table(dim, rows)?;
        let row_bytes = dim * table.dtype().bytes();
        let n_bytes = 4 * N_ROWS + n_cached * row_bytes;
        let hotness: Vec<u32> = (0..N_ROWS as u32).map(|row| row % 10).collect();
        let features = DeviceFeatures::hottest(table, &hotness, n_bytes as u64, device)?;
        Ok(Outcome::copies(&values(ops::widen(features.gather(&ids(300, device))?))))
    })
}
