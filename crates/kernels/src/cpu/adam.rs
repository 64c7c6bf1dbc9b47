//! The arithmetic of Adam, in one pass over each array.

use crate::cpu::cost::{MEAN_NS, ROOT_NS};
use crate::cpu::tasks::in_tasks;
use crate::ops::adam::AdamStep;

/// The magnitude below which a mean is set to zero: the smallest normal number. If a parameter gets no gradient, its
/// means decay into the subnormal numbers, whose arithmetic is many times slower on CPUs. The lost values do not change
/// a parameter, because epsilon dominates the root of such a mean square.
const LEAST_MEAN: f32 = f32::MIN_POSITIVE;

/// `mean * decay + value * (1 - decay)`, in place.
pub(super) fn decayed_mean(means: &mut [f32], values: &[f32], decay: f32) {
    let share = 1.0 - decay;
    for_each(means, values, |mean, value| mean * decay + value * share);
}

/// Same as [`decayed_mean`], but with the squares of the values.
pub(super) fn decayed_mean_square(means: &mut [f32], values: &[f32], decay: f32) {
    let share = 1.0 - decay;
    for_each(means, values, |mean, value| mean * decay + value * value * share);
}

/// Updates the parameters in place.
pub(super) fn parameters(values: &mut [f32], means: &[f32], mean_squares: &[f32], step: &AdamStep) {
    let kept = step.kept();
    let rate = step.rate();
    let scale = step.scale();
    let epsilon = step.scaled_epsilon();
    in_tasks(values, 1, ROOT_NS, |start, values| {
        for ((value, mean), mean_square) in values.iter_mut().zip(&means[start..]).zip(&mean_squares[start..])
        {
            *value = *value * kept - mean * scale / (mean_square.sqrt() + epsilon) * rate;
        }
    });
}

fn for_each(means: &mut [f32], values: &[f32], changed: impl Fn(f32, f32) -> f32 + Sync) {
    in_tasks(means, 1, MEAN_NS, |start, means| {
        for (mean, value) in means.iter_mut().zip(&values[start..]) {
            let changed = changed(*mean, *value);
            *mean = if changed.abs() < LEAST_MEAN { 0.0 } else { changed };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_decay_to_exact_zero_without_gradients() {
        let mut means = vec![1e-20, -3.0, 0.0];
        let mut squares = vec![1e-20, 3.0, 0.0];
        for _ in 0..1500 {
            decayed_mean(&mut means, &[0.0; 3], 0.9);
            decayed_mean_square(&mut squares, &[0.0; 3], 0.9);
        }
        assert_eq!((means, squares), (vec![0.0; 3], vec![0.0; 3]));
    }
}
