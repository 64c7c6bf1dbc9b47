//! Tests of `report.html`: its content, the escaping of user input, and its rendering in a browser.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

mod browser;
mod links;
mod runs;
mod structure;
mod target_values;

use std::collections::BTreeMap;

use kiln_train::{ConfusionMatrix, EpochRow, Metric, ReportPage, Summary};

/// A name that runs a script if it is not escaped, in content and in attributes.
const HOSTILE: &str =
    "\"'><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">&amp;\u{0}";

/// The stage times of an epoch: 3 s of the loader, 8 s of the trainer.
const STAGES: [(&str, f64); 9] = [
    ("seeds", 0.25),
    ("sample", 1.75),
    ("gather", 1.0),
    ("wait", 0.5),
    ("upload", 0.5),
    ("forward", 2.5),
    ("backward", 4.0),
    ("sync", 0.125),
    ("update", 0.375),
];

fn epoch(epoch: usize) -> EpochRow {
    let progress = epoch as f64 / 40.0;
    EpochRow {
        epoch,
        train_loss: 1.5 - progress,
        train_accuracy: 0.25 + progress,
        val_loss: 1.25 - progress,
        val_accuracy: 0.375 + progress,
        metric: String::new(),
        val_metric: None,
        higher_is_better: None,
        logged: Default::default(),
        val_not_finite: 0,
        val_seconds: Some(0.25),
        n_steps: 1234,
        seconds: 9.5,
        seeds_per_second: 20_480.4,
        stage_seconds: STAGES.map(|(name, seconds)| (name.to_owned(), seconds)).into(),
        peak_rss_anon_bytes: 300 << 20,
    }
}

fn summary() -> Summary {
    Summary {
        test_accuracy: 0.8125,
        test_f1_macro: Some(0.7654),
        test_roc_auc: None,
        val_accuracy: 0.875,
        metric: Metric::Accuracy,
        val_metric: Some(0.875),
        loss: None,
        test_metrics: Vec::new(),
        val_not_finite: 0,
        test_not_finite: 0,
        best_epoch: 3,
        n_epochs: 4,
        interrupted: false,
        stopped_early: true,
        stop_reason: None,
        seconds: 200.4,
        peak_rss_anon_bytes: 300 << 20,
        peak_rss_mapped_bytes: 20 << 30,
        mean_batch_time: None,
        negatives: kiln_train::RunNegatives::default(),
        weights_hash: "c0ffee".repeat(10) + "abcd",
    }
}

/// Returns a confusion matrix in which 10 items of each class are correct, 2 are predicted as the next class and 1 as
/// the one after it.
fn matrix(n_classes: u32) -> ConfusionMatrix {
    let mut matrix = ConfusionMatrix::new(n_classes as usize);
    for class in 0..n_classes {
        for (step, n_items) in [(0, 10), (1, 2), (2, 1)] {
            for _ in 0..n_items {
                matrix.add(class, (class + step) % n_classes);
            }
        }
    }
    matrix
}

fn page(n_epochs: usize, n_classes: u32) -> ReportPage {
    let config = [("batch-size", "1024"), ("fanouts", "10,10,10"), ("workers", "2")];
    ReportPage {
        title: "node_classification on sbm".into(),
        config: BTreeMap::from(config.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        epochs: (1..=n_epochs).map(epoch).collect(),
        summary: summary(),
        confusion: Some(matrix(n_classes)),
        targets: None,
        links: None,
        class_names: (0..n_classes).map(|class| format!("class {class}")).collect(),
    }
}
