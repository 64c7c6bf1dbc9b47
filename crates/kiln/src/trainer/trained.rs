use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use burn::module::Module;
use kiln_feature::TargetScaler;
use kiln_loader::{Loader, Phase};
use kiln_train::{
    Best, Evaluation, Evaluator, FitReport, MetricSums, NodeEmbedding, ReportInfo, Run, RunFolder, Summary,
};

use super::Parts;
use crate::{BatchRequirements, DataLoader, Result};

/// The model of a run's best epoch by the metric on the validation split.
#[derive(Debug)]
pub struct TrainedModel<M> {
    /// The model with the weights of the best epoch.
    pub model: M,
    /// The trainable rows of the best epoch, a table for each type of nodes without features; empty for other graphs.
    pub embeddings: Vec<Arc<NodeEmbedding>>,
    /// The scale of the regression targets, by which the outputs of `model` become predictions
    /// ([`TargetScaler::restore`]); `None` if they are predictions. [`TrainedModel::predict`] returns predictions.
    pub target_scaler: Option<TargetScaler>,
    /// The best epoch: its number, its validation metrics and the hash of its weights.
    pub best: Best,
    /// The outcome of the run: its epochs, early stopping, peak memory and, for links, the negatives of training and
    /// validation.
    pub report: FitReport,
    pub(super) run: Run,
    pub(super) parts: Parts,
    /// What the model requires of batches.
    pub(super) requirements: BatchRequirements,
    pub(super) title: String,
    pub(super) started: Instant,
}

impl<M: Module + Sync> TrainedModel<M> {
    /// Returns loss and accuracy on a split, summed over all ranks and equal on each. Collective: every rank must call
    /// it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(best: TrainedModel<Sage>, loader: NeighborLoader) -> Result<()> {
    /// let test = best.evaluate(&loader, Phase::Test)?;
    /// println!("test accuracy {:.4}, loss {:.4}, of {} nodes", test.accuracy(), test.loss(), test.total);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the batches of the loader do not suit the model ([`DataLoader::check`]), [`Error::Train`](crate::Error::Train) if the split
    /// is empty, [`Error::RanksEnded`](crate::Error::RanksEnded) after the body of
    /// [`launch`](crate::launch) has returned, and the errors of sampling.
    pub fn evaluate<L: DataLoader<M>>(&self, loader: &L, phase: Phase) -> Result<MetricSums> {
        let (mut trainer, evaluator) = self.trainer(loader)?;
        let batches = loader.loader(phase, &trainer, &evaluator)?;
        let counts = L::count(&evaluator, &mut trainer, &batches, phase)?;
        match counts.is_empty() {
            true => Err(kiln_train::Error::Input(kiln_train::InputError::EmptySplit {
                split: phase.split_name(),
            })
            .into()),
            false => Ok(counts),
        }
    }

    /// Returns the outputs for a split's items on rank 0, for predictions and further metrics, and no outputs on other
    /// ranks. Collective: every rank must call it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(best: TrainedModel<Sage>, loader: NeighborLoader) -> Result<()> {
    /// let outputs = best.predict(&loader, Phase::Test)?;
    /// println!("macro F1 {:?}", outputs.metrics().f1_macro);
    /// for prediction in outputs.predictions() {
    ///     println!("{prediction:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`TrainedModel::evaluate`].
    pub fn predict<L: DataLoader<M>>(&self, loader: &L, phase: Phase) -> Result<Evaluation> {
        let (mut trainer, evaluator) = self.trainer(loader)?;
        let batches = loader.loader(phase, &trainer, &evaluator)?;
        Self::outputs::<L>(&batches, phase, &mut trainer, &evaluator)
    }

    /// Evaluates the model on the test split, writes the predictions, `summary.json` and, with the feature `report`,
    /// `report.html` to the run's folder, and returns the summary on rank 0. Without items for the test, there are no
    /// predictions and no metrics of a test, and the report states so. Collective: every rank must call it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(best: TrainedModel<Sage>, loader: NeighborLoader) -> Result<()> {
    /// // Only rank 0 has the summary.
    /// if let Some(summary) = best.write_report(&loader)? {
    ///     println!("test accuracy {:.4} after {} epochs", summary.test_accuracy, summary.n_epochs);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`TrainedModel::evaluate`] except for the empty split, and an error if a file cannot be
    /// written.
    pub fn write_report<L: DataLoader<M>>(&self, loader: &L) -> Result<Option<Summary>> {
        let (mut trainer, evaluator) = self.trainer(loader)?;
        let batches = loader.loader(Phase::Test, &trainer, &evaluator)?;
        let test = match batches.items().items().is_empty() {
            true => Evaluation::default(),
            false => Self::outputs::<L>(&batches, Phase::Test, &mut trainer, &evaluator)?,
        };
        let peak_memory = self.report.peak_memory.max(trainer.peak_memory());
        let mut report = FitReport { peak_memory, ..self.report };
        report.negatives.test = trainer.eval_negatives();
        let item_columns = loader.item_columns();
        let info = ReportInfo {
            title: &self.title,
            class_names: loader.names().1,
            item_columns: item_columns.as_ref(),
            elapsed: self.started.elapsed(),
        };
        Ok(self.run.finish(&test, &report, &info)?)
    }

    fn trainer<L: DataLoader<M>>(&self, loader: &L) -> Result<(kiln_train::TaskTrainer<L::Task>, Evaluator)> {
        loader.check(&self.requirements)?;
        let evaluator = loader.evaluator(&self.parts.rank)?;
        let comm = self.parts.rank.communicator("trainer")?;
        let (model, embeddings) = (self.model.clone(), self.embeddings.clone());
        let config = &self.parts.config;
        // The loader may be of other data than the training.
        let task = loader.task(self.target_scaler.as_ref());
        let trainer = kiln_train::TaskTrainer::of_trained(task, config, comm, model, embeddings)?;
        Ok((trainer, evaluator))
    }

    fn outputs<L: DataLoader<M>>(
        batches: &Loader<L::Batcher>,
        phase: Phase,
        trainer: &mut kiln_train::TaskTrainer<L::Task>,
        evaluator: &Evaluator,
    ) -> Result<Evaluation> {
        let outputs = L::evaluate(evaluator, trainer, batches, phase)?;
        trainer.check_files()?;
        let outputs = outputs.gather(trainer.comm())?;
        match trainer.is_rank_zero() && outputs.counts()?.checked()?.is_empty() {
            true => Err(kiln_train::Error::Input(kiln_train::InputError::EmptySplit {
                split: phase.split_name(),
            })
            .into()),
            false => Ok(outputs),
        }
    }

    /// Returns the run's folder on rank 0; `None` on other ranks.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(best: TrainedModel<Sage>, loader: NeighborLoader) -> Result<()> {
    /// // A saved model needs no training data.
    /// if let Some(folder) = best.folder() {
    ///     let saved = SavedModel::open(folder)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn folder(&self) -> Option<&Path> {
        self.run.folder().map(RunFolder::path)
    }
}
