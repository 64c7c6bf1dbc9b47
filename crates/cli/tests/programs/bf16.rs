//! Tests of `kiln train --precision bf16`.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use kiln::kernels::ops::has_bf16_products;

const FLAGS: &str = "--data sbm --batch-size 256 --hidden 64 --fanouts 5,5 --seed 3";

fn train(flags: &str, folder: [&str; 2]) -> Output {
    let flags = FLAGS.split(' ').chain(flags.split(' '));
    Command::new(env!("CARGO_BIN_EXE_kiln")).arg("train").args(flags).args(folder).output().unwrap()
}

/// Trains in a new folder, and returns the output and the weights.
fn run(flags: &str, out: &Path) -> (String, Vec<u8>) {
    let output = train(flags, ["--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), best(out))
}

fn best(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("best.safetensors")).unwrap()
}

#[test]
fn trains_in_bf16_with_the_same_weights_on_any_number_of_threads_and_resumes_exactly() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let (text, f32) = run("--epochs 2", &at("f32"));
    assert!(!text.contains("matrix products"), "{text}");
    let (text, bf16) = run("--epochs 2 --precision bf16 --threads-per-rank 1", &at("one"));
    if !has_bf16_products() {
        // The run is one in f32, with a note.
        assert!(text.contains("note: matrix products are in f32"), "{text}");
        assert!(bf16 == f32);
        let text = "kiln-skip: cpu: training in bf16: a processor without AVX512-BF16";
        return writeln!(std::io::stdout(), "{text}").unwrap();
    }
    assert_eq!(text.matches("bf16 with sums in f32").count(), 1, "{text}");
    assert!(bf16 != f32, "products should be rounded");
    let (_, on_two) = run("--epochs 2 --precision bf16 --threads-per-rank 2", &at("two"));
    assert!(on_two == bf16, "the weights should not depend on the number of threads");

    let folder = at("one").to_str().unwrap().to_owned();
    let out = at("predictions").to_str().unwrap().to_owned();
    let predict = ["predict", "--run", &folder, "--data", "sbm", "--out", &out];
    let output = Command::new(env!("CARGO_BIN_EXE_kiln")).args(predict).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |folder: &str, file: &str| std::fs::read(at(folder).join(file)).unwrap();
    assert!(read("predictions", "predictions.csv") == read("one", "test_predictions.csv"));

    let (resumed, first) = (at("resumed"), run("--epochs 1 --precision bf16", &at("resumed")).1);
    assert!(first != bf16, "the second epoch should be the best");
    let resume = ["--resume", resumed.to_str().unwrap()];
    let output = train("--epochs 2 --precision f32", resume);
    let message = String::from_utf8_lossy(&output.stderr);
    let expected = "--precision was bf16 and is f32 now";
    assert!(!output.status.success() && message.contains(expected), "{message}");
    assert!(train("--epochs 2 --precision bf16", resume).status.success());
    assert!(best(&resumed) == bf16, "the resumed run should end with the weights of the whole one");
}

/// Ranks are threads here; their sum of gradients has a fixed order.
#[test]
fn two_ranks_in_bf16_print_one_line() {
    let root = tempfile::tempdir().unwrap();
    let (text, _) = run("--epochs 1 --precision bf16 --ranks 2", &root.path().join("run"));
    assert_eq!(text.matches("matrix products").count(), 1, "{text}");
}
