//! The training loop: a [`TaskTrainer`] takes batches from a loader, a [`Task`] says what the loss of a
//! batch is, an [`Evaluator`] what the model is worth, and a [`RunConfig`] makes a run of it that keeps the best model and
//! resumes. The crate's README has a whole program.
//!
//! This crate knows no dataset and no graph format. Every duration that it reports is measured here or
//! travelled with the batch.
//!
//! ```
//! use kiln_train::MetricSums;
//! // Metrics are counts, so that sums over batches and over ranks are exact.
//! let counts = MetricSums { loss_sum: 3.0, weight: 4.0, hits: 3, total: 4 };
//! assert_eq!((counts.loss(), counts.accuracy()), (0.75, 0.75));
//! ```
//!
//! # Features
//! `nccl` (off): gradients summed by NCCL. `report` (off): the page `report.html` and the learning curves `curves.svg` of a run.

mod error;
mod evaluate;
#[cfg(feature = "report")]
mod report;
mod run;
mod step;

pub use error::{Error, Result};
pub use evaluate::cross_validation::{CrossValidation, FoldResult, MeanAndDeviation};
pub use evaluate::evaluation::Evaluation;
pub use evaluate::evaluator::{Evaluator, ExactEvaluator};
pub use evaluate::layer_wise::{LayerWiseConfig, LayerWiseInference, Spill};
pub use evaluate::metrics::{ClassScores, ConfusedPair, Confusion, ConfusionMatrix, Metrics, roc_auc};
#[cfg(feature = "report")]
pub use report::page::ReportPage;
pub use run::callback::TrainCallback;
pub use run::contract::DETERMINISM_CONTRACT;
pub use run::fit::{FitConfig, TEST, VALIDATION, evaluate_best, fit};
pub use run::folder::RunFolder;
pub use run::identity::RunIdentity;
pub use run::metrics_file::EpochRow;
pub use run::run_config::{Outcome, RunConfig, Tested, Trained};
pub use run::run_dir::RunDir;
pub use run::state::{ReportInfo, Resumed, Run};
pub use run::summary::{Best, FitReport, Summary};
pub use step::any_batcher::HostOrDeviceBatcher;
pub use step::batch::{DeviceBatch, DeviceBatcher, ToDevice};
pub use step::classification::Prediction;
pub use step::device_all_reduce::DeviceAllReduce;
pub use step::device_node_batcher::DeviceNodeBatcher;
pub use step::graph::{GraphClassification, GraphInput};
pub use step::loaders::BatchConfig;
pub use step::memory::{MemoryUse, PeakMemory};
pub use step::metric_sums::{LossWeight, MetricSums};
#[cfg(feature = "nccl")]
pub use step::nccl::{CudaDevices, NcclGroup};
pub use step::node::{NodeClassification, NodeInput};
pub use step::optimizer::{AdamConfig, Optimizer, OptimizerConfig, StepDecay};
pub use step::reports::{EpochReport, MeanStepTime, StepReport, Timings};
pub use step::sync::{GradientSync, HostAllReduce};
pub use step::task::{StepOutput, Task};
pub use step::trainer::{TaskTrainer, TrainerConfig};
pub use step::weights::{load_weights, weights_to_bytes};

/// The program of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
