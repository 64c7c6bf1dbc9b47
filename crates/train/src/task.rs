use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_loader::StageTimes;
use kiln_nn::Ctx;
use kiln_sample::RngKey;

use crate::Counts;

/// What is learned: how a loader's batch becomes tensors, what its loss is, and what counts as right.
/// The trainer is the same for every task.
pub trait Task {
    /// What the loader yields.
    type Batch;
    /// The same on a device.
    type Input;
    /// The model that is trained.
    type Model: Module;

    /// Copies a batch to the device.
    fn upload(&self, batch: Self::Batch, device: &Device) -> DeviceBatch<Self::Input>;

    /// Runs the model and the loss. Only called with at least one item.
    fn forward(&self, model: &Self::Model, input: &Self::Input, ctx: &Ctx) -> Forward;

    /// Compares the outputs with the truth. The loss of `forward` is filled in already: `loss_sum` and
    /// `weight` need no change, `hits` and `total` are 0.
    fn count(&self, input: &Self::Input, outputs: &Tensor<2>, counts: &mut Counts);
}

/// A batch on a device, with what travelled beside it.
#[derive(Debug)]
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
