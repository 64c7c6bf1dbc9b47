mod learn;
pub(crate) mod own_loop;
mod steps;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::ModuleOptimizer;
use burn::tensor::{Device, Tensor};
use kiln_comm::Communicator;
use kiln_kernels::is_cpu;
use kiln_loader::Phase;
use kiln_sample::RngKey;

use crate::error::{Error, Result, TrainerError};
use crate::run::data_hash::DataHash;
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding::embedding_error::EmbeddingError;
use crate::step::generator::{Generator, init_seeded};
use crate::step::memory::{MemoryUse, PeakMemory};
use crate::step::optimizer::{Optimizer, OptimizerConfig};
use crate::step::reports::EpochState;
use crate::step::sync::{GradientSync, HostAllReduce};
use crate::step::task::Task;
use crate::step::task::negatives::{NegativeCounts, RunNegatives};
use crate::step::weights::{load_weights, weights_to_bytes};

/// Trains a task's model together with the trainers of the other ranks. Each rank processes its share of a step's
/// items, gradients are averaged, and the models of all ranks stay bit-identical.
///
/// The trainer has the seed, the device and the number of the epoch. Its model and the loaders of
/// [`TaskTrainer::loader`] are created from them. [`TaskTrainer::epoch`] trains the next epoch.
///
/// Methods marked as collective must be called by every rank, in the same order.
#[derive(Debug)]
pub struct TaskTrainer<T: Task> {
    pub(crate) task: T,
    pub(crate) model: T::Model,
    /// The tables of trainable rows of the task.
    pub(crate) embeddings: Vec<Arc<NodeEmbedding>>,
    pub(crate) optimizer: OptimizerState,
    pub(crate) comm: Box<dyn Communicator>,
    pub(crate) sync: Box<dyn GradientSync<T::Model>>,
    pub(crate) generator: Generator,
    pub(crate) seed: u64,
    pub(crate) accumulate: usize,
    pub(crate) device: Device,
    /// The state of the current epoch; between epochs, of the next epoch.
    pub(crate) epoch: EpochState,
    /// The peak memory of completed epochs and of evaluations.
    pub(crate) peak: PeakMemory,
    /// The number of steps of each epoch; `None` until a loader or the caller states it.
    pub(crate) epoch_steps: Option<usize>,
    pub(crate) read_every: usize,
    pub(crate) stop: Arc<AtomicBool>,
    /// True if a rank was asked to stop in the last step.
    pub(crate) is_stopping: bool,
    /// The hash of the data that the run's first checkpoint waits for.
    pub(crate) awaited: Option<DataHash>,
    /// True if all ranks had that hash in the last step.
    pub(crate) has_awaited: bool,
    /// The negatives of all training steps so far, over all ranks.
    pub(crate) train_negatives: NegativeCounts,
    /// The negatives of the last evaluation.
    pub(crate) eval_negatives: NegativeCounts,
    /// The duration of each batch of this rank in the last evaluation, in their order.
    pub(crate) eval_batch_times: Vec<Duration>,
}

/// The settings of a trainer, besides its task, model and communicator.
#[derive(Debug, Clone)]
pub struct TrainerConfig {
    /// The seed of all random numbers: initial weights, order of the items, samples and dropout masks.
    pub seed: u64,
    /// The device to train on, with or without autodiff.
    pub device: Device,
    /// The update rule.
    pub optimizer: OptimizerConfig,
    /// The number of batches of a rank that form one step, at least 1. Their gradients are averaged before the update.
    /// The batches share the step's key, hence samples and dropout masks, so the result is that of one batch with all
    /// their items, except for rounding, for the statistics of batch normalisation, which are of one batch, and for draws
    /// from Burn's generator, which are seeded for each batch.
    pub accumulate: usize,
}

impl TrainerConfig {
    /// Configures training on the CPU with seed 0 and one batch per step.
    pub fn new(optimizer: OptimizerConfig) -> Self {
        Self { seed: 0, device: Device::flex(), optimizer, accumulate: 1 }
    }
}

/// The number of steps on an asynchronous device after which their losses are read.
const READ_EVERY: usize = 10;

/// Burn's optimizer with its configuration.
pub(crate) struct OptimizerState {
    pub(crate) state: ModuleOptimizer,
    pub(crate) config: OptimizerConfig,
}

impl std::fmt::Debug for OptimizerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Optimizer").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<T: Task> TaskTrainer<T> {
    /// Creates a trainer. `init` creates the model from the random key of the seed, on the device with autodiff. What it
    /// draws from Burn's generator depends on the seed, too. All ranks then get the parameters of rank 0. Collective: every
    /// rank must call it.
    ///
    /// # Errors
    /// Returns [`EmbeddingError::NeedsAdam`] for another optimizer than Adam if the task has embeddings,
    /// [`TrainerError::BadSetting`] for an invalid hyperparameter of the optimizer or 0 batches per step,
    /// [`Error::Model`] if `init` fails, [`TrainerError::ModelDevice`] if the model is not on the device that `init`
    /// received, [`Error::Ranks`] if another rank fails, and [`crate::RunError::Weights`] if the ranks' models have
    /// different shapes.
    pub fn new(
        task: T,
        config: &TrainerConfig,
        mut comm: Box<dyn Communicator>,
        init: impl FnOnce(RngKey, &Device) -> kiln_nn::Result<T::Model>,
    ) -> Result<Self> {
        let &TrainerConfig { seed, ref device, optimizer, accumulate } = config;
        if accumulate == 0 {
            let what = "the number of batches to accumulate in a step";
            let expected = "at least 1";
            return Err(Error::Trainer(TrainerError::BadSetting { what, expected, got: 0.0 }));
        }
        let optimizer = OptimizerState { state: optimizer.init()?, config: optimizer };
        let device = device.clone().inner();
        let key = RngKey::new(seed);
        let mut model = init_seeded(&device, key, || init(key, &device.clone().autodiff()))?;
        check_device(&model, &device)?;
        if 1 < comm.rank_info().world_size {
            let mut bytes = weights_to_bytes(&model)?;
            comm.broadcast(0, &mut bytes)?;
            load_weights(&mut model, bytes)?;
        }
        let embeddings = task.embeddings(&model, key)?;
        if !embeddings.is_empty() && matches!(optimizer.config.kind, Optimizer::Sgd { .. }) {
            return Err(EmbeddingError::NeedsAdam.into());
        }
        let embeddings = embeddings.into_iter().map(Arc::new).collect();
        Ok(Self::of_parts(task, model, embeddings, config, optimizer, comm))
    }

    /// Creates a trainer of a trained model, for evaluation: its embeddings are `embeddings`, which it shares with the
    /// caller. All ranks have the same model and embeddings.
    ///
    /// # Errors
    /// Returns [`TrainerError::BadSetting`] for an invalid hyperparameter of the optimizer, and
    /// [`TrainerError::ModelDevice`] if the model is not on the device.
    pub fn of_trained(
        task: T,
        config: &TrainerConfig,
        comm: Box<dyn Communicator>,
        model: T::Model,
        embeddings: Vec<Arc<NodeEmbedding>>,
    ) -> Result<Self> {
        let optimizer = OptimizerState { state: config.optimizer.init()?, config: config.optimizer };
        check_device(&model, &config.device.clone().inner())?;
        Ok(Self::of_parts(task, model, embeddings, config, optimizer, comm))
    }

    fn of_parts(
        task: T,
        model: T::Model,
        embeddings: Vec<Arc<NodeEmbedding>>,
        config: &TrainerConfig,
        optimizer: OptimizerState,
        comm: Box<dyn Communicator>,
    ) -> Self {
        let &TrainerConfig { seed, ref device, accumulate, .. } = config;
        let device = device.clone().inner();
        let generator = Generator::new(&device, comm.rank_info().rank, task.uses_burn_rng(&model));
        Self {
            task,
            model,
            embeddings,
            optimizer,
            comm,
            sync: Box::new(HostAllReduce::default()),
            generator,
            seed,
            accumulate,
            epoch_steps: None,
            read_every: if is_cpu(&device) { 1 } else { READ_EVERY },
            device,
            epoch: EpochState::start(0),
            peak: PeakMemory::default(),
            stop: Arc::default(),
            is_stopping: false,
            awaited: None,
            has_awaited: false,
            train_negatives: NegativeCounts::default(),
            eval_negatives: NegativeCounts::default(),
            eval_batch_times: Vec::new(),
        }
    }

    /// Reads the losses and outputs of this many steps at a time (at least 1), so that the host waits for the device
    /// less often. With 1, which is the default on the CPU and always used with several ranks, a loss that is not
    /// finite ends the epoch before its step changes the parameters. With more (10 is the default on other devices),
    /// the steps since the last read have already changed them.
    #[must_use]
    pub fn with_read_every(self, n_steps: usize) -> Self {
        Self { read_every: n_steps.max(1), ..self }
    }

    /// Registers a flag that requests a stop. After each step, all ranks know whether the flag of any rank is set
    /// ([`TaskTrainer::is_stopping`]); [`fit`](crate::fit) then writes a checkpoint and returns.
    #[must_use]
    pub fn with_stop(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Replaces the gradient averaging, which by default goes through host memory.
    #[must_use]
    pub fn with_sync(self, sync: impl GradientSync<T::Model> + 'static) -> Self {
        Self { sync: Box::new(sync), ..self }
    }

    /// Sets the number of the next epoch, from 0, for parameters that were already trained.
    /// [`Run::start`](crate::Run::start) does this when it resumes a run.
    #[must_use]
    pub fn with_epoch(self, epoch: usize) -> Self {
        Self { epoch: EpochState::start(epoch), ..self }
    }

    /// Sets the number of steps of each epoch, on which schedules of the learning rate depend, for batches that come
    /// from no loader. [`TaskTrainer::epoch`] and [`fit`](crate::fit) set it to the loader's.
    #[must_use]
    pub fn with_epoch_steps(self, n_steps: usize) -> Self {
        Self { epoch_steps: Some(n_steps), ..self }
    }

    /// Returns the task.
    pub fn task(&self) -> &T {
        &self.task
    }

    /// Returns the model with its current parameters.
    pub fn model(&self) -> &T::Model {
        &self.model
    }

    /// Returns the embeddings of the task with their current rows.
    pub fn embeddings(&self) -> &[Arc<NodeEmbedding>] {
        &self.embeddings
    }

    /// Returns the seed of all random numbers.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the device, without autodiff.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of trained epochs.
    pub fn n_epochs(&self) -> usize {
        self.epoch.epoch
    }

    /// Returns the loader phase of the current epoch; between epochs, of the next epoch.
    pub fn next_phase(&self) -> Phase {
        Phase::Train { epoch: self.epoch.epoch as u64 }
    }

    /// Returns the communicator of this rank.
    pub fn comm(&mut self) -> &mut dyn Communicator {
        &mut *self.comm
    }

    /// Returns true on rank 0, which prints and writes files for all ranks.
    pub fn is_rank_zero(&self) -> bool {
        self.comm.rank_info().rank == 0
    }

    /// Returns true if the flag of [`TaskTrainer::with_stop`] was set on any rank in the last step. All ranks return
    /// the same.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Returns true if `is_true` is true on any rank. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`] if a rank fails.
    pub fn any_rank(&mut self, is_true: bool) -> Result<bool> {
        let all = self.comm.all_gather(&[u8::from(is_true)])?;
        Ok(all.iter().any(|said| *said != [0]))
    }

    /// Returns the text of the first rank that has one. Collective: every rank must call it.
    pub(crate) fn first_text(&mut self, own: Option<String>) -> Result<Option<String>> {
        if self.comm.rank_info().world_size == 1 {
            return Ok(own);
        }
        // The first byte is 1 for a text, which may be empty.
        let own = own.map_or_else(Vec::new, |text| [&[1][..], text.as_bytes()].concat());
        let all = self.comm.all_gather(&own)?;
        let first = all.iter().find(|bytes| !bytes.is_empty());
        Ok(first.map(|bytes| String::from_utf8_lossy(&bytes[1..]).into_owned()))
    }

    /// Returns the negatives of all training steps so far, over all ranks, and of the last evaluation as those of the
    /// validation.
    pub(crate) fn negatives(&self) -> RunNegatives {
        RunNegatives { train: self.train_negatives, val: self.eval_negatives, ..RunNegatives::default() }
    }

    /// Returns the negatives of the last evaluation, over all ranks that evaluated. If rank 0 evaluated alone, the
    /// result of the other ranks is 0.
    pub fn eval_negatives(&self) -> NegativeCounts {
        self.eval_negatives
    }

    /// Returns the peak memory of epochs and evaluations.
    pub fn peak_memory(&self) -> MemoryUse {
        self.peak.get()
    }
}

/// Checks that all parameters are on `device`, with autodiff enabled.
fn check_device<M: Module>(model: &M, device: &Device) -> Result<()> {
    struct Check<'a> {
        device: &'a Device,
        other: Option<Device>,
    }

    impl ModuleVisitor for Check<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let device = param.val().device();
            if !device.is_autodiff() || device.clone().inner() != *self.device {
                self.other = Some(device);
            }
        }
    }

    let mut check = Check { device, other: None };
    model.visit(&mut check);
    match check.other {
        Some(got) => {
            let expected = format!("{device:?}");
            let got = format!("{got:?}");
            Err(Error::Trainer(TrainerError::ModelDevice { expected, got }))
        }
        None => Ok(()),
    }
}
