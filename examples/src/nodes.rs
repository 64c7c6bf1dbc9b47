//! Training a node classifier on all ranks.

use std::process::ExitCode;
use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::{Dataset, Split};
use kiln_loader::{Batcher, ItemSampler, Loader, NodeBatcher};
use kiln_nn::LayerWiseModel;
use kiln_sample::{FrontierSampler, RngKey};
use kiln_train::{DeviceBatch, DeviceNodeBatcher, Evaluator, NodeClassification, NodeInput, Task, Trainer};

use crate::{Crew, Ending, OnDevice, Placement, Program};

/// What the ranks share of a program that trains a node classifier: one graph, one table of features.
#[allow(missing_debug_implementations, reason = "a sampler is anybody's")]
pub struct NodeProgram<'a> {
    /// What it was asked for.
    pub program: Program<'a>,
    /// What it learns from.
    pub data: &'a Dataset,
    /// Makes the blocks on the processor.
    pub sampler: Arc<dyn FrontierSampler>,
    /// Where batches are made.
    pub placement: Placement,
    /// Evaluates the model.
    pub evaluator: Evaluator,
}

impl NodeProgram<'_> {
    /// Trains the models that `init` makes, one a rank, to be one model; keeps the best epoch's and tests it.
    ///
    /// # Errors
    /// The first rank's to fail.
    pub fn train<M: LayerWiseModel + Sync>(
        &self,
        init: impl Fn(RngKey, &Device) -> kiln_nn::Result<M> + Sync,
    ) -> anyhow::Result<ExitCode> {
        let Program { settings, run, fit, data_hash, .. } = self.program;
        let crew = Crew::meet(settings, run, data_hash)?;
        let endings = crew.run(|comm| {
            let rank_info = comm.rank_info();
            let config = run.trainer(rank_info.local_rank, fit.optimizer()?);
            let trainer = Trainer::new(NodeClassification::new(), &config, comm, &init)?;
            self.rank(trainer, run.place_of(rank_info.local_rank))
        })?;
        self.placement.say_hits();
        Ok(Ending::status(&endings))
    }

    /// One rank's part, whose device has this place among the machine's.
    fn rank<M: LayerWiseModel + Sync>(
        &self,
        trainer: Trainer<NodeClassification<M>>,
        place: usize,
    ) -> anyhow::Result<Ending> {
        let (data, config) = (self.data, self.program.run.loader());
        let items = self.items(&trainer)?;
        match &self.placement {
            Placement::Host => {
                let batcher =
                    || NodeBatcher::new(self.sampler.clone(), data.features.clone(), data.labels.clone());
                let [train, val, test] = items.map(|items| trainer.loader(items, batcher(), config));
                self.train_on(trainer, &[train?, val?, test?])
            }
            Placement::Devices(on_devices) => {
                let OnDevice { sampler, features } = &on_devices[&place];
                let batcher =
                    || DeviceNodeBatcher::new(sampler.clone(), features.clone(), data.labels.clone());
                let [train, val, test] = items.map(|items| Loader::new(items, batcher(), config));
                self.train_on(trainer, &[train?, val?, test?])
            }
        }
    }

    /// What the rank takes of the nodes to train, to validate and to test.
    fn items<T: Task>(&self, trainer: &Trainer<T>) -> kiln_train::Result<[ItemSampler; 3]> {
        let Split { train, val, test } = &self.data.split;
        let batches = self.program.run.batches();
        Ok([
            trainer.items(&train[..], batches)?,
            self.evaluator.items(trainer, &val[..], batches)?,
            self.evaluator.items(trainer, &test[..], batches)?,
        ])
    }

    fn train_on<M: LayerWiseModel + Sync, F: Batcher<Batch = DeviceBatch<NodeInput>>>(
        &self,
        trainer: Trainer<NodeClassification<M>>,
        loaders: &[Loader<F>; 3],
    ) -> anyhow::Result<Ending> {
        self.program.run(
            trainer,
            loaders,
            |trainer, val, phase| self.evaluator.count(trainer, val, phase),
            |trainer, test, phase| self.evaluator.evaluate(trainer, test, phase),
            (),
        )
    }
}
