//! Tests of the initial weights of GIN models, and of rejected configurations.

use burn::tensor::Device;
use kiln_kernels::testing::{device, values};
use kiln_nn::{Epsilon, Gin, GinConfig, MlpConfig, Normalization};
use kiln_sample::RngKey;

use super::common::parameters;

fn config() -> GinConfig {
    let paper = GinConfig::paper(5, 7, 3);
    GinConfig { n_layers: 3, epsilon: Epsilon::Learnable(0.25), ..paper }
}

fn init(device: &Device) -> Gin {
    config().init(RngKey::new(3), device).expect("the configuration should be valid")
}

#[test]
fn initial_weights_depend_on_the_key_alone() {
    let device = device();
    let one = parameters(&init(&device));
    assert_eq!(one, parameters(&init(&device.clone().autodiff())));
    assert_ne!(
        one,
        parameters(&config().init(RngKey::new(4), &device).expect("the configuration should be valid"))
    );
    for (name, all) in one.iter().filter(|(name, _)| name.contains("linear") || name.contains("heads")) {
        let d_in: f32 =
            if name.contains("layers.0.conv.mlp.linears.0") || name.contains("heads.0") { 5.0 } else { 7.0 };
        let bound = 1.0 / d_in.sqrt();
        let largest = all.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        assert!(largest <= bound, "{name}: {largest}");
        // The values should be uniform up to the bound. Of at least 15 values, one should be in the outer quarter,
        // because all of them are in the inner three quarters with a probability of at most about 1 %. The key decides
        // the values, so the test is deterministic.
        if all.len() >= 15 {
            assert!(largest > 0.75 * bound, "{name}: {largest}");
            let mean_square = all.iter().map(|value| value * value).sum::<f32>() / all.len() as f32;
            // The mean square of uniform values is a third of the squared bound.
            assert!((0.6..1.4).contains(&(3.0 * mean_square / (bound * bound))), "{name}: {mean_square}");
        }
        let mut others = one.iter().filter(|(other, _)| other != name);
        assert!(others.all(|(_, other)| other[0] != all[0]), "{name} should have its own random stream");
    }
}

/// Checks the test vectors of `docs/rng.md`, which another program computed.
#[test]
fn initial_weights_are_as_documented() {
    let model = GinConfig::paper(7, 64, 2)
        .init(RngKey::new(0), &device())
        .expect("the configuration should be valid");
    let first = &model.layers[0].conv.mlp.linears[0];
    assert_eq!(values(first.weight.val())[..3], [0.167_893_9, -0.342_063_25, -0.215_931_25]);
    assert_eq!(values(first.bias.val())[..3], [-0.197_707_31, -0.175_555_47, 0.183_785_1]);
    assert_eq!(values(model.heads[1].bias.val()), [0.059_603_512, 0.004_188_537_6]);
}

#[test]
fn rejects_invalid_configurations() {
    let device = device();
    let good = config();
    let cases = [
        (GinConfig { d_in: 0, ..good.clone() }, "d_in is 0, expected 1 to 1048576"),
        (GinConfig { hidden: 0, ..good.clone() }, "hidden is 0, expected 1 to 1048576"),
        (GinConfig { n_classes: 0, ..good.clone() }, "n_classes is 0, expected 1 to 1048576"),
        (GinConfig { n_layers: 0, ..good.clone() }, "n_layers is 0, expected 1 to 1048576"),
        (GinConfig { mlp_layers: 0, ..good.clone() }, "mlp_layers is 0, expected 1 to 1048576"),
        (
            GinConfig { dropout: 1.0, ..good.clone() },
            "dropout is 1, expected a probability of at least 0 and below 1",
        ),
        (GinConfig { epsilon: Epsilon::Fixed(f32::NAN), ..good }, "epsilon is NaN, expected a finite number"),
    ];
    for (config, message) in cases {
        let error = config.init(RngKey::new(0), &device).expect_err("the configuration should be rejected");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn errors_of_an_mlp_name_its_fields() {
    let good = MlpConfig { d_in: 2, hidden: 2, d_out: 2, n_layers: 2, norm: Normalization::None };
    let cases = [
        (MlpConfig { d_in: 0, ..good.clone() }, "d_in is 0, expected 1 to 1048576"),
        (MlpConfig { hidden: 0, ..good.clone() }, "hidden is 0, expected 1 to 1048576"),
        (MlpConfig { d_out: 0, ..good.clone() }, "d_out is 0, expected 1 to 1048576"),
        (MlpConfig { n_layers: 0, ..good }, "n_layers is 0, expected 1 to 1048576"),
    ];
    for (config, message) in cases {
        let error = config.init(RngKey::new(0), &device()).expect_err("the configuration should be rejected");
        assert_eq!(error.to_string(), message);
    }
}
