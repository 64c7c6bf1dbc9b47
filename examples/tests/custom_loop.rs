//! The loop of `custom_loop` has the losses and the accuracy of `Trainer::fit` with the same loss as objective.
#![allow(clippy::unwrap_used, reason = "helper functions of tests may unwrap")]

use std::sync::atomic::{AtomicU32, Ordering};

use kiln::data::synthetic;
use kiln::prelude::*;

#[allow(dead_code, reason = "the test does not call the program's main function")]
#[path = "../src/bin/custom_loop.rs"]
mod custom_loop;

/// A metric that grows with each epoch, so that the last epoch is the best one.
#[derive(Default)]
struct LastEpoch(AtomicU32);

impl CustomMetric for LastEpoch {
    fn name(&self) -> &str {
        "epoch"
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Classes
    }

    fn value(&self, _: &MetricItems<'_>) -> Option<f64> {
        Some(f64::from(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

#[test]
fn a_loop_has_the_numbers_of_a_run_by_the_same_loss() {
    let data = synthetic::fake(synthetic::FakeConfig { avg_num_nodes: 2000, ..Default::default() }).unwrap();
    let (losses, accuracy) = custom_loop::train(&data, 2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let objective = Objective::custom("focal-2", TargetKind::Classes, custom_loop::focal);
    let loader = custom_loop::loader(&data).objective(objective);
    let fit = FitConfig::epochs(2).out(folder.path()).metric(LastEpoch::default()).quiet();
    let best = custom_loop::setup(&data).fit(&loader, fit).unwrap();
    let rows = std::fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
    let rows: Vec<serde_json::Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let expected: Vec<f64> = rows.iter().map(|row| row["train_loss"].as_f64().unwrap()).collect();
    assert_eq!(losses, expected);
    assert_eq!(best.best.epoch, 2, "the loop has the weights of the last epoch");
    assert_eq!(accuracy, best.evaluate(&loader, Phase::Test).unwrap().accuracy());
}
