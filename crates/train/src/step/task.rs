use burn::module::Module;
use burn::tensor::Tensor;
use kiln_nn::ForwardContext;

use crate::step::metric_sums::MetricSums;

/// What is learned: what the loss of a batch is, and what counts as right. The trainer is the same for every task.
pub trait Task {
    /// What the model reads of a batch, on the trainer's device.
    type Input;
    /// The model that is trained.
    type Model: Module;
    /// What outputs are compared with. It outlives the input, until the outputs are read.
    type Targets: 'static;

    /// Runs the model and the loss. Only called with at least one item.
    ///
    /// Tensors of the input do not track gradients. Where the model is trained ([`Mode::Train`](kiln_nn::Mode::Train)),
    /// those that meet its parameters must: [`Tensor::autodiff`] returns one that does.
    fn forward(&self, model: &Self::Model, input: &Self::Input, ctx: &ForwardContext) -> StepOutput;

    /// Returns what a batch's outputs will be compared with.
    fn targets(&self, input: &Self::Input) -> Self::Targets;

    /// Compares the outputs with the truth. The loss of `forward` is filled in already: `loss_sum` and
    /// `weight` need no change, `hits` and `total` are 0.
    fn count(targets: &Self::Targets, outputs: &Tensor<2>, counts: &mut MetricSums);
}

/// The output of a model and its loss for a batch.
#[derive(Debug)]
pub struct StepOutput {
    /// One row of outputs an item, `[n_items, width]`.
    pub outputs: Tensor<2>,
    /// Sum of the items' losses, `[1]`.
    pub loss_sum: Tensor<1>,
    /// Sum of the items' weights in the loss. The mean loss is the sum over this.
    pub weight: f64,
}
