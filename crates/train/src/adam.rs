use burn::optim::{AdamState, AdaptiveMomentumState, LearningRate, Optimizer};
use burn::tensor::{Device, Tensor};
use kiln_kernels::ops::{self, AdamStep};

/// Burn's Adam and AdamW in fewer passes over the parameters; its state is theirs, so that the same records hold
/// it.
#[derive(Debug, Clone)]
pub(crate) struct Adam {
    pub(crate) betas: [f32; 2],
    pub(crate) epsilon: f32,
    pub(crate) decay: Decay,
}

/// What pulls parameters towards zero.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decay {
    /// A multiple of the parameters, added to the gradients.
    OfGradient(f32),
    /// The parameters themselves shrink.
    OfParameters(f32),
}

impl Optimizer for Adam {
    type State<const D: usize> = AdamState<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        values: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<AdamState<D>>,
    ) -> (Tensor<D>, Option<AdamState<D>>) {
        let (gradient, weight_decay) = match self.decay {
            Decay::OfGradient(0.0) => (gradient, 0.0),
            Decay::OfGradient(penalty) => (values.clone().mul_scalar(penalty).add(gradient), 0.0),
            Decay::OfParameters(rate) => (gradient, rate),
        };
        let AdaptiveMomentumState { time, moment_1, moment_2, .. } = match state {
            Some(state) => state.momentum,
            None => AdaptiveMomentumState::new(0, values.zeros_like(), values.zeros_like()),
        };
        let time = time + 1;
        let step = AdamStep { time, learning_rate, betas: self.betas, epsilon: self.epsilon, weight_decay };
        let (values, [moment_1, moment_2]) = ops::adam(values, gradient, [moment_1, moment_2], step);
        (values, Some(AdamState::new(AdaptiveMomentumState::new(time, moment_1, moment_2))))
    }

    fn to_device<const D: usize>(state: AdamState<D>, device: &Device) -> AdamState<D> {
        AdamState::new(state.momentum.to_device(device))
    }
}
