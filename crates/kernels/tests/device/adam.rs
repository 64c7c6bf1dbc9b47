//! Tests of the Adam step.

use burn::tensor::{DType, Tensor, TensorData};
use kiln_kernels::ops::{self, AdamStep};
use kiln_kernels::testing::{Launches, check_close, device, launches_of, ramp, values};
use kiln_kernels::to_vec_f32;

/// The tolerance for a few operations on numbers of about 1.
const TOLERANCE: f32 = 1e-6;

const STEP: AdamStep =
    AdamStep { time: 3, learning_rate: 0.01, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.1 };

/// Returns the parameter and the moments that algorithm 2 of Loshchilov and Hutter (2019) gives in float64.
fn expected(value: f32, gradient: f32, mean: f32, mean_square: f32) -> [f32; 3] {
    let [value, gradient, mean, mean_square] = [value, gradient, mean, mean_square].map(f64::from);
    let betas = STEP.betas.map(f64::from);
    let mean = betas[0] * mean + (1.0 - betas[0]) * gradient;
    let mean_square = betas[1] * mean_square + (1.0 - betas[1]) * gradient * gradient;
    let [unbiased_mean, unbiased_square] =
        [(mean, betas[0]), (mean_square, betas[1])].map(|(moment, beta)| moment / (1.0 - beta.powi(3)));
    let moved = STEP.learning_rate * unbiased_mean / (unbiased_square.sqrt() + f64::from(STEP.epsilon));
    let value = value - moved - STEP.learning_rate * f64::from(STEP.weight_decay) * value;
    [value, mean, mean_square].map(|value| value as f32)
}

#[test]
fn a_step_matches_the_formula_in_one_op() {
    let device = device();
    // The widths are divisible by every vector size, by none, and one value is a tensor.
    for shape in [[16, 8], [5, 7], [1, 1]] {
        let value: Tensor<2> = ramp(shape, &device);
        let [gradient, mean, square] = [0.5, -0.25, 0.75].map(|factor| value.clone() * factor);
        let square = square.powi_scalar(2);
        let [values_before, gradients, means, squares] =
            [&value, &gradient, &mean, &square].map(|tensor| values(tensor.clone()));
        let mut results = Vec::new();
        let launches = launches_of(|| {
            let (value, [mean, square]) = ops::adam(value, gradient, [mean, square], STEP);
            results = vec![values(value), values(mean), values(square)];
        });
        assert_eq!(launches, Launches { direct: 1, reference: 0 }, "{shape:?}");
        let inputs = values_before.iter().zip(&gradients).zip(means.iter().zip(&squares));
        let expected: Vec<[f32; 3]> = inputs.map(|((v, g), (m, s))| expected(*v, *g, *m, *s)).collect();
        for (idx, result) in results.iter().enumerate() {
            let expected: Vec<f32> = expected.iter().map(|arrays| arrays[idx]).collect();
            check_close(result, &expected, TOLERANCE);
        }
    }
}

#[test]
fn subnormal_moments_become_zero() {
    let device = device();
    let tensor = |value: f32| Tensor::<1>::from_data(TensorData::from([value; 5]), &device);
    let moments = [tensor(f32::MIN_POSITIVE), tensor(f32::MIN_POSITIVE)];
    let (value, moments) =
        ops::adam(tensor(2.0), tensor(0.0), moments, AdamStep { weight_decay: 0.0, ..STEP });
    assert_eq!((values(value), moments.map(values)), (vec![2.0; 5], [vec![0.0; 5], vec![0.0; 5]]));
}

#[test]
fn other_element_types_run_the_reference() {
    let device = device();
    let ones = || Tensor::<1>::ones([3], &device).cast(DType::F64);
    let mut results = Vec::new();
    let launches = launches_of(|| {
        let (value, moments) = ops::adam(ones(), ones(), [ones(), ones()], STEP);
        let [mean, square] = moments;
        results = [value, mean, square].map(|tensor| values(tensor.cast(DType::F32))).concat();
    });
    assert_eq!(launches, Launches { direct: 0, reference: 1 });
    let expected = expected(1.0, 1.0, 1.0, 1.0).map(|value| [value; 3]).concat();
    check_close(&results, &expected, TOLERANCE);
}

/// Parameters of several sizes, with and without vectors, and more than one launch takes.
#[test]
fn steps_together_equal_steps_alone_bit_for_bit() {
    let device = device();
    let run = |n: usize| {
        let of = |factor: f32| ramp::<1>([n], &device) * factor;
        let (values, [means, squares]) = ops::adam(of(1.0), of(-0.7), [of(0.3), of(0.2).square()], STEP);
        [values, means, squares]
    };
    let sizes = [5, 8, 1, 1024, 47, 4, 12, 7, 300, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64];
    let alone = sizes.map(run);
    let together = ops::adam_together(|| sizes.map(run));
    for (alone, together) in alone.into_iter().flatten().zip(together.into_iter().flatten()) {
        assert_eq!(to_vec_f32(alone), to_vec_f32(together));
    }
    assert_eq!(to_vec_f32(ops::adam_together(|| run(0))[0].clone()), [0.0; 0]);
    // A function that panics leaves nothing behind, and the outer of two calls launches.
    let panicked = std::panic::catch_unwind(|| {
        ops::adam_together::<()>(|| {
            run(8);
            panic!("a failed step");
        });
    });
    assert!(panicked.is_err());
    let nested = ops::adam_together(|| (run(8), ops::adam_together(|| run(5))));
    for (nested, alone) in [(nested.0, run(8)), (nested.1, run(5))] {
        assert_eq!(nested.map(to_vec_f32), alone.map(to_vec_f32));
    }
}
