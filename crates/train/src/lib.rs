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

mod adam;
mod checkpoint;
mod classification;
mod contract;
mod counts;
mod curves;
mod device_fetch;
mod device_sync;
mod error;
mod evaluation;
mod files;
mod fit;
mod folder;
mod graph;
mod layer_range;
mod layer_wise;
mod memory;
mod metrics;
mod metrics_file;
mod node;
mod optimizer;
mod report;
mod report_page;
mod run;
mod spill;
mod summary;
mod sync;
mod task;
mod trainer;
mod weights;
mod write_failures;

pub use classification::Prediction;
pub use contract::DETERMINISM_CONTRACT;
pub use counts::{Counts, Weight};
pub use device_fetch::{DeviceNodeFetch, ToDevice};
pub use device_sync::DeviceSync;
pub use error::Error;
pub use evaluation::Evaluation;
pub use fit::{FitConfig, FitReport, Observer, TEST, VALIDATION, fit, test_best};
pub use folder::RunFolder;
pub use graph::{GraphClassification, GraphInput};
pub use layer_wise::{LayerWiseConfig, LayerWiseInference, Spill};
pub use memory::{MemoryUse, PeakMemory};
pub use metrics::{ClassScores, ConfusedPair, Confusion, ConfusionMatrix, Metrics, roc_auc};
pub use node::{NodeClassification, NodeInput};
pub use optimizer::{AdamConfig, Optimizer, OptimizerConfig, StepDecay};
pub use report::{EpochReport, EpochSoFar, MeanStepTime, StepReport, Timings};
pub use report_page::{EpochRow, ReportPage};
pub use run::{About, Resumed, Run, RunIdentity};
pub use summary::{Best, Summary};
pub use sync::{BucketSync, GradientSync};
pub use task::{DeviceBatch, DeviceInput, Forward, Task, Upload};
pub use trainer::Trainer;
pub use weights::{load_weights, weights_to_bytes};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;
