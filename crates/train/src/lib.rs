//! Training of graph neural networks. A [`TaskTrainer`] trains a model on batches from a loader, a [`Task`] defines the
//! loss and the metrics of a batch, an [`Evaluator`] measures a model's accuracy, and a [`RunConfig`] runs epochs,
//! keeps the best model and resumes from checkpoints. The README contains a complete program.
//!
//! The folders of the crate:
//!
//! | folder | content |
//! |---|---|
//! | `step` | a training step: [`Task`], [`DeviceBatch`], [`TaskTrainer`], optimizers, [`GradientSync`], trainable rows |
//! | `metric` | [`Metric`], and the counts from which each is computed |
//! | `evaluate` | [`Evaluator`], and exact outputs layer by layer ([`LayerWiseInference`]) |
//! | `run` | a run folder: [`RunConfig`], epochs, checkpoints, resumption, callbacks |
//! | `saved` | models of finished runs: [`SavedModel`], predictors, the table of models |
//! | `report` | `report.html` and `curves.svg` |
//!
//! The crate does not depend on a dataset or a graph format. Reported durations are measured here, or by the loader,
//! which passes them with the batch.
//!
//! ```
//! use kiln_train::MetricSums;
//! // Metrics are made of sums, so that totals over batches and ranks weigh every item the same.
//! let counts = MetricSums { loss_sum: 3.0, weight: 4.0, hits: 3, total: 4, ..MetricSums::default() };
//! assert_eq!((counts.loss(), counts.accuracy()), (0.75, 0.75));
//! ```
//!
//! # Features
//! Both are off by default. `nccl` sums gradients with NCCL. `report` writes the page `report.html` and the learning
//! curves `curves.svg` of a run.

mod error;
mod evaluate;
mod metric;
#[cfg(feature = "report")]
mod report;
mod run;
mod runs;
mod saved;
mod step;
mod transient;

pub use error::{Error, ExactError, InputError, MetricError, Result, RunError, TrainerError};
pub use evaluate::cross_validation::{CrossValidation, FoldResult, MeanAndDeviation};
pub use evaluate::evaluated_task::EvaluatedTask;
pub use evaluate::evaluation::Evaluation;
pub use evaluate::evaluator::{Evaluator, ExactEvaluator};
pub use evaluate::inference_graph::InferenceGraph;
pub use evaluate::layer_wise::{LayerWiseConfig, LayerWiseInference, Spill, WantedRows};
pub use evaluate::links::{LinkPrediction, LinkScores};
pub use evaluate::popularity::Popularity;
pub use evaluate::target_values::{TargetAndOutput, push_target_columns, push_target_fields};
pub use evaluate::validation::Validation;
pub use metric::confusion::{ClassScores, ConfusedPair, Confusion, ConfusionMatrix, Metrics};
pub use metric::custom::{CustomMetric, MetricItems, MetricRef};
pub use metric::kind::Metric;
pub use metric::link_ranks::LinkRanks;
pub use metric::multi_label::MultiLabelCounts;
pub use metric::ranking::{PrecisionRecall, average_precision, precision_recall_curve, roc_auc};
pub use metric::regression::RegressionSums;
pub use metric::selection_error::SelectionError;
pub use metric::split_targets::SplitTargets;
pub use metric::stats::MetricStats;
#[cfg(feature = "report")]
pub use report::links::LinkReport;
#[cfg(feature = "report")]
pub use report::page::ReportPage;
#[cfg(feature = "report")]
pub use report::targets::TargetReport;
pub use run::callback::TrainCallback;
pub use run::contract::DETERMINISM_CONTRACT;
pub use run::data_hash::DataHash;
pub use run::fit::{FitConfig, TEST, VALIDATION, evaluate_best, fit};
pub use run::folder::{DESCRIPTION_FILE, RunFolder};
pub use run::identity::RunIdentity;
pub use run::item_columns::ItemColumns;
pub use run::log_callback::LogCallback;
pub use run::metrics_file::EpochRow;
pub use run::run_config::{Outcome, RunConfig, Tested, Trained};
pub use run::run_dir::RunDir;
pub use run::state::{Resumed, Run};
pub use run::summary::{Best, FitReport, ReportInfo, Summary};
pub use run::tensorboard::TensorBoard;
pub use run::validation_end::{Validated, ValidationEnd};
pub use runs::find::find_runs;
pub use runs::record::{RunRecord, RunState};
pub use runs::setting::{are_equal_settings, canonical_setting, read_settings};
pub use runs::table::RunTable;
pub use saved::batches::{PredictedRows, PredictionBatches};
pub use saved::error::{
    InitialWeightsError, ModelEdgesError, ModelError, ModelFileError, ModelNodesError, PredictModeError,
    PreparationError,
};
pub use saved::info::{
    AgeInfo, EvaluatedNeighbors, EvaluationInfo, ModelInfo, ModelInputs, SamplingInfo, StoredEdgeWeights,
    StoredRule, StoredSampler, StoredTimeLimits,
};
pub use saved::initial_weights::InitialWeights;
pub use saved::link_predictor::LinkPredictor;
pub use saved::link_scorer::{LinkScorer, LinkScorerBuilder};
pub use saved::mode::PredictMode;
pub use saved::model::SavedModel;
pub use saved::model_file::{MODEL_FORMAT, ModelTask};
pub use saved::models::{NodeModelEntry, node_models, similar_model};
pub use saved::named_model::{ConfigVisitor, NamedModel, NamedModelError};
pub use saved::named_targets::NamedTargets;
pub use saved::outputs::OutputRows;
pub use saved::prediction_data::{PredictionData, SeedTimes};
pub use saved::predictor::NodePredictor;
pub use saved::registry::ModelRegistry;
pub use saved::schema_info::{NodeTypeInfo, RelationInfo, SchemaInfo};
pub use saved::timed_links::TimedLinks;
pub use saved::timed_nodes::TimedNodes;
pub use saved::top_k::{ScoredLink, TopKConfig};
pub use saved::unread::notes_on_edge_columns;
pub use step::batch::any_batcher::HostOrDeviceBatcher;
pub use step::batch::device_node_batcher::DeviceNodeBatcher;
pub use step::batch::host_node_batcher::HostNodeBatcher;
pub use step::batch::input_rows::{GatheredRows, InputRows};
pub use step::batch::loaders::BatchConfig;
pub use step::batch::{DeviceBatch, DeviceBatcher, ToDevice};
pub use step::embedding::embedding_error::EmbeddingError;
pub use step::embedding::node_keys::NodeKeys;
pub use step::embedding::row_gradients::RowGradients;
pub use step::embedding::{NodeEmbedding, SparseAdamConfig};
pub use step::memory::{MemoryUse, PeakMemory};
pub use step::optimizer::schedule::{LrDecay, LrSchedule, StepDecay, TrainingLength, TrainingPosition};
pub use step::optimizer::{AdamConfig, Optimizer, OptimizerConfig, SgdConfig};
pub use step::reports::{EpochReport, MeanStepTime, StepReport, Timings};
pub use step::sync::device_all_reduce::DeviceAllReduce;
#[cfg(feature = "nccl")]
pub use step::sync::nccl::{CudaDevices, NcclGroup};
pub use step::sync::{GradientSync, HostAllReduce};
pub use step::task::classification::Prediction;
pub use step::task::custom_loss::{CustomLoss, LossTargets, LossValue};
pub use step::task::custom_loss_error::CustomLossError;
pub use step::task::graph::{GraphClassification, GraphInput, GraphTask};
pub use step::task::link::{LinkInput, LinkTask};
pub use step::task::metric_sums::{LossWeight, MetricSums};
pub use step::task::negatives::{NegativeCounts, RunNegatives};
pub use step::task::node::{InputType, NodeClassification, NodeInput, NodeTask};
pub use step::task::objective::{BatchTargets, Objective};
pub use step::task::target_scale::TargetScale;
pub use step::task::task_objective::TaskObjective;
pub use step::task::{StepOutput, Task};
pub use step::trainer::own_loop::StepGradients;
pub use step::trainer::{TaskTrainer, TrainerConfig};
pub use step::weights::{load_weights, weights_to_bytes};

/// Compiles the README's program as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
