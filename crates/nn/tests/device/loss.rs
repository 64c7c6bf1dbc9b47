//! Losses and their gradients, compared with the formulas of PyTorch's documentation in f64, and with differences.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::tensor::{Tensor, TensorData};
use kiln_kernels::testing::{check_close, device, values};
use kiln_nn::{ClassLoss, Error, LossError, LossSum, TargetLoss};

/// The tolerance for f32 sums of a dozen terms of about 1, with exponentials.
const TOLERANCE: f32 = 2e-6;

/// The step of central differences in f64, whose error is of second order in it.
const STEP: f64 = 1e-5;

const N_COLUMNS: usize = 3;

/// Outputs of four items. The first is 0, where sums of absolute values have no derivative; two are large.
const OUTPUTS: [f32; 12] = [0.0, -1.5, 2.0, 0.25, 30.0, -40.0, 1.0, 1.0, -0.5, 3.0, -2.0, 0.75];

const LOSSES: [TargetLoss; 5] = [
    TargetLoss::BinaryCrossEntropy,
    TargetLoss::SquaredError,
    TargetLoss::AbsoluteError,
    TargetLoss::Huber { delta: 1.0 },
    TargetLoss::Huber { delta: 0.3 },
];

/// Returns the sum, the weight, and the gradient of the sum.
fn loss_and_gradient(outputs: &[f32], loss: impl FnOnce(Tensor<2>) -> LossSum) -> (f32, f64, Vec<f32>) {
    let shape = [outputs.len() / N_COLUMNS, N_COLUMNS];
    let outputs = TensorData::new(outputs.to_vec(), shape);
    let outputs = Tensor::<2>::from_data(outputs, &device().autodiff()).require_grad();
    let LossSum { sum, weight } = loss(outputs.clone());
    let gradients = sum.backward();
    let gradient = values(outputs.grad(&gradients).unwrap());
    (values(sum)[0], weight, gradient)
}

/// Compares a loss and its gradient with a formula of the outputs in f64 and its central differences.
fn check(
    outputs: &[f32],
    loss: impl FnOnce(Tensor<2>) -> LossSum,
    weight: f64,
    formula: impl Fn(&[f64]) -> f64,
) {
    let exact: Vec<f64> = outputs.iter().map(|&output| f64::from(output)).collect();
    let slope = |at: usize| {
        let [above, below] = [STEP, -STEP].map(|step| {
            let mut moved = exact.clone();
            moved[at] += step;
            formula(&moved)
        });
        ((above - below) / (2.0 * STEP)) as f32
    };
    let (got, got_weight, gradient) = loss_and_gradient(outputs, loss);
    let expected = formula(&exact) as f32;
    assert!((got - expected).abs() <= TOLERANCE * expected.abs().max(1.0), "{got}, expected {expected}");
    assert_eq!(got_weight, weight);
    let slopes: Vec<f32> = (0..outputs.len()).map(slope).collect();
    check_close(&gradient, &slopes, 1e-4);
}

/// Returns the loss of one target by the formula of PyTorch's documentation.
fn of_target(loss: TargetLoss, x: f64, t: f64) -> f64 {
    let error = (x - t).abs();
    match loss {
        TargetLoss::BinaryCrossEntropy => {
            // log(1 + exp(x)) without overflow.
            let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
            t * softplus(-x) + (1.0 - t) * softplus(x)
        }
        TargetLoss::SquaredError => error * error,
        TargetLoss::AbsoluteError => error,
        TargetLoss::Huber { delta } => {
            let delta = f64::from(delta);
            if error <= delta { error * error / 2.0 } else { delta * (error - delta / 2.0) }
        }
    }
}

fn targets(loss: TargetLoss) -> Vec<f32> {
    let is_binary = loss == TargetLoss::BinaryCrossEntropy;
    let binary = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.25, 1.0, 0.0];
    // The seventh output is equal to its target: all gradients there are 0.
    let numbers = [0.5, -1.25, 4.0, 0.125, 28.0, -45.0, 1.0, 0.0, -0.4, 2.5, -8.0, 0.5];
    if is_binary { binary.to_vec() } else { numbers.to_vec() }
}

#[test]
fn losses_and_gradients_equal_their_formulas() {
    for loss in LOSSES {
        let targets = targets(loss);
        let formula = |outputs: &[f64]| {
            let pairs = outputs.iter().zip(&targets);
            pairs.map(|(&output, &target)| of_target(loss, output, f64::from(target))).sum()
        };
        println!("{loss:?}");
        check(&OUTPUTS, |outputs| loss.sum(outputs, &targets), 12.0, formula);
    }
}

#[test]
fn missing_targets_have_no_loss_and_no_gradient() {
    for loss in LOSSES {
        let mut targets = targets(loss);
        for missing in [1, 4, 5, 11] {
            targets[missing] = f32::NAN;
        }
        let formula = |outputs: &[f64]| {
            let known = outputs.iter().zip(&targets).filter(|(_, target)| !target.is_nan());
            known.map(|(&output, &target)| of_target(loss, output, f64::from(target))).sum()
        };
        check(&OUTPUTS, |outputs| loss.sum(outputs, &targets), 8.0, formula);
        // An infinite output without a target does not spoil the others.
        let mut outputs = OUTPUTS;
        outputs[4] = f32::INFINITY;
        let (sum, _, gradient) = loss_and_gradient(&outputs, |outputs| loss.sum(outputs, &targets));
        assert!(
            sum.is_finite() && gradient.iter().all(|slope| slope.is_finite()),
            "{loss:?}: {sum} {gradient:?}"
        );
        let (sum, weight, gradient) =
            loss_and_gradient(&OUTPUTS, |outputs| loss.sum(outputs, &[f32::NAN; OUTPUTS.len()]));
        assert_eq!((sum, weight, gradient), (0.0, 0.0, vec![0.0; OUTPUTS.len()]));
    }
}

#[test]
fn cross_entropy_with_weights_and_smoothing_equals_its_formula() {
    let outputs: Vec<f32> = OUTPUTS.map(|output| output / 10.0).to_vec();
    let classes = [2, 0, 1, 2];
    for (weights, smoothing) in
        [(None, 0.0), (None, 0.1), (Some([0.5, 2.0, 1.0]), 0.0), (Some([0.5, 0.0, 3.0]), 0.2)]
    {
        let loss =
            ClassLoss { class_weights: weights.map(|weights| weights.to_vec()), label_smoothing: smoothing };
        let weight_of = |class: usize| f64::from(weights.map_or(1.0, |weights| weights[class]));
        let formula = |outputs: &[f64]| {
            let of_row = |(row, &class): (&[f64], &i32)| {
                let log_sum = row.iter().map(|x| x.exp()).sum::<f64>().ln();
                let log_p = |class: usize| row[class] - log_sum;
                let (class, smoothing) = (class as usize, f64::from(smoothing));
                let spread: f64 = (0..3).map(|class| weight_of(class) * log_p(class)).sum();
                -(1.0 - smoothing) * weight_of(class) * log_p(class) - smoothing / 3.0 * spread
            };
            outputs.chunks_exact(N_COLUMNS).zip(&classes).map(of_row).sum()
        };
        let weight = classes.map(|class| weight_of(class as usize)).iter().sum();
        check(&outputs, |outputs| loss.sum(outputs, &classes), weight, formula);
    }
}

/// The default must not change the weights of runs with class labels.
#[test]
fn default_cross_entropy_is_bit_identical_to_the_op() {
    let classes = [2, 0, 1, 2];
    let (got, weight, gradient) = loss_and_gradient(&OUTPUTS, |x| ClassLoss::default().sum(x, &classes));
    let op = |x| LossSum { sum: kiln_kernels::ops::cross_entropy(x, &classes), weight: 4.0 };
    assert_eq!((got, weight, gradient), loss_and_gradient(&OUTPUTS, op));
}

#[test]
fn rejects_invalid_settings() {
    let loss = |weights: &[f32], label_smoothing| ClassLoss {
        class_weights: Some(weights.to_vec()),
        label_smoothing,
    };
    for weights in [&[1.0, 2.0][..], &[1.0, -1.0, 1.0], &[f32::NAN, 1.0, 1.0], &[0.0; 3]] {
        let error = loss(weights, 0.0).check(3).unwrap_err();
        assert!(matches!(error, Error::Loss(LossError::ClassWeights { n_classes: 3, .. })), "{error}");
    }
    for smoothing in [-0.1, 1.0, f32::NAN] {
        assert!(matches!(
            loss(&[1.0; 3], smoothing).check(3),
            Err(Error::Loss(LossError::LabelSmoothing { .. }))
        ));
    }
    loss(&[1.0, 0.0, 2.0], 0.9).check(3).unwrap();
    for delta in [0.0, -1.0, f32::INFINITY, f32::NAN] {
        let error = TargetLoss::Huber { delta }.check().unwrap_err();
        assert!(error.to_string().starts_with("the delta of the Huber loss is "), "{error}");
    }
}
