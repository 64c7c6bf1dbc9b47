//! The features of edges in layers: the rows that a layer reads, and the matrices of layers with one per relation.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, Reduction};
use kiln_sample::RngKey;

use crate::error::{check_size, check_weight};
use crate::init::draw;
use crate::{Error, GraphMetadata, Result};

/// Returns the features of a block's edges as f32, `[n_edges, d]`.
///
/// # Panics
/// Panics if the block has none.
pub(crate) fn edge_features_of(block: &DeviceBlock) -> Tensor<2> {
    let Some(features) = block.edge_features() else {
        panic!("the block has no edge features: give the loader's batcher the features of edges");
    };
    ops::widen(features.clone())
}

/// Returns an error if the features of edges have no columns, or too many.
pub(crate) fn check_edge_features(d_edge: Option<usize>) -> Result<()> {
    d_edge.map_or(Ok(()), |d_edge| check_size("edge_features", d_edge))
}

/// Returns the number of matrix values of `d_out` columns for features of these widths.
pub(crate) fn n_edge_weights(widths: &[Option<usize>], d_out: usize) -> u64 {
    let n_rows = widths.iter().flatten().fold(0_u64, |sum, width: &usize| sum.saturating_add(*width as u64));
    n_rows.saturating_mul(d_out as u64)
}

/// Returns the widths of the edge features of the relations of a graph; `None` if none has features, or if they are unknown.
pub(crate) fn relation_widths(graph: &GraphMetadata) -> Option<Vec<Option<usize>>> {
    graph.edge_widths.clone().filter(|widths| widths.iter().any(Option::is_some))
}

/// Returns the width of the features of all edges if they have one, and each relation has features.
pub(crate) fn common_width(widths: &[Option<usize>]) -> Option<usize> {
    let first = widths.first().copied().flatten()?;
    widths.iter().all(|width| *width == Some(first)).then_some(first)
}

/// The part of a relational layer that reads the features of edges: for a destination `v`,
/// `sum over the relations r with features of aggregate({e_uv : u -> v by r}) W_r`.
///
/// With the rows of the sources, it is the layer of the messages `[x_u, e_uv]` and a matrix per relation, as in GraphStorm.
/// The rows of edges are aggregated as they are and then multiplied, so that no array of one output row per edge is created.
///
/// A block has one row of the largest width per edge. The columns of a row beyond the width of its relation are not read.
#[derive(Module, Debug)]
pub struct RelationEdgeLinear {
    /// The matrices of the relations with features, one below the other, `[sum of their widths, d_out]`.
    pub weight: Param<Tensor<2>>,
    #[module(skip)]
    widths: Vec<Option<usize>>,
}

impl RelationEdgeLinear {
    /// Draws the matrices. Returns `None` for no widths, with which a layer reads no features.
    ///
    /// # Errors
    /// Returns [`Error::EdgeWidths`] unless there is a width for each relation, or if none has features, and an error if the
    /// matrices would be too large.
    pub(crate) fn init(
        widths: &[Option<usize>],
        n_relations: usize,
        d_out: usize,
        draws: EdgeDraws,
        device: &Device,
    ) -> Result<Option<Self>> {
        if widths.is_empty() {
            return Ok(None);
        }
        if widths.len() != n_relations || widths.iter().all(Option::is_none) {
            return Err(Error::EdgeWidths { n_relations, got: widths.to_vec() });
        }
        let mut n_rows: usize = 0;
        for width in widths.iter().flatten() {
            check_size("edge_features", *width)?;
            n_rows += width;
        }
        check_weight(n_rows, d_out)?;
        let mut values = Vec::with_capacity(n_rows * d_out);
        for (relation, width) in widths.iter().enumerate() {
            let Some(width) = width else { continue };
            let parameter = draws.first + draws.step * relation as u64;
            values.extend(draw(draws.key, parameter, width * d_out, (draws.bound)([*width, d_out])));
        }
        let weight = Param::from_tensor(Tensor::from_data(TensorData::new(values, [n_rows, d_out]), device));
        Ok(Some(Self { weight, widths: widths.to_vec() }))
    }

    /// Adds the products of the aggregated features to `base`, `[n_dst, d_out]`. Each edge counts with its factor in
    /// `factors`, `[n_edges]`, or with 1.
    ///
    /// # Panics
    /// Panics if the block has no edge features, or none of the largest width, or if it has no edge types and there are
    /// several relations.
    pub(crate) fn add_to(
        &self,
        base: Tensor<2>,
        block: &DeviceBlock,
        factors: Option<Tensor<1>>,
    ) -> Tensor<2> {
        ops::linear(base, self.aggregated(block, factors), self.weight.val())
    }

    /// Adds the product of the features, aggregated over all edges of a destination, to `base`. There is one relation.
    pub(crate) fn add_aggregate(
        &self,
        base: Tensor<2>,
        block: &DeviceBlock,
        aggregation: Aggregation,
    ) -> Tensor<2> {
        let rows = ops::aggregate_edges(block, self.features(block), aggregation);
        ops::linear(base, rows, self.weight.val())
    }

    /// Returns the bytes of the aggregates of a destination, and those of the row and the factors of an edge.
    pub(crate) fn memory_bytes(&self) -> [u64; 2] {
        let n_read = self.n_read() as u64;
        let width = self.largest() as u64;
        [4 * 2 * n_read * width, 4 * (n_read + width)]
    }

    /// Returns the aggregates of the relations with features, side by side, `[n_dst, sum of their widths]`.
    fn aggregated(&self, block: &DeviceBlock, factors: Option<Tensor<1>>) -> Tensor<2> {
        let features = self.features(block);
        if self.widths.len() == 1 {
            let aggregation =
                Aggregation { weights: factors.map(MessageWeights::PerEdge), ..Reduction::Sum.into() };
            return ops::aggregate_edges(block, features, aggregation);
        }
        let table = self.table(&features.device());
        let weights = match factors {
            Some(factors) => ops::relation_weights(block, table, factors),
            None => ops::edge_type_rows(block, table),
        };
        let weights = Some(MessageWeights::PerBasis(weights));
        let sums = ops::aggregate_edges(block, features, Aggregation { weights, ..Reduction::Sum.into() });
        if common_width(&self.read_widths()).is_some() {
            return sums;
        }
        let largest = self.largest();
        let mut without_padding = Vec::new();
        for (i, width) in self.widths.iter().flatten().enumerate() {
            without_padding.push(sums.clone().narrow(1, i * largest, *width));
        }
        Tensor::cat(without_padding, 1)
    }

    fn features(&self, block: &DeviceBlock) -> Tensor<2> {
        let features = edge_features_of(block);
        let [_, got] = features.dims();
        let expected = self.largest();
        assert_eq!(
            got, expected,
            "the edges have {got} feature columns, expected the largest width, {expected}"
        );
        features
    }

    /// Returns the matrix with a row per relation and a column per relation with features, which is 1 where they are the same.
    fn table(&self, device: &Device) -> Tensor<2> {
        let n_read = self.n_read();
        let mut ones = vec![0.0_f32; self.widths.len() * n_read];
        let mut column = 0;
        for (relation, width) in self.widths.iter().enumerate() {
            if width.is_some() {
                ones[relation * n_read + column] = 1.0;
                column += 1;
            }
        }
        Tensor::from_data(TensorData::new(ones, [self.widths.len(), n_read]), device)
    }

    fn read_widths(&self) -> Vec<Option<usize>> {
        self.widths.iter().copied().filter(Option::is_some).collect()
    }

    fn n_read(&self) -> usize {
        self.widths.iter().flatten().count()
    }

    fn largest(&self) -> usize {
        self.widths.iter().flatten().copied().max().unwrap_or(0)
    }
}

/// The draws of the initial values of a [`RelationEdgeLinear`]: the matrix of relation `r` is parameter `first + step * r` of
/// the key.
pub(crate) struct EdgeDraws {
    pub(crate) key: RngKey,
    pub(crate) first: u64,
    pub(crate) step: u64,
    /// Returns the bound of the values of a matrix `[width, d_out]`.
    pub(crate) bound: fn([usize; 2]) -> f64,
}
