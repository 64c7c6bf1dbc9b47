use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::ModuleOptimizer;
use burn::tensor::{Device, Tensor};
use kiln_comm::Communicator;
use kiln_kernels::is_cpu;
use kiln_loader::Phase;
use kiln_sample::RngKey;

use crate::error::{Error, Result};
use crate::step::memory::{MemoryUse, PeakMemory};
use crate::step::optimizer::OptimizerConfig;
use crate::step::reports::EpochState;
use crate::step::sync::{GradientSync, HostAllReduce};
use crate::step::task::Task;
use crate::step::weights::{load_weights, weights_to_bytes};

/// Trains a task's model, together with the trainers of the other ranks: each takes its share of a step's
/// items, gradients are averaged, and all models stay the same to the bit.
///
/// It has the seed, the device and the number of the epoch, and hands them down: its model is made with them, and so
/// are the loaders that [`TaskTrainer::loader`] returns. [`TaskTrainer::epoch`] trains the next epoch.
///
/// Methods that say so are meetings: every rank calls them, in the same order.
#[derive(Debug)]
pub struct TaskTrainer<T: Task> {
    pub(crate) task: T,
    pub(crate) model: T::Model,
    pub(crate) optimizer: OptimizerState,
    pub(crate) comm: Box<dyn Communicator>,
    pub(crate) sync: Box<dyn GradientSync<T::Model>>,
    pub(crate) seed: u64,
    pub(crate) device: Device,
    /// The epoch that is next or under way.
    pub(crate) epoch: EpochState,
    /// Of whole epochs and of evaluation.
    pub(crate) peak: PeakMemory,
    pub(crate) read_every: usize,
    pub(crate) stop: Arc<AtomicBool>,
    /// Whether some rank was asked to stop in the last step.
    pub(crate) is_stopping: bool,
}

/// What a trainer is made with, besides its task, its model and its ranks.
#[derive(Debug, Clone)]
pub struct TrainerConfig {
    /// The seed of all that is random: the initial weights, the order of the items, the samples and the masks of dropout.
    pub seed: u64,
    /// The device that computes, with or without autodiff.
    pub device: Device,
    /// The update rule.
    pub optimizer: OptimizerConfig,
}

impl TrainerConfig {
    /// Training on the processor from seed 0.
    pub fn new(optimizer: OptimizerConfig) -> Self {
        Self { seed: 0, device: Device::flex(), optimizer }
    }
}

/// Steps of a device after which their losses are read.
const READ_EVERY: usize = 10;

/// Burn's optimizer with its numbers.
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
    /// A trainer of the model that `init` makes from the key of the seed on the device with autodiff. A meeting, in
    /// which every rank gets the first one's parameters.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for an optimizer's number that no run can use, [`Error::Model`] where `init` fails,
    /// [`Error::ModelDevice`] for a model that is not on the device that `init` was given, [`Error::Ranks`], and
    /// [`Error::Weights`] where another rank's model has another shape.
    pub fn new(
        task: T,
        config: &TrainerConfig,
        mut comm: Box<dyn Communicator>,
        init: impl FnOnce(RngKey, &Device) -> kiln_nn::Result<T::Model>,
    ) -> Result<Self> {
        let &TrainerConfig { seed, ref device, optimizer } = config;
        let optimizer = OptimizerState { state: optimizer.init()?, config: optimizer };
        let device = device.clone().inner();
        let mut model = init(RngKey::new(seed), &device.clone().autodiff())?;
        check_device(&model, &device)?;
        if 1 < comm.rank_info().world_size {
            let mut bytes = weights_to_bytes(&model)?;
            comm.broadcast(0, &mut bytes)?;
            load_weights(&mut model, bytes)?;
        }
        Ok(Self {
            task,
            model,
            optimizer,
            comm,
            sync: Box::new(HostAllReduce::default()),
            seed,
            read_every: if is_cpu(&device) { 1 } else { READ_EVERY },
            device,
            epoch: EpochState::start(0),
            peak: PeakMemory::default(),
            stop: Arc::default(),
            is_stopping: false,
        })
    }

    /// The same, which reads losses and outputs of so many steps at a time, at least 1: the host waits for the device
    /// only then. At 1, which is so on the processor and with several ranks, a loss that is not finite ends the epoch before
    /// its step has changed anything; otherwise (10 by default) the steps since the last time have.
    #[must_use]
    pub fn with_read_every(self, n_steps: usize) -> Self {
        Self { read_every: n_steps.max(1), ..self }
    }

    /// The same, whose ranks all know after a step whether the flag of any of them is up
    /// ([`TaskTrainer::is_stopping`]): [`fit`](crate::fit) then writes a checkpoint and ends.
    #[must_use]
    pub fn with_stop(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// The same, with gradients averaged in another way than through host memory.
    #[must_use]
    pub fn with_sync(self, sync: impl GradientSync<T::Model> + 'static) -> Self {
        Self { sync: Box::new(sync), ..self }
    }

    /// The same, whose next epoch has this number, from 0: for parameters that were trained before. A run that resumes
    /// ([`Run::start`](crate::Run::start)) does so itself.
    #[must_use]
    pub fn with_epoch(self, epoch: usize) -> Self {
        Self { epoch: EpochState::start(epoch), ..self }
    }

    /// The model as it is now.
    pub fn model(&self) -> &T::Model {
        &self.model
    }

    /// The seed of all that is random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The device that computes, without autodiff.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of epochs that are trained.
    pub fn n_epochs(&self) -> usize {
        self.epoch.epoch
    }

    /// The phase of a loader's pass over the items of the epoch that is next or under way.
    pub fn next_phase(&self) -> Phase {
        Phase::Train { epoch: self.epoch.epoch as u64 }
    }

    /// The communicator of this rank.
    pub fn comm(&mut self) -> &mut dyn Communicator {
        &mut *self.comm
    }

    /// Returns whether this is rank 0, which prints and writes files for all.
    pub fn is_rank_zero(&self) -> bool {
        self.comm.rank_info().rank == 0
    }

    /// Whether the flag of [`TaskTrainer::with_stop`] was up on some rank in the last step; the same on all.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// The most memory seen in epochs and in evaluation.
    pub fn peak_memory(&self) -> MemoryUse {
        self.peak.get()
    }
}

/// Checks that all parameters are on a device, with autodiff.
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
            let (expected, got) = (format!("{device:?}"), format!("{got:?}"));
            Err(Error::ModelDevice { expected, got })
        }
        None => Ok(()),
    }
}
