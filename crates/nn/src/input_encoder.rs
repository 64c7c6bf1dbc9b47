use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceRows, ops};
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::error::check_weight;
use crate::{Error, Linear, Result};

/// The configuration of an [`InputEncoder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputEncoderConfig {
    /// The number of feature columns of each type of nodes; `None` for a type without features, whose rows are trainable.
    pub widths: Vec<Option<usize>>,
    /// The width of the output rows, and of trainable rows.
    pub hidden: usize,
}

impl InputEncoderConfig {
    /// Creates a configuration for types with these numbers of feature columns.
    pub fn new(widths: impl IntoIterator<Item = Option<usize>>, hidden: usize) -> Self {
        Self { widths: widths.into_iter().collect(), hidden }
    }

    /// Creates an encoder with initial weights drawn from the key, which no other layer should use: the layer of type `i`
    /// has the parameters `2 i` and `2 i + 1` of the key.
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`] or [`Error::WeightTooLarge`] if a width is 0 or too large, or if there are no types.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<InputEncoder> {
        let Self { ref widths, hidden } = *self;
        if widths.is_empty() {
            return Err(Error::OutOfRange {
                name: "the number of node types",
                got: 0,
                max: u32::MAX as usize,
            });
        }
        // The width of trainable rows is checked also if no type has features.
        check_weight(1, hidden)?;
        let layer = |(i, width): (usize, &Option<usize>)| match *width {
            Some(width) => Linear::init(key, i, [width, hidden], device).map(Some),
            None => Ok(None),
        };
        let layers = widths.iter().enumerate().map(layer).collect::<Result<_>>()?;
        Ok(InputEncoder { layers, hidden })
    }
}

/// The input of models of heterogeneous graphs: a linear layer for each type of nodes with features, so that the rows of
/// all types have the same width. The rows of a type without features are trainable, and are passed on.
#[derive(Module, Debug)]
pub struct InputEncoder {
    /// The linear layer of each type; `None` for types without features.
    pub layers: Vec<Option<Linear>>,
    #[module(skip)]
    hidden: usize,
}

/// The input rows of the nodes of a batch by type, and the order of the nodes.
#[derive(Debug, Clone)]
pub struct TypedRows {
    rows: Vec<Tensor<2>>,
    order: DeviceRows,
}

impl TypedRows {
    /// Creates the rows of a batch from those of each type: features, or trainable rows. `types` is the type of each node of
    /// the batch; the nodes of a type are in the order of its rows.
    ///
    /// # Panics
    /// Panics unless each type has as many rows as `types` has nodes of it, or if there are 2^31 nodes or more.
    pub fn new(rows: Vec<Tensor<2>>, types: &[usize], device: &Device) -> Self {
        let mut first = 0;
        let mut next: Vec<u32> = Vec::with_capacity(rows.len());
        for of_type in &rows {
            next.push(first);
            first += of_type.dims()[0] as u32;
        }
        let (starts, n_rows) = (next.clone(), first);
        let position = |&node_type: &usize| {
            assert!(
                node_type < rows.len(),
                "a node has type {node_type}, expected one of {} types",
                rows.len()
            );
            next[node_type] += 1;
            next[node_type] - 1
        };
        let order: Vec<u32> = types.iter().map(position).collect();
        for (node_type, of_type) in rows.iter().enumerate() {
            let (n_nodes, n_rows) = (next[node_type] - starts[node_type], of_type.dims()[0]);
            assert_eq!(n_nodes as usize, n_rows, "type {node_type} has {n_nodes} nodes, but {n_rows} rows");
        }
        Self { rows, order: DeviceRows::upload(&order, n_rows as usize, device) }
    }

    /// Returns the number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.order.len()
    }
}

impl InputEncoder {
    /// Runs the encoder. Features may be of half precision (see [`ops::linear`]).
    ///
    /// # Shapes
    /// The rows of type `t` are `[n_t, widths[t]]`, trainable ones `[n_t, hidden]`; the result is `[n_nodes, hidden]`, in the
    /// order of the batch's nodes.
    ///
    /// # Panics
    /// Panics if the number of types or a width does not match.
    pub fn forward(&self, input: TypedRows) -> Tensor<2> {
        let TypedRows { rows, order } = input;
        let (n_types, expected) = (rows.len(), self.layers.len());
        assert_eq!(n_types, expected, "the input has {n_types} types of nodes, the encoder {expected}");
        let device = rows[0].device();
        let encoded = |(layer, rows): (&Option<Linear>, Tensor<2>)| match layer {
            Some(layer) => layer.forward(rows),
            None => {
                let (width, hidden) = (rows.dims()[1], self.hidden);
                assert_eq!(width, hidden, "trainable rows have {width} columns, expected {hidden}");
                rows
            }
        };
        // Burn's concatenation rejects tensors without rows on some devices.
        let encoded: Vec<_> =
            self.layers.iter().zip(rows).filter(|(_, rows)| rows.dims()[0] != 0).map(encoded).collect();
        match encoded.is_empty() {
            true => Tensor::zeros([0, self.hidden], &device),
            false => ops::gather_rows(&order, Tensor::cat(encoded, 0)),
        }
    }
}
