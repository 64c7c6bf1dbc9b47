use std::path::Path;
use std::time::Instant;

use burn::tensor::Device;
use kiln_data::Dataset;
use kiln_kernels::Devices;
use kiln_loader::Phase;
use kiln_nn::{LayerWiseModel, ModelConfig};
use kiln_sample::{EdgeWeights, RngKey};
use kiln_train::{
    Best, Evaluation, Evaluator, FitReport, MetricSums, NodeClassification, OptimizerConfig, Outcome,
    ReportInfo, Run, RunConfig, RunDir, RunFolder, RunIdentity, Summary, TrainerConfig,
};

use crate::fit::EpochLines;
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
        self.check(loader)?;
        let FitConfig { schedule, dir, stop, callback, is_quiet } = config;
        let identity = self.identity(loader)?;
        let parts = Parts { config: self.config(), rank: self.rank.clone() };
        let trainer = parts.trainer(|key, device| self.model.init(key, device))?.with_stop(stop);
        let (train, val) =
            (loader.build(trainer.next_phase(), &trainer)?, loader.build(Phase::Validation, &trainer)?);
        let name = loader.data.name.clone();
        let run = RunConfig {
            dir: dir.unwrap_or_else(|| RunDir::Numbered { parent: "runs".into(), name: name.clone() }),
            fit: schedule,
            settings: identity.settings.clone(),
            identity,
            title: name,
            class_names: loader.data.class_names.clone(),
            started,
        };
        let lines = (self.rank.is_zero() && !is_quiet).then_some(EpochLines { n_epochs: schedule.n_epochs });
        let (mut callbacks, evaluator) = ((lines, callback), Evaluator::Sampled);
        let outcome = run.fit(
            trainer,
            &train,
            &val,
            |trainer, val, phase| evaluator.count(trainer, val, phase),
            &mut callbacks,
        )?;
        match outcome {
            Outcome::Interrupted(run) => {
                let folder = run.folder().map(|folder| folder.path().to_owned()).unwrap_or_default();
                Err(Error::Interrupted { n_epochs: run.n_epochs(), folder })
            }
            Outcome::Trained(trained) => {
                let (model, report) = (trained.model().clone(), *trained.report());
                let run = trained.into_run();
                let best = run.best()?.clone();
                Ok(TrainedModel { model, best, report, run, parts, started })
            }
        }
    }

    fn check(&self, loader: &NeighborLoader) -> Result<()> {
        let (n_fanouts, n_layers) = (loader.sampling.fanouts.len(), self.model.n_layers());
        if n_fanouts != n_layers {
            return Err(Error::FanoutsMismatch { n_fanouts, n_layers });
        }
        match self.model.needs_edge_weights() && loader.sampling.weights == EdgeWeights::None {
            true => Err(Error::NoEdgeWeights),
            false => Ok(()),
        }
    }

    fn config(&self) -> TrainerConfig {
        let of_rank = |devices: &Devices| devices.of_rank(self.rank.local_index()).device.clone();
        let device = self.devices.as_ref().map_or_else(Device::flex, of_rank);
        TrainerConfig { seed: self.seed, device, optimizer: self.optimizer }
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

/// What makes a trainer of the parts below, for training and again for evaluation.
#[derive(Debug)]
struct Parts {
    config: TrainerConfig,
    rank: RankHandle,
}

impl Parts {
    fn trainer<M: LayerWiseModel + Sync>(
        &self,
        init: impl FnOnce(RngKey, &Device) -> kiln_nn::Result<M>,
    ) -> Result<kiln_train::Trainer<NodeClassification<M>>> {
        let comm = self.rank.communicator("trainer")?;
        Ok(kiln_train::Trainer::new(NodeClassification::new(), &self.config, comm, init)?)
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

impl<M: LayerWiseModel + Sync> TrainedModel<M> {
    /// Loss and accuracy on a split with sampled neighbourhoods, over all ranks and the same on each. A collective.
    ///
    /// # Errors
    /// An empty split, and the errors of sampling.
    pub fn evaluate(&self, loader: &NeighborLoader, phase: Phase) -> Result<MetricSums> {
        let mut trainer = self.parts.trainer(|_, _| Ok(self.model.clone()))?;
        let batches = loader.build(phase, &trainer)?;
        let counts = Evaluator::Sampled.count(&mut trainer, &batches, phase)?;
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
    pub fn predict(&self, loader: &NeighborLoader, phase: Phase) -> Result<Evaluation> {
        let mut trainer = self.parts.trainer(|_, _| Ok(self.model.clone()))?;
        let batches = loader.build(phase, &trainer)?;
        let outputs = Evaluator::Sampled.evaluate(&mut trainer, &batches, phase)?;
        Ok(outputs.gather(trainer.comm())?)
    }

    /// Evaluates the model on the test split, writes the predictions, `summary.json` and, with the feature `report`,
    /// `report.html` to the run's folder, and returns the summary on rank 0. A collective.
    ///
    /// # Errors
    /// As [`TrainedModel::evaluate`], and those of files.
    pub fn write_report(&self, loader: &NeighborLoader) -> Result<Option<Summary>> {
        let test = self.predict(loader, Phase::Test)?;
        let (title, class_names) = (&loader.data.name, &loader.data.class_names[..]);
        let info = ReportInfo { title, class_names, elapsed: self.started.elapsed() };
        Ok(self.run.finish(&test, &self.report, &info)?)
    }

    /// The run's folder, on rank 0.
    pub fn folder(&self) -> Option<&Path> {
        self.run.folder().map(RunFolder::path)
    }
}

fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Train { .. } => "training",
        Phase::Validation => "validation",
        Phase::Test => "test",
    }
}
