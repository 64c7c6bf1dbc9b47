use burn::optim::ModuleOptimizer;

use crate::error::{Error, Result};
use crate::step::adam::{Adam, Decay};

/// The kinds of update rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optimizer {
    /// Adam (Kingma and Ba 2015). Weight decay is added to the gradient, as in PyTorch's `Adam`.
    Adam,
    /// AdamW (Loshchilov and Hutter 2019). Weight decay is applied to the weights.
    AdamW,
}

/// A schedule that multiplies the learning rate by a factor after every `every_epochs` epochs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepDecay {
    /// The number of epochs between two multiplications, at least 1.
    pub every_epochs: usize,
    /// The factor of each multiplication, above 0 and at most 1.
    pub factor: f64,
}

/// An update rule and its hyperparameters. Betas are 0.9 and 0.999 and epsilon is 1e-8, PyTorch's defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptimizerConfig {
    /// The kind of update rule.
    pub kind: Optimizer,
    /// The learning rate, before any decay.
    pub learning_rate: f64,
    /// The weight decay; 0 disables it.
    pub weight_decay: f64,
    /// The schedule of the learning rate; `None` keeps it constant.
    pub decay: Option<StepDecay>,
}

impl OptimizerConfig {
    /// Returns Adam, or AdamW if the weight decay is above 0.
    pub fn adam(learning_rate: f64, weight_decay: f64) -> Self {
        let kind = if weight_decay > 0.0 { Optimizer::AdamW } else { Optimizer::Adam };
        Self { kind, learning_rate, weight_decay, decay: None }
    }

    /// Returns the learning rate in this epoch, counted from 0.
    ///
    /// # Panics
    /// Panics if the rate decays every 0 epochs, which [`OptimizerConfig::init`] rejects.
    pub fn learning_rate_in(&self, epoch: usize) -> f64 {
        let Some(StepDecay { every_epochs, factor }) = self.decay else { return self.learning_rate };
        let n_steps = i32::try_from(epoch / every_epochs).unwrap_or(i32::MAX);
        self.learning_rate * factor.powi(n_steps)
    }

    const BETAS: [f32; 2] = [0.9, 0.999];
    const EPSILON: f32 = 1e-8;

    /// Checks the hyperparameters and creates the optimizer.
    ///
    /// # Errors
    /// Returns [`Error::BadSetting`] for a learning rate that is not positive and finite, a weight decay that is
    /// negative or not finite, a decay every 0 epochs, or a decay factor outside of (0, 1].
    pub fn init(&self) -> Result<ModuleOptimizer> {
        let bad = |what, expected, got| Err(Error::BadSetting { what, expected, got });
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return bad("the learning rate", "a positive number", self.learning_rate);
        }
        if !(self.weight_decay.is_finite() && self.weight_decay >= 0.0) {
            return bad("the weight decay", "zero or a positive number", self.weight_decay);
        }
        if let Some(StepDecay { every_epochs, factor }) = self.decay {
            if every_epochs == 0 {
                return bad("the number of epochs between decays of the learning rate", "at least 1", 0.0);
            }
            if !(0.0 < factor && factor <= 1.0) {
                return bad("the learning rate's decay factor", "above 0 and at most 1", factor);
            }
        }
        let decay = self.weight_decay as f32;
        let decay = match self.kind {
            Optimizer::Adam => Decay::OfGradient(decay),
            Optimizer::AdamW => Decay::OfParameters(decay),
        };
        Ok(Adam { betas: Self::BETAS, epsilon: Self::EPSILON, decay }.into())
    }
}

/// A builder of Adam with PyTorch's defaults; with decoupled weight decay it is AdamW.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct AdamConfig(OptimizerConfig);

impl AdamConfig {
    /// Creates Adam with this learning rate, without weight decay.
    pub fn new(learning_rate: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::Adam, learning_rate, weight_decay: 0.0, decay: None })
    }

    /// Sets the weight decay that is added to the gradients, as in PyTorch's `Adam`.
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::Adam, weight_decay, ..self.0 })
    }

    /// Sets the weight decay that shrinks the weights themselves, as in PyTorch's `AdamW`.
    pub fn decoupled_weight_decay(self, weight_decay: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::AdamW, weight_decay, ..self.0 })
    }

    /// Multiplies the learning rate by `factor` after every `every_epochs` epochs, as PyTorch's `StepLR`.
    pub fn step_decay(self, every_epochs: usize, factor: f64) -> Self {
        Self(OptimizerConfig { decay: Some(StepDecay { every_epochs, factor }), ..self.0 })
    }
}

impl From<AdamConfig> for OptimizerConfig {
    fn from(adam: AdamConfig) -> Self {
        adam.0
    }
}
