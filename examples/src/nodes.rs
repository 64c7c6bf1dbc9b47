//! Training a node classifier on all ranks.

use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::{Dataset, Split};
use kiln_dist::Communicator;
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, Loader, NodeFetch};
use kiln_nn::LayerWise;
use kiln_sample::BlockSampler;
use kiln_train::{NodeClassification, TEST, Trainer, VALIDATION};

use crate::{Judge, Program};

/// What the ranks share of a program that trains a node classifier: one graph, one table of features.
#[allow(missing_debug_implementations, reason = "a sampler is anybody's")]
pub struct NodeProgram<'a> {
    /// What it was asked for.
    pub program: Program<'a>,
    /// What it learns from.
    pub data: &'a Dataset,
    /// Makes the blocks.
    pub sampler: Arc<dyn BlockSampler>,
    /// Judges the model.
    pub judge: Judge,
}

impl NodeProgram<'_> {
    /// Trains the models that `init` makes, one a rank, to be one model; keeps the best epoch's and tests it.
    ///
    /// # Errors
    /// The first rank's to fail.
    pub fn train<M: LayerWise + Sync>(
        &self,
        init: impl Fn(&Device) -> kiln_nn::Result<M> + Sync,
    ) -> anyhow::Result<()> {
        let device = &self.program.run.device;
        self.program.run.ranks().run(|comm| Ok(self.rank(init(&device.clone().autodiff())?, comm)?))?;
        Ok(())
    }

    fn rank<M: LayerWise + Sync>(&self, model: M, comm: Box<dyn Communicator>) -> anyhow::Result<()> {
        let Self { program, data, .. } = self;
        let items = program.run.items(comm.topology());
        let fetch = || NodeFetch::new(self.sampler.clone(), data.features.clone(), data.labels.clone());
        let loader = |nodes: &[NodeId], fetch| {
            Loader::new(ItemSampler::new(nodes, items)?, fetch, program.run.loader())
        };
        let Split { train, val, test } = &data.split;
        let (val_batches, test_batches) = (loader(val, fetch())?, loader(test, fetch())?);
        let train = loader(train, fetch().for_training())?;
        let (task, optimizer) = (NodeClassification::new(), program.fit.optimizer()?);
        let trainer = Trainer::new(task, model, &optimizer, comm, program.run.device.clone())?;
        program.see_through(
            trainer,
            &train,
            |trainer| self.judge.count(trainer, &val_batches, VALIDATION, data, val),
            |trainer| self.judge.evaluate(trainer, &test_batches, TEST, data, test),
            || self.judge.peak_memory(),
        )
    }
}
