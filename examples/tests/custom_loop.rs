//! The loop of `custom_loop` has the losses and the accuracies of `Trainer::fit` with the same loss as objective.
#![allow(clippy::unwrap_used, reason = "helper functions of tests may unwrap")]

use kiln::data::synthetic;
use kiln::prelude::*;

#[allow(dead_code, reason = "the test does not call the program's main function")]
#[path = "../src/bin/custom_loop.rs"]
mod custom_loop;

#[test]
fn a_loop_has_the_numbers_of_a_run_by_the_same_loss() {
    let data = synthetic::fake(synthetic::FakeConfig { avg_num_nodes: 2000, ..Default::default() }).unwrap();
    let (epochs, accuracy) = custom_loop::train(&data, 2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let objective = Objective::custom("focal-2", TargetKind::Classes, custom_loop::focal);
    let loader = custom_loop::loader(&data).objective(objective);
    let fit = FitConfig::epochs(2).out(folder.path()).quiet();
    custom_loop::setup(&data).fit(&loader, fit).unwrap();
    let rows = std::fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
    for (row, of_loop) in rows.lines().zip(&epochs) {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        assert_eq!(
            [&row["train_loss"], &row["val_accuracy"]],
            of_loop.map(serde_json::Value::from).each_ref()
        );
    }
    assert_eq!(epochs.len(), 2);
    assert!(0.0 < accuracy && accuracy <= 1.0, "{accuracy}");
}
