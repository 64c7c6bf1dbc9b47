//! The rows of a batch from the embeddings of a task: as leaves of the backward pass in training, and as values in
//! evaluation.
//!
//! The step before a batch's own may change the rows, so a worker reads none. A batch has the nodes, and the trainer reads
//! their rows before the forward pass. The tables are in host memory, once per rank, and are no parameters of the model. So
//! the optimizer and the averaging of gradients never touch whole tables, and norms of gradients are clipped without the
//! rows. Ranks exchange the rows of their batches and these gradients, not the tables.

use std::sync::Arc;

use burn::tensor::{Device, Gradients, Tensor, TensorData};
use kiln_graph::NodeId;
use kiln_kernels::to_vec_f32;

use crate::error::Result;
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding::embedding_error::EmbeddingError;
use crate::step::embedding::row_gradients::RowGradients;

/// The rows of a batch from each table, `[n, dim]`, with the nodes that they belong to.
pub(crate) struct TrainedRows<'a> {
    nodes: &'a [Vec<NodeId>],
    pub(crate) rows: Vec<Tensor<2>>,
}

impl<'a> TrainedRows<'a> {
    /// Copies the rows to a device. They track gradients.
    ///
    /// # Errors
    /// Returns [`EmbeddingError::Lists`] unless there is a list of nodes for each table, and [`EmbeddingError::NoRow`] for a
    /// node without a row.
    pub(crate) fn new(
        tables: &[Arc<NodeEmbedding>],
        nodes: &'a [Vec<NodeId>],
        device: &Device,
    ) -> Result<Self> {
        check_lists(tables, nodes)?;
        let device = device.clone().autodiff();
        let rows = tables.iter().zip(nodes).map(|(table, nodes)| {
            let rows = upload(table.rows(nodes)?, table.dim(), &device);
            Ok(rows.require_grad())
        });
        Ok(Self { nodes, rows: rows.collect::<Result<_>>()? })
    }

    /// Returns the gradients of the rows of each table. Rows that the loss does not depend on have none.
    pub(crate) fn gradients(&self, gradients: &Gradients) -> Result<Vec<RowGradients>> {
        self.rows
            .iter()
            .zip(self.nodes)
            .map(|(rows, nodes): (&Tensor<2>, &Vec<NodeId>)| match rows.grad(gradients) {
                Some(gradient) => RowGradients::new(nodes.clone(), to_vec_f32(gradient)),
                None => Ok(RowGradients::default()),
            })
            .collect()
    }
}

/// Returns the rows of a batch from each table for predictions ([`NodeEmbedding::learned_rows`]).
///
/// # Errors
/// Returns [`EmbeddingError::Lists`] unless there is a list of nodes for each table.
pub(crate) fn learned_rows(
    tables: &[Arc<NodeEmbedding>],
    nodes: &[Vec<NodeId>],
    device: &Device,
) -> Result<Vec<Tensor<2>>> {
    check_lists(tables, nodes)?;
    let device = device.clone().inner();
    Ok(tables
        .iter()
        .zip(nodes)
        .map(|(table, nodes): (&Arc<NodeEmbedding>, &Vec<NodeId>)| {
            upload(table.learned_rows(nodes), table.dim(), &device)
        })
        .collect())
}

fn check_lists(tables: &[Arc<NodeEmbedding>], nodes: &[Vec<NodeId>]) -> Result<()> {
    let expected = tables.len();
    let got = nodes.len();
    if expected == got { Ok(()) } else { Err(EmbeddingError::Lists { expected, got }.into()) }
}

fn upload(rows: Vec<f32>, dim: usize, device: &Device) -> Tensor<2> {
    let shape = [rows.len() / dim, dim];
    Tensor::from_data(TensorData::new(rows, shape), device)
}
