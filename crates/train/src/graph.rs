use std::marker::PhantomData;

use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::NodeId;
use kiln_kernels::DeviceGraphs;
use kiln_loader::GraphBatch;
use kiln_nn::{Ctx, GraphModel};

use crate::{Counts, DeviceBatch, Forward, Task, classification};

/// Graph classification: cross entropy of the graphs' classes, each graph weighing the same, whatever its
/// size.
#[derive(Debug, Clone, Copy, Default)]
pub struct GraphClassification<M> {
    model: PhantomData<fn() -> M>,
}

impl<M> GraphClassification<M> {
    /// The task for models of type `M`.
    pub fn new() -> Self {
        Self { model: PhantomData }
    }
}

/// What a graph classifier reads.
#[derive(Debug)]
pub struct GraphInput {
    /// The graphs, as one.
    pub graphs: DeviceGraphs,
    /// Features of the nodes, `[n_nodes, dim]`.
    pub x: Tensor<2>,
    /// Each graph's position in its set.
    pub items: Vec<NodeId>,
    /// Class of each graph.
    pub labels: Vec<i32>,
}

impl<M: GraphModel> Task for GraphClassification<M> {
    type Batch = GraphBatch;
    type Input = GraphInput;
    type Model = M;

    fn upload(&self, batch: GraphBatch, device: &Device) -> DeviceBatch<GraphInput> {
        let n_nodes = batch.block.n_src();
        let x = TensorData::new(batch.x.into_f32(), [n_nodes, batch.x_dim]);
        let input = GraphInput {
            graphs: DeviceGraphs::new(batch.block, &batch.node_offsets, &batch.graphs, device),
            x: Tensor::from_data(x, device),
            items: batch.graphs,
            labels: batch.labels,
        };
        DeviceBatch { key: batch.key, n_items: input.labels.len(), times: batch.times, input }
    }

    fn forward(&self, model: &M, input: &GraphInput, ctx: &Ctx) -> Forward {
        let outputs = model.forward(&input.graphs, input.x.clone(), ctx);
        classification::cross_entropy(outputs, &input.labels)
    }

    fn count(&self, input: &GraphInput, outputs: &Tensor<2>, counts: &mut Counts) {
        classification::count(outputs, &input.labels, counts);
    }
}
