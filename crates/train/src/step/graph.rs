use std::marker::PhantomData;

use burn::tensor::{Device, Tensor};
use kiln_graph::GraphId;
use kiln_kernels::{DeviceGraphs, upload_features};
use kiln_loader::GraphBatch;
use kiln_nn::{ForwardContext, GraphModel};

use crate::step::batch::{DeviceBatch, ToDevice, tracked};
use crate::step::classification;
use crate::step::metric_sums::MetricSums;
use crate::step::task::{StepOutput, Task};

/// Graph classification by cross entropy. Every graph has the same weight, regardless of its size.
#[derive(Debug, Clone, Copy, Default)]
pub struct GraphClassification<M> {
    model: PhantomData<fn() -> M>,
}

impl<M> GraphClassification<M> {
    /// Creates the task for models of type `M`.
    pub fn new() -> Self {
        Self { model: PhantomData }
    }
}

/// The input of a graph classifier.
#[derive(Debug, Clone)]
pub struct GraphInput {
    /// The graphs of the batch, as one graph.
    pub graphs: DeviceGraphs,
    /// The features of the nodes, `[n_nodes, dim]`.
    pub x: Tensor<2>,
    /// The ids of the graphs.
    pub items: Vec<GraphId>,
    /// The class of each graph.
    pub labels: Vec<i32>,
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
        };
        let n_bytes = input.graphs.n_bytes() + 4 * input.x.shape().num_elements();
        let (n_items, device) = (input.labels.len(), device.clone().inner());
        DeviceBatch { key: self.key, n_items, n_bytes, times: self.times, device, input }
    }
}

impl<M: GraphModel> Task for GraphClassification<M> {
    type Input = GraphInput;
    type Model = M;
    type Targets = Vec<i32>;

    fn forward(&self, model: &M, input: &GraphInput, ctx: &ForwardContext) -> StepOutput {
        let outputs = model.forward(&input.graphs, tracked(&input.x, ctx), ctx);
        classification::cross_entropy(outputs, &input.labels)
    }

    fn targets(&self, input: &GraphInput) -> Vec<i32> {
        input.labels.clone()
    }

    fn count(labels: &Vec<i32>, outputs: &Tensor<2>, counts: &mut MetricSums) {
        classification::count(outputs, labels, counts);
    }
}
