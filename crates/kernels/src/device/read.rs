use burn::tensor::{DType, Device, Int, Tensor};

use crate::counts::count_read;
use crate::device::devices::is_cpu;

/// Reads a float tensor back to the host as f32, in row-major order.
///
/// This crate reads tensors only here, in `ops/reference.rs` and in `cube/launch.rs`. On CubeCL devices, Burn's
/// `into_data` may return a view of the device's buffer that later operations still change, so its bytes must be copied
/// at once.
///
/// # Panics
/// Panics if the device fails. Failures of earlier kernels surface here, too.
#[expect(clippy::disallowed_methods, reason = "the data is copied at once")]
pub fn to_vec_f32<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    note_read(&tensor.device(), tensor.shape().num_elements() * tensor.dtype().size());
    tensor.into_data().convert_dtype(DType::F32).try_to_vec().expect("data of type f32 should read as f32")
}

/// Reads an index tensor of any integer type back to the host.
///
/// # Panics
/// Panics if the device fails.
#[expect(clippy::disallowed_methods, reason = "the data is copied at once")]
pub(crate) fn read_i64(tensor: Tensor<1, Int>) -> Vec<i64> {
    note_read(&tensor.device(), tensor.shape().num_elements() * tensor.dtype().size());
    tensor.into_data().convert_dtype(DType::I64).try_to_vec().expect("data of type i64 should read as i64")
}

/// Counts a read, unless the tensor is on the CPU and therefore on the host already.
fn note_read(device: &Device, n_bytes: usize) {
    if !is_cpu(device) {
        count_read(n_bytes as u64);
    }
}
