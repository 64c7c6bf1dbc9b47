//! One step of Adam, in one launch for several parameters.
//!
//! * *Contract.* The results are new tensors. Means closer to zero than the smallest normal number become zero, as on
//!   the CPU.
//! * *Work distribution.* One unit per vector of neighbouring values of all parameters of the launch, one after the other.
//!   Within [`together`], parameters that allow the same vectors share a launch, up to [`MOST_PARAMETERS`] or as many as the
//!   device has places for their arrays.
//! * *Cost.* Memory-bound: 28 bytes per value.

use std::cell::RefCell;
use std::mem::take;

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

/// The parameters of a launch, and their moments.
type Arrays<N> = Sequence<Box<[Vector<f32, N>]>>;

#[cube(launch, address_type = "dynamic")]
fn adam_kernel<N: Size>(
    gradients: &Arrays<N>,
    values: &Arrays<N>,
    means: &Arrays<N>,
    mean_squares: &Arrays<N>,
    new_values: &mut Arrays<N>,
    new_means: &mut Arrays<N>,
    new_mean_squares: &mut Arrays<N>,
    step: &Step,
    #[comptime] n_parameters: usize,
) {
    let mut first = 0usize;
    #[unroll]
    for parameter in 0..n_parameters {
        let length = values.index(parameter).len();
        if first <= ABSOLUTE_POS && ABSOLUTE_POS - first < length {
            let at = ABSOLUTE_POS - first;
            let slope = gradients.index(parameter)[at];
            let mean = decayed::<N>(means.index(parameter)[at], slope, step.mean_decay);
            let square = slope * slope;
            let mean_square = decayed::<N>(mean_squares.index(parameter)[at], square, step.square_decay);
            new_means.index_mut(parameter)[at] = mean;
            new_mean_squares.index_mut(parameter)[at] = mean_square;
            let root = mean_square.sqrt() + Vector::new(step.epsilon);
            let moved = mean * Vector::new(step.scale) / root * Vector::new(step.rate);
            new_values.index_mut(parameter)[at] =
                values.index(parameter)[at] * Vector::new(step.kept) - moved;
        }
        first += length;
    }
}

/// The largest number of parameters of a launch. The kernel is compiled for each number.
const MOST_PARAMETERS: usize = 16;

/// The number of values up to which all parameters share launches, with the vectors that all of them allow: a launch takes longer
/// than the narrower accesses.
const FEW_VALUES: usize = 1 << 20;

/// The number of arrays of a parameter.
const N_ARRAYS: usize = 7;

/// The update of a parameter: the gradient, the values and the moments, and the new values and moments.
#[derive(Debug)]
struct Update {
    inputs: [CubeTensor; 4],
    outputs: [CubeTensor; 3],
    step: AdamStep,
    vector_size: usize,
}

thread_local! {
    /// The updates of the thread that are to be launched together; `None` outside of [`together`].
    static PENDING: RefCell<Option<Vec<Update>>> = const { RefCell::new(None) };
}

/// Runs `updates`, and then launches all steps of Adam in it together. Their results are undefined before. Within another call, the
/// outer one launches.
pub(crate) fn together<T>(updates: impl FnOnce() -> T) -> T {
    /// Forgets the updates of a function that panicked.
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            PENDING.take();
        }
    }
    if PENDING.with_borrow(Option::is_some) {
        return updates();
    }
    let forget = Forget;
    PENDING.set(Some(Vec::new()));
    let result = updates();
    let pending = PENDING.take().unwrap_or_default();
    drop(forget);
    launch_all(pending);
    result
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
    let [values, means, mean_squares] = outputs.clone();
    if 0 < n_values {
        let update = Update { inputs, outputs, step: *step, vector_size };
        PENDING.with_borrow_mut(|pending| match pending {
            Some(pending) => pending.push(update),
            None => launch_updates(&[update]),
        });
    }
    AdamState { values, means, mean_squares }
}

/// Launches updates in groups of the same device, step and size of vectors.
fn launch_all(mut updates: Vec<Update>) {
    let n_values: usize = updates.iter().map(|update| launch::length(&update.inputs[0])).sum();
    let smallest = updates.iter().map(|update| update.vector_size).min().unwrap_or(1);
    if n_values <= FEW_VALUES {
        updates.iter_mut().for_each(|update| update.vector_size = smallest);
    }
    while let Some(first) = updates.first() {
        let Update { step, vector_size, .. } = *first;
        let device = first.inputs[0].device.clone();
        let most_arrays = first.inputs[0].client.properties().hardware.max_bindings as usize;
        let most = MOST_PARAMETERS.min(most_arrays.saturating_sub(2) / N_ARRAYS).max(1);
        let (group, rest): (Vec<Update>, Vec<Update>) = take(&mut updates).into_iter().partition(|update| {
            let is_like = (update.step, update.vector_size) == (step, vector_size);
            is_like && update.inputs[0].device == device
        });
        group.chunks(most).for_each(launch_updates);
        updates = rest;
    }
}

fn launch_updates(updates: &[Update]) {
    let Update { inputs: [like, ..], step, vector_size, .. } = &updates[0];
    let n_values: usize = updates.iter().map(|update| launch::length(&update.inputs[0])).sum();
    let inputs = |array: usize| arrays(updates.iter().map(|update| &update.inputs[array]), *vector_size);
    let outputs = |array: usize| arrays(updates.iter().map(|update| &update.outputs[array]), *vector_size);
    let [mean_decay, square_decay] = step.betas;
    launch_units!(
        adam_kernel,
        like,
        n_values / vector_size,
        *vector_size,
        inputs(0),
        inputs(1),
        inputs(2),
        inputs(3),
        outputs(0),
        outputs(1),
        outputs(2),
        StepLaunch::new(
            mean_decay,
            square_decay,
            step.kept(),
            step.rate(),
            step.scale(),
            step.scaled_epsilon()
        ),
        updates.len()
    );
}

fn arrays<'a, N: Size>(
    tensors: impl Iterator<Item = &'a CubeTensor>,
    vector_size: usize,
) -> SequenceArg<Box<[Vector<f32, N>]>> {
    tensors.map(|tensor| launch::vectors(tensor, vector_size)).collect()
}
