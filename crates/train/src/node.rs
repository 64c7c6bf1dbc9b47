use std::marker::PhantomData;

use burn::tensor::{Device, Int, Tensor, TensorData};
use kiln_graph::NodeId;
use kiln_kernels::DeviceBlock;
use kiln_loader::MiniBatch;
use kiln_nn::{BlockModel, Ctx};

use crate::{Counts, DeviceBatch, Forward, Task, classification};

/// Node classification: cross entropy of the seeds' classes, each seed weighing the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeClassification<M> {
    model: PhantomData<fn() -> M>,
}

impl<M> NodeClassification<M> {
    /// The task for models of type `M`.
    pub fn new() -> Self {
        Self { model: PhantomData }
    }
}

/// What a node classifier reads.
#[derive(Debug)]
pub struct NodeInput {
    /// One block a layer, input layer first.
    pub blocks: Vec<DeviceBlock>,
    /// Features of the input nodes, `[n_src, dim]`.
    pub x: Tensor<2>,
    /// The seeds, as given.
    pub seeds: Vec<NodeId>,
    /// Row of the model's output for each seed.
    pub seed_rows: Vec<usize>,
    /// Class of each seed.
    pub labels: Vec<i32>,
}

impl NodeInput {
    /// Whether the outputs stand in the seeds' order already: no seed stands twice.
    fn rows_are_seeds(&self) -> bool {
        self.seed_rows.iter().enumerate().all(|(seed, &row)| seed == row)
    }
}

impl<M: BlockModel> Task for NodeClassification<M> {
    type Batch = MiniBatch;
    type Input = NodeInput;
    type Model = M;

    fn upload(&self, batch: MiniBatch, device: &Device) -> DeviceBatch<NodeInput> {
        let n_inputs = batch.blocks.first().map_or(batch.seeds.len(), |block| block.n_src());
        let x = TensorData::new(batch.x.into_f32(), [n_inputs, batch.x_dim]);
        let input = NodeInput {
            blocks: batch.blocks.into_iter().map(|block| DeviceBlock::new(block, device)).collect(),
            x: Tensor::from_data(x, device),
            seeds: batch.seeds.as_nodes().to_vec(),
            seed_rows: batch.seed_rows.iter().map(|row| row.index()).collect(),
            labels: batch.labels,
        };
        DeviceBatch { key: batch.key, n_items: batch.seeds.len(), times: batch.times, input }
    }

    fn forward(&self, model: &M, input: &NodeInput, ctx: &Ctx) -> Forward {
        let mut outputs = model.forward(&input.blocks, input.x.clone(), ctx);
        if !input.rows_are_seeds() {
            let rows: Vec<i32> = input.seed_rows.iter().map(|&row| row as i32).collect();
            let rows = TensorData::new(rows, [input.seed_rows.len()]);
            outputs = outputs.select(0, Tensor::<1, Int>::from_data(rows, &input.x.device()));
        }
        classification::cross_entropy(outputs, &input.labels)
    }

    fn count(&self, input: &NodeInput, outputs: &Tensor<2>, counts: &mut Counts) {
        classification::count(outputs, &input.labels, counts);
    }
}
