//! Cases of matrix products, the loss and Adam.

use burn::tensor::{Device, Tensor};
use kiln_benches::Result;
use kiln_kernels::ops::{self, AdamStep, MatmulPrecision, linear};
use kiln_kernels::testing::{product, ramp, values};

use super::Case;
use crate::outcome::Outcome;

/// The bound of sums of up to 1,000 products of numbers below 1, added in another order.
const PRODUCT_BOUND: f32 = 2e-4;

/// The bound of products in TF32: each factor has a relative error below 2^-10, and 130 products have a sum of magnitudes
/// of about 32.
const TF32_BOUND: f32 = 0.0635;

/// The bound of the loss and of Adam, which are composed of a few rounded operations.
const STEP_BOUND: f32 = 1e-5;

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> =
        [[1, 1, 1], [3, 602, 5], [500, 128, 256], [1024, 512, 47], [700, 5, 3]].map(layer).into();
    cases.push(Case::new("weight-gradient", |device| {
        let (x, weight, result) = tracked_layer(device);
        let factors = ramp(result.dims(), &result.device());
        let grads = (result * factors).sum().backward();
        let of_weight = weight.grad(&grads).ok_or("the weights have no gradient")?;
        let of_input = x.grad(&grads).ok_or("the input has no gradient")?;
        let both = [values(of_weight), values(of_input)].concat();
        Ok(Outcome::floats(&both, PRODUCT_BOUND))
    }));
    cases.push(Case::new("product-tf32", |device| {
        let left = ramp([70, 130], device);
        let right = ramp([130, 36], device);
        let result = product(&left, &right, MatmulPrecision::Tf32).unwrap_or_else(|| left.matmul(right));
        Ok(Outcome::floats(&values(result), TF32_BOUND))
    }));
    cases.push(Case::new("cross-entropy", |device| {
        let labels: Vec<i32> = (0..900).map(|row| row * 7 % 47).collect();
        let x = ramp([900, 47], &device.clone().autodiff()).require_grad();
        let loss = ops::cross_entropy(x.clone(), &labels);
        let grads = loss.backward();
        let gradient = x.grad(&grads).ok_or("the loss has no gradient")?;
        Ok(Outcome::floats(&[values(gradient), values(loss.inner())].concat(), STEP_BOUND))
    }));
    cases.push(Case::new("adam", adam));
    cases
}

fn layer([n, d_in, d_out]: [usize; 3]) -> Case {
    Case::new(format!("linear-{n}x{d_in}x{d_out}"), move |device| {
        let base = ramp([1, d_out], device);
        let sum = linear(base, ramp([n, d_in], device), ramp([d_in, d_out], device));
        Ok(Outcome::floats(&values(sum), PRODUCT_BOUND))
    })
}

/// Returns the input, the weights and the result of a layer of 1,000 rows, 200 inputs and 64 outputs.
fn tracked_layer(device: &Device) -> (Tensor<2>, Tensor<2>, Tensor<2>) {
    let device = device.clone().autodiff();
    let x = ramp([1000, 200], &device).require_grad();
    let weight = ramp([200, 64], &device).require_grad();
    let result = linear(ramp([1, 64], &device), x.clone(), weight.clone());
    (x, weight, result)
}

/// Three steps on 2,500 values.
fn adam(device: &Device) -> Result<Outcome> {
    let mut parameter = ramp([2500], device);
    let mut moments = [Tensor::<1>::zeros([2500], device), Tensor::zeros([2500], device)];
    for time in 1..=3 {
        let gradient = ramp([2500], device) * (time as f32 * 0.7);
        let step =
            AdamStep { time, learning_rate: 0.01, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.01 };
        (parameter, moments) = ops::adam(parameter, gradient, moments, step);
    }
    Ok(Outcome::floats(&values(parameter), STEP_BOUND))
}
