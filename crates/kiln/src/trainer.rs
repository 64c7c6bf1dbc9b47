use std::path::Path;
use std::time::Instant;

use burn::tensor::Device;
use kiln_data::Dataset;
use kiln_kernels::Devices;
use kiln_loader::{Loader, Pass};
use kiln_nn::{LayerWise, ModelConfig};
use kiln_sample::{EdgeWeights, RngKey};
use kiln_train::{
    About, Best, Counts, DeviceBatch, Evaluation, FitReport, NodeClassification, NodeInput, OptimizerConfig,
    Run, RunFolder, RunIdentity, Summary, fit,
};

use crate::fit::EpochLines;
use crate::neighbor_loader::NodeBatcher;
use crate::{Error, FitConfig, NeighborLoader, RankHandle, Result};

/// Configs of models with defaults for a dataset.
pub trait ForData: ModelConfig {
    /// The default shape for the features and the classes of a dataset.
    fn for_data(data: &Dataset) -> Self {
        Self::for_dims(data.features.dim(), data.labels.n_classes())
    }
}

impl<C: ModelConfig> ForData for C {}

/// Trains node classifiers: the one place of a run's seed, device and rank, which it hands down to the loader and the
/// model.
///
/// Where several ranks train together, its methods and those of [`TrainedModel`] that say so are collectives: every rank
/// calls them in the same order.
#[derive(Debug)]
pub struct Trainer<C> {
    model: C,
    optimizer: OptimizerConfig,
    seed: u64,
    devices: Option<Devices>,
    rank: RankHandle,
}

impl<C: ModelConfig> Trainer<C> {
    /// A trainer on the CPU, on one rank, with seed 0.
    pub fn new(model: C, optimizer: impl Into<OptimizerConfig>) -> Self {
        Self { model, optimizer: optimizer.into(), seed: 0, devices: None, rank: RankHandle::single() }
    }

    /// Sets the seed of the initial weights, dropout, the order of the nodes and the sampled neighbours.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the device, or several separated by commas that the ranks of a machine take in turn: `cpu`, or with the feature
    /// of that name `cuda`, `wgpu` or `cube-cpu`. `cuda` is all GPUs, `cuda:1` the second one.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn device(self, names: &str) -> Result<Self> {
        Ok(Self { devices: Some(Devices::open(names)?), ..self })
    }

    /// Trains together with the other ranks.
    #[must_use]
    pub fn rank(self, rank: &RankHandle) -> Self {
        Self { rank: rank.clone(), ..self }
    }

    /// Trains a model from its initial weights, evaluates it on the validation split after each epoch, and returns the
    /// model of the best epoch. A collective.
    ///
    /// # Errors
    /// Settings that do not fit each other, empty splits, [`Error::Interrupted`], and the errors of sampling, training and
    /// files.
    pub fn fit(&mut self, loader: &NeighborLoader, config: FitConfig) -> Result<TrainedModel<C::Model>> {
        let started = Instant::now();
        self.check(loader, config.schedule.n_epochs)?;
        let parts = Parts {
            optimizer: self.optimizer,
            seed: self.seed,
            device: self.device_of_rank(),
            rank: self.rank.clone(),
        };
        let first_epoch = Pass::Train { epoch: 0 };
        let (train, val) = (parts.batches(loader, first_epoch)?, parts.batches(loader, Pass::Validation)?);
        if train.n_steps(first_epoch) == 0 {
            let (n_items, batch_size) = (train.items().items().len(), train.items().config().batch_size);
            return Err(Error::NoSteps {
                n_items,
                per_step: batch_size.saturating_mul(self.rank.world_size()),
            });
        }
        let identity = self.identity(loader)?;
        let settings = identity.settings.clone();
        let model = self.model.init(RngKey::new(self.seed), &parts.device.clone().autodiff());
        let mut trainer = parts.trainer(model?)?.with_stop(config.stop);
        let mut run = Run::start(&mut trainer, || config.dir.open(&loader.data.name), identity)?;
        run.write_config(&settings)?;
        let n_epochs = config.schedule.n_epochs;
        let lines = (self.rank.is_zero() && !config.is_quiet).then_some(EpochLines { n_epochs });
        let mut observers = (lines, config.callback);
        let validate =
            |trainer: &mut kiln_train::Trainer<_>| trainer.evaluate(val.epoch(Pass::Validation), |_, _| ());
        let report = fit(&mut trainer, &train, config.schedule, validate, &mut run, &mut observers)?;
        if report.interrupted {
            let folder = run.folder().map(|folder| folder.path().to_owned()).unwrap_or_default();
            return Err(Error::Interrupted { n_epochs: report.n_epochs, folder });
        }
        run.load_best(&mut trainer)?;
        let (model, best) = (trainer.model().clone(), run.best()?.clone());
        Ok(TrainedModel { model, best, report, run, parts, started })
    }

    fn check(&self, loader: &NeighborLoader, n_epochs: usize) -> Result<()> {
        let (n_fanouts, n_layers) = (loader.sampling.fanouts.len(), self.model.n_layers());
        if n_fanouts != n_layers {
            return Err(Error::FanoutsMismatch { n_fanouts, n_layers });
        }
        if self.model.needs_edge_weights() && loader.sampling.weights == EdgeWeights::None {
            return Err(Error::NoEdgeWeights);
        }
        if n_epochs == 0 {
            let (what, expected) = ("the number of epochs", "at least 1");
            return Err(kiln_train::Error::BadSetting { what, expected, got: 0.0 }.into());
        }
        for (split, nodes) in [("training", &loader.data.split.train), ("validation", &loader.data.split.val)]
        {
            if nodes.is_empty() {
                return Err(kiln_train::Error::EmptySplit { split }.into());
            }
        }
        Ok(())
    }

    fn device_of_rank(&self) -> Device {
        let of_rank = |devices: &Devices| devices.of_rank(self.rank.local_index()).device.clone();
        self.devices.as_ref().map_or_else(Device::flex, of_rank)
    }

    /// What a run has in common with the one that it continues. Rank 0 alone compares it, and alone reads the data.
    fn identity(&self, loader: &NeighborLoader) -> Result<RunIdentity> {
        let own = [
            ("model", format!("{:?}", self.model)),
            ("optimizer", format!("{:?}", self.optimizer)),
            ("seed", self.seed.to_string()),
        ];
        let settings = loader.settings(self.rank.world_size()).into_iter().chain(own);
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).collect();
        let data_hash = if self.rank.is_zero() { loader.data.hash()? } else { String::new() };
        Ok(RunIdentity { settings, data_hash })
    }
}

/// What makes the trainers of the crate `kiln-train`, for training and again for evaluation.
#[derive(Debug)]
struct Parts {
    optimizer: OptimizerConfig,
    seed: u64,
    device: Device,
    rank: RankHandle,
}

type NodeTask<M> = NodeClassification<M, DeviceBatch<NodeInput>>;

impl Parts {
    fn trainer<M: LayerWise + Sync>(&self, model: M) -> Result<kiln_train::Trainer<NodeTask<M>>> {
        let (comm, device) = (self.rank.communicator("trainer")?, self.device.clone());
        Ok(kiln_train::Trainer::new(NodeTask::new(), model, &self.optimizer, comm, device)?)
    }

    fn batches(&self, loader: &NeighborLoader, phase: Pass) -> Result<Loader<NodeBatcher>> {
        loader.build(phase, self.seed, &self.rank, &self.device)
    }
}

/// The model of a run's best epoch by validation accuracy.
#[derive(Debug)]
pub struct TrainedModel<M> {
    /// The model.
    pub model: M,
    /// The best epoch: its number, its validation metrics and the hash of its weights.
    pub best: Best,
    /// The course of the run.
    pub report: FitReport,
    run: Run,
    parts: Parts,
    started: Instant,
}

impl<M: LayerWise + Sync> TrainedModel<M> {
    /// Loss and accuracy on a split with sampled neighbourhoods, over all ranks and the same on each. A collective.
    ///
    /// # Errors
    /// An empty split, and the errors of sampling.
    pub fn evaluate(&self, loader: &NeighborLoader, phase: Pass) -> Result<Counts> {
        let batches = self.parts.batches(loader, phase)?;
        let counts = self.parts.trainer(self.model.clone())?.evaluate(batches.epoch(phase), |_, _| ())?;
        match counts.total {
            0 => Err(kiln_train::Error::EmptySplit { split: name_of(phase) }.into()),
            _ => Ok(counts),
        }
    }

    /// The outputs for a split's nodes, of which predictions and further metrics are made, on rank 0; none on the others.
    /// A collective.
    ///
    /// # Errors
    /// As [`TrainedModel::evaluate`].
    pub fn predict(&self, loader: &NeighborLoader, phase: Pass) -> Result<Evaluation> {
        let batches = self.parts.batches(loader, phase)?;
        let mut trainer = self.parts.trainer(self.model.clone())?;
        let mut outputs = Evaluation::default();
        trainer.evaluate(batches.epoch(phase), |input, forward| {
            outputs.add(&input.seeds, &input.labels, forward);
        })?;
        Ok(outputs.gather(trainer.comm())?)
    }

    /// Evaluates the model on the test split, writes the predictions, `summary.json` and `report.html` to the
    /// run's folder, and returns the summary on rank 0. A collective.
    ///
    /// # Errors
    /// As [`TrainedModel::evaluate`], and those of files.
    pub fn write_report(&self, loader: &NeighborLoader) -> Result<Option<Summary>> {
        let test = self.predict(loader, Pass::Test)?;
        let (title, class_names) = (&loader.data.name, &loader.data.class_names[..]);
        let about = About { title, class_names, elapsed: self.started.elapsed() };
        Ok(self.run.finish(&test, &self.report, &about)?)
    }

    /// The run's folder, on rank 0.
    pub fn folder(&self) -> Option<&Path> {
        self.run.folder().map(RunFolder::path)
    }
}

fn name_of(phase: Pass) -> &'static str {
    match phase {
        Pass::Train { .. } => "training",
        Pass::Validation => "validation",
        Pass::Test => "test",
    }
}
