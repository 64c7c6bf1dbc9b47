//! The arithmetic of Adam, a pass over each array.

use rayon::prelude::*;

use crate::ops::AdamStep;

/// Values that a task works on.
const TASK_VALUES: usize = 1 << 15;

/// A mean closer to zero than this is zero. Where a gradient stays away, its mean decays into the numbers below the
/// smallest normal one, with which processors compute a hundred times slower: after 1,000 steps of a GIN on one-hot
/// degrees the update took 0.7 ms instead of 0.08. What is lost moves no parameter: the root of a mean square is
/// added to an epsilon of about 1e-8.
const LEAST_MEAN: f32 = 1e-30;

/// `mean * decay + value * (1 - decay)`, in place.
pub(super) fn decayed_mean(means: &mut [f32], values: &[f32], decay: f32) {
    let share = 1.0 - decay;
    for_each(means, values, |mean, value| mean * decay + value * share);
}

/// The same of the values' squares.
pub(super) fn decayed_mean_square(means: &mut [f32], values: &[f32], decay: f32) {
    let share = 1.0 - decay;
    for_each(means, values, |mean, value| mean * decay + value * value * share);
}

/// The parameters' step, in place.
pub(super) fn parameters(values: &mut [f32], means: &[f32], mean_squares: &[f32], step: &AdamStep) {
    let (kept, rate, scale, epsilon) = (step.kept(), step.rate(), step.scale(), step.scaled_epsilon());
    let tasks = values.par_chunks_mut(TASK_VALUES).zip(means.par_chunks(TASK_VALUES));
    tasks.zip(mean_squares.par_chunks(TASK_VALUES)).for_each(|((values, means), mean_squares)| {
        for ((value, mean), mean_square) in values.iter_mut().zip(means).zip(mean_squares) {
            *value = *value * kept - mean * scale / (mean_square.sqrt() + epsilon) * rate;
        }
    });
}

fn for_each(means: &mut [f32], values: &[f32], changed: impl Fn(f32, f32) -> f32 + Sync) {
    let tasks = means.par_chunks_mut(TASK_VALUES).zip(values.par_chunks(TASK_VALUES));
    tasks.for_each(|(means, values)| {
        for (mean, value) in means.iter_mut().zip(values) {
            let changed = changed(*mean, *value);
            *mean = if changed.abs() < LEAST_MEAN { 0.0 } else { changed };
        }
    });
}
