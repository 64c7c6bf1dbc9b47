//! The main crate of kiln: datasets, loaders, trainers and ranks for programs that train graph neural networks.
//!
//! [`NeighborLoader`] describes minibatches of sampled neighbourhoods, [`Trainer::fit`] trains a model on them and
//! keeps the weights of the best epoch, and [`launch`] runs a closure on each rank. This crate contains no algorithms.
//! It combines other crates, which it re-exports as modules and which can be used on their own. So they are assembled
//! once, and not in each program. The default features build no gRPC, MPI, CUDA or drawing library.
//!
//! Setters are named after the value that they set (`batch_size`), as in Burn's `DataLoaderBuilder`.
//!
//! ```
//! use kiln::prelude::*;
//! let data = kiln::data::synthetic::ring(100)?;
//! let loader = NeighborLoader::new(&data, [2, 2]).batch_size(16);
//! let config = SageConfig::for_data(&data).layers(2).hidden(8);
//! # let folder = tempfile::tempdir()?;
//! # let out = folder.path().join("run");
//! let best = Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, FitConfig::epochs(2).out(out))?;
//! assert_eq!(best.evaluate(&loader, Phase::Test)?.total, 20);
//! # Ok::<(), Error>(())
//! ```
//!
//! # I want to …
//!
//! | I want to | item |
//! |---|---|
//! | **data** | |
//! | open a folder or a built-in set | [`Dataset::open`](kiln_data::Dataset::open), [`GraphDataset::open`](kiln_data::GraphDataset::open) |
//! | make a set from arrays | [`Dataset::builder`](kiln_data::Dataset::builder), with several types of nodes [`Dataset::builder_with_types`](kiln_data::Dataset::builder_with_types) |
//! | make a set from tables | `tables::import` with the feature `tables` |
//! | write a set | [`data::format::write`] |
//! | split by time | [`Dataset::with_time_split`](kiln_data::Dataset::with_time_split) |
//! | split links | [`LinkSplit`](kiln_data::LinkSplit) |
//! | **minibatches** | |
//! | sample the neighbours of nodes | [`NeighborLoader`] |
//! | sample the ends of links or edges | [`LinkNeighborLoader`] |
//! | batch many small graphs | [`GraphLoader`] |
//! | set the neighbours of each relation | [`RelationFanouts`](kiln_sample::RelationFanouts) |
//! | sample at the times of the items | [`Messages::AtItemTime`] |
//! | train on the rows of a task table | [`NeighborLoader::task_table`] |
//! | let models read the ages of nodes and edges | [`NeighborLoader::ages`] |
//! | choose other neighbours, by a rule of my own | [`Rule::from`](kiln_sample::Rule), [`SamplingRule`](kiln_sample::SamplingRule) |
//! | sample by a whole sampler of my own | [`NeighborLoader::sampler`], [`CustomSampler`](kiln_sample::CustomSampler) |
//! | sample blocks without a training | [`NeighborSampler`](kiln_sample::NeighborSampler) |
//! | load batches without a training | [`loader::Loader`] |
//! | **training** | |
//! | train and keep the best epoch | [`Trainer::fit`] |
//! | see the notes and warnings of the libraries | [`print_log`], or a subscriber of `tracing` |
//! | choose a model | [`nn`]: [`SageConfig`](kiln_nn::SageConfig), [`GcnConfig`](kiln_nn::GcnConfig), [`GatConfig`](kiln_nn::GatConfig), [`RgcnConfig`](kiln_nn::RgcnConfig), [`HgtConfig`](kiln_nn::HgtConfig), … |
//! | write a model of my own | [`ModelConfig`](kiln_nn::ModelConfig), [`BlockModel`](kiln_nn::BlockModel) |
//! | set the optimizer and its schedule | [`AdamConfig`](kiln_train::AdamConfig), [`LrSchedule`](kiln_train::LrSchedule) |
//! | choose the loss, or write one | [`NeighborLoader::objective`], [`LinkNeighborLoader::loss`], [`Objective::custom`](kiln_train::Objective::custom) |
//! | choose the metric of the best epoch, or write one | [`FitConfig::metric`], [`CustomMetric`](kiln_train::CustomMetric) |
//! | follow a run, log values, stop it | [`FitConfig::callback`], [`TrainCallback`](kiln_train::TrainCallback) |
//! | train on from given weights | [`Trainer::init_from`] |
//! | write the loop myself | [`Trainer::start`] |
//! | train on several devices or machines | [`launch`], [`RankConfig`] |
//! | train on partitions | `PartitionedGraph` with the feature `grpc` |
//! | **results** | |
//! | evaluate a part of the split | [`TrainedModel::evaluate`] |
//! | write the summary, the predictions and the page | [`TrainedModel::write_report`] |
//! | predict with a run | [`SavedModel`](kiln_train::SavedModel), [`PredictOn`] |
//! | score pairs, recommend destinations | [`LinkPredictor`](kiln_train::LinkPredictor) |
//! | write predictions to files | [`PredictionRequest`] |
//! | find and compare runs | [`train::find_runs`] |

#![forbid(unsafe_code)]

mod allocator;
mod batches;
mod data_hash;
mod data_loader;
mod device_copy;
mod error;
mod evaluation;
mod for_data;
mod graph_loader;
mod item_times_error;
mod link_loader;
mod link_loader_error;
mod links;
mod log;
mod neighbor_loader;
#[cfg(feature = "grpc")]
mod partitioned;
mod partitions_error;
mod prediction;
mod ranks;
mod signals;
mod source;
mod threads;
mod trainer;

pub use data_hash::hash_in_background;
pub use data_loader::{BatchRequirements, DataLoader};
pub use device_copy::DeviceCopy;
pub use error::Error;
pub use evaluation::EvalMode;
pub use for_data::{DataDims, ForData};
pub use graph_loader::GraphLoader;
pub use item_times_error::ItemTimesError;
pub use kiln_comm::RankConfig;
pub use kiln_kernels::GraphMode;
pub use kiln_loader::CachedNodes;
pub use kiln_predictions::{
    EdgeEnds, LinkNodes, LinkPredictionFiles, PartCounts, PredictedEdges, PredictionFiles, PredictionFormat,
    PredictionRequest, PredictionTotals, SplitPart, SplitParts,
};
pub use link_loader::LinkNeighborLoader;
pub use link_loader_error::LinkLoaderError;
pub use links::TrainingLinks;
pub use log::{LogLine, print_log, print_log_with};
pub use neighbor_loader::{Messages, NeighborLoader};
#[cfg(feature = "grpc")]
pub use partitioned::{JoinedGraph, PartitionedGraph};
pub use partitions_error::PartitionsError;
pub use prediction::{PredictOn, PredictionOutput};
pub use ranks::{RankCount, RankHandle, device_count, launch};
pub use signals::{clean_up_on_signals, report_file_size_limit, stop_on_signals};
pub use source::GraphSource;
pub use threads::start_threads;
pub use trainer::{FitConfig, PhaseLoaders, TrainedModel, Trainer};

pub use burn;
pub use kiln_comm as comm;
pub use kiln_data as data;
pub use kiln_feature as feature;
pub use kiln_graph as graph;
pub use kiln_kernels as kernels;
pub use kiln_loader as loader;
pub use kiln_mem as mem;
pub use kiln_nn as nn;
pub use kiln_partition as partition;
pub use kiln_predictions as predictions;
#[cfg(feature = "grpc")]
pub use kiln_remote as remote;
pub use kiln_sample as sample;
pub use kiln_store as store;
#[cfg(feature = "tables")]
pub use kiln_tables as tables;
pub use kiln_train as train;

/// The items that most training programs need: `use kiln::prelude::*`.
pub mod prelude {
    #[doc(inline)]
    pub use kiln_data::{
        Dataset, GraphDataset, LinkDirection, LinkSplit, LinkSplitConfig, NodeFeatures, Split,
    };
    #[doc(inline)]
    pub use kiln_feature::TargetKind;
    #[doc(inline)]
    pub use kiln_graph::{GraphId, NodeId};
    #[doc(inline)]
    pub use kiln_kernels::Devices;
    #[doc(inline)]
    pub use kiln_loader::{LinkExclusion, Phase};
    #[doc(inline)]
    pub use kiln_nn::prelude::*;
    #[doc(inline)]
    pub use kiln_sample::{EdgeWeights, Fanout, Negatives, RelationFanouts, Rule, UniformNegatives};
    #[doc(inline)]
    pub use kiln_train::{
        AdamConfig, CustomMetric, LrSchedule, Metric, MetricItems, Objective, PredictMode, SavedModel,
        SgdConfig, TopKConfig, TrainCallback, TrainingLength, ValidationEnd,
    };

    #[cfg(feature = "grpc")]
    #[doc(inline)]
    pub use crate::PartitionedGraph;
    #[doc(inline)]
    pub use crate::{
        DataLoader, Error, EvalMode, FitConfig, ForData, GraphLoader, GraphMode, LinkNeighborLoader,
        NeighborLoader, PredictOn, RankConfig, RankCount, RankHandle, Result, TrainedModel, Trainer,
        device_count, launch,
    };
}

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The README, whose example is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;

/// The snippets of the book, compiled as tests. Some use partitioned graphs, and one imports tables.
#[cfg(all(doctest, feature = "grpc", feature = "tables"))]
#[doc = include_str!("../../../docs/book/src/tutorials/tables.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/heterogeneous.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/recommendation.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/edges.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/link-prediction.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/many-graphs.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/time.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/item-times.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/task-tables.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/ranks.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/partitions.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/own-layer.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/own-sampler.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/own-loss.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/own-metric.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/own-loop.md")]
#[doc = include_str!("../../../docs/book/src/concepts/minibatches.md")]
#[doc = include_str!("../../../docs/book/src/concepts/negatives.md")]
#[doc = include_str!("../../../docs/book/src/how-to/arrays.md")]
#[doc = include_str!("../../../docs/book/src/how-to/train.md")]
#[doc = include_str!("../../../docs/book/src/how-to/stop-early.md")]
#[doc = include_str!("../../../docs/book/src/how-to/edge-inputs.md")]
#[doc = include_str!("../../../docs/book/src/how-to/targets.md")]
#[doc = include_str!("../../../docs/book/src/how-to/predict-program.md")]
#[doc = include_str!("../../../docs/book/src/how-to/link-scores.md")]
#[doc = include_str!("../../../docs/book/src/how-to/ages.md")]
#[doc = include_str!("../../../docs/book/src/how-to/four-gpus.md")]
#[doc = include_str!("../../../docs/book/src/how-to/device-batches.md")]
#[doc = include_str!("../../../docs/book/src/how-to/progress.md")]
#[doc = include_str!("../../../docs/book/src/how-to/single-crates.md")]
#[doc = include_str!("../../../docs/book/src/reference/training-options.md")]
#[doc = include_str!("../../../docs/migrating.md")]
struct Book;

/// The first program of the workspace's README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct WorkspaceReadMe;
