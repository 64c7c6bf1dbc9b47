use std::marker::PhantomData;

use burn::tensor::{Device, Tensor};
use kiln_graph::GraphId;
use kiln_kernels::{DeviceGraphs, ops, upload_features};
use kiln_loader::GraphBatch;
use kiln_nn::{ForwardContext, GraphModel};

use crate::step::batch::{DeviceBatch, ToDevice, tracked};
use crate::step::task::custom_loss::LossTargets;
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::objective::BatchTargets;
use crate::step::task::task_objective::TaskObjective;
use crate::step::task::{StepOutput, Task};

/// A task on whole graphs: classification, several labels per graph, or regression.
#[derive(Debug, Clone)]
pub struct GraphTask<M> {
    objective: TaskObjective,
    model: PhantomData<fn() -> M>,
}

/// Graph classification by cross entropy, a [`GraphTask`] with the default objective. Every graph has the same weight,
/// regardless of its size.
pub type GraphClassification<M> = GraphTask<M>;

impl<M> GraphTask<M> {
    /// Creates the task of graph classification for models of type `M`.
    pub fn new() -> Self {
        Self::with_objective(TaskObjective::default())
    }

    /// Creates a task with this objective.
    pub fn with_objective(objective: impl Into<TaskObjective>) -> Self {
        Self { objective: objective.into(), model: PhantomData }
    }

    /// Returns the objective.
    pub fn objective(&self) -> &TaskObjective {
        &self.objective
    }
}

impl<M> Default for GraphTask<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// The input of a model of a task on graphs.
#[derive(Debug, Clone)]
pub struct GraphInput {
    /// The graphs of the batch, as one graph.
    pub graphs: DeviceGraphs,
    /// The features of the nodes, `[n_nodes, dim]`: f32, or on the CPU in the element type of the store.
    pub x: Tensor<2>,
    /// The ids of the graphs.
    pub items: Vec<GraphId>,
    /// The class of each graph. Empty for target values.
    pub labels: Vec<i32>,
    /// The target values of each graph, `[n_graphs, n_columns]`, NaN if missing. Empty for class labels.
    pub target_values: Vec<f32>,
}

impl GraphInput {
    /// Runs a model on the batch, and returns its outputs, `[n_graphs, n_outputs]`: for a [`Task`](crate::Task) of one's own.
    pub fn outputs<M: GraphModel>(&self, model: &M, ctx: &ForwardContext) -> Tensor<2> {
        model.forward(&self.graphs, ops::widen(tracked(&self.x, ctx)), ctx)
    }

    /// Returns the targets of the batch with these outputs, for a loss of one's own ([`TaskTrainer::gradients`](crate::TaskTrainer::gradients)).
    pub fn loss_targets(&self, outputs: &Tensor<2>) -> LossTargets<'_> {
        LossTargets::new(outputs, &self.labels, &self.target_values)
    }
}

impl ToDevice for GraphBatch {
    type Input = GraphInput;

    fn to_device(self, device: &Device) -> DeviceBatch<GraphInput> {
        let x = upload_features(self.x, self.x_dim, device);
        assert_eq!(x.dims()[0], self.block.n_src(), "the batch should have a feature row per node");
        let input = GraphInput {
            graphs: DeviceGraphs::new(self.block, &self.node_offsets, &self.graphs, device),
            x,
            items: self.graphs,
            labels: self.labels,
            target_values: self.target_values,
        };
        let n_bytes = input.graphs.n_bytes() + input.x.dtype().size() * input.x.shape().num_elements();
        let n_items = input.items.len();
        let device = device.clone().inner();
        DeviceBatch { key: self.key, n_items, n_bytes, times: self.times, device, input }
    }
}

impl<M: GraphModel> Task for GraphTask<M> {
    type Input = GraphInput;
    type Model = M;
    type Targets = BatchTargets;

    fn uses_burn_rng(&self, model: &M) -> bool {
        model.uses_burn_rng()
    }

    fn forward(&self, model: &M, input: &GraphInput, _: &[Tensor<2>], ctx: &ForwardContext) -> StepOutput {
        let outputs = input.outputs(model, ctx);
        self.objective.forward(outputs, &input.labels, &input.target_values, ctx.mode)
    }

    fn targets(&self, input: &GraphInput) -> BatchTargets {
        self.objective.targets(&input.labels, &input.target_values, input.items.len())
    }

    fn count(targets: &BatchTargets, outputs: &Tensor<2>, counts: &mut MetricSums) {
        targets.count(outputs, counts);
    }

    fn loss_name(&self) -> Option<&str> {
        self.objective.loss_name()
    }

    fn count_finite(&self, input: &GraphInput, outputs: &Tensor<2>) -> Option<MetricSums> {
        self.objective.count_finite(outputs, &input.labels, &input.target_values)
    }
}
