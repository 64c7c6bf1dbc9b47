//! A training run: epochs, the best model, checkpoints, resumption, and the run folder.
//!
//! A resumed run is bit-identical to an uninterrupted one, wherever it was interrupted. After a stop request, all ranks
//! stop after the same step, and `fit` writes a checkpoint. A checkpoint is one file, written under a temporary name,
//! synced and renamed. It has the model with the rows of embeddings and their moments, the optimizer, the position, the
//! counts, the best epoch with the name and the value of the metric that selects it (not named for class labels and
//! accuracy), the rows of `metrics.jsonl`, the run's identity, and the versions and the kind of CPU on which bit-identical
//! results depend.
//!
//! No checkpoint is written and no epoch recorded after a mapped file was changed in place, which all ranks check first.
//! No checkpoint is written before the data is hashed and all ranks have compared the hashes, and no step waits for the
//! hash: a run starts without a checkpoint, and writes it after the first step at which all ranks have the hash, of which
//! they learn from the sums that a step exchanges anyway. A run that resumes compares the hash before its first step.

pub(crate) mod callback;
pub(crate) mod checkpoint;
pub(crate) mod contract;
pub(crate) mod data_hash;
mod few_steps;
pub(crate) mod fit;
pub(crate) mod folder;
pub(crate) mod identity;
pub(crate) mod item_columns;
pub(crate) mod last_checkpoint;
pub(crate) mod log_callback;
pub(crate) mod metrics_file;
pub(crate) mod results;
pub(crate) mod run_config;
pub(crate) mod run_dir;
pub(crate) mod state;
pub(crate) mod summary;
pub(crate) mod tensorboard;
pub(crate) mod validation_end;
pub(crate) mod write_failures;
