//! One step of Adam, in one launch per parameter.
//!
//! * *Contract.* The results are new tensors. Means closer to zero than the smallest normal number become zero, as on
//!   the CPU.
//! * *Work distribution.* One unit per vector of neighbouring values.
//! * *Cost.* Memory-bound: 28 bytes per value.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, launch_units};
use crate::ops::adam::{AdamState, AdamStep};

/// The scalars of an [`AdamStep`].
#[derive(CubeType, CubeLaunch)]
struct Step {
    mean_decay: f32,
    square_decay: f32,
    kept: f32,
    rate: f32,
    scale: f32,
    epsilon: f32,
}

/// Returns `mean * decay + value * (1 - decay)`, or zero for a subnormal result.
#[cube]
fn decayed<N: Size>(mean: Vector<f32, N>, value: Vector<f32, N>, decay: f32) -> Vector<f32, N> {
    let mean = mean * Vector::new(decay) + value * Vector::new(1.0f32 - decay);
    let is_tiny = mean.abs().less_than(&Vector::new(f32::new(f32::MIN_POSITIVE)));
    select_many(is_tiny, Vector::zeroed(), mean)
}

#[cube(launch, address_type = "dynamic")]
fn adam_kernel<N: Size>(
    gradient: &[Vector<f32, N>],
    values: &[Vector<f32, N>],
    means: &[Vector<f32, N>],
    mean_squares: &[Vector<f32, N>],
    new_values: &mut [Vector<f32, N>],
    new_means: &mut [Vector<f32, N>],
    new_mean_squares: &mut [Vector<f32, N>],
    step: &Step,
) {
    if ABSOLUTE_POS >= new_values.len() {
        terminate!();
    }
    let slope = gradient[ABSOLUTE_POS];
    let mean = decayed::<N>(means[ABSOLUTE_POS], slope, step.mean_decay);
    let mean_square = decayed::<N>(mean_squares[ABSOLUTE_POS], slope * slope, step.square_decay);
    new_means[ABSOLUTE_POS] = mean;
    new_mean_squares[ABSOLUTE_POS] = mean_square;
    let root = mean_square.sqrt() + Vector::new(step.epsilon);
    let moved = mean * Vector::new(step.scale) / root * Vector::new(step.rate);
    new_values[ABSOLUTE_POS] = values[ABSOLUTE_POS] * Vector::new(step.kept) - moved;
}

/// Computes the updated parameters and moments.
pub(super) fn adam(
    state: AdamState<CubeBackend>,
    gradient: CubeTensor,
    step: &AdamStep,
) -> AdamState<CubeBackend> {
    let inputs = [gradient, state.values, state.means, state.mean_squares].map(into_contiguous);
    let outputs =
        [(); 3].map(|()| launch::new_tensor(&inputs[0], inputs[0].meta.shape().clone(), inputs[0].dtype));
    let n_values = inputs[0].meta.num_elements();
    let vector_size = inputs.iter().map(|input| launch::vector_size(input, &[n_values])).min().unwrap_or(1);
    if 0 < n_values {
        let of = |tensor: &CubeTensor| launch::vectors(tensor, vector_size);
        let [gradient, values, means, mean_squares] = inputs.each_ref().map(of);
        let [new_values, new_means, new_mean_squares] = outputs.each_ref().map(of);
        let [mean_decay, square_decay] = step.betas;
        launch_units!(
            adam_kernel,
            &inputs[0],
            n_values / vector_size,
            vector_size,
            gradient,
            values,
            means,
            mean_squares,
            new_values,
            new_means,
            new_mean_squares,
            StepLaunch::new(
                mean_decay,
                square_decay,
                step.kept(),
                step.rate(),
                step.scale(),
                step.scaled_epsilon()
            )
        );
    }
    let [values, means, mean_squares] = outputs;
    AdamState { values, means, mean_squares }
}
