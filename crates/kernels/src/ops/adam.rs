/// The numbers of one step of [`adam`](crate::ops::adam()).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// The step's number, from 1.
    pub time: usize,
    /// Step size.
    pub learning_rate: f64,
    /// By how much of their value the two means are kept from step to step.
    pub betas: [f32; 2],
    /// What is added to the root of the mean square, above 0.
    pub epsilon: f32,
    /// By how much of themselves times the learning rate the parameters shrink (Loshchilov and Hutter 2019,
    /// algorithm 2); 0 for none.
    pub weight_decay: f32,
}

impl AdamStep {
    /// What parameters are multiplied by before they move.
    pub(crate) fn kept(&self) -> f32 {
        (1.0 - self.learning_rate * f64::from(self.weight_decay)) as f32
    }

    pub(crate) fn rate(&self) -> f32 {
        self.learning_rate as f32
    }

    /// What the means are multiplied by: both starts at zero are corrected here.
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
