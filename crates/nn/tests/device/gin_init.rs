//! What a GIN starts from: its initial weights, and the configurations that it refuses.

use burn::tensor::Device;
use kiln_kernels::testing::{device, values};
use kiln_nn::{Epsilon, Gin, GinConfig, MlpConfig, Normalization};
use kiln_sample::RngKey;

use crate::common::parameters;

fn config() -> GinConfig {
    let paper = GinConfig::paper(5, 7, 3);
    GinConfig { n_layers: 3, epsilon: Epsilon::Learnable(0.25), ..paper }
}

fn init(device: &Device) -> Gin {
    config().init(RngKey::new(3), device).expect("the configuration is valid")
}

#[test]
fn the_key_alone_decides_the_initial_weights() {
    let device = device();
    let one = parameters(&init(&device));
    assert_eq!(one, parameters(&init(&device.clone().autodiff())));
    assert_ne!(one, parameters(&config().init(RngKey::new(4), &device).expect("valid")));
    for (name, all) in one.iter().filter(|(name, _)| name.contains("linear") || name.contains("heads")) {
        let d_in: f32 =
            if name.contains("layers.0.conv.mlp.linears.0") || name.contains("heads.0") { 5.0 } else { 7.0 };
        let bound = 1.0 / d_in.sqrt();
        let largest = all.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        assert!(largest <= bound, "{name}: {largest}");
        // Uniform up to the bound, as far as 15 values or more can tell: that all of 15 are in the inner three
        // quarters has a chance of 1 %. The key decides the values, so that this holds always or never.
        if all.len() >= 15 {
            assert!(largest > 0.75 * bound, "{name}: {largest}");
            let mean_square = all.iter().map(|value| value * value).sum::<f32>() / all.len() as f32;
            // A uniform value's is a third of the bound's.
            assert!((0.6..1.4).contains(&(3.0 * mean_square / (bound * bound))), "{name}: {mean_square}");
        }
        let mut others = one.iter().filter(|(other, _)| other != name);
        assert!(others.all(|(_, other)| other[0] != all[0]), "{name} has no stream of its own");
    }
}

/// The test vectors of `docs/rng.md`, which were computed by another program.
#[test]
fn initial_weights_are_as_documented() {
    let model = GinConfig::paper(7, 64, 2).init(RngKey::new(0), &device()).expect("valid");
    let first = &model.layers[0].conv.mlp.linears[0];
    assert_eq!(values(first.weight.val())[..3], [0.167_893_9, -0.342_063_25, -0.215_931_25]);
    assert_eq!(values(first.bias.val())[..3], [-0.197_707_31, -0.175_555_47, 0.183_785_1]);
    assert_eq!(values(model.heads[1].bias.val()), [0.059_603_512, 0.004_188_537_6]);
}

#[test]
fn bad_configurations_are_refused() {
    let device = device();
    let good = config();
    let cases = [
        (GinConfig { d_in: 0, ..good.clone() }, "d_in is 0, expected 1 to 1048576"),
        (GinConfig { hidden: 0, ..good.clone() }, "hidden is 0, expected 1 to 1048576"),
        (GinConfig { n_classes: 0, ..good.clone() }, "n_classes is 0, expected 1 to 1048576"),
        (GinConfig { n_layers: 0, ..good.clone() }, "n_layers is 0, expected 1 to 1048576"),
        (GinConfig { mlp_layers: 0, ..good.clone() }, "mlp_layers is 0, expected 1 to 1048576"),
        (GinConfig { dropout: 1.0, ..good.clone() }, "dropout probability 1, expected 0 <= dropout < 1"),
        (GinConfig { epsilon: Epsilon::Fixed(f32::NAN), ..good }, "epsilon is NaN, expected a finite number"),
    ];
    for (config, message) in cases {
        let error = config.init(RngKey::new(0), &device).expect_err("the configuration is invalid");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn an_mlp_names_its_own_fields() {
    let good = MlpConfig { d_in: 2, hidden: 2, d_out: 2, n_layers: 2, norm: Normalization::None };
    let cases = [
        (MlpConfig { d_in: 0, ..good.clone() }, "d_in is 0, expected 1 to 1048576"),
        (MlpConfig { hidden: 0, ..good.clone() }, "hidden is 0, expected 1 to 1048576"),
        (MlpConfig { d_out: 0, ..good.clone() }, "d_out is 0, expected 1 to 1048576"),
        (MlpConfig { n_layers: 0, ..good }, "n_layers is 0, expected 1 to 1048576"),
    ];
    for (config, message) in cases {
        let error = config.init(RngKey::new(0), &device()).expect_err("the configuration is invalid");
        assert_eq!(error.to_string(), message);
    }
}
