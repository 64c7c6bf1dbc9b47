//! A model of a heterogeneous graph without its type.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use kiln_nn::{BlockModel, InputFormat, TypedModel};

use crate::error::Result;
use crate::saved::registry::context;
use crate::step::embedding::NodeEmbedding;
use crate::step::embeddings::learned_rows;
use crate::step::node::NodeInput;

/// A model of the nodes of a heterogeneous graph, with its trained rows.
#[derive(Clone)]
pub(crate) struct TypedNetwork {
    pub(crate) model: Arc<dyn EncodedNetwork>,
    /// The rows of each type of nodes without features, in the order of the types.
    pub(crate) tables: Vec<Arc<NodeEmbedding>>,
}

/// The outputs of a batch.
pub(crate) struct TypedOutputs {
    /// The inputs of the last layer for the destinations of the last block; `None` if they are not wanted.
    pub(crate) embeddings: Option<Tensor<2>>,
    /// The outputs; `None` if they are not wanted.
    pub(crate) outputs: Option<Tensor<2>>,
}

/// A [`TypedModel`] without its type.
pub(crate) trait EncodedNetwork: Send + Sync {
    fn n_layers(&self) -> usize;
    fn input_format(&self) -> InputFormat;
    fn run(&self, input: &NodeInput, embedded: &[Tensor<2>], wanted: [bool; 2]) -> TypedOutputs;
}

impl TypedNetwork {
    /// Runs the model on a batch, whose embedded nodes are positions in the tables. `wanted` are the embeddings and the outputs.
    pub(crate) fn run(&self, input: &NodeInput, wanted: [bool; 2], device: &Device) -> Result<TypedOutputs> {
        let rows = learned_rows(&self.tables, input.x.embedded(), device)?;
        Ok(self.model.run(input, &rows, wanted))
    }
}

impl<M: BlockModel + Sync> EncodedNetwork for TypedModel<M> {
    fn n_layers(&self) -> usize {
        BlockModel::n_layers(self)
    }

    fn input_format(&self) -> InputFormat {
        BlockModel::input_format(self)
    }

    fn run(&self, input: &NodeInput, embedded: &[Tensor<2>], [hidden, outputs]: [bool; 2]) -> TypedOutputs {
        let x = input.x.of_model(self, embedded, &context());
        let layers = input.blocks[..input.blocks.len() - 1].iter().enumerate();
        let embeddings =
            hidden.then(|| layers.fold(x.clone(), |x, (i, block)| self.layer(i, block, x, &context())));
        // Models may override [`BlockModel::forward`], so it is called instead of each layer.
        let outputs = outputs.then(|| self.forward(&input.blocks, x, &context()));
        TypedOutputs { embeddings, outputs }
    }
}
