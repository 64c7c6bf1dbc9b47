//! The symmetric normalisation of edge weights for graph convolutions (GCN).

use rayon::prelude::*;

use crate::self_loops::{edges_into, has_loop, insert_self_loops};
use crate::{ColumnError, Csc, Error, Result};

/// Adds a self loop to each node and computes the normalised edge weights of a GCN (Kipf and Welling 2017,
/// equation 2 with the renormalisation trick of section 2.2):
///
/// ```text
/// w'(u -> v) = w(u -> v) / sqrt(d_u d_v)        d_v = sum of w over the edges into v, its loop included
/// ```
///
/// `w` is the weight of an edge, or 1 if the graph has no weights. As in PyG's `gcn_norm`, both degrees are sums over
/// *incoming* edges; in an undirected graph these are the degrees of the paper. Each node without a self loop gets one
/// of weight 1 and type 0. Columns other than weights and types are left out. Existing self loops are kept, even if a node has several; PyG keeps only one of them.
///
/// An added loop is inserted after the last neighbour with a smaller id, so ascending neighbours stay ascending.
/// Weights may be negative; a node whose degree is not positive gets the factor 0 instead of `1 / sqrt(d)`. Degrees and
/// factors are f64, summed in edge order with an added loop last, so the result does not depend on the number of
/// threads. [`add_self_loops`](crate::add_self_loops) adds loops without a normalisation.
///
/// It makes four passes over the edges. The result takes 8 bytes per node and 8 per edge (9 with types); the
/// computation needs 8 more bytes per node.
///
/// ```
/// use kiln_graph::{CscBuilder, NodeId, gcn_norm};
/// // 0 -> 1: node 0 gets only its self loop, node 1 has two edges.
/// let graph = gcn_norm(&CscBuilder::new(2).build(&[0], &[1])?)?;
/// assert_eq!(graph.in_neighbors(NodeId(1)), [NodeId(0), NodeId(1)]);
/// assert_eq!(graph.weights(), Some(&[1.0, 0.5_f32.sqrt(), 0.5][..]));
/// # Ok::<(), kiln_graph::Error>(())
/// ```
///
/// # Errors
/// Returns [`ColumnError::WeightNotFinite`] for the first weight that is infinite or NaN, and the errors of
/// [`Csc::validate`], which is called because a mapped graph may not have been validated yet.
pub fn gcn_norm(graph: &Csc) -> Result<Csc> {
    graph.validate()?;
    if let Some(weights) = graph.weights()
        && let Some(edge) = weights.par_iter().position_first(|weight| !weight.is_finite())
    {
        let error = ColumnError::WeightNotFinite { edge: edge as u64, weight: weights[edge] };
        return Err(Error::from(error).in_file(graph.weights_path()));
    }
    let factors: Vec<f64> = (0..graph.n_nodes()).into_par_iter().map(|dst| factor(graph, dst)).collect();
    insert_self_loops(
        graph,
        0,
        Some(|src: usize, weight: f64, dst: usize| (factors[src] * weight * factors[dst]) as f32),
    )
}

/// Returns the factor `1 / sqrt(d)` of a node, or 0 if its degree `d` is not positive. The degree includes the self
/// loop that will be added.
fn factor(graph: &Csc, dst: usize) -> f64 {
    let edges = edges_into(graph, dst);
    let own: f64 = match graph.weights() {
        Some(weights) => weights[edges].iter().map(|&weight| f64::from(weight)).sum(),
        None => edges.len() as f64,
    };
    let degree = if has_loop(graph, dst) { own } else { own + 1.0 };
    if 0.0 < degree { degree.sqrt().recip() } else { 0.0 }
}
