//! Tests of batch normalisation on a device: running statistics and predictions match those on the CPU.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::module::Module;
use burn::tensor::Device;
use kiln_kernels::is_cpu;
use kiln_kernels::testing::{check_close, device, ramp, values};
use kiln_nn::{ForwardContext, Mlp, MlpConfig, Mode, NodeModule, Normalization};
use kiln_sample::RngKey;

/// The tolerance for a sum of a few dozen numbers in another order or with other rounding.
const TOLERANCE: f32 = 1e-4;

/// Returns the running means and variances after three training passes on rows of the device `of_rows`, and predictions with
/// them.
fn trained(device: &Device, of_rows: &Device) -> [Vec<f32>; 3] {
    let tracked = device.clone().autodiff();
    let config = MlpConfig { d_in: 3, hidden: 4, d_out: 2, n_layers: 2, norm: Normalization::Batch };
    let model: Mlp = config.init(RngKey::new(1), &tracked).unwrap();
    let ctx = |mode| ForwardContext { key: RngKey::new(0), mode };
    for pass in 1..4 {
        model.forward(ramp::<2>([20, 3], of_rows) * f64::from(pass), &ctx(Mode::Train));
    }
    let predicted = values(model.clone().valid().forward(ramp([5, 3], device), &ctx(Mode::Eval)));
    let norm = &model.norms[0];
    [values(norm.running_mean.value_sync()), values(norm.running_var.value_sync()), predicted]
}

#[test]
fn running_statistics_and_predictions_match_the_cpu() {
    let device = device();
    let expected = trained(&Device::flex(), &Device::flex().autodiff());
    // Features may be untracked while the parameters are tracked.
    for of_rows in [device.clone().autodiff(), device.clone()] {
        for (got, expected) in trained(&device, &of_rows).iter().zip(&expected) {
            println!("{got:?}, expected {expected:?}");
            check_close(got, expected, TOLERANCE);
        }
    }
}

/// The result does not depend on a bias before a normalisation. On the CPU, its gradient is a sum of numbers that cancel.
#[test]
fn a_bias_before_a_normalisation_has_no_gradient_on_devices() {
    let device = device();
    if is_cpu(&device) {
        return;
    }
    let config = MlpConfig { d_in: 3, hidden: 4, d_out: 2, n_layers: 2, norm: Normalization::Batch };
    let model: Mlp = config.init(RngKey::new(1), &device.clone().autodiff()).unwrap();
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Train };
    for of_rows in [device.clone().autodiff(), device] {
        let grads = model.forward(ramp([20, 3], &of_rows), &ctx).sum().backward();
        let bias = model.linears[0].bias.val();
        assert_eq!(values(bias.grad(&grads).unwrap()), [0.0; 4]);
    }
}
