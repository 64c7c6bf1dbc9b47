use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_graph::EdgeColumns;
use kiln_kernels::{DeviceBlock, ops};
use kiln_sample::{KeyDomain, RngKey};
use serde::{Deserialize, Serialize};

use crate::{
    Error, ForwardContext, GraphMetadata, GraphRequirements, Linear, Mode, ModelConfig, Result, TimeEncoder,
    TimeEncoderConfig, TimedParts,
};

/// The configuration of an [`AgeEncoder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgeEncoderConfig {
    /// The encoder of ages.
    pub times: TimeEncoderConfig,
    /// The types of nodes and the relations whose ages the model reads.
    pub parts: TimedParts,
}

impl AgeEncoderConfig {
    /// Returns the configuration for the parts with times, and a model of nodes that reads the encoded ages of their edges in
    /// front of the edge features that it read before. Without ages of edges, `None` instead of the model.
    pub(crate) fn encode_model<C: ModelConfig>(
        times: TimeEncoderConfig,
        parts: TimedParts,
        is_heterogeneous: bool,
        model: &C,
    ) -> (Self, Option<C>) {
        let config = Self { times, parts };
        let before = model.requirements();
        let widths = match &before.edge_widths {
            Some(widths) => widths.clone(),
            None => vec![before.d_edge; config.parts.relations.len()],
        };
        let graph = match is_heterogeneous {
            true => GraphMetadata { edge_widths: Some(widths), ..GraphMetadata::default() },
            false => GraphMetadata { d_edge: widths.first().copied().flatten(), ..GraphMetadata::default() },
        };
        let with_ages = model.clone().with_edge_features(&config.encoded(&graph));
        // A model that reads types of edges instead of their features keeps them.
        let model = with_ages.filter(|with_ages| {
            config.reads_edges()
                && (before.n_relations.is_none()
                    || with_ages.requirements().n_relations == before.n_relations)
        });
        let parts = match &model {
            Some(_) => config.parts,
            None => TimedParts { relations: vec![false; config.parts.relations.len()], ..config.parts },
        };
        (Self { times, parts }, model)
    }

    /// Returns the properties of a graph with edge features that begin with the encoded ages.
    pub(crate) fn encoded(&self, graph: &GraphMetadata) -> GraphMetadata {
        let mut encoded = graph.clone();
        if !self.reads_edges() {
            return encoded;
        }
        match &mut encoded.edge_widths {
            Some(widths) => {
                for (width, is_timed) in widths.iter_mut().zip(&self.parts.relations) {
                    if *is_timed || width.is_some() {
                        *width = Some(width.unwrap_or(0) + self.times.n_columns());
                    }
                }
            }
            None => encoded.d_edge = Some(encoded.d_edge.unwrap_or(0) + self.times.n_columns()),
        }
        encoded
    }

    /// Returns the requirements of the model of nodes with the edge features of the graph instead of those that begin with encoded
    /// ages.
    pub(crate) fn decoded(&self, requirements: GraphRequirements) -> GraphRequirements {
        let ages = Some(self.parts.clone());
        if !self.reads_edges() {
            return GraphRequirements { ages, ..requirements };
        }
        let n_columns = self.times.n_columns();
        let features = |width: usize| Some(width.saturating_sub(n_columns)).filter(|width| *width != 0);
        let d_edge = requirements.d_edge.and_then(features);
        let edge_widths = requirements.edge_widths.map(|widths| {
            widths.into_iter().map(|width| width.and_then(features)).collect::<Vec<Option<usize>>>()
        });
        let edge_widths = edge_widths.filter(|widths| widths.iter().any(Option::is_some));
        GraphRequirements { d_edge, edge_widths, ages, ..requirements }
    }

    /// Returns true if the model reads ages of nodes of some type.
    pub(crate) fn reads_nodes(&self) -> bool {
        self.parts.node_types.contains(&true)
    }

    /// Returns true if the model reads ages of edges of some relation.
    pub(crate) fn reads_edges(&self) -> bool {
        self.parts.relations.contains(&true)
    }

    /// Creates an encoder for `n_types` types of nodes with input rows of the width `hidden`. The linear layer of type `i` uses
    /// `key.fold_in(KeyDomain::NodeType, i)`, after the parameters of the type's layer in an [`InputEncoder`](crate::InputEncoder).
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`] if there are no frequencies, too many, or ages of another number of types, and
    /// [`Error::WeightTooLarge`].
    pub(crate) fn init(
        &self,
        n_types: usize,
        hidden: usize,
        key: RngKey,
        device: &Device,
    ) -> Result<AgeEncoder> {
        let got = self.parts.node_types.len();
        if got != n_types {
            return Err(Error::OutOfRange { name: "the number of node types with ages", got, max: n_types });
        }
        let times = self.times.init(device)?;
        let mut layers = Vec::with_capacity(n_types);
        for (node_type, is_timed) in self.parts.node_types.iter().enumerate() {
            let key = key.fold_in(KeyDomain::NodeType, node_type as u64);
            let widths = [self.times.n_columns(), hidden];
            layers.push(is_timed.then(|| Linear::init(key, 1, widths, device)).transpose()?);
        }
        Ok(AgeEncoder { times, layers, reads_edges: self.reads_edges() })
    }
}

/// The part of a [`HeteroModel`](crate::HeteroModel) that reads the ages of nodes and edges at the times of the items.
///
/// The encoded age of a node ([`TimeEncoder`]), multiplied by a matrix of its type, is added to its input row, as by RelBench's
/// `HeteroTemporalEncoder` (Robinson et al. 2024). That of an edge is put in front of its features.
#[derive(Module, Debug)]
pub struct AgeEncoder {
    /// The encoder of the ages of nodes and edges.
    pub times: TimeEncoder,
    /// The linear layer of each type of nodes; `None` for types without ages.
    pub layers: Vec<Option<Linear>>,
    #[module(skip)]
    reads_edges: bool,
}

impl AgeEncoder {
    /// Returns true if layers read the ages of edges.
    pub(crate) fn reads_edges(&self) -> bool {
        self.reads_edges
    }

    /// Splits the ages off the rows of each type, whose last columns they are, and returns the rows and, for types with ages,
    /// what is added to the input rows of the nodes.
    ///
    /// # Panics
    /// Panics if there are rows of another number of types.
    pub(crate) fn split(&self, rows: Vec<Tensor<2>>) -> (Vec<Tensor<2>>, Vec<Option<Tensor<2>>>) {
        let n_types = rows.len();
        let expected = self.layers.len();
        assert_eq!(n_types, expected, "the input has rows of {n_types} types, the ages are of {expected}");
        let mut without_ages = Vec::with_capacity(n_types);
        let mut added = Vec::with_capacity(n_types);
        for (rows, layer) in rows.into_iter().zip(&self.layers) {
            let [n_rows, width] = rows.dims();
            // A type without nodes in the batch has no ages, and the encoder does not read its rows.
            let Some(layer) = layer.as_ref().filter(|_| n_rows != 0) else {
                added.push(None);
                without_ages.push(rows);
                continue;
            };
            let ages = ops::widen(rows.clone().narrow(1, width - 1, 1));
            added.push(Some(layer.forward(self.times.forward(ages))));
            without_ages.push(rows.narrow(1, 0, width - 1));
        }
        (without_ages, added)
    }

    /// Returns a block whose edge features begin with the encoded ages of the edges; `None` if the model does not read them.
    ///
    /// # Panics
    /// Panics if the block has no ages.
    pub(crate) fn encode_edges(&self, block: &DeviceBlock, ctx: &ForwardContext) -> Option<DeviceBlock> {
        if !self.reads_edges {
            return None;
        }
        let Some(ages) = block.edge_column(EdgeColumns::AGES) else {
            panic!("the block has no ages of edges: give the loader's batcher the times");
        };
        // Learned frequencies track gradients in training.
        let tracked = |rows: &Tensor<2>| match ctx.mode {
            Mode::Train => ops::widen(rows.clone()).autodiff(),
            Mode::Eval => ops::widen(rows.clone()),
        };
        let encoded = self.times.forward(tracked(ages));
        let features = match block.edge_features() {
            Some(features) => Tensor::cat(vec![encoded, tracked(features)], 1),
            None => encoded,
        };
        Some(block.clone().with_edge_column(EdgeColumns::FEATURES, features))
    }
}
