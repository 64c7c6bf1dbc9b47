use burn::module::Module;
use burn::tensor::Tensor;
use kiln_nn::ForwardContext;

use crate::step::metric_sums::MetricSums;
use crate::step::negatives::NegativeCounts;

/// A learning task: defines the loss of a batch and which predictions are correct. The trainer is the same for all
/// tasks.
pub trait Task {
    /// The input of the model for a batch, on the trainer's device.
    type Input;
    /// The model that is trained.
    type Model: Module;
    /// The values that outputs are compared with. They outlive the input, until the outputs are read.
    type Targets: 'static;

    /// Runs the model and computes the loss. It is called with at least one item.
    ///
    /// The input's tensors do not track gradients. In training ([`Mode::Train`](kiln_nn::Mode::Train)), tensors that
    /// are combined with the model's parameters must track them: [`Tensor::autodiff`] returns one that does.
    fn forward(&self, model: &Self::Model, input: &Self::Input, ctx: &ForwardContext) -> StepOutput;

    /// Returns the values that a batch's outputs will be compared with.
    fn targets(&self, input: &Self::Input) -> Self::Targets;

    /// Compares the outputs with the targets, and sets `hits` and `total`, which are 0 before. `loss_sum` and `weight`
    /// are already set from `forward`.
    fn count(targets: &Self::Targets, outputs: &Tensor<2>, counts: &mut MetricSums);

    /// Returns the number of negatives of a batch of links. The default is none, for other tasks.
    fn negatives(_input: &Self::Input) -> NegativeCounts {
        NegativeCounts::default()
    }
}

/// A model's outputs and loss for a batch.
#[derive(Debug)]
pub struct StepOutput {
    /// One row of outputs per item, `[n_items, width]`.
    pub outputs: Tensor<2>,
    /// The sum of the items' losses, `[1]`.
    pub loss_sum: Tensor<1>,
    /// The sum of the items' weights in the loss. The mean loss is `loss_sum / weight`.
    pub weight: f64,
}
