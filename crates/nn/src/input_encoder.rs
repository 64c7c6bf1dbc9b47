use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceRows, ops};
use kiln_sample::{KeyDomain, RngKey};
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

    /// Creates an encoder with initial weights drawn from the key; the layer of type `i` uses
    /// `key.fold_in(KeyDomain::NodeType, i)`.
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
        let layers = widths
            .iter()
            .enumerate()
            .map(|(i, width): (usize, &Option<usize>)| match *width {
                Some(width) => {
                    let key = key.fold_in(KeyDomain::NodeType, i as u64);
                    Linear::init(key, 0, [width, hidden], device).map(Some)
                }
                None => Ok(None),
            })
            .collect::<Result<_>>()?;
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

/// The order of the nodes of a batch among their rows by type, on a device.
#[derive(Debug, Clone)]
pub struct TypeOrder {
    /// The number of nodes of each type.
    n_of_type: Vec<usize>,
    /// The row of each node; `None` if there is one type, whose rows are in the order of the nodes.
    rows: Option<DeviceRows>,
}

impl TypeOrder {
    /// Creates the order of the nodes of a graph with one type.
    pub fn of_one_type(n_nodes: usize) -> Self {
        Self { n_of_type: vec![n_nodes], rows: None }
    }

    /// Creates the order from the type of each node of a batch. The rows of a type are in the order of its nodes, and those of
    /// all types follow each other.
    ///
    /// # Panics
    /// Panics if a type is not below `n_types`, or if there are 2^31 nodes or more.
    pub fn new(types: &[usize], n_types: usize, device: &Device) -> Self {
        let mut n_of_type = vec![0; n_types];
        for &node_type in types {
            assert!(node_type < n_types, "a node has type {node_type}, expected one of {n_types} types");
            n_of_type[node_type] += 1;
        }
        let mut first = 0;
        let mut next: Vec<u32> = n_of_type
            .iter()
            .map(|&n_nodes| {
                first += n_nodes;
                (first - n_nodes) as u32
            })
            .collect();
        let rows: Vec<u32> = types
            .iter()
            .map(|&node_type: &usize| {
                next[node_type] += 1;
                next[node_type] - 1
            })
            .collect();
        Self { n_of_type, rows: Some(DeviceRows::upload(&rows, types.len(), device)) }
    }

    /// Returns the number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.n_of_type.iter().sum()
    }

    /// Returns the size in bytes.
    pub fn n_bytes(&self) -> usize {
        // An offset and an index for each node.
        8 * self.rows.as_ref().map_or(0, DeviceRows::len)
    }

    /// Checks the number of types and of the rows of each type.
    fn check(&self, rows: &[Tensor<2>]) {
        let n_types = rows.len();
        let expected = self.n_of_type.len();
        assert_eq!(n_types, expected, "the input has rows of {n_types} types, expected {expected}");
        for (node_type, (of_type, n_nodes)) in rows.iter().zip(&self.n_of_type).enumerate() {
            let n_rows = of_type.dims()[0];
            assert_eq!(*n_nodes, n_rows, "type {node_type} has {n_nodes} nodes, but {n_rows} rows");
        }
    }
}

impl InputEncoder {
    /// Returns the number of feature columns of each type; `None` for types with trainable rows.
    pub fn widths(&self) -> Vec<Option<usize>> {
        self.layers.iter().map(|layer| layer.as_ref().map(|layer| layer.weight.dims()[0])).collect()
    }

    /// Returns the width of the output rows, and of trainable rows.
    pub fn d_out(&self) -> usize {
        self.hidden
    }

    /// Runs the encoder. Features may be of half precision (see [`ops::linear`]).
    ///
    /// # Shapes
    /// The rows of type `t` are `[n_t, widths[t]]`, trainable ones `[n_t, hidden]`; the result is `[n_nodes, hidden]`, in the
    /// order of the batch's nodes.
    ///
    /// # Panics
    /// Panics if the number of types, of rows or a width does not match.
    pub fn forward(&self, rows: Vec<Tensor<2>>, order: &TypeOrder) -> Tensor<2> {
        let none_added = vec![None; rows.len()];
        self.forward_with(rows, none_added, order)
    }

    /// Runs the encoder and adds rows `[n_t, hidden]` to those of some types.
    pub(crate) fn forward_with(
        &self,
        rows: Vec<Tensor<2>>,
        added: Vec<Option<Tensor<2>>>,
        order: &TypeOrder,
    ) -> Tensor<2> {
        let n_types = rows.len();
        let expected = self.layers.len();
        assert_eq!(n_types, expected, "the input has {n_types} types of nodes, the encoder {expected}");
        order.check(&rows);
        let device = rows[0].device();
        let mut encoded = Vec::with_capacity(n_types);
        for ((layer, rows), added) in self.layers.iter().zip(rows).zip(added) {
            // Burn's concatenation rejects tensors without rows on some devices.
            if rows.dims()[0] == 0 {
                continue;
            }
            let of_type = self.encode_type(layer, rows);
            encoded.push(match added {
                Some(added) => of_type + added,
                None => of_type,
            });
        }
        if encoded.is_empty() {
            return Tensor::zeros([0, self.hidden], &device);
        }
        let encoded = Tensor::cat(encoded, 0);
        match &order.rows {
            Some(rows) => ops::gather_rows(rows, encoded),
            None => encoded,
        }
    }

    fn encode_type(&self, layer: &Option<Linear>, rows: Tensor<2>) -> Tensor<2> {
        match layer {
            Some(layer) => layer.forward(rows),
            None => {
                let width = rows.dims()[1];
                let hidden = self.hidden;
                assert_eq!(width, hidden, "trainable rows have {width} columns, expected {hidden}");
                rows
            }
        }
    }
}
