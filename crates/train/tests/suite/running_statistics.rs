//! Tests that weights files of models with batch normalisation contain the running statistics, and loading changes only
//! one model.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use burn::module::Module;
use burn::tensor::Device;
use kiln_kernels::testing::ramp;
use kiln_nn::{Epsilon, ForwardContext, Mlp, MlpConfig, Mode, NodeModule, Normalization};
use kiln_sample::RngKey;
use kiln_train::{load_weights, weights_to_bytes};

fn model(seed: u64, device: &Device) -> Mlp {
    let config = MlpConfig { d_in: 3, hidden: 4, d_out: 2, n_layers: 2, norm: Normalization::Batch };
    config.init(RngKey::new(seed), device).unwrap()
}

/// Runs a forward pass that updates the running statistics.
fn train(model: &Mlp, scale: f64) {
    let device = Device::flex().autodiff();
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Train };
    model.forward(ramp::<2>([20, 3], &device) * scale, &ctx);
}

fn predict(model: &Mlp) -> Vec<f32> {
    let device = Device::flex();
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
    kiln_kernels::to_vec_f32(model.valid().forward(ramp([5, 3], &device), &ctx))
}

fn trained() -> Mlp {
    let model = model(1, &Device::flex().autodiff());
    train(&model, 1.0);
    train(&model, 3.0);
    model
}

#[test]
fn saved_weights_include_the_last_update_of_running_statistics() {
    // The weights are the same whether or not the statistics were read before.
    let bytes = weights_to_bytes(&trained()).unwrap();
    let seen = trained();
    seen.norms[0].running_mean.value_sync();
    seen.norms[0].running_var.value_sync();
    assert_eq!(bytes, weights_to_bytes(&seen).unwrap());
    assert_eq!(bytes, weights_to_bytes(&seen.valid()).unwrap());
    assert_ne!(bytes, weights_to_bytes(&model(1, &Device::flex().autodiff())).unwrap());
}

#[test]
fn loaded_models_predict_the_same_with_and_without_autodiff() {
    let trained = trained();
    let bytes = weights_to_bytes(&trained).unwrap();
    for device in [Device::flex(), Device::flex().autodiff()] {
        let mut loaded = model(2, &device);
        assert_ne!(predict(&loaded), predict(&trained));
        load_weights(&mut loaded, bytes.clone()).unwrap();
        assert_eq!(predict(&loaded), predict(&trained));
        assert_eq!(weights_to_bytes(&loaded).unwrap(), bytes);
        let weight = loaded.linears[0].weight.val();
        assert_eq!(
            (weight.device().is_autodiff(), weight.is_require_grad()),
            (device.is_autodiff(), device.is_autodiff())
        );
    }
}

#[test]
fn a_deferred_update_does_not_overwrite_loaded_statistics() {
    let bytes = weights_to_bytes(&trained()).unwrap();
    let mut other = model(2, &Device::flex().autodiff());
    train(&other, 5.0);
    load_weights(&mut other, bytes).unwrap();
    assert_eq!(predict(&other), predict(&trained()));
    // A step on the loaded model equals a step on the saved model.
    let one = trained();
    train(&one, 2.0);
    train(&other, 2.0);
    assert_eq!(weights_to_bytes(&other).unwrap(), weights_to_bytes(&one).unwrap());
}

#[test]
fn loading_does_not_change_the_statistics_of_a_clone() {
    let bytes = weights_to_bytes(&trained()).unwrap();
    let kept = model(2, &Device::flex().autodiff());
    train(&kept, 5.0);
    let before = weights_to_bytes(&kept).unwrap();
    let mut other = kept.clone();
    load_weights(&mut other, bytes.clone()).unwrap();
    assert_eq!(weights_to_bytes(&kept).unwrap(), before);
    assert_eq!(weights_to_bytes(&other).unwrap(), bytes);
}

#[test]
fn a_failed_load_does_not_change_the_model() {
    let device = Device::flex().autodiff();
    let wide = MlpConfig { d_in: 3, hidden: 4, d_out: 5, n_layers: 2, norm: Normalization::Batch };
    let wide = wide.init(RngKey::new(3), &device).unwrap();
    train(&wide, 7.0);
    let mut model = trained();
    let before = weights_to_bytes(&model).unwrap();
    load_weights(&mut model, weights_to_bytes(&wide).unwrap()).unwrap_err();
    assert_eq!(weights_to_bytes(&model).unwrap(), before);
}

/// A fixed epsilon is a setting: weights of a model with another one can be loaded, and do not change it.
#[test]
fn a_fixed_epsilon_is_not_saved() {
    let device = Device::flex().autodiff();
    let config = kiln_nn::GinConfig { epsilon: Epsilon::Fixed(0.5), ..kiln_nn::GinConfig::paper(3, 4, 2) };
    let gin = config.init(RngKey::new(1), &device).unwrap();
    let bytes = weights_to_bytes(&gin).unwrap();
    assert!(!bytes.windows(7).any(|part| part == b"epsilon"));
    let zero = kiln_nn::GinConfig { epsilon: Epsilon::Fixed(0.0), ..config.clone() };
    let mut loaded = zero.init(RngKey::new(2), &device).unwrap();
    load_weights(&mut loaded, bytes.clone()).unwrap();
    assert_eq!(weights_to_bytes(&loaded).unwrap(), bytes);
    let learned = kiln_nn::GinConfig { epsilon: Epsilon::Learnable(0.5), ..config };
    let mut learned = learned.init(RngKey::new(2), &device).unwrap();
    load_weights(&mut learned, bytes).unwrap_err();
    let bytes = weights_to_bytes(&learned).unwrap();
    assert!(bytes.windows(7).any(|part| part == b"epsilon"));
}
