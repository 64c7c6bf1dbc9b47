use clap::Parser;
use kiln::train::LrDecay;

use super::*;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    optimizer: OptimizerArgs,
}

fn config(flags: &str) -> Result<OptimizerConfig, String> {
    let words = ["program"].into_iter().chain(flags.split_whitespace());
    let program = Program::try_parse_from(words).map_err(|error| error.to_string())?;
    program.optimizer.config(false, 20).map_err(|error| error.to_string())
}

#[test]
fn flags_set_the_optimizer_and_its_schedule() {
    let adam = OptimizerConfig::new(Optimizer::Adam, 0.003);
    assert_eq!(config(""), Ok(adam));
    let cosine = LrSchedule::cosine(TrainingLength::Epochs(20));
    let flags = "--lr-schedule cosine --warmup 100 --clip-grad-norm 0.5";
    let schedule = cosine.warmup(TrainingLength::Steps(100));
    assert_eq!(config(flags), Ok(OptimizerConfig { schedule, clip_grad_norm: Some(0.5), ..adam }));
    let over = TrainingLength::Epochs(7);
    let schedule = LrSchedule::from(LrDecay::Linear { over, final_factor: 0.0 });
    let schedule = schedule.warmup(TrainingLength::Epochs(2));
    let flags = "--lr-schedule linear --lr-epochs 7 --warmup 2epochs";
    assert_eq!(config(flags), Ok(OptimizerConfig { schedule, ..adam }));
    let step = OptimizerConfig { schedule: LrSchedule::step(5, 0.5), ..adam };
    assert_eq!(config("--lr-decay-every 5"), Ok(step));
    assert_eq!(config("--lr-schedule step --lr-decay-every 5 --lr-decay 0.5"), Ok(step));
    let sgd = OptimizerConfig::new(Optimizer::Sgd { momentum: 0.9, nesterov: true }, 0.1);
    let flags = "--optimizer sgd --momentum 0.9 --nesterov --lr 0.1 --weight-decay 0.01";
    assert_eq!(config(flags), Ok(OptimizerConfig { weight_decay: 0.01, ..sgd }));
}

#[test]
fn rejects_flags_that_need_another_flag() {
    for (flags, expected) in [
        ("--momentum 0.9", "--momentum and --nesterov require --optimizer sgd"),
        ("--optimizer sgd --nesterov", "--nesterov requires --momentum"),
        ("--lr-decay 0.5", "--lr-decay requires --lr-decay-every"),
        ("--lr-schedule step", "--lr-schedule step and --lr-decay-every require each other"),
        (
            "--lr-schedule cosine --lr-decay-every 5",
            "--lr-schedule step and --lr-decay-every require each other",
        ),
        ("--lr-epochs 5", "--lr-epochs requires --lr-schedule cosine or linear"),
        ("--warmup 0", "expected a number of steps of at least 1, or of epochs, such as `2epochs`"),
        ("--warmup 2weeks", "expected a number of steps of at least 1, or of epochs, such as `2epochs`"),
        ("--momentum 1", "expected a number of at least 0 and below 1"),
    ] {
        let error = config(flags).expect_err(flags);
        assert!(error.contains(expected), "{flags}: {error}");
    }
}
