use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_loader::StageTimes;
use kiln_nn::Ctx;
use kiln_sample::RngKey;

use crate::step::counts::Counts;

/// What is learned: how a loader's batch becomes tensors, what its loss is, and what counts as right.
/// The trainer is the same for every task.
pub trait Task {
    /// What the loader yields.
    type Batch;
    /// The same on a device.
    type Input;
    /// The model that is trained.
    type Model: Module;
    /// What outputs are compared with. It outlives the input, until the outputs are read.
    type Truth: 'static;

    /// Copies a batch to the device.
    fn upload(&self, batch: Self::Batch, device: &Device) -> DeviceBatch<Self::Input>;

    /// Runs the model and the loss. Only called with at least one item.
    fn forward(&self, model: &Self::Model, input: &Self::Input, ctx: &Ctx) -> Forward;

    /// What a batch's outputs will be compared with.
    fn truth(&self, input: &Self::Input) -> Self::Truth;

    /// Compares the outputs with the truth. The loss of `forward` is filled in already: `loss_sum` and
    /// `weight` need no change, `hits` and `total` are 0.
    fn count(truth: &Self::Truth, outputs: &Tensor<2>, counts: &mut Counts);
}

/// A batch on a device, with what travelled beside it.
#[derive(Debug, Clone)]
pub struct DeviceBatch<I> {
    /// The step's key, for dropout.
    pub key: RngKey,
    /// Number of items; a rank may get none in a step.
    pub n_items: usize,
    /// How long the loader's stages took.
    pub times: StageTimes,
    /// What the model reads.
    pub input: I,
}

impl<I: DeviceInput> DeviceBatch<I> {
    /// Bytes that it holds on the device.
    pub fn n_bytes(&self) -> usize {
        self.input.n_bytes()
    }
}

/// What a model reads of a batch.
pub trait DeviceInput {
    /// The same with features that gradients are tracked of.
    fn tracked(self) -> Self;

    /// Bytes that it holds on the device.
    fn n_bytes(&self) -> usize;
}

/// A loader's batch, wherever it was made.
pub trait Upload {
    /// The same on a device.
    type Input;

    /// Brings it to a device. Its features track gradients where the device does.
    fn upload(self, device: &Device) -> DeviceBatch<Self::Input>;
}

/// A batch that is on its device already, as [`ToDevice`](crate::ToDevice) and
/// [`DeviceNodeFetch`](crate::DeviceNodeFetch) give them.
impl<I: DeviceInput> Upload for DeviceBatch<I> {
    type Input = I;

    fn upload(self, device: &Device) -> Self {
        if device.is_autodiff() { Self { input: self.input.tracked(), ..self } } else { self }
    }
}

/// What a model and its loss make of a batch.
#[derive(Debug)]
pub struct Forward {
    /// One row of outputs an item, `[n_items, width]`.
    pub outputs: Tensor<2>,
    /// Sum of the items' losses, `[1]`.
    pub loss_sum: Tensor<1>,
    /// Sum of the items' weights in the loss. The mean loss is the sum over this.
    pub weight: f64,
}
