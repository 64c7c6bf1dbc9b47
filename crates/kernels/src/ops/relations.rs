//! Rows and weights of edges by their types, for relational layers, and shares of edges at their destinations.

use burn::backend::Dispatch;
use burn::tensor::{DType, Int, Tensor};

use crate::device::block::{Adjacency, DeviceBlock};
use crate::device::graphs::DeviceRows;
use crate::device::relation_groups::DeviceRelationGroups;
use crate::ops::aggregation::{Aggregation, MessageWeights, Reduction, Weights};
use crate::ops::backend::BlockOps;
use crate::ops::run::run;

/// Returns the share of each edge in the edges of its type at its destination: 1 divided by their number, or the weight of the
/// edge divided by the sum of the absolute values of their weights. A share of weights that are all 0 is 0. Shares have no
/// gradient.
///
/// # Shapes
/// `weights` and the result are `[n_edges]`, in block order, as f32.
///
/// # Panics
/// Panics if the block has no edge types, or if there are no relations. On the CPU, also panics if there are several relations and
/// a type is not below `n_relations`; on other devices the result is undefined, so callers check the types of the graph.
pub fn relation_shares(block: &DeviceBlock, n_relations: usize, weights: Option<Tensor<1>>) -> Tensor<1> {
    let types = types_of(block).clone();
    shares(block.adjacency(), types, n_relations, weights)
}

/// Returns the share of each edge in the edges of its destination: its weight divided by the sum of the absolute values of
/// their weights, or 0 if these are all 0. Weighted sums by these shares are weighted means.
///
/// # Shapes
/// `weights` and the result are `[n_edges]`, in block order, as f32.
///
/// # Panics
/// Panics unless there is one weight per edge.
pub fn edge_shares(block: &DeviceBlock, weights: Tensor<1>) -> Tensor<1> {
    shares_of_segments(block.adjacency(), weights)
}

/// Returns the share of each entry in the entries of its segment, like [`edge_shares`].
///
/// # Shapes
/// `weights` and the result are `[n_entries]`, as f32.
///
/// # Panics
/// Panics unless there is one weight per entry.
pub fn group_shares(groups: &DeviceRelationGroups, weights: Tensor<1>) -> Tensor<1> {
    shares_of_segments(groups.adjacency(), weights)
}

fn shares_of_segments(edges: Adjacency<Dispatch>, weights: Tensor<1>) -> Tensor<1> {
    // The types of edges of one type are not read.
    let types = Tensor::zeros([1], (&weights.device(), DType::I32));
    shares(edges, types, 1, Some(weights))
}

fn shares(
    edges: Adjacency<Dispatch>,
    types: Tensor<1, Int>,
    n_types: usize,
    weights: Option<Tensor<1>>,
) -> Tensor<1> {
    assert!(0 < n_types, "edges have at least one type");
    let weights = match weights {
        None => Weights::Ones,
        Some(weights) => {
            let [n_weights] = weights.dims();
            let n_edges = edges.n_edges;
            assert_eq!(
                n_weights, n_edges,
                "got {n_weights} weights for {n_edges} edges, expected one per edge"
            );
            Weights::Tensor(weights.cast(DType::F32).into_dispatch())
        }
    };
    let shares = <Dispatch as BlockOps>::relation_shares(edges, types.into_dispatch(), n_types, weights);
    Tensor::from_dispatch(shares)
}

/// Returns the weights of relational layers (Schlichtkrull et al. 2018, equation 2): for each edge, the row of `table` of the
/// edge's type, multiplied by the edge's share ([`relation_shares`]).
///
/// The gradient of a row of the table is a sum over the edges of its type in a fixed order, 0 without such edges.
///
/// # Shapes
/// `table` is `[n_relations, k]`, `shares` `[n_edges]`, the result `[n_edges, k]`, in block order.
///
/// # Panics
/// Panics if the block has no edge types. On the CPU, also panics if a type is not below `n_relations`; on other devices the
/// result is undefined, so callers check the types of the graph.
pub fn relation_weights(block: &DeviceBlock, table: Tensor<2>, shares: Tensor<1>) -> Tensor<2> {
    let [n_relations, _] = table.dims();
    let rows = DeviceRows::of_indices(types_of(block).clone(), n_relations);
    let weights = Some(MessageWeights::PerEdge(shares.cast(table.dtype())));
    run(rows.adjacency(), table, Aggregation { weights, ..Reduction::Sum.into() })
}

fn types_of(block: &DeviceBlock) -> &Tensor<1, Int> {
    match block.edge_types() {
        Some(types) => types,
        None => panic!("the block has no edge types: sample with SamplerConfig::with_edge_types"),
    }
}

/// Returns the row of `table` of each edge's type. The gradient of a row of the table is a sum over the edges of its type in
/// a fixed order, 0 without such edges.
///
/// # Shapes
/// `table` is `[n_types, d]`, the result `[n_edges, d]`, in block order.
///
/// # Panics
/// Panics if the block has no edge types. On the CPU, also panics if a type is not below `n_types`; on other devices the
/// result is undefined, so callers check the types of the graph.
pub fn edge_type_rows(block: &DeviceBlock, table: Tensor<2>) -> Tensor<2> {
    let [n_types, _] = table.dims();
    run(DeviceRows::of_indices(types_of(block).clone(), n_types).adjacency(), table, Reduction::Sum.into())
}
