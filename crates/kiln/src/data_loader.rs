use burn::module::Module;
use kiln_loader::{Batcher, Loader, Phase};
use kiln_train::{DeviceBatch, Evaluation, Evaluator, MetricSums, Task, TaskTrainer};

use crate::{RankHandle, Result};

/// A description of minibatches, from which a [`Trainer`](crate::Trainer) makes its rank's batches of each pass. One
/// description serves training, validation and test: [`NeighborLoader`](crate::NeighborLoader) for node tasks,
/// [`GraphLoader`](crate::GraphLoader) for graph tasks.
pub trait DataLoader<M: Module> {
    /// What is learned.
    type Task: Task<Model = M>;
    /// What prepares a batch.
    type Batcher: Batcher<Batch = DeviceBatch<<Self::Task as Task>::Input>>;

    /// Returns the task.
    fn task(&self) -> Self::Task;

    /// The dataset's name and its classes' names.
    fn names(&self) -> (&str, &[String]);

    /// The hash of the data, by which a run recognizes the data that it continues with. Reads all of it.
    ///
    /// # Errors
    /// Those of reading.
    fn data_hash(&self) -> Result<String>;

    /// The settings that a run's result depends on, by name: of ranks only the batch of all.
    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)>;

    /// Checks that a model with so many layers, which reads edge weights or not, fits the batches.
    ///
    /// # Errors
    /// What does not fit.
    fn check(&self, n_layers: usize, needs_edge_weights: bool) -> Result<()>;

    /// What evaluates a model on batches of this description.
    ///
    /// # Errors
    /// Settings that do not fit each other.
    fn evaluator(&self, rank: &RankHandle) -> Result<Evaluator>;

    /// The batches of a pass over its split, for the trainer's rank, seed and device.
    ///
    /// # Errors
    /// Settings that do not fit each other, and those of copying to the device.
    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        evaluator: &Evaluator,
    ) -> Result<Loader<Self::Batcher>>;

    /// Loss and accuracy on the batches of a pass, over all ranks. A collective.
    ///
    /// # Errors
    /// Those of preparing batches.
    fn count(
        evaluator: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
    ) -> kiln_train::Result<MetricSums>;

    /// The outputs for this rank's share of a pass. A collective.
    ///
    /// # Errors
    /// Those of preparing batches.
    fn evaluate(
        evaluator: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
    ) -> kiln_train::Result<Evaluation>;
}
