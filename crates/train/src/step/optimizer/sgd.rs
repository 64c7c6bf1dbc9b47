use burn::optim::momentum::MomentumConfig;
use burn::optim::{LearningRate, Optimizer, RecordState, SgdState, StateSink, StateSource};
use burn::tensor::{Device, Tensor};

/// Burn's stochastic gradient descent, whose stored state can be loaded on machines without Burn's default device.
#[derive(Clone)]
pub(crate) struct Sgd(burn::optim::Sgd);

impl Sgd {
    /// Creates PyTorch's `SGD`: the velocity is `momentum * velocity + gradient`, without dampening.
    pub(crate) fn new(momentum: f64, nesterov: bool, weight_decay: f32) -> Self {
        let momentum = (0.0 < momentum).then_some(MomentumConfig { momentum, dampening: 0.0, nesterov });
        let penalty = burn::optim::decay::WeightDecayConfig { penalty: weight_decay };
        let weight_decay = (weight_decay != 0.0).then_some(penalty);
        let config = burn::optim::SgdConfig::new().with_momentum(momentum).with_weight_decay(weight_decay);
        Self(config.build())
    }
}

/// The state of [`Sgd`] for one parameter, in the format of Burn's.
#[derive(Clone)]
pub(crate) struct Velocity<const D: usize>(SgdState<D>);

impl<const D: usize> RecordState for Velocity<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        self.0.state_flatten(prefix, out);
    }

    /// Loads the state on the CPU, like that of [`Adam`](crate::step::optimizer::adam::Adam); the next step moves it to the
    /// parameter's device.
    fn state_unflatten(prefix: &str, source: &mut StateSource, _default: &Device) -> Option<Self> {
        SgdState::state_unflatten(prefix, source, &Device::flex()).map(Self)
    }
}

impl Optimizer for Sgd {
    type State<const D: usize> = Velocity<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        values: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Velocity<D>>,
    ) -> (Tensor<D>, Option<Velocity<D>>) {
        let (values, state) =
            self.0.step(learning_rate, values, gradient, state.map(|Velocity(state)| state));
        (values, state.map(Velocity))
    }

    fn to_device<const D: usize>(Velocity(state): Velocity<D>, device: &Device) -> Velocity<D> {
        Velocity(burn::optim::Sgd::to_device(state, device))
    }
}
