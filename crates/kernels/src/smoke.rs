//! A smoke test of a device.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Device, Tensor};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};

use crate::device::block::DeviceBlock;
use crate::device::error::DeviceError;
use crate::device::read::to_vec_f32;
use crate::ops::{self, MatmulPrecision, Reduction, matmul_precision_on};

/// Returns the largest difference between the numbers of a device and those of the CPU: products of numbers up to 4.
fn tolerance(device: &Device) -> f32 {
    match matmul_precision_on(device) {
        MatmulPrecision::F32 => 1e-4,
        MatmulPrecision::Tf32 => 2e-2,
        // The mantissa is three bits shorter. On the CPU, the matrices are so narrow that their products are computed in f32.
        MatmulPrecision::Bf16 => 1.6e-1,
    }
}

/// Computes a layer, its loss and its gradient on a device, and compares them with those of the CPU. The kernels are
/// compiled first, which takes seconds on a GPU.
///
/// # Errors
/// Returns [`DeviceError::Failed`] if the device fails, or if a number differs.
pub fn smoke_test(device: &Device) -> Result<(), DeviceError> {
    let failed = |reason: String| DeviceError::Failed { reason };
    let expected = loss_and_gradient(&Device::flex());
    // Runtimes panic if a kernel cannot be compiled or launched.
    let got = catch_unwind(AssertUnwindSafe(|| loss_and_gradient(device))).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        failed(text.unwrap_or("a kernel panicked").to_owned())
    })?;
    if got.len() != expected.len()
        || !got
            .iter()
            .zip(&expected)
            .all(|(got, expected): (&f32, &f32)| (got - expected).abs() <= tolerance(device))
    {
        return Err(failed(format!("the results {got:?} differ from those of the CPU, {expected:?}")));
    }
    Ok(())
}

/// Returns the loss of a mean aggregation followed by a linear layer, and the gradient of the weights.
pub(crate) fn loss_and_gradient(device: &Device) -> Vec<f32> {
    let device = &device.clone().autodiff();
    let block = Block::new(BlockParts {
        srcs: vec![NodeId(2), NodeId(5), NodeId(7), NodeId(9)],
        indptr: vec![0, 3, 4],
        indices: vec![LocalId(1), LocalId(2), LocalId(3), LocalId(0)],
        edge_ids: (0..4).map(EdgeId).collect(),
        ..BlockParts::default()
    });
    let x = Tensor::<2>::from_data([[1.0, 0.5], [2.0, -1.0], [4.0, 0.25], [-3.0, 1.5]], device);
    let weight = Tensor::<2>::from_data([[0.5, -1.0, 0.25], [1.0, 0.75, -0.5]], device).require_grad();
    let base = Tensor::<2>::zeros([1, 3], device);
    let mean = ops::aggregate(&DeviceBlock::upload(&block, device), x, Reduction::Mean);
    let loss = ops::cross_entropy(ops::linear(base, mean, weight.clone()), &[2, 0]);
    let gradients = loss.clone().backward();
    let gradient = weight.grad(&gradients).map(to_vec_f32).unwrap_or_default();
    [to_vec_f32(loss.inner().reshape([1, 1])), gradient].concat()
}
