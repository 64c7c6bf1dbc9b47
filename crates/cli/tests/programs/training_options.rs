//! Tests of `kiln train` with options of the optimizer, the schedule, the step and the model.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::process::{Command, Output};

const FLAGS: &str = "--data sbm --batch-size 256 --hidden 16 --fanouts 3,3 --ranks 2 --seed 3 --lr 0.05 --optimizer sgd \
    --momentum 0.9 --nesterov --weight-decay 0.0001 --lr-schedule cosine --warmup 3 --clip-grad-norm 0.5 --accumulate 2 \
    --norm layer --residual --jumping-knowledge cat --patience 2";

fn train(folder: [&str; 2], others: &str) -> Output {
    let flags = FLAGS.split_whitespace().chain(others.split_whitespace());
    Command::new(env!("CARGO_BIN_EXE_kiln")).arg("train").args(flags).args(folder).output().unwrap()
}

fn check(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn best(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("best.safetensors")).unwrap()
}

#[test]
fn a_run_with_all_options_resumes_to_identical_weights_and_rejects_other_options() {
    let root = tempfile::tempdir().unwrap();
    let (whole, run) = (root.path().join("whole"), root.path().join("run"));
    check(&train(["--out", whole.to_str().unwrap()], "--epochs 2"));
    check(&train(["--out", run.to_str().unwrap()], "--epochs 1 --lr-epochs 2"));
    assert!(best(&run) != best(&whole), "the second epoch should be the best");
    let resume = ["--resume", run.to_str().unwrap()];
    for (others, expected) in [
        ("--epochs 3 --lr-epochs 3", "--lr-epochs was 2 and is 3 now"),
        ("--epochs 2 --batch-size 512 --accumulate 1", "--accumulate was 2 and is 1 now"),
        ("--epochs 2 --momentum 0.5", "--momentum was 0.9 and is 0.5 now"),
        ("--epochs 2 --clip-grad-norm 1", "--clip-grad-norm was 0.5 and is 1 now"),
        ("--epochs 2 --jumping max", "--jumping was cat and is max now"),
    ] {
        // The last value of a repeated flag would be an error, so the first is removed.
        let replaced: Vec<&str> = others.split_whitespace().filter(|word| word.starts_with("--")).collect();
        let mut words: Vec<&str> = FLAGS.split_whitespace().collect();
        for name in replaced {
            let name = if name == "--jumping" { "--jumping-knowledge" } else { name };
            if let Some(at) = words.iter().position(|word| *word == name) {
                words.drain(at..at + 2);
            }
        }
        let words = words.into_iter().chain(others.split_whitespace()).chain(resume);
        let output = Command::new(env!("CARGO_BIN_EXE_kiln")).arg("train").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{others}: {said}");
    }
    check(&train(resume, "--epochs 2"));
    assert!(best(&run) == best(&whole));
}

#[test]
fn exact_evaluation_runs_models_with_options() {
    let root = tempfile::tempdir().unwrap();
    for model in ["sage --jumping max", "gcn --jumping last", "gatv2 --jumping cat"] {
        let out = root.path().join(model.split(' ').next().unwrap());
        let flags = "--data sbm --batch-size 256 --hidden 16 --fanouts 3,3 --epochs 1 --eval exact --norm layer --residual";
        let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["train", "--out", out.to_str().unwrap(), "--model"])
            .args(model.split(' '))
            .args(flags.split(' '))
            .output();
        check(&output.unwrap());
    }
}
