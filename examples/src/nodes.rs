//! Training a node classifier on all ranks.

use std::process::ExitCode;
use std::sync::Arc;

use burn::tensor::Device;
use kiln_comm::Communicator;
use kiln_data::{Dataset, Split};
use kiln_graph::NodeId;
use kiln_loader::{Fetch, ItemSampler, Loader, NodeFetch};
use kiln_nn::LayerWise;
use kiln_sample::FrontierSampler;
use kiln_train::{
    DeviceNodeFetch, NodeClassification, NodeInput, TEST, ToDevice, Trainer, Upload, VALIDATION,
};

use crate::{Crew, Ending, Judge, OnDevice, Placement, Program};

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
    ) -> anyhow::Result<ExitCode> {
        let Program { settings, run, data_hash, .. } = self.program;
        let crew = Crew::meet(settings, run, data_hash)?;
        let endings = crew.run(|comm| {
            let device = run.device_of(comm.topology().local_rank);
            self.rank(init(&device.clone().autodiff())?, device, comm)
        })?;
        self.placement.say_hits();
        Ok(Ending::status(&endings))
    }

    fn rank<M: LayerWise + Sync>(
        &self,
        model: M,
        device: Device,
        comm: Box<dyn Communicator>,
    ) -> anyhow::Result<Ending> {
        let Self { program, data, .. } = self;
        let host = || NodeFetch::new(self.sampler.clone(), data.features.clone(), data.labels.clone());
        match &self.placement {
            Placement::Host => {
                let to_device = |fetch| ToDevice::new(fetch, &device);
                self.train_by(model, &device, comm, to_device(host().for_training()), || to_device(host()))
            }
            Placement::Devices(on_devices) => {
                let place = program.run.place_of(comm.topology().local_rank);
                let OnDevice { sampler, features } = &on_devices[&place];
                let fetch = || DeviceNodeFetch::new(sampler.clone(), features.clone(), data.labels.clone());
                self.train_by(model, &device, comm, fetch(), fetch)
            }
        }
    }

    /// Trains on the batches of one fetch, and evaluates on those of others.
    fn train_by<M: LayerWise + Sync, F: Fetch<Batch: Upload<Input = NodeInput>>>(
        &self,
        model: M,
        device: &Device,
        comm: Box<dyn Communicator>,
        fetch: F,
        to_evaluate: impl Fn() -> F,
    ) -> anyhow::Result<Ending> {
        let Self { program, data, .. } = self;
        let loader = |nodes: &[NodeId], fetch, topology| {
            Loader::new(ItemSampler::new(nodes, program.run.items(topology))?, fetch, program.run.loader())
        };
        let Split { train, val, test } = &data.split;
        let of_judge = self.judge.topology(comm.topology());
        let to_judge = |nodes| loader(nodes, to_evaluate(), of_judge);
        let (val_batches, test_batches) = (to_judge(val)?, to_judge(test)?);
        let train = loader(train, fetch, comm.topology())?;
        let (task, optimizer) = (NodeClassification::new(), program.fit.optimizer()?);
        let trainer = Trainer::new(task, model, &optimizer, comm, device.clone())?;
        program.see_through(
            trainer,
            &train,
            |trainer| self.judge.count(trainer, &val_batches, VALIDATION, data, val),
            |trainer| self.judge.evaluate(trainer, &test_batches, TEST, data, test),
            || self.judge.peak_memory(),
            (),
        )
    }
}
