use burn::optim::{
    AdamState, AdaptiveMomentumState, LearningRate, Optimizer, RecordState, StateSink, StateSource,
};
use burn::tensor::{Device, Tensor};
use kiln_kernels::ops::{self, AdamStep};

/// Adam and AdamW, with fewer passes over the parameters than Burn's implementations. The state has the format of
/// Burn's Adam, so Burn's records can store it.
#[derive(Debug, Clone)]
pub(crate) struct Adam {
    pub(crate) betas: [f32; 2],
    pub(crate) epsilon: f32,
    pub(crate) decay: Decay,
}

/// The kind and the rate of weight decay.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decay {
    /// L2 regularisation: adds this multiple of the parameters to the gradients.
    OfGradient(f32),
    /// Decoupled weight decay: shrinks the parameters at this rate.
    OfParameters(f32),
}

/// The state of [`Adam`] for one parameter, in the format of Burn's Adam.
#[derive(Clone)]
pub(crate) struct State<const D: usize>(AdaptiveMomentumState<D>);

impl<const D: usize> RecordState for State<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        AdamState::new(self.0.clone()).state_flatten(prefix, out);
    }

    /// Loads the state on the CPU; the next step moves it to the parameter's device. Burn passes its default device,
    /// which is the first GPU in builds with CUDA and fails on machines without a GPU.
    fn state_unflatten(prefix: &str, source: &mut StateSource, _default: &Device) -> Option<Self> {
        AdamState::state_unflatten(prefix, source, &Device::flex()).map(|state| Self(state.momentum))
    }
}

impl Optimizer for Adam {
    type State<const D: usize> = State<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        values: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<State<D>>,
    ) -> (Tensor<D>, Option<State<D>>) {
        let (gradient, weight_decay) = match self.decay {
            Decay::OfGradient(0.0) => (gradient, 0.0),
            Decay::OfGradient(penalty) => (values.clone().mul_scalar(penalty).add(gradient), 0.0),
            Decay::OfParameters(rate) => (gradient, rate),
        };
        let AdaptiveMomentumState { time, moment_1, moment_2, .. } = match state {
            Some(State(momentum)) => momentum,
            None => AdaptiveMomentumState::new(0, values.zeros_like(), values.zeros_like()),
        };
        let time = time + 1;
        let step = AdamStep { time, learning_rate, betas: self.betas, epsilon: self.epsilon, weight_decay };
        let (values, [moment_1, moment_2]) = ops::adam(values, gradient, [moment_1, moment_2], step);
        (values, Some(State(AdaptiveMomentumState::new(time, moment_1, moment_2))))
    }

    fn to_device<const D: usize>(State(momentum): State<D>, device: &Device) -> State<D> {
        State(momentum.to_device(device))
    }
}
