//! The training loop: a [`Trainer`] takes batches from a loader, a [`Task`] says what the loss of a
//! batch is, and a [`RunFolder`] keeps what came of it.
//!
//! This crate knows no dataset and no graph format. Every duration that it reports is measured here or
//! travelled with the batch.
//!
//! ```
//! use kiln_train::Counts;
//! // Metrics are counts, so that sums over batches and over ranks are exact.
//! let counts = Counts { loss_sum: 3.0, weight: 4.0, hits: 3, total: 4 };
//! assert_eq!((counts.loss(), counts.accuracy()), (0.75, 0.75));
//! ```

mod error;
mod evaluate;
mod report;
mod run;
mod step;

pub use error::{Error, Result};
pub use evaluate::evaluation::Evaluation;
pub use evaluate::layer_wise::{LayerWiseConfig, LayerWiseInference, Spill};
pub use evaluate::metrics::{ClassScores, ConfusedPair, Confusion, ConfusionMatrix, Metrics, roc_auc};
pub use report::page::ReportPage;
pub use run::contract::DETERMINISM_CONTRACT;
pub use run::fit::{FitConfig, Observer, TEST, VALIDATION, fit, test_best};
pub use run::folder::RunFolder;
pub use run::identity::RunIdentity;
pub use run::metrics_file::EpochRow;
pub use run::state::{About, Resumed, Run};
pub use run::summary::{Best, FitReport, Summary};
pub use step::classification::Prediction;
pub use step::counts::{Counts, Weight};
pub use step::device_fetch::{DeviceNodeFetch, ToDevice};
pub use step::device_sync::DeviceSync;
pub use step::graph::{GraphClassification, GraphInput};
pub use step::memory::{MemoryUse, PeakMemory};
pub use step::node::{NodeClassification, NodeInput};
pub use step::optimizer::{Optimizer, OptimizerConfig, StepDecay};
pub use step::reports::{EpochReport, EpochSoFar, MeanStepTime, StepReport, Timings};
pub use step::sync::{BucketSync, GradientSync};
pub use step::task::{DeviceBatch, DeviceInput, Forward, Task, Upload};
pub use step::trainer::Trainer;
pub use step::weights::{load_weights, weights_to_bytes};
