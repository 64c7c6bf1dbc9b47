//! One step of Adam, with one launch for each of its three arrays.
//!
//! * *Contract.* The results are new tensors. Means closer to zero than the smallest normal number become zero, as on
//!   the CPU.
//! * *Work distribution.* One unit per vector of neighbouring values.
//! * *Cost.* Memory-bound: 12 bytes per value for each mean, 16 for the parameters.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch;
use crate::ops::adam::AdamStep;

#[cube(launch)]
fn decay_kernel<N: Size>(
    means: &[Vector<f32, N>],
    values: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    decay: f32,
    #[comptime] squares: bool,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let mut value = values[ABSOLUTE_POS];
    if comptime!(squares) {
        value = value * value;
    }
    let mean = means[ABSOLUTE_POS] * Vector::new(decay) + value * Vector::new(1.0f32 - decay);
    let is_tiny = mean.abs().less_than(&Vector::new(f32::new(f32::MIN_POSITIVE)));
    out[ABSOLUTE_POS] = select_many(is_tiny, Vector::zeroed(), mean);
}

/// The scalars of an [`AdamStep`].
#[derive(CubeType, CubeLaunch)]
struct Step {
    kept: f32,
    rate: f32,
    scale: f32,
    epsilon: f32,
}

#[cube(launch)]
fn parameters_kernel<N: Size>(
    values: &[Vector<f32, N>],
    means: &[Vector<f32, N>],
    mean_squares: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    step: &Step,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let root = mean_squares[ABSOLUTE_POS].sqrt() + Vector::new(step.epsilon);
    let moved = means[ABSOLUTE_POS] * Vector::new(step.scale) / root * Vector::new(step.rate);
    out[ABSOLUTE_POS] = values[ABSOLUTE_POS] * Vector::new(step.kept) - moved;
}

/// Returns `means * decay + values * (1 - decay)`. If `squares` is true, the values are squared first.
pub(super) fn decayed(means: CubeTensor, values: CubeTensor, decay: f32, squares: bool) -> CubeTensor {
    let [means, values] = [means, values].map(into_contiguous);
    let out = launch::new_tensor(&means, means.meta.shape().clone(), means.dtype);
    if let Some((vector_size, count, dim)) = vectors(&[&means, &values]) {
        let [old, values, new] = [&means, &values, &out].map(|tensor| launch::vectors(tensor, vector_size));
        decay_kernel::launch(&means.client, count, dim, vector_size, old, values, new, decay, squares);
    }
    out
}

/// Computes the updated parameters.
pub(super) fn parameters(
    values: CubeTensor,
    means: CubeTensor,
    mean_squares: CubeTensor,
    step: &AdamStep,
) -> CubeTensor {
    let [values, means, squares] = [values, means, mean_squares].map(into_contiguous);
    let out = launch::new_tensor(&values, values.meta.shape().clone(), values.dtype);
    if let Some((vector_size, count, dim)) = vectors(&[&values, &means, &squares]) {
        let numbers = StepLaunch::new(step.kept(), step.rate(), step.scale(), step.scaled_epsilon());
        let [old, means, squares, new] =
            [&values, &means, &squares, &out].map(|tensor| launch::vectors(tensor, vector_size));
        let client = &values.client;
        parameters_kernel::launch(client, count, dim, vector_size, old, means, squares, new, numbers);
    }
    out
}

/// Returns a vector size that suits all of these arrays, and the number and size of the cubes to launch. Returns `None`
/// if the arrays are empty. All arrays must have the same length.
fn vectors(tensors: &[&CubeTensor]) -> Option<(usize, CubeCount, CubeDim)> {
    let n_values = tensors[0].meta.num_elements();
    let size = tensors.iter().map(|tensor| launch::vector_size(tensor, &[n_values])).min()?;
    let (count, dim) = launch::units(tensors[0], n_values / size);
    (n_values > 0).then_some((size, count, dim))
}
