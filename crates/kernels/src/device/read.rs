use burn::tensor::{DType, Device, Int, Tensor};

use crate::counts::count_read;
use crate::device::devices::is_cpu;

/// Reads a float tensor back to the host, row by row, as f32.
///
/// Here, in `ops/reference.rs` and in `cube/launch.rs` tensors are read, and nowhere else: on CubeCL devices Burn's `into_data` gives a view of
/// the device's buffer that later operations may still change, so that its bytes must be copied at once.
///
/// # Panics
/// When the device fails: kernels' failures surface here.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn to_vec_f32<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    note_read(&tensor.device(), tensor.shape().num_elements() * tensor.dtype().size());
    tensor.into_data().convert_dtype(DType::F32).try_to_vec().expect("data of type f32 should read as f32")
}

/// Reads an index tensor back to the host, of whatever integers.
///
/// # Panics
/// When the device fails.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn read_i64(tensor: Tensor<1, Int>) -> Vec<i64> {
    note_read(&tensor.device(), tensor.shape().num_elements() * tensor.dtype().size());
    tensor.into_data().convert_dtype(DType::I64).try_to_vec().expect("data of type i64 should read as i64")
}

/// The processor's tensors are on the host already.
fn note_read(device: &Device, n_bytes: usize) {
    if !is_cpu(device) {
        count_read(n_bytes as u64);
    }
}
