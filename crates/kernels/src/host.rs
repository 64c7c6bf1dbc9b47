use burn::tensor::{DType, Tensor};

/// Reads a float tensor back to the host, row by row, as f32.
///
/// This is the one place where tensors are read: on CubeCL devices Burn's `into_data` gives a view of
/// the device's buffer that later operations may still change, so that its bytes must be copied at once.
///
/// # Panics
/// When the device fails: kernels' failures surface here.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn read_f32<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert_dtype(DType::F32).try_to_vec().expect("data of type f32 should read as f32")
}
