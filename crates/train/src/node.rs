use std::marker::PhantomData;

use burn::tensor::{Device, Int, Tensor, TensorData};
use kiln_graph::NodeId;
use kiln_kernels::DeviceBlock;
use kiln_loader::MiniBatch;
use kiln_nn::{BlockModel, Ctx};

use crate::{Counts, DeviceBatch, DeviceMiniBatch, Forward, Task, classification};

/// Node classification: cross entropy of the seeds' classes, each seed weighing the same. Batches come from the host, or
/// have been brought to or made on the device already ([`DeviceMiniBatch`]).
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeClassification<M, B = MiniBatch> {
    model: PhantomData<fn(B) -> M>,
}

impl<M, B> NodeClassification<M, B> {
    /// The task for models of type `M`, on batches of type `B`.
    pub fn new() -> Self {
        Self { model: PhantomData }
    }
}

/// A loader's batch of a node task, wherever it was made.
pub trait NodeBatch {
    /// Brings it to a device, which is where it is already if it was made on one. `x` tracks gradients where the device
    /// does.
    fn upload(self, device: &Device) -> DeviceBatch<NodeInput>;
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

impl NodeBatch for MiniBatch {
    fn upload(self, device: &Device) -> DeviceBatch<NodeInput> {
        DeviceMiniBatch::new(self, device).upload(device)
    }
}

impl NodeBatch for DeviceMiniBatch {
    fn upload(self, device: &Device) -> DeviceBatch<NodeInput> {
        let (key, n_items, times) = (self.key, self.seeds.len(), self.times);
        let input = NodeInput {
            blocks: self.blocks,
            x: if device.is_autodiff() { self.x.autodiff() } else { self.x },
            seeds: self.seeds.as_nodes().to_vec(),
            seed_rows: self.seed_rows.iter().map(|row| row.index()).collect(),
            labels: self.labels,
        };
        DeviceBatch { key, n_items, times, input }
    }
}

impl<M: BlockModel, B: NodeBatch> Task for NodeClassification<M, B> {
    type Batch = B;
    type Input = NodeInput;
    type Model = M;

    fn upload(&self, batch: B, device: &Device) -> DeviceBatch<NodeInput> {
        batch.upload(device)
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
