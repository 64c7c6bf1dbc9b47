//! A training run: epochs, the best model, checkpoints, resumption, and the run folder.

pub(crate) mod callback;
pub(crate) mod checkpoint;
pub(crate) mod contract;
pub(crate) mod data_hash;
mod few_steps;
pub(crate) mod fit;
pub(crate) mod folder;
pub(crate) mod identity;
pub(crate) mod last_checkpoint;
pub(crate) mod metrics_file;
pub(crate) mod results;
pub(crate) mod run_config;
pub(crate) mod run_dir;
pub(crate) mod state;
pub(crate) mod summary;
pub(crate) mod tensorboard;
pub(crate) mod write_failures;
