//! Compares the crate's Adam and AdamW with Burn's.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use burn::module::{Module, Param};
use burn::optim::decay::WeightDecayConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor, TensorData};
use kiln_kernels::testing::{check_close, values};
use kiln_train::{Optimizer, OptimizerConfig};

/// The tolerance for a few rounding errors per step, over 50 steps of 0.01.
const TOLERANCE: f32 = 1e-5;

const LEARNING_RATE: f64 = 0.01;

#[derive(Module, Debug)]
struct Model {
    matrix: Param<Tensor<2>>,
    vector: Param<Tensor<1>>,
}

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|at| ((at * 31 + seed * 17) % 23) as f32 / 11.0 - 1.0).collect()
}

fn model() -> Model {
    let device = Device::flex().autodiff();
    let matrix = TensorData::new(numbers(300 * 130, 1), [300, 130]);
    Model {
        matrix: Param::from_tensor(Tensor::from_data(matrix, &device)),
        vector: Param::from_tensor(Tensor::from_data(numbers(5, 2).as_slice(), &device)),
    }
}

/// Returns the parameters after 50 steps with gradients that depend on the parameters and the step.
fn trained(mut optimizer: ModuleOptimizer) -> [Vec<f32>; 2] {
    let mut model = model();
    for step in 0..50 {
        let matrix = (model.matrix.val() - 0.3).powi_scalar(2).sum() * (step % 7) as f32;
        let loss = matrix + (model.vector.val() * 0.01).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(LEARNING_RATE, model, gradients);
    }
    [values(model.matrix.val()), values(model.vector.val())]
}

fn ours(kind: Optimizer, weight_decay: f64) -> ModuleOptimizer {
    let config = OptimizerConfig { kind, weight_decay, ..OptimizerConfig::adam(LEARNING_RATE, 0.0) };
    config.init().unwrap()
}

fn check_same(ours: ModuleOptimizer, burns: ModuleOptimizer) {
    for (ours, burns) in trained(ours).iter().zip(&trained(burns)) {
        check_close(ours, burns, TOLERANCE);
    }
}

#[test]
fn adam_equals_adam_of_burn() {
    let burns = || AdamConfig::new().with_epsilon(1e-8);
    check_same(ours(Optimizer::Adam, 0.0), burns().init());
    let decay = Some(WeightDecayConfig::new(0.05));
    check_same(ours(Optimizer::Adam, f64::from(0.05_f32)), burns().with_weight_decay(decay).init());
}

#[test]
fn adamw_equals_adamw_of_burn() {
    let burns = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.05).init();
    check_same(ours(Optimizer::AdamW, f64::from(0.05_f32)), burns);
}
