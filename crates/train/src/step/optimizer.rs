use burn::optim::ModuleOptimizer;

use crate::error::{Error, Result};
use crate::step::adam::{Adam, Decay};

/// Which update rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optimizer {
    /// Adam (Kingma and Ba 2015); weight decay is added to the gradient, as in PyTorch's `Adam`.
    Adam,
    /// AdamW (Loshchilov and Hutter 2019); weight decay is applied to the weights.
    AdamW,
}

/// A learning rate that falls in steps: after every so many epochs it is multiplied by a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepDecay {
    /// Epochs from one step to the next, at least 1.
    pub every_epochs: usize,
    /// What the rate is then multiplied by, above 0 and at most 1.
    pub factor: f64,
}

/// An update rule with its numbers; betas are 0.9 and 0.999 and epsilon is 1e-8, PyTorch's defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptimizerConfig {
    /// Which update rule.
    pub kind: Optimizer,
    /// Step size, at the start where it decays.
    pub learning_rate: f64,
    /// Weight decay; 0 for none.
    pub weight_decay: f64,
    /// How the learning rate falls; `None` where it stays.
    pub decay: Option<StepDecay>,
}

impl OptimizerConfig {
    /// Adam, or AdamW where the weights decay.
    pub fn adam(learning_rate: f64, weight_decay: f64) -> Self {
        let kind = if weight_decay > 0.0 { Optimizer::AdamW } else { Optimizer::Adam };
        Self { kind, learning_rate, weight_decay, decay: None }
    }

    /// The learning rate in this epoch, counted from 0.
    ///
    /// # Panics
    /// When the rate decays every 0 epochs, which [`OptimizerConfig::init`] refuses.
    pub fn learning_rate_in(&self, epoch: usize) -> f64 {
        let Some(StepDecay { every_epochs, factor }) = self.decay else { return self.learning_rate };
        let n_steps = i32::try_from(epoch / every_epochs).unwrap_or(i32::MAX);
        self.learning_rate * factor.powi(n_steps)
    }

    const BETAS: [f32; 2] = [0.9, 0.999];
    const EPSILON: f32 = 1e-8;

    /// Checks the numbers and makes the optimizer, which Burn's machinery runs.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for a learning rate that is not positive or a weight decay that is negative,
    /// or either not finite, and for a learning rate that decays every 0 epochs or does not fall.
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
                return bad("the learning rate's decay", "a step every 1 or more epochs", 0.0);
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

/// Adam with the defaults of PyTorch; with decoupled weight decay it is AdamW.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct AdamConfig(OptimizerConfig);

impl AdamConfig {
    /// Adam with this learning rate, without weight decay.
    pub fn new(learning_rate: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::Adam, learning_rate, weight_decay: 0.0, decay: None })
    }

    /// Adds a multiple of the weights to their gradients, as PyTorch's `Adam` does.
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::Adam, weight_decay, ..self.0 })
    }

    /// Shrinks the weights themselves, as PyTorch's `AdamW` does.
    pub fn decoupled_weight_decay(self, weight_decay: f64) -> Self {
        Self(OptimizerConfig { kind: Optimizer::AdamW, weight_decay, ..self.0 })
    }

    /// Multiplies the learning rate by a factor after every so many epochs, as PyTorch's `StepLR` does.
    pub fn step_decay(self, every_epochs: usize, factor: f64) -> Self {
        Self(OptimizerConfig { decay: Some(StepDecay { every_epochs, factor }), ..self.0 })
    }
}

impl From<AdamConfig> for OptimizerConfig {
    fn from(adam: AdamConfig) -> Self {
        adam.0
    }
}
