mod fit;
mod identity;
mod phase_loaders;
mod trained;

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::Device;
use kiln_feature::TargetScaler;
use kiln_kernels::Devices;
use kiln_loader::{Loader, Phase};
use kiln_mem::PageFaults;
use kiln_nn::ModelConfig;
use kiln_sample::RngKey;
#[cfg(feature = "nccl")]
use kiln_train::CudaDevices;
use kiln_train::{
    Evaluator, InitialWeights, LogCallback, Metric, ModelInfo, OptimizerConfig, Outcome, RunConfig, RunDir,
    Task, TrainCallback, TrainerConfig, Validation,
};

use self::fit::EpochLines;
pub use self::fit::FitConfig;
pub use self::phase_loaders::PhaseLoaders;
pub use self::trained::TrainedModel;
use crate::{BatchRequirements, DataLoader, Error, RankHandle, Result};

/// Trains models. It owns the seed, the device and the rank of a run, and passes them to the loader and the model. The
/// loader of a whole graph takes no rank, because with a forgotten one every rank would train on all nodes.
///
/// With several ranks, the methods of this type and of [`TrainedModel`] that are marked as collective must be called by
/// every rank, in the same order.
#[derive(Debug)]
pub struct Trainer<C> {
    model: C,
    optimizer: OptimizerConfig,
    seed: u64,
    accumulate: usize,
    devices: Option<Devices>,
    rank: RankHandle,
    /// The run or the file with the initial weights; `None` for those of the seed.
    init_from: Option<PathBuf>,
}

impl<C: ModelConfig> Trainer<C> {
    /// Returns a trainer on the CPU, on one rank, with seed 0.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// let config = SageConfig::for_data(&data).layers(2).hidden(64);
    /// let trainer = Trainer::new(config, AdamConfig::new(3e-3));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(model: C, optimizer: impl Into<OptimizerConfig>) -> Self {
        let (optimizer, rank) = (optimizer.into(), RankHandle::single());
        Self { model, optimizer, seed: 0, accumulate: 1, devices: None, rank, init_from: None }
    }

    /// Sets the seed of initial weights, dropout, node order and sampling.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Ten models with other initial weights and samples.
    /// let trainers = (0..10).map(|seed| Trainer::new(SageConfig::for_data(&data), AdamConfig::new(3e-3)).seed(seed));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Averages the gradients of `n_batches` batches before each update. The samples, the dropout masks and, except for
    /// rounding, the weights are those of batches that are `n_batches` times as large, but a device holds only one
    /// batch with its activations at a time.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Each update is that of a batch of 4,096 nodes, with the memory of 512.
    /// let loader = NeighborLoader::new(&data, [10, 10]).batch_size(512);
    /// let trainer = Trainer::new(SageConfig::for_data(&data), AdamConfig::new(3e-3)).accumulate(8);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn accumulate(self, n_batches: usize) -> Self {
        Self { accumulate: n_batches, ..self }
    }

    /// Sets the device, or several devices separated by commas, which the ranks of a machine use in turn: `cpu`, or
    /// with the feature of that name `cuda`, `wgpu` or `cube-cpu`. `cuda` is all GPUs, `cuda:1` is the second GPU.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let name = "cpu";
    /// // For example "cuda:1", as the value of a flag.
    /// let trainer = Trainer::new(SageConfig::for_data(&data), AdamConfig::new(3e-3)).device(name)?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Device`] if a device does not exist or is not supported by this build.
    pub fn device(self, names: &str) -> Result<Self> {
        Ok(Self { devices: Some(Devices::open(names)?), ..self })
    }

    /// Sets the device, or several devices, like [`Trainer::device`], but from devices that are already open.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Two ranks share the devices, which are opened once.
    /// let devices: Devices = "cpu".parse()?;
    /// launch(RankConfig::threads(2), |rank| {
    ///     let trainer = Trainer::new(SageConfig::for_data(&data), AdamConfig::new(3e-3));
    ///     let trainer = trainer.devices(devices.clone()).rank(&rank);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn devices(self, devices: Devices) -> Self {
        Self { devices: Some(devices), ..self }
    }

    /// Uses the device of `rank`, but trains alone: for programs whose ranks train independent models.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Each rank trains a model of its own, with another seed, on its device.
    /// let devices: Devices = "cpu".parse()?;
    /// launch(RankConfig::threads(2), |rank| {
    ///     let trainer = Trainer::new(SageConfig::for_data(&data), AdamConfig::new(3e-3));
    ///     let trainer = trainer.device_of(&rank, &devices).seed(rank.index() as u64);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn device_of(self, rank: &RankHandle, devices: &Devices) -> Self {
        self.devices(devices.only(rank.local_index()))
    }

    /// Sets the rank, which trains one model together with the other ranks.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(data: Dataset, loader: NeighborLoader) -> Result<()> {
    /// launch(RankConfig::from_env_or_threads(2), |rank| {
    ///     let mut trainer = Trainer::new(SageConfig::for_data(&data), AdamConfig::new(3e-3)).rank(&rank);
    ///     trainer.fit(&loader, FitConfig::epochs(10)).map(drop)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rank(self, rank: &RankHandle) -> Self {
        Self { rank: rank.clone(), ..self }
    }

    /// Starts from the weights of a run, or of a safetensors file with the weights of a model
    /// ([`weights_to_bytes`](kiln_train::weights_to_bytes)), instead of those of the seed: to continue with other settings or data, or to
    /// fine-tune a model. Rank 0 reads them.
    ///
    /// The model must have the same layers. If it has another number of outputs than that of the run, such as classes, the tensors
    /// whose size depends on that number start anew, and a note names them. Trainable rows of nodes are found by the names of the
    /// nodes. The learning rate, the moments of the optimizer and the epochs start anew, too. The settings of the run have the hash of the weights, so
    /// that the run resumes with the same weights only.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(data: Dataset, loader: NeighborLoader) -> Result<()> {
    /// // The same layers as those of the run; the number of classes may differ.
    /// let config = SageConfig::for_data(&data).layers(2).hidden(64);
    /// let mut trainer = Trainer::new(config, AdamConfig::new(1e-4)).init_from("runs/pretrained");
    /// let best = trainer.fit(&loader, FitConfig::epochs(5))?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn init_from(self, weights: impl Into<PathBuf>) -> Self {
        Self { init_from: Some(weights.into()), ..self }
    }

    /// Trains a model from its initial weights, evaluates it on the validation split after each epoch, and returns the
    /// model of the best epoch. Without items for validation, it returns the model of the last epoch. Collective: every
    /// rank must call it.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("run");
    /// let loader = NeighborLoader::new(&data, [2, 2]).batch_size(16);
    /// let mut trainer = Trainer::new(SageConfig::for_data(&data).layers(2).hidden(8), AdamConfig::new(1e-2));
    /// let best = trainer.fit(&loader, FitConfig::epochs(2).out(out))?;
    /// println!("epoch {} was the best one: {:.4}", best.best.epoch, best.best.val.accuracy());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if settings are inconsistent or the training split is empty, [`SelectionError`] if the metric
    /// cannot rank models on the validation split, or if there is a patience and no validation split,
    /// [`InitialWeightsError`](kiln_train::InitialWeightsError) if the initial weights do not fit the model,
    /// [`Error::Interrupted`] if the run was stopped, and the errors of sampling, training and files. All except the last
    /// two kinds are found before the first step.
    ///
    /// [`SelectionError`]: kiln_train::SelectionError
    pub fn fit<L: DataLoader<C::Model>>(
        &mut self,
        loader: &L,
        config: FitConfig,
    ) -> Result<TrainedModel<C::Model>> {
        let called = Instant::now();
        let page_faults = PageFaults::start();
        loader.check(&BatchRequirements::of(&self.model))?;
        let FitConfig { schedule, metric, dir, stop, callback, is_quiet, .. } = config;
        let FitConfig { settings, description, title, started, .. } = config;
        let metric = metric.unwrap_or(Metric::default_of(loader.target_kind()));
        metric.check(loader.target_kind())?;
        let scaler = loader.target_scaler()?;
        let initial = self.initial_weights()?;
        let identity = self.identity(loader, metric, schedule.patience, initial.as_ref())?;
        self.agree(loader, &identity)?;
        let (name, class_names) = loader.names();
        // Without a known hash, the run sets it when it writes the file.
        let data_hash = identity.data_hash.known().unwrap_or_default();
        let model = self.model_info(loader, data_hash, scaler.as_ref())?;
        let (title, started) = (title.unwrap_or_else(|| name.to_owned()), started.unwrap_or(called));
        let run = RunConfig {
            dir: dir.unwrap_or_else(|| RunDir::Numbered { parent: "runs".into(), name: name.to_owned() }),
            fit: schedule,
            settings: settings.unwrap_or_else(|| identity.settings.clone()),
            description,
            identity,
            metric: Some(metric),
            model,
            title: title.clone(),
            class_names: class_names.to_vec(),
            notes: self.notes(loader)?,
            started,
        };
        let known_folder = run.dir.path().map(Path::to_owned);
        let parts = self.parts();
        let evaluator = loader.evaluator(&self.rank)?;
        check_metric(loader, &evaluator, metric)?;
        let trainer = parts.trainer(loader, scaler.as_ref(), |key, device| self.model.init(key, device))?;
        let mut trainer = parts.with_nccl(trainer)?.with_stop(stop);
        let notes = self.load_initial(loader, &mut trainer, initial)?;
        let train = loader.loader(trainer.next_phase(), &trainer, &evaluator)?;
        let val = loader.loader(Phase::Validation, &trainer, &evaluator)?;
        let lines = (self.rank.is_zero() && !is_quiet).then_some(EpochLines::new(schedule.n_epochs));
        let mut callbacks = (lines, callback);
        let mut reports = (self.rank.is_zero().then_some(LogCallback), &mut callbacks);
        if self.rank.is_zero() && scaler.is_some() {
            reports.note(
                "losses are those of standardised targets (--target-scale); metrics and predictions are in the units of the \
                 targets",
            );
        }
        notes.iter().filter(|_| self.rank.is_zero()).for_each(|note| reports.note(note));
        // One batch shows whether there are any.
        let test = loader.split_targets(Phase::Test, 1)?;
        if self.rank.is_zero() && test.is_some_and(|test| test.n_items() == 0) {
            reports.warning("the test split has no items: the report will have no test metrics");
        }
        let has_validation = !val.items().items().is_empty();
        let wants_outputs = trainer.any_rank(callbacks.wants_outputs())?;
        let validate =
            |trainer: &mut kiln_train::TaskTrainer<L::Task>, val: &Loader<L::Batcher>, phase| match (
                has_validation,
                wants_outputs,
            ) {
                (true, true) => L::validate_with_outputs(&evaluator, trainer, val, phase, metric),
                (true, false) => Ok(L::validate(&evaluator, trainer, val, phase, metric)?.into()),
                (false, _) => Ok(Validation::without_items(metric).into()),
            };
        match run.fit(trainer, &train, &val, validate, &mut callbacks)? {
            Outcome::Interrupted(run) => {
                // Only rank 0 knows the number of a numbered folder.
                let folder = run.folder().map(|folder| folder.path().to_owned()).or(known_folder);
                Err(Error::Interrupted { n_epochs: run.n_epochs(), n_steps: run.n_steps(), folder })
            }
            Outcome::Trained(trained) => {
                if let Some(note) = page_faults.note().filter(|_| self.rank.is_zero()) {
                    tracing::info!(name: "page-faults", target: "kiln::allocator", "{note}");
                }
                let (model, report) = (trained.model().clone(), *trained.report());
                let embeddings = trained.embeddings().to_vec();
                let run = trained.into_run();
                let best = run.best()?.clone();
                let requirements = BatchRequirements::of(&self.model);
                Ok(TrainedModel {
                    model,
                    embeddings,
                    target_scaler: scaler,
                    best,
                    report,
                    run,
                    parts,
                    requirements,
                    title,
                    started,
                })
            }
        }
    }

    /// Trains a model from its initial weights without a run folder. Returns one curve for each of `phases`. A curve
    /// contains the accuracy on the split of its phase after each epoch. Collective: every rank must call it.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// let loader = NeighborLoader::new(&data, [2, 2]).batch_size(16);
    /// let trainer = Trainer::new(SageConfig::for_data(&data).layers(2).hidden(8), AdamConfig::new(1e-2));
    /// let curves = trainer.learning_curves(&loader, 3, &[Phase::Train { epoch: 0 }, Phase::Test])?;
    /// println!("test accuracy after each epoch: {:?}", curves[1]);
    /// # assert_eq!(curves[1].len(), 3);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if settings are inconsistent or a split is empty, and the errors of sampling and training.
    pub fn learning_curves<L: DataLoader<C::Model>>(
        &self,
        loader: &L,
        n_epochs: usize,
        phases: &[Phase],
    ) -> Result<Vec<Vec<f64>>> {
        Metric::Accuracy.check(loader.target_kind())?;
        let (mut trainer, evaluator) = (self.start(loader)?, loader.evaluator(&self.rank)?);
        let train = loader.loader(trainer.next_phase(), &trainer, &evaluator)?;
        let phases = phases.iter().map(|&phase| Ok((phase, loader.loader(phase, &trainer, &evaluator)?)));
        let phases = phases.collect::<Result<Vec<_>>>()?;
        if n_epochs == 0 {
            let (what, expected) = ("the number of epochs", "at least 1");
            return Err(kiln_train::Error::Trainer(kiln_train::TrainerError::BadSetting {
                what,
                expected,
                got: 0.0,
            })
            .into());
        }
        if let Some((phase, _)) = phases.iter().find(|(_, batches)| batches.items().items().is_empty()) {
            return Err(kiln_train::Error::Input(kiln_train::InputError::EmptySplit {
                split: phase.split_name(),
            })
            .into());
        }
        if train.n_steps(trainer.next_phase()) == 0 {
            let per_step = train.items().config().items_per_step(trainer.next_phase());
            return Err(kiln_train::Error::Input(kiln_train::InputError::NoStep {
                n_items: train.items().items().len(),
                per_step,
            })
            .into());
        }
        let mut curves = vec![Vec::with_capacity(n_epochs); phases.len()];
        for _ in 0..n_epochs {
            trainer.epoch(&train, |_| ())?;
            for ((phase, batches), curve) in phases.iter().zip(&mut curves) {
                let counts = L::count(&evaluator, &mut trainer, batches, *phase)?.complete()?;
                curve.push(counts.accuracy());
            }
        }
        Ok(curves)
    }

    /// Returns the trainer of a model with initial weights, for programs with a custom training loop. The batches are those of
    /// [`Trainer::loaders`]. Collective: every rank must call it.
    ///
    /// ```
    /// use kiln::burn::tensor::activation::log_softmax;
    /// use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// let loader = NeighborLoader::new(&data, [2, 2]).batch_size(16);
    /// let setup = Trainer::new(SageConfig::for_data(&data).layers(2).hidden(8), AdamConfig::new(1e-2));
    /// let mut trainer = setup.start(&loader)?;
    /// let loaders = setup.loaders(&loader, &trainer)?;
    /// for epoch in 1..=3 {
    ///     for batch in loaders.train.epoch(trainer.next_phase()) {
    ///         let gradients = trainer.gradients(&batch?, |outputs, input| {
    ///             // The cross entropy of each node.
    ///             let classes = input.loss_targets(&outputs).classes().unsqueeze_dim(1);
    ///             log_softmax(outputs, 1).gather(1, classes).neg().squeeze_dim::<1>(1)
    ///         })?;
    ///         trainer.update(gradients)?;
    ///     }
    ///     let train = trainer.end_epoch()?;
    ///     let val = loaders.evaluate(&mut trainer, Phase::Validation)?;
    ///     println!("epoch {epoch}: loss {:.4}, validation accuracy {:.4}", train.counts.loss(), val.accuracy());
    /// }
    /// let weights = kiln::train::weights_to_bytes(trainer.model())?; // a safetensors file
    /// # assert!(!weights.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or another rank fails.
    pub fn start<L: DataLoader<C::Model>>(&self, loader: &L) -> Result<kiln_train::TaskTrainer<L::Task>> {
        loader.check(&BatchRequirements::of(&self.model))?;
        let parts = self.parts();
        let scaler = loader.target_scaler()?;
        let trainer = parts.trainer(loader, scaler.as_ref(), |key, device| self.model.init(key, device))?;
        let mut trainer = parts.with_nccl(trainer)?;
        for note in self.load_initial(loader, &mut trainer, self.initial_weights()?)? {
            if self.rank.is_zero() {
                tracing::info!(name: "initial-weights", target: "kiln::trainer", "{note}");
            }
        }
        Ok(trainer)
    }

    /// Reads the initial weights on rank 0 and sends them to the other ranks; `None` for those of the seed. Collective.
    fn initial_weights(&self) -> Result<Option<InitialWeights>> {
        let Some(path) = &self.init_from else { return Ok(None) };
        let own = if self.rank.is_zero() { Some(InitialWeights::read(path)?) } else { None };
        let mut comm = self.rank.communicator("initial weights")?;
        Ok(Some(InitialWeights::broadcast(own, &mut *comm)?))
    }

    /// Loads the initial weights into a trainer, and returns notes for the user.
    fn load_initial<L: DataLoader<C::Model>>(
        &self,
        loader: &L,
        trainer: &mut kiln_train::TaskTrainer<L::Task>,
        weights: Option<InitialWeights>,
    ) -> Result<Vec<String>> {
        let Some(weights) = weights else { return Ok(Vec::new()) };
        let inputs = loader.model_inputs(self.seed, self.rank.world_size());
        let n_outputs = inputs.map(|(inputs, _)| inputs.n_outputs);
        Ok(trainer.init_from(&weights, n_outputs)?)
    }

    /// Returns the batches of each phase for a trainer of [`Trainer::start`], which evaluate its model, too. Collective: every rank must
    /// call it.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// let loader = NeighborLoader::new(&data, [2, 2]).batch_size(16);
    /// let setup = Trainer::new(SageConfig::for_data(&data).layers(2).hidden(8), AdamConfig::new(1e-2));
    /// let mut trainer = setup.start(&loader)?;
    /// let loaders = setup.loaders(&loader, &trainer)?;
    /// // An epoch by the objective of the loader.
    /// let report = trainer.epoch(&loaders.train, |step| println!("step {}: {:.4}", step.step, step.counts.loss()))?;
    /// assert_eq!(report.n_steps, 4);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if settings are inconsistent or data cannot be copied to the device.
    pub fn loaders<L: DataLoader<C::Model>>(
        &self,
        loader: &L,
        trainer: &kiln_train::TaskTrainer<L::Task>,
    ) -> Result<PhaseLoaders<C::Model, L>> {
        PhaseLoaders::new(loader, trainer, &self.rank)
    }

    /// Returns the notes and the baselines of the data, which rank 0 prints.
    fn notes<L: DataLoader<C::Model>>(&self, loader: &L) -> Result<Vec<String>> {
        if !self.rank.is_zero() {
            return Ok(Vec::new());
        }
        let mut notes = loader.notes();
        notes.extend(loader.baselines(self.seed)?);
        Ok(notes)
    }

    /// Returns the content of `model.json`, or `None` if the loader cannot describe its data.
    fn model_info<L: DataLoader<C::Model>>(
        &self,
        loader: &L,
        data_hash: &str,
        scaler: Option<&TargetScaler>,
    ) -> Result<Option<ModelInfo>> {
        let Some((mut inputs, evaluation)) = loader.model_inputs(self.seed, self.rank.world_size()) else {
            return Ok(None);
        };
        inputs.target_scaler = scaler.cloned();
        let device = &self.config().device;
        Ok(Some(ModelInfo::new(&self.model, device, data_hash, inputs, evaluation)?))
    }

    fn parts(&self) -> Parts {
        Parts { config: self.config(), rank: self.rank.clone(), devices: self.devices.clone() }
    }

    fn config(&self) -> TrainerConfig {
        let of_rank = |devices: &Devices| devices.of_rank(self.rank.local_index()).device.clone();
        let device = self.devices.as_ref().map_or_else(Device::flex, of_rank);
        let (optimizer, accumulate) = (self.optimizer, self.accumulate);
        TrainerConfig { seed: self.seed, device, optimizer, accumulate }
    }
}

/// Checks that the metric can rank models on the items of the validation that the evaluator reads, if there are any.
fn check_metric<M: Module, L: DataLoader<M>>(
    loader: &L,
    evaluator: &Evaluator,
    metric: Metric,
) -> Result<()> {
    let n_batches = match evaluator {
        Evaluator::FirstRank { n_batches } => *n_batches,
        Evaluator::Sampled | Evaluator::Exact(_) => usize::MAX,
    };
    if n_batches == 0 {
        let (what, expected) = ("the number of batches of an evaluation", "at least 1");
        return Err(kiln_train::Error::Trainer(kiln_train::TrainerError::BadSetting {
            what,
            expected,
            got: 0.0,
        })
        .into());
    }
    let targets = loader.split_targets(Phase::Validation, n_batches)?;
    match targets.filter(|targets| targets.n_items() != 0) {
        Some(targets) => Ok(targets.check(metric)?),
        None => Ok(()),
    }
}

/// The components from which the trainers for training and for evaluation are built.
#[derive(Debug)]
struct Parts {
    config: TrainerConfig,
    rank: RankHandle,
    #[cfg_attr(not(feature = "nccl"), allow(dead_code, reason = "NCCL needs the numbers of CUDA devices"))]
    devices: Option<Devices>,
}

impl Parts {
    fn trainer<M: Module + Sync, L: DataLoader<M>>(
        &self,
        loader: &L,
        scaler: Option<&TargetScaler>,
        init: impl FnOnce(RngKey, &Device) -> kiln_nn::Result<M>,
    ) -> Result<kiln_train::TaskTrainer<L::Task>> {
        let comm = self.rank.communicator("trainer")?;
        Ok(kiln_train::TaskTrainer::new(loader.task(scaler), &self.config, comm, init)?)
    }

    #[cfg(feature = "nccl")]
    fn with_nccl<T: Task>(&self, trainer: kiln_train::TaskTrainer<T>) -> Result<kiln_train::TaskTrainer<T>> {
        let process = &self.rank.process;
        let Some(nccl) = process.nccl.as_ref().filter(|_| 1 < self.rank.world_size()) else {
            return Ok(trainer);
        };
        let index = |local_rank| self.devices.as_ref()?.cuda_index(local_rank);
        let of_threads: Option<Vec<usize>> = (0..self.rank.world_size()).map(index).collect();
        let devices = match process.is_one_rank {
            true => CudaDevices::OfProcess(index(self.rank.local_index())),
            false => CudaDevices::OfThreads(of_threads.as_deref()),
        };
        let (trainer, reason) = nccl.join(trainer, devices)?;
        if let Some(reason) = reason {
            tracing::info!(name: "nccl-unused", target: "kiln::trainer", "{reason}");
        }
        Ok(trainer)
    }

    #[cfg(not(feature = "nccl"))]
    fn with_nccl<T: Task>(&self, trainer: kiln_train::TaskTrainer<T>) -> Result<kiln_train::TaskTrainer<T>> {
        Ok(trainer)
    }
}
