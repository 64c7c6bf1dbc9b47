pub(crate) mod classification;
pub(crate) mod custom_loss;
pub(crate) mod custom_loss_error;
pub(crate) mod graph;
pub(crate) mod link;
pub(crate) mod metric_sums;
pub(crate) mod negatives;
pub(crate) mod node;
pub(crate) mod objective;
pub(crate) mod target_scale;
pub(crate) mod task_objective;

use burn::module::Module;
use burn::tensor::Tensor;
use kiln_graph::NodeId;
use kiln_nn::ForwardContext;
use kiln_sample::RngKey;

use crate::error::Result;
use crate::step::embedding::NodeEmbedding;
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::negatives::NegativeCounts;

/// A learning task: defines the loss of a batch and which predictions are correct. The trainer is the same for all
/// tasks. A new task implements [`Task::forward`], [`Task::targets`] and [`Task::count`]; the other methods have defaults. A
/// new loss needs no new task: [`Objective::custom`](crate::Objective::custom).
pub trait Task {
    /// The input of the model for a batch, on the trainer's device.
    type Input;
    /// The model that is trained.
    type Model: Module;
    /// The values that outputs are compared with. They outlive the input, until the outputs are read.
    type Targets: 'static;

    /// Returns the tables of trainable rows that the task reads besides the model, with initial rows drawn from the key. The
    /// default is none.
    ///
    /// # Errors
    /// Returns an error if the model does not suit the data, or if a table is too large.
    fn embeddings(&self, _model: &Self::Model, _key: RngKey) -> Result<Vec<NodeEmbedding>> {
        Ok(Vec::new())
    }

    /// Returns the nodes whose rows a batch reads, a list for each table of [`Task::embeddings`]. A node occurs once in a
    /// list. The default is none.
    fn embedded_nodes(_input: &Self::Input) -> &[Vec<NodeId>] {
        &[]
    }

    /// Returns true if a forward pass of the model, on any batch, may draw from Burn's generator of random numbers, which the
    /// trainer then seeds. A trainer asks once, when it is created. The default is true.
    fn uses_burn_rng(&self, _model: &Self::Model) -> bool {
        true
    }

    /// Runs the model and computes the loss. It is called with at least one item. `embedded` has the rows of
    /// [`Task::embedded_nodes`], a tensor `[n, dim]` for each table, which track gradients in training.
    ///
    /// The input's tensors do not track gradients. In training ([`Mode::Train`](kiln_nn::Mode::Train)), tensors that
    /// are combined with the model's parameters must track them: [`Tensor::autodiff`] returns one that does.
    fn forward(
        &self,
        model: &Self::Model,
        input: &Self::Input,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> StepOutput;

    /// Returns the values that a batch's outputs will be compared with.
    fn targets(&self, input: &Self::Input) -> Self::Targets;

    /// Compares the outputs with the targets, and sets `hits` and `total`, which are 0 before. `loss_sum` and `weight`
    /// are already set from `forward`.
    fn count(targets: &Self::Targets, outputs: &Tensor<2>, counts: &mut MetricSums);

    /// Computes the metric sums of a batch of an evaluation without the items whose outputs are not finite, whose number is
    /// [`MetricSums::n_not_finite`]. Returns `None` if all are finite. The default is `None`, with which a loss that is not
    /// finite ends the evaluation.
    fn count_finite(&self, _input: &Self::Input, _outputs: &Tensor<2>) -> Option<MetricSums> {
        None
    }

    /// Returns the name of a loss of one's own, which the summary of a run has. The default is none.
    fn loss_name(&self) -> Option<&str> {
        None
    }

    /// Returns the number of negatives of a batch of links. The default is none, for other tasks.
    fn negatives(_input: &Self::Input) -> NegativeCounts {
        NegativeCounts::default()
    }
}

/// A model's outputs and loss for a batch.
#[derive(Debug)]
pub struct StepOutput {
    /// One row of outputs per item, `[n_items, width]`. Those of a regression are in the units of the targets in
    /// evaluations, and on the scale of the loss ([`TargetScale`](crate::TargetScale)) in training.
    pub outputs: Tensor<2>,
    /// The sum of the items' losses, `[1]`.
    pub loss_sum: Tensor<1>,
    /// The sum of the items' weights in the loss. The mean loss is `loss_sum / weight`.
    pub weight: f64,
}
