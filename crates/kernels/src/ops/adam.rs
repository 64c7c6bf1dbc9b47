use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType};

/// A parameter and its moments, as tensors of a backend of equal shapes and element types.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct AdamState<B: Backend> {
    /// The parameter.
    pub(crate) values: FloatTensor<B>,
    /// The decayed mean of the gradients.
    pub(crate) means: FloatTensor<B>,
    /// The decayed mean of the squares of the gradients.
    pub(crate) mean_squares: FloatTensor<B>,
}

/// The hyperparameters of one step of [`adam`](crate::ops::adam()).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// The step's number, from 1.
    pub time: usize,
    /// The step size.
    pub learning_rate: f64,
    /// The decay rates of the mean of the gradients and of the mean of their squares, in `[0, 1)`.
    pub betas: [f32; 2],
    /// The number added to the root of the mean square, above 0.
    pub epsilon: f32,
    /// The decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2): each step multiplies the parameters by
    /// `1 - learning_rate * weight_decay`. 0 disables the decay.
    pub weight_decay: f32,
}

impl AdamStep {
    /// Returns the factor by which weight decay multiplies the parameters before the update.
    pub(crate) fn kept(&self) -> f32 {
        (1.0 - self.learning_rate * f64::from(self.weight_decay)) as f32
    }

    pub(crate) fn rate(&self) -> f32 {
        self.learning_rate as f32
    }

    /// Returns the factor of the mean of the gradients in the update. It corrects the bias of both means (of the
    /// gradients and of their squares), which start at zero.
    pub(crate) fn scale(&self) -> f32 {
        self.root_correction() / self.correction(0)
    }

    pub(crate) fn scaled_epsilon(&self) -> f32 {
        self.epsilon * self.root_correction()
    }

    fn root_correction(&self) -> f32 {
        self.correction(1).sqrt()
    }

    fn correction(&self, moment: usize) -> f32 {
        1.0 - self.betas[moment].powi(i32::try_from(self.time).unwrap_or(i32::MAX))
    }
}
