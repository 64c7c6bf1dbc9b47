use std::marker::PhantomData;

use burn::module::Module;
use kiln_loader::{Loader, Phase};
use kiln_train::{Evaluation, Evaluator, InputError, Metric, MetricSums, TaskTrainer, Validation};

use crate::{DataLoader, RankHandle, Result};

/// The batches of each phase for a rank of a training loop of one's own ([`Trainer::loaders`](crate::Trainer::loaders)), and the
/// evaluation of its model.
pub struct PhaseLoaders<M: Module, L: DataLoader<M>> {
    /// The batches of the training split. Those of the next epoch are `train.epoch(trainer.next_phase())`.
    pub train: Loader<L::Batcher>,
    /// The batches of the validation split.
    pub val: Loader<L::Batcher>,
    /// The batches of the test split.
    pub test: Loader<L::Batcher>,
    evaluator: Evaluator,
    model: PhantomData<fn() -> M>,
}

impl<M: Module, L: DataLoader<M>> PhaseLoaders<M, L> {
    pub(super) fn new(loader: &L, trainer: &TaskTrainer<L::Task>, rank: &RankHandle) -> Result<Self> {
        let evaluator = loader.evaluator(rank)?;
        Ok(Self {
            train: loader.loader(trainer.next_phase(), trainer, &evaluator)?,
            val: loader.loader(Phase::Validation, trainer, &evaluator)?,
            test: loader.loader(Phase::Test, trainer, &evaluator)?,
            evaluator,
            model: PhantomData,
        })
    }

    /// Returns loss and accuracy on a split, summed over all ranks and equal on each, by the evaluation of the loader
    /// ([`EvalMode`](crate::EvalMode)). Collective: every rank must call it.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let loader = NeighborLoader::new(&data, [2, 2]).batch_size(16);
    /// # let setup = Trainer::new(SageConfig::for_data(&data).layers(2).hidden(8), AdamConfig::new(1e-2));
    /// let mut trainer = setup.start(&loader)?;
    /// let loaders = setup.loaders(&loader, &trainer)?;
    /// let val = loaders.evaluate(&mut trainer, Phase::Validation)?;
    /// println!("loss {:.4}, accuracy {:.4}", val.loss(), val.accuracy());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Train`](crate::Error::Train) if the split is empty, and the errors of sampling.
    pub fn evaluate(&self, trainer: &mut TaskTrainer<L::Task>, phase: Phase) -> Result<MetricSums> {
        let batches = self.batches(phase)?;
        Ok(L::count(&self.evaluator, trainer, batches, phase)?)
    }

    /// Returns loss and a metric on a split, of all ranks and equal on each. Collective: every rank must call it.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let loader = NeighborLoader::new(&data, [2, 2]).batch_size(16);
    /// # let setup = Trainer::new(SageConfig::for_data(&data).layers(2).hidden(8), AdamConfig::new(1e-2));
    /// let mut trainer = setup.start(&loader)?;
    /// let loaders = setup.loaders(&loader, &trainer)?;
    /// let val = loaders.validate(&mut trainer, Phase::Validation, Metric::F1Macro)?;
    /// println!("macro F1 {:?}", val.value);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`PhaseLoaders::evaluate`], and an error if the metric is not defined for the targets.
    pub fn validate(
        &self,
        trainer: &mut TaskTrainer<L::Task>,
        phase: Phase,
        metric: impl Into<Metric>,
    ) -> Result<Validation> {
        let batches = self.batches(phase)?;
        Ok(L::validate(&self.evaluator, trainer, batches, phase, metric.into())?)
    }

    /// Returns the outputs for a split's items on rank 0, and no outputs on other ranks. Collective: every rank must call it.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let loader = NeighborLoader::new(&data, [2, 2]).batch_size(16);
    /// # let setup = Trainer::new(SageConfig::for_data(&data).layers(2).hidden(8), AdamConfig::new(1e-2));
    /// let mut trainer = setup.start(&loader)?;
    /// let loaders = setup.loaders(&loader, &trainer)?;
    /// let outputs = loaders.predict(&mut trainer, Phase::Test)?;
    /// assert_eq!(outputs.predictions().len(), 20);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`PhaseLoaders::evaluate`].
    pub fn predict(&self, trainer: &mut TaskTrainer<L::Task>, phase: Phase) -> Result<Evaluation> {
        let batches = self.batches(phase)?;
        let outputs = L::evaluate(&self.evaluator, trainer, batches, phase)?;
        Ok(outputs.gather(trainer.comm())?)
    }

    /// Returns the batches of a phase, unless its split is empty.
    fn batches(&self, phase: Phase) -> Result<&Loader<L::Batcher>> {
        let batches = match phase {
            Phase::Train { .. } => &self.train,
            Phase::Validation => &self.val,
            Phase::Test => &self.test,
        };
        match batches.items().items().is_empty() {
            true => {
                let split = phase.split_name();
                Err(kiln_train::Error::Input(InputError::EmptySplit { split }).into())
            }
            false => Ok(batches),
        }
    }
}

impl<M: Module, L: DataLoader<M>> std::fmt::Debug for PhaseLoaders<M, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PhaseLoaders").field("evaluator", &self.evaluator).finish_non_exhaustive()
    }
}
