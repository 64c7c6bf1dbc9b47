pub(crate) mod adam;
pub(crate) mod clip;
pub(crate) mod schedule;
pub(crate) mod sgd;

use std::fmt;

use burn::optim::ModuleOptimizer;

use crate::error::{Error, Result, TrainerError};
use crate::step::optimizer::adam::{Adam, Decay};
use crate::step::optimizer::schedule::{LrDecay, LrSchedule, TrainingPosition};
use crate::step::optimizer::sgd::Sgd;

/// The kinds of update rules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// Adam (Kingma and Ba 2015). Weight decay is added to the gradient, as in PyTorch's `Adam`.
    Adam,
    /// AdamW (Loshchilov and Hutter 2019). Weight decay is applied to the weights.
    AdamW,
    /// Stochastic gradient descent, as PyTorch's `SGD` without dampening. Weight decay is added to the gradient.
    Sgd {
        /// The share of the velocity that a step keeps, at least 0 and below 1; 0 for no momentum.
        momentum: f64,
        /// True for Nesterov momentum (Sutskever, Martens, Dahl and Hinton 2013), which needs a momentum above 0.
        nesterov: bool,
    },
}

/// An update rule and its hyperparameters. Adam's betas are 0.9 and 0.999 and its epsilon is 1e-8, PyTorch's defaults.
#[derive(Clone, Copy, PartialEq)]
pub struct OptimizerConfig {
    /// The kind of update rule.
    pub kind: Optimizer,
    /// The learning rate, before any decay.
    pub learning_rate: f64,
    /// The weight decay; 0 disables it.
    pub weight_decay: f64,
    /// The schedule of the learning rate.
    pub schedule: LrSchedule,
    /// The largest norm of the gradients of all parameters together, averaged over all ranks and batches of a step;
    /// longer gradients are scaled to it. `None` does not clip.
    pub clip_grad_norm: Option<f64>,
}

impl OptimizerConfig {
    /// Returns Adam, or AdamW if the weight decay is above 0.
    pub fn adam(learning_rate: f64, weight_decay: f64) -> Self {
        let kind = if weight_decay > 0.0 { Optimizer::AdamW } else { Optimizer::Adam };
        Self { weight_decay, ..Self::new(kind, learning_rate) }
    }

    /// Returns an update rule without weight decay and with a constant learning rate.
    pub fn new(kind: Optimizer, learning_rate: f64) -> Self {
        let weight_decay = 0.0;
        let schedule = LrSchedule::default();
        Self { kind, learning_rate, weight_decay, schedule, clip_grad_norm: None }
    }

    /// Returns the learning rate of a step; `None` if the schedule depends on the number of steps of an epoch and the
    /// position has none.
    ///
    /// # Panics
    /// Panics if the rate decays every 0 epochs, which [`OptimizerConfig::init`] rejects.
    pub fn learning_rate_at(&self, position: TrainingPosition) -> Option<f64> {
        self.schedule.rate_at(self.learning_rate, position)
    }

    const BETAS: [f32; 2] = [0.9, 0.999];
    const EPSILON: f32 = 1e-8;

    /// Checks the hyperparameters and creates the optimizer.
    ///
    /// # Errors
    /// Returns [`TrainerError::BadSetting`] for a learning rate that is not positive and finite, a weight decay that is
    /// negative or not finite, a norm that is not above 0, a momentum outside of [0, 1), Nesterov momentum of 0, or a
    /// schedule with a length of 0 or a factor that is out of range.
    pub fn init(&self) -> Result<ModuleOptimizer> {
        let bad = |what, expected, got| Err(Error::Trainer(TrainerError::BadSetting { what, expected, got }));
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return bad("the learning rate", "a positive number", self.learning_rate);
        }
        if !(self.weight_decay.is_finite() && self.weight_decay >= 0.0) {
            return bad("the weight decay", "zero or a positive number", self.weight_decay);
        }
        if let Some(max_norm) = self.clip_grad_norm.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
            return bad("the largest norm of the gradients", "a positive number", max_norm);
        }
        self.schedule.check()?;
        let weight_decay = self.weight_decay as f32;
        let decay = match self.kind {
            Optimizer::Adam => Decay::OfGradient(weight_decay),
            Optimizer::AdamW => Decay::OfParameters(weight_decay),
            Optimizer::Sgd { momentum, .. } if !(0.0..1.0).contains(&momentum) => {
                return bad("the momentum", "at least 0 and below 1", momentum);
            }
            Optimizer::Sgd { momentum: 0.0, nesterov: true } => {
                return bad("the momentum", "above 0 for Nesterov momentum", 0.0);
            }
            Optimizer::Sgd { momentum, nesterov } => {
                return Ok(Sgd::new(momentum, nesterov, weight_decay).into());
            }
        };
        Ok(Adam { betas: Self::BETAS, epsilon: Self::EPSILON, decay }.into())
    }
}

impl fmt::Debug for OptimizerConfig {
    /// Formats the settings. The identity of a run contains this text, so the text of settings that earlier versions
    /// have must stay the same: a schedule without warm-up that is constant or in steps is named `decay`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, learning_rate, weight_decay, schedule, clip_grad_norm } = self;
        let mut text = f.debug_struct("OptimizerConfig");
        text.field("kind", kind).field("learning_rate", learning_rate).field("weight_decay", weight_decay);
        match schedule {
            LrSchedule { decay: LrDecay::Constant, warmup: None } => text.field("decay", &None::<()>),
            LrSchedule { decay: LrDecay::Step(decay), warmup: None } => text.field("decay", &Some(decay)),
            schedule => text.field("schedule", schedule),
        };
        if let Some(max_norm) = clip_grad_norm {
            text.field("clip_grad_norm", max_norm);
        }
        text.finish()
    }
}

/// A builder of Adam with PyTorch's defaults; with decoupled weight decay it is AdamW.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct AdamConfig(OptimizerConfig);

impl AdamConfig {
    /// Creates Adam with this learning rate, without weight decay.
    ///
    /// ```
    /// # use kiln_train::{AdamConfig, OptimizerConfig};
    /// let adam: OptimizerConfig = AdamConfig::new(3e-3).into();
    /// assert_eq!((adam.learning_rate, adam.weight_decay), (3e-3, 0.0));
    /// ```
    pub fn new(learning_rate: f64) -> Self {
        Self(OptimizerConfig::new(Optimizer::Adam, learning_rate))
    }

    /// Sets the weight decay that is added to the gradients, as in PyTorch's `Adam`.
    ///
    /// ```
    /// # use kiln_train::AdamConfig;
    /// // As `torch.optim.Adam(parameters, lr=0.01, weight_decay=5e-4)`.
    /// let adam = AdamConfig::new(0.01).weight_decay(5e-4);
    /// ```
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::Adam, weight_decay, ..self.0 })
    }

    /// Sets the weight decay that shrinks the weights themselves, as in PyTorch's `AdamW`.
    ///
    /// ```
    /// # use kiln_train::{AdamConfig, Optimizer, OptimizerConfig};
    /// // As `torch.optim.AdamW(parameters, lr=0.001, weight_decay=0.01)`.
    /// let adam: OptimizerConfig = AdamConfig::new(1e-3).decoupled_weight_decay(0.01).into();
    /// assert_eq!(adam.kind, Optimizer::AdamW);
    /// ```
    pub fn decoupled_weight_decay(self, weight_decay: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::AdamW, weight_decay, ..self.0 })
    }

    /// Multiplies the learning rate by `factor` after every `every_epochs` epochs, as PyTorch's `StepLR`.
    ///
    /// ```
    /// # use kiln_train::AdamConfig;
    /// // The learning rate is 0.01 for 50 epochs, then 0.005 for 50 epochs, and so on.
    /// let adam = AdamConfig::new(0.01).step_decay(50, 0.5);
    /// ```
    pub fn step_decay(self, every_epochs: usize, factor: f64) -> Self {
        self.schedule(LrSchedule::step(every_epochs, factor))
    }

    /// Sets the schedule of the learning rate.
    ///
    /// ```
    /// # use kiln_train::{AdamConfig, LrSchedule, TrainingLength};
    /// // A warm-up of 100 steps, then a cosine that ends at 0 after 20 epochs.
    /// let schedule = LrSchedule::cosine(TrainingLength::Epochs(20)).warmup(TrainingLength::Steps(100));
    /// let adam = AdamConfig::new(1e-3).schedule(schedule);
    /// ```
    pub fn schedule(self, schedule: LrSchedule) -> Self {
        Self(OptimizerConfig { schedule, ..self.0 })
    }

    /// Scales gradients of a larger norm than `max_norm` to this norm, as PyTorch's `clip_grad_norm_`.
    ///
    /// ```
    /// # use kiln_train::AdamConfig;
    /// // The gradients of a batch with an unusual loss have a norm of 1.
    /// let adam = AdamConfig::new(3e-3).clip_grad_norm(1.0);
    /// ```
    pub fn clip_grad_norm(self, max_norm: f64) -> Self {
        Self(OptimizerConfig { clip_grad_norm: Some(max_norm), ..self.0 })
    }
}

impl From<AdamConfig> for OptimizerConfig {
    fn from(adam: AdamConfig) -> Self {
        adam.0
    }
}

/// A builder of stochastic gradient descent with PyTorch's defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct SgdConfig(OptimizerConfig);

impl SgdConfig {
    /// Creates SGD with this learning rate, without momentum and weight decay.
    ///
    /// ```
    /// # use kiln_train::{OptimizerConfig, SgdConfig};
    /// let sgd: OptimizerConfig = SgdConfig::new(0.1).into();
    /// assert_eq!((sgd.learning_rate, sgd.weight_decay), (0.1, 0.0));
    /// ```
    pub fn new(learning_rate: f64) -> Self {
        Self(OptimizerConfig::new(Optimizer::Sgd { momentum: 0.0, nesterov: false }, learning_rate))
    }

    /// Sets the momentum.
    ///
    /// ```
    /// # use kiln_train::SgdConfig;
    /// // As `torch.optim.SGD(parameters, lr=0.1, momentum=0.9)`.
    /// let sgd = SgdConfig::new(0.1).momentum(0.9);
    /// ```
    pub fn momentum(self, momentum: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::Sgd { momentum, nesterov: false }, ..self.0 })
    }

    /// Sets the momentum, and uses it in the way of Nesterov.
    ///
    /// ```
    /// # use kiln_train::SgdConfig;
    /// // As `torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)`.
    /// let sgd = SgdConfig::new(0.1).nesterov_momentum(0.9);
    /// ```
    pub fn nesterov_momentum(self, momentum: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::Sgd { momentum, nesterov: true }, ..self.0 })
    }

    /// Sets the weight decay that is added to the gradients.
    ///
    /// ```
    /// # use kiln_train::SgdConfig;
    /// // As `torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)`.
    /// let sgd = SgdConfig::new(0.1).momentum(0.9).weight_decay(5e-4);
    /// ```
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self(OptimizerConfig { weight_decay, ..self.0 })
    }

    /// Sets the schedule of the learning rate.
    ///
    /// ```
    /// # use kiln_train::{LrSchedule, SgdConfig};
    /// // The learning rate is 0.1 for 30 epochs, then 0.01.
    /// let sgd = SgdConfig::new(0.1).momentum(0.9).schedule(LrSchedule::step(30, 0.1));
    /// ```
    pub fn schedule(self, schedule: LrSchedule) -> Self {
        Self(OptimizerConfig { schedule, ..self.0 })
    }

    /// Scales gradients of a larger norm than `max_norm` to this norm, as PyTorch's `clip_grad_norm_`.
    ///
    /// ```
    /// # use kiln_train::SgdConfig;
    /// // A high learning rate with gradients of a norm of at most 1.
    /// let sgd = SgdConfig::new(0.5).clip_grad_norm(1.0);
    /// ```
    pub fn clip_grad_norm(self, max_norm: f64) -> Self {
        Self(OptimizerConfig { clip_grad_norm: Some(max_norm), ..self.0 })
    }
}

impl From<SgdConfig> for OptimizerConfig {
    fn from(sgd: SgdConfig) -> Self {
        sgd.0
    }
}
