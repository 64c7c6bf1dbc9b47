//! Tests of batch normalisation on a device: running statistics and predictions match those on the CPU.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::module::Module;
use burn::tensor::Device;
use kiln_kernels::testing::{check_close, device, ramp, values};
use kiln_nn::{ForwardContext, Mlp, MlpConfig, Mode, NodeModule, Normalization};
use kiln_sample::RngKey;

/// The tolerance for a sum of a few dozen numbers in another order or with other rounding.
const TOLERANCE: f32 = 1e-4;

/// Returns the running means and variances after three training passes, and predictions with them.
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
fn running_statistics_and_predictions_match_the_cpu() {
    let (got, expected) = (trained(&device()), trained(&Device::flex()));
    for (got, expected) in got.iter().zip(&expected) {
        println!("{got:?}, expected {expected:?}");
        check_close(got, expected, TOLERANCE);
    }
}
