use std::marker::PhantomData;

use burn::tensor::{Device, Int, Tensor, TensorData, activation::log_softmax};
use kiln_graph::NodeId;
use kiln_kernels::DeviceBlock;
use kiln_loader::MiniBatch;
use kiln_nn::{BlockModel, Ctx};

use crate::{Counts, DeviceBatch, Forward, Task};

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

/// What a node classifier said of one seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// The seed.
    pub node: NodeId,
    /// Its class.
    pub label: u32,
    /// The class with the largest output; the first of those that tie.
    pub predicted: u32,
}

impl NodeInput {
    /// The predictions that the outputs of these seeds stand for.
    pub fn predictions(&self, outputs: &Tensor<2>) -> Vec<Prediction> {
        let labelled = self.seeds.iter().zip(&self.labels).zip(predicted_classes(outputs));
        labelled
            .map(|((&node, &label), predicted)| Prediction { node, label: label as u32, predicted })
            .collect()
    }

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
            blocks: batch.blocks.iter().map(|block| DeviceBlock::upload(block, device)).collect(),
            x: Tensor::from_data(x, device),
            seeds: batch.seeds.as_nodes().to_vec(),
            seed_rows: batch.seed_rows.iter().map(|row| row.index()).collect(),
            labels: batch.labels,
        };
        DeviceBatch { key: batch.key, n_items: batch.seeds.len(), times: batch.times, input }
    }

    fn forward(&self, model: &M, input: &NodeInput, ctx: &Ctx) -> Forward {
        let n_seeds = input.labels.len();
        let device = input.x.device();
        let mut outputs = model.forward(&input.blocks, input.x.clone(), ctx);
        if !input.rows_are_seeds() {
            let rows: Vec<i32> = input.seed_rows.iter().map(|&row| row as i32).collect();
            let rows = Tensor::<1, Int>::from_data(TensorData::new(rows, [n_seeds]), &device);
            outputs = outputs.select(0, rows);
        }
        let width = outputs.dims()[1];
        let largest = input.labels.iter().max().map_or(0, |&class| class as usize);
        assert!(largest < width, "a seed is of class {largest}, but the model has {width} outputs");
        let labels = TensorData::new(input.labels.clone(), [n_seeds, 1]);
        let labels = Tensor::<2, Int>::from_data(labels, &device);
        let log_probabilities = log_softmax(outputs.clone(), 1);
        let loss_sum = log_probabilities.gather(1, labels).sum().neg();
        Forward { outputs, loss_sum, weight: n_seeds as f64 }
    }

    fn count(&self, input: &NodeInput, outputs: &Tensor<2>, counts: &mut Counts) {
        let right = input.predictions(outputs).iter().filter(|said| said.label == said.predicted).count();
        counts.hits = right as u64;
        counts.total = input.labels.len() as u64;
    }
}

/// The position of the largest value in each row; the first of those that tie.
fn predicted_classes(outputs: &Tensor<2>) -> Vec<u32> {
    let [_, n_classes] = outputs.dims();
    let values = kiln_kernels::read_f32(outputs.clone());
    values.chunks_exact(n_classes).map(predicted_class).collect()
}

/// The position of the largest value; the first of those that tie.
pub(crate) fn predicted_class(row: &[f32]) -> u32 {
    let mut best = 0;
    for (class, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = class;
        }
    }
    best as u32
}
