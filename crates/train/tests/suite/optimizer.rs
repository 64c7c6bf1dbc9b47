//! Tests of the learning rate's decay.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use kiln_train::{OptimizerConfig, StepDecay};

fn decaying(every_epochs: usize, factor: f64) -> OptimizerConfig {
    OptimizerConfig { decay: Some(StepDecay { every_epochs, factor }), ..OptimizerConfig::adam(0.01, 0.0) }
}

#[test]
fn the_learning_rate_decays_in_steps_of_epochs() {
    let halving = decaying(50, 0.5);
    halving.init().unwrap();
    let rates = [0, 49, 50, 99, 100, 349].map(|epoch| halving.learning_rate_in(epoch));
    assert_eq!(rates, [0.01, 0.01, 0.005, 0.005, 0.0025, 0.01 / 64.0]);
    let every_epoch = decaying(1, 0.25);
    assert_eq!([0, 1, 2].map(|epoch| every_epoch.learning_rate_in(epoch)), [0.01, 0.0025, 0.000625]);
    assert_eq!(OptimizerConfig::adam(0.01, 0.0).learning_rate_in(usize::MAX), 0.01);
    assert_eq!(decaying(3, 1.0).learning_rate_in(usize::MAX), 0.01);
}

#[test]
fn rejects_invalid_decays() {
    let error = |config: OptimizerConfig| config.init().err().unwrap().to_string();
    assert_eq!(
        error(decaying(0, 0.5)),
        "the number of epochs between decays of the learning rate is 0, expected at least 1"
    );
    for factor in [0.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        let expected =
            format!("the learning rate's decay factor is {factor}, expected above 0 and at most 1");
        assert_eq!(error(decaying(50, factor)), expected);
    }
}
