//! Training on the CPU: steps, metrics, evaluation, ranks, run folders, and faults.

mod adam;
mod batch_norm_ranks;
mod callbacks;
#[path = "../common/mod.rs"]
mod common;
mod data_hash;
mod defects_of_the_originals;
mod embedding;
mod evaluator;
mod failed_writes;
mod fit;
mod graph;
mod layer_wise;
mod link;
mod link_search;
mod masks;
mod metric_fixture;
mod metric_runs;
mod metric_stats;
mod metrics;
mod named_model;
mod old_checkpoints;
mod one_seed;
mod optimizer;
mod own_task;
mod rank_faults;
mod ranks;
mod resume;
mod run_config;
mod run_folder;
mod running_statistics;
mod runs;
mod split_targets;
mod stop;
mod trainer;
mod training_options;
