//! Tests of optimizer settings: schedules of the learning rate, and stochastic gradient descent.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::module::{Module, Param};
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor};
use kiln_kernels::testing::{check_close, values};
use kiln_train::{
    AdamConfig, LrDecay, LrSchedule, Optimizer, OptimizerConfig, SgdConfig, StepDecay, TrainingLength,
    TrainingPosition,
};

/// The number of steps of an epoch.
const EPOCH_STEPS: usize = 10;

fn with(schedule: LrSchedule) -> OptimizerConfig {
    AdamConfig::new(0.01).schedule(schedule).into()
}

fn at(epoch: usize, step: usize) -> TrainingPosition {
    TrainingPosition { epoch, step, epoch_steps: Some(EPOCH_STEPS) }
}

/// Returns the learning rates of the first steps.
fn rates(schedule: LrSchedule, n_steps: usize) -> Vec<f64> {
    let config = with(schedule);
    config.init().unwrap();
    (0..n_steps).map(|s| config.learning_rate_at(at(s / EPOCH_STEPS, s % EPOCH_STEPS)).unwrap()).collect()
}

fn check_rates(ours: &[f64], expected: &[f64]) {
    assert_eq!(ours.len(), expected.len());
    for (step, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        assert!((ours - expected).abs() <= 1e-15, "step {step}: {ours}, expected {expected}");
    }
}

#[test]
fn the_learning_rate_decays_in_steps_of_epochs() {
    let rate = |schedule, epoch| {
        let position = TrainingPosition { epoch, step: 3, epoch_steps: None };
        with(schedule).learning_rate_at(position).unwrap()
    };
    let halving = LrSchedule::step(50, 0.5);
    with(halving).init().unwrap();
    let rates = [0, 49, 50, 99, 100, 349].map(|epoch| rate(halving, epoch));
    assert_eq!(rates, [0.01, 0.01, 0.005, 0.005, 0.0025, 0.01 / 64.0]);
    assert_eq!([0, 1, 2].map(|epoch| rate(LrSchedule::step(1, 0.25), epoch)), [0.01, 0.0025, 0.000625]);
    assert_eq!(rate(LrSchedule::default(), usize::MAX), 0.01);
    assert_eq!(rate(LrSchedule::step(3, 1.0), usize::MAX), 0.01);
}

fn of_burn(mut scheduler: ModuleLrScheduler, n_steps: usize) -> Vec<f64> {
    (0..n_steps).map(|_| scheduler.step().base()).collect()
}

#[test]
fn cosine_and_linear_schedules_equal_those_of_burn() {
    const N_STEPS: usize = 30;
    let cosine = CosineAnnealingLrSchedulerConfig::new(0.01, N_STEPS).init().unwrap();
    check_rates(
        &rates(LrSchedule::cosine(TrainingLength::Steps(N_STEPS)), N_STEPS),
        &of_burn(cosine, N_STEPS),
    );
    let linear = LinearLrSchedulerConfig::new(0.01, 0.002, N_STEPS).init().unwrap();
    let over = TrainingLength::Epochs(N_STEPS / EPOCH_STEPS);
    let ours = LrSchedule::from(LrDecay::Linear { over, final_factor: 0.2 });
    check_rates(&rates(ours, N_STEPS + 5), &of_burn(linear, N_STEPS + 5));
}

#[test]
fn warmup_rises_in_a_straight_line_and_the_decrease_follows_it() {
    let constant = LrSchedule::default().warmup(TrainingLength::Steps(4));
    check_rates(&rates(constant, 6), &[0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01]);
    let in_epochs = rates(LrSchedule::default().warmup(TrainingLength::Epochs(2)), 25);
    check_rates(
        &in_epochs,
        &(0..25).map(|step| 0.01 * f64::from(20.min(step + 1)) / 20.0).collect::<Vec<_>>(),
    );
    let linear = LrSchedule::linear(TrainingLength::Steps(6)).warmup(TrainingLength::Steps(2));
    check_rates(&rates(linear, 8), &[0.005, 0.01, 0.01, 0.0075, 0.005, 0.0025, 0.0, 0.0]);
    let step = LrSchedule::step(1, 0.5).warmup(TrainingLength::Steps(12));
    let rates = rates(step, 13);
    check_rates(&rates[9..], &[0.01 * 10.0 / 12.0, 0.005 * 11.0 / 12.0, 0.005, 0.005]);
}

/// A warm-up that is as long as the whole schedule ends at the final learning rate.
#[test]
fn a_warmup_may_take_the_whole_schedule() {
    let schedule = LrSchedule::cosine(TrainingLength::Steps(3)).warmup(TrainingLength::Steps(3));
    check_rates(&rates(schedule, 4), &[0.01 / 3.0, 0.02 / 3.0, 0.01, 0.0]);
}

#[test]
fn schedules_over_steps_need_the_number_of_steps_of_an_epoch() {
    let position = TrainingPosition { epoch: 1, step: 0, epoch_steps: None };
    let over = TrainingLength::Steps(10);
    for schedule in [LrSchedule::cosine(over), LrSchedule::linear(over), LrSchedule::default().warmup(over)] {
        assert_eq!(with(schedule).learning_rate_at(position), None, "{schedule:?}");
    }
}

#[test]
fn rejects_invalid_schedules() {
    let error = |schedule| with(schedule).init().err().unwrap().to_string();
    let decaying = |every_epochs, factor| LrSchedule::from(LrDecay::Step(StepDecay { every_epochs, factor }));
    assert_eq!(
        error(decaying(0, 0.5)),
        "the number of epochs between decays of the learning rate is 0, expected at least 1"
    );
    for factor in [0.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        let expected =
            format!("the learning rate's decay factor is {factor}, expected above 0 and at most 1");
        assert_eq!(error(decaying(50, factor)), expected);
    }
    for over in [TrainingLength::Steps(0), TrainingLength::Epochs(0)] {
        let length = "the length of the learning rate's schedule is 0, expected at least 1";
        assert_eq!(error(LrSchedule::cosine(over)), length);
        assert_eq!(error(LrSchedule::linear(over)), length);
        let warmup = "the length of the warm-up is 0, expected at least 1";
        assert_eq!(error(LrSchedule::default().warmup(over)), warmup);
    }
    for final_factor in [-0.5, 1.5, f64::NAN] {
        let over = TrainingLength::Steps(1);
        let expected =
            format!("the learning rate's final factor is {final_factor}, expected at least 0 and at most 1");
        assert_eq!(error(LrDecay::Cosine { over, final_factor }.into()), expected);
    }
}

#[test]
fn rejects_invalid_momentum() {
    let error = |config: SgdConfig| OptimizerConfig::from(config).init().err().unwrap().to_string();
    for momentum in [-0.1, 1.0, f64::NAN] {
        let expected = format!("the momentum is {momentum}, expected at least 0 and below 1");
        assert_eq!(error(SgdConfig::new(0.1).momentum(momentum)), expected);
    }
    let nesterov = error(SgdConfig::new(0.1).nesterov_momentum(0.0));
    assert_eq!(nesterov, "the momentum is 0, expected above 0 for Nesterov momentum");
}

#[test]
fn rejects_a_norm_that_is_not_positive() {
    for norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let config = OptimizerConfig::from(AdamConfig::new(0.1).clip_grad_norm(norm));
        let expected = format!("the largest norm of the gradients is {norm}, expected a positive number");
        assert_eq!(config.init().err().unwrap().to_string(), expected);
    }
}

/// The text is a part of a run's identity: runs of earlier versions must still resume.
#[test]
fn the_text_of_earlier_settings_is_unchanged() {
    let adam = "OptimizerConfig { kind: Adam, learning_rate: 0.01, weight_decay: 0.0, decay: ";
    assert_eq!(format!("{:?}", with(LrSchedule::default())), format!("{adam}None }}"));
    assert_eq!(
        format!("{:?}", with(LrSchedule::step(5, 0.5))),
        format!("{adam}Some(StepDecay {{ every_epochs: 5, factor: 0.5 }}) }}")
    );
    let others = [
        LrSchedule::cosine(TrainingLength::Epochs(3)),
        LrSchedule::cosine(TrainingLength::Steps(3)),
        LrSchedule::step(5, 0.5).warmup(TrainingLength::Steps(3)),
        LrSchedule::default().warmup(TrainingLength::Steps(3)),
        LrSchedule::default(),
    ];
    let mut texts = others.map(|schedule| format!("{:?}", with(schedule))).to_vec();
    texts.push(format!("{:?}", OptimizerConfig::from(AdamConfig::new(0.01).clip_grad_norm(0.5))));
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), others.len() + 1);
}

#[derive(Module, Debug)]
struct Vector {
    values: Param<Tensor<1>>,
}

const START: [f32; 3] = [1.0, -2.0, 0.5];

/// Takes `n_steps` steps on the loss `sum(x^2)`, whose gradient is `2 x`.
fn descend(mut optimizer: ModuleOptimizer, mut model: Vector, n_steps: usize) -> (ModuleOptimizer, Vector) {
    for _ in 0..n_steps {
        let gradients =
            GradientsParams::from_grads(model.values.val().powi_scalar(2).sum().backward(), &model);
        model = optimizer.step(0.1, model, gradients);
    }
    (optimizer, model)
}

fn vector() -> Vector {
    Vector { values: Param::from_tensor(Tensor::from_floats(START, &Device::flex().autodiff())) }
}

/// PyTorch's `SGD` in f64.
fn expected(momentum: f64, nesterov: bool, weight_decay: f64, n_steps: usize) -> Vec<f32> {
    let one = |start: f32| {
        let (mut value, mut velocity) = (f64::from(start), 0.0);
        for _ in 0..n_steps {
            let gradient = 2.0 * value + weight_decay * value;
            velocity = momentum * velocity + gradient;
            value -= 0.1 * if nesterov { gradient + momentum * velocity } else { velocity };
        }
        value as f32
    };
    START.map(one).to_vec()
}

#[test]
fn sgd_equals_sgd_of_pytorch() {
    for (momentum, nesterov, weight_decay) in
        [(0.0, false, 0.0), (0.0, false, 0.25), (0.9, false, 0.0), (0.9, true, 0.25)]
    {
        let kind = Optimizer::Sgd { momentum, nesterov };
        let config = OptimizerConfig { weight_decay, ..OptimizerConfig::new(kind, 0.1) };
        let (_, model) = descend(config.init().unwrap(), vector(), 7);
        check_close(&values(model.values.val()), &expected(momentum, nesterov, weight_decay, 7), 1e-5);
    }
}

#[test]
fn stored_momentum_continues_bit_for_bit() {
    for config in [SgdConfig::new(0.1), SgdConfig::new(0.1).momentum(0.9)].map(OptimizerConfig::from) {
        let (optimizer, model) = descend(config.init().unwrap(), vector(), 3);
        let bytes = optimizer.into_bytes().unwrap();
        let restored = config.init().unwrap().from_bytes(bytes).unwrap();
        let (_, resumed) = descend(restored, model, 4);
        let (_, whole) = descend(config.init().unwrap(), vector(), 7);
        assert_eq!(values(resumed.values.val()), values(whole.values.val()), "{config:?}");
    }
}
