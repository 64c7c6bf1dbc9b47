//! Batch normalisation on a device: the running statistics and what is predicted by them are the processor's.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::module::Module;
use burn::tensor::Device;
use kiln_kernels::testing::{check_close, device, ramp, values};
use kiln_nn::{ForwardContext, Mlp, MlpConfig, Mode, NodeModule, Normalization};
use kiln_sample::RngKey;

/// A few dozen numbers added up in another order, or rounded otherwise.
const TOLERANCE: f32 = 1e-4;

/// The running means and variances after some training passes, and predictions by them.
fn trained(device: &Device) -> [Vec<f32>; 3] {
    let tracked = device.clone().autodiff();
    let config = MlpConfig { d_in: 3, hidden: 4, d_out: 2, n_layers: 2, norm: Normalization::Batch };
    let model: Mlp = config.init(RngKey::new(1), &tracked).unwrap();
    let ctx = |mode| ForwardContext { key: RngKey::new(0), mode };
    for pass in 1..4 {
        model.forward(ramp::<2>([20, 3], &tracked) * f64::from(pass), &ctx(Mode::Train));
    }
    let predicted = values(model.clone().valid().forward(ramp([5, 3], device), &ctx(Mode::Eval)));
    let norm = &model.norms[0];
    [values(norm.running_mean.value_sync()), values(norm.running_var.value_sync()), predicted]
}

#[test]
fn they_are_the_processors_on_every_device() {
    let (got, expected) = (trained(&device()), trained(&Device::flex()));
    for (got, expected) in got.iter().zip(&expected) {
        println!("{got:?}, expected {expected:?}");
        check_close(got, expected, TOLERANCE);
    }
}
