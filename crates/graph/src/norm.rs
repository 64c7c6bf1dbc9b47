//! The symmetric normalisation of edge weights for graph convolutions (GCN).

use rayon::prelude::*;

use crate::{Csc, Error, NodeId, Result};

/// Adds a self loop to each node and computes the normalised edge weights of a GCN (Kipf and Welling 2017,
/// equation 2 with the renormalisation trick of section 2.2):
///
/// ```text
/// w'(u -> v) = w(u -> v) / sqrt(d_u d_v)        d_v = sum of w over the edges into v, its loop included
/// ```
///
/// `w` is the weight of an edge, or 1 if the graph has no weights. As in PyG's `gcn_norm`, both degrees are sums over
/// *incoming* edges; in an undirected graph these are the degrees of the paper. Each node without a self loop gets one
/// of weight 1 and type 0. Existing self loops are kept, even if a node has several; PyG keeps only one of them.
///
/// An added loop is inserted after the last neighbour with a smaller id, so ascending neighbours stay ascending.
/// Weights may be negative; a node whose degree is not positive gets the factor 0 instead of `1 / sqrt(d)`. Degrees and
/// factors are f64, summed in edge order with an added loop last, so the result does not depend on the number of
/// threads.
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
/// Returns [`Error::WeightNotFinite`] for the first weight that is infinite or NaN, and the errors of
/// [`Csc::validate`], which is called because a mapped graph may not have been validated yet.
pub fn gcn_norm(graph: &Csc) -> Result<Csc> {
    graph.validate()?;
    if let Some(weights) = graph.weights()
        && let Some(edge) = weights.par_iter().position_first(|weight| !weight.is_finite())
    {
        let error = Error::WeightNotFinite { edge: edge as u64, weight: weights[edge] };
        return Err(error.in_file(graph.weights_path()));
    }
    let factors: Vec<f64> = (0..graph.n_nodes()).into_par_iter().map(|dst| factor(graph, dst)).collect();
    let indptr = indptr_with_loops(graph);
    let n_edges = indptr[graph.n_nodes()] as usize;
    let mut indices = vec![NodeId(0); n_edges];
    let mut weights = vec![0.0; n_edges];
    let mut types = graph.edge_types().map(|_| vec![0; n_edges]);
    let edges = Edges { indices: &mut indices, weights: &mut weights, types: types.as_deref_mut() };
    Filler { graph, factors: &factors, indptr: &indptr }.fill(0, graph.n_nodes(), edges);
    let normalised = Csc::new(indptr.into(), indices.into())?.with_weights(weights.into())?;
    match types {
        Some(types) => normalised.with_edge_types(types.into()),
        None => Ok(normalised),
    }
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

/// Returns the `indptr` of the result, in which each node has a self loop.
fn indptr_with_loops(graph: &Csc) -> Vec<u64> {
    let mut indptr = vec![0; graph.n_nodes() + 1];
    indptr[1..].par_iter_mut().enumerate().for_each(|(dst, n_edges)| {
        *n_edges = edges_into(graph, dst).len() as u64 + u64::from(!has_loop(graph, dst));
    });
    let mut n_before = 0;
    for end in &mut indptr {
        n_before += *end;
        *end = n_before;
    }
    indptr
}

/// The slices of the output arrays that hold the edges of consecutive destinations.
struct Edges<'a> {
    indices: &'a mut [NodeId],
    weights: &'a mut [f32],
    types: Option<&'a mut [u8]>,
}

impl<'a> Edges<'a> {
    fn split_at(self, n_edges: usize) -> (Edges<'a>, Edges<'a>) {
        let (indices, more_indices) = self.indices.split_at_mut(n_edges);
        let (weights, more_weights) = self.weights.split_at_mut(n_edges);
        let (types, more_types) = self.types.map(|types| types.split_at_mut(n_edges)).unzip();
        let left = Edges { indices, weights, types };
        (left, Edges { indices: more_indices, weights: more_weights, types: more_types })
    }
}

struct Filler<'a> {
    graph: &'a Csc,
    factors: &'a [f64],
    /// The `indptr` of the result.
    indptr: &'a [u64],
}

impl Filler<'_> {
    /// Fills the edges of the destinations `start..end` in parallel. The range is halved by edges, not by destinations,
    /// to balance the work despite hubs.
    fn fill(&self, start: usize, end: usize, mut edges: Edges<'_>) {
        const EDGES_IN_SEQUENCE: usize = 1 << 14;
        if edges.indices.len() <= EDGES_IN_SEQUENCE || end - start == 1 {
            for dst in start..end {
                let (segment, rest) = edges.split_at((self.indptr[dst + 1] - self.indptr[dst]) as usize);
                self.fill_destination(dst, segment);
                edges = rest;
            }
            return;
        }
        let first = self.indptr[start];
        let middle_edge = first + edges.indices.len() as u64 / 2;
        let n_left = self.indptr[start..=end].partition_point(|&start| start <= middle_edge);
        let middle = start + n_left.clamp(2, end - start) - 1;
        let (left, right) = edges.split_at((self.indptr[middle] - first) as usize);
        rayon::join(|| self.fill(start, middle, left), || self.fill(middle, end, right));
    }

    fn fill_destination(&self, dst: usize, mut out: Edges<'_>) {
        let edges = edges_into(self.graph, dst);
        let ids = &self.graph.indices()[edges.clone()];
        // The added loop is placed after the last neighbour with a smaller id. The edges after the loop move by one
        // place.
        let added_loop = (ids.len() < out.indices.len())
            .then(|| ids.iter().rposition(|src| src.index() < dst).map_or(0, |last| last + 1));
        for (position, (edge, &src)) in edges.zip(ids).enumerate() {
            let to = position + usize::from(added_loop.is_some_and(|place| place <= position));
            let weight = self.graph.weights().map_or(1.0, |weights| f64::from(weights[edge]));
            out.indices[to] = src;
            out.weights[to] = (self.factors[src.index()] * weight * self.factors[dst]) as f32;
            if let (Some(types), Some(from)) = (&mut out.types, self.graph.edge_types()) {
                types[to] = from[edge];
            }
        }
        if let Some(place) = added_loop {
            // The types are initialised to 0, the type of an added loop.
            out.indices[place] = NodeId(dst as u32);
            out.weights[place] = (self.factors[dst] * self.factors[dst]) as f32;
        }
    }
}

/// Returns the range of the edges into a node of a validated graph.
fn edges_into(graph: &Csc, dst: usize) -> std::ops::Range<usize> {
    graph.indptr()[dst] as usize..graph.indptr()[dst + 1] as usize
}

fn has_loop(graph: &Csc, dst: usize) -> bool {
    graph.indices()[edges_into(graph, dst)].contains(&NodeId(dst as u32))
}
