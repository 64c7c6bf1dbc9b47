//! Insertion of self loops.

use half::{bf16, f16};
use rayon::prelude::*;

use crate::{ColumnValues, Csc, EdgeColumn, EdgeColumns, EdgeTimes, Error, NodeId, Result};

/// Adds a self loop to each node that has none, as an attention layer needs it. Existing self loops are kept, even if a
/// node has several.
///
/// An added loop is inserted after the last neighbour with a smaller id, so ascending neighbours stay ascending. Its
/// weight is 1 (the default of PyG's `fill_value`). If the graph has edge types, added loops have a type of their own: one
/// more than the largest type. A graph in which each node has a self loop gets no new type. Other columns are left out if a
/// loop is added, because it has no row in them; [`features_with_self_loops`] returns the features.
///
/// It makes three passes over the edges. The result takes 8 bytes per node and 4 per edge, plus 4 per edge for weights and
/// 1 for types.
///
/// ```
/// use kiln_graph::{CscBuilder, NodeId, add_self_loops};
/// // 0 -> 1, 2 -> 1, and 2 has a self loop.
/// let graph = CscBuilder::new(3).edge_types(&[0, 1, 0]).build(&[0, 2, 2], &[1, 1, 2])?;
/// let graph = add_self_loops(&graph)?;
/// assert_eq!(graph.in_neighbors(NodeId(1)), [NodeId(0), NodeId(1), NodeId(2)]);
/// assert_eq!(graph.edge_types(), Some(&[2, 0, 2, 1, 0][..]));
/// # Ok::<(), kiln_graph::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::NoFreeEdgeType`] if loops are missing and an edge has type 255, and the errors of [`Csc::validate`],
/// which is called because a mapped graph may not have been validated yet.
pub fn add_self_loops(graph: &Csc) -> Result<Csc> {
    add_self_loops_of_type(graph, graph.n_edge_types().unwrap_or(0))
}

/// Same as [`add_self_loops`], but added loops have this type, for graphs whose types have names beyond the largest type
/// in use. The type has no effect if the graph has no edge types.
///
/// # Errors
/// Returns [`Error::NoFreeEdgeType`] if loops are missing and the type is above 255, and the errors of [`Csc::validate`].
pub fn add_self_loops_of_type(graph: &Csc, loop_type: usize) -> Result<Csc> {
    graph.validate()?;
    let is_complete = (0..graph.n_nodes()).into_par_iter().all(|dst| has_loop(graph, dst));
    if is_complete {
        return Ok(graph.clone());
    }
    let loop_type = u8::try_from(loop_type).map_err(|_| Error::NoFreeEdgeType)?;
    let kept = graph.weights().map(|_| |_: usize, weight: f64, _: usize| weight as f32);
    insert_self_loops(graph, loop_type, kept)
}

/// Returns the features of the edges of a graph to which [`add_self_loops`] added loops. Those of an added loop are the mean of
/// the features of the other edges into its node, and zeros without edges (the default of PyG's attention layers,
/// `fill_value="mean"`). `None` if edges have no features.
///
/// ```
/// use kiln_graph::{CscBuilder, EdgeColumn, add_self_loops, features_with_self_loops};
/// // 0 -> 1 and 2 -> 1.
/// let graph = CscBuilder::new(3).build(&[0, 2], &[1, 1])?;
/// let graph = graph.with_column("features", EdgeColumn::new(vec![4.0_f32, 6.0], 1)?)?;
/// let features = features_with_self_loops(&graph, &add_self_loops(&graph)?).unwrap();
/// let values: Vec<f32> = (0..features.n_rows()).map(|edge| features.value(edge)).collect();
/// assert_eq!(values, [0.0, 4.0, 5.0, 6.0, 0.0]);
/// # Ok::<(), kiln_graph::Error>(())
/// ```
///
/// # Panics
/// Panics if `with_loops` is not the result for `graph`.
pub fn features_with_self_loops(graph: &Csc, with_loops: &Csc) -> Option<EdgeColumn> {
    let column = graph.columns().get(EdgeColumns::FEATURES)?;
    if graph.n_edges() == with_loops.n_edges() {
        return Some(column.clone());
    }
    let width = column.width();
    let values: ColumnValues = match column.values() {
        ColumnValues::U8(_) | ColumnValues::I64(_) => return None,
        ColumnValues::F32(values) => {
            rows_with_loops([graph, with_loops], values, width, |value| value).into()
        }
        ColumnValues::F16(values) => {
            rows_with_loops([graph, with_loops], values, width, f16::from_f32).into()
        }
        ColumnValues::BF16(values) => {
            rows_with_loops([graph, with_loops], values, width, bf16::from_f32).into()
        }
    };
    Some(EdgeColumn::new(values, width).expect("the values should be whole rows"))
}

/// Returns the rows of the edges of the second graph, which has the edges of the first one and added loops.
fn rows_with_loops<T: Copy + Into<f32>>(
    [graph, with_loops]: [&Csc; 2],
    rows: &[T],
    width: usize,
    rounded: impl Fn(f32) -> T,
) -> Vec<T> {
    let mut out = Vec::with_capacity(with_loops.n_edges() as usize * width);
    let mut sums = vec![0.0_f64; width];
    for dst in 0..graph.n_nodes() {
        let edges = edges_into(graph, dst);
        let n_before = edges.len();
        let of_dst = &rows[edges.start * width..edges.end * width];
        let after = edges_into(with_loops, dst).len();
        if after == n_before {
            out.extend_from_slice(of_dst);
            continue;
        }
        assert_eq!(after, n_before + 1, "node {dst} should have one loop more");
        let place = place_of_loop(&graph.indices()[edges], dst);
        out.extend_from_slice(&of_dst[..place * width]);
        sums.fill(0.0);
        for row in of_dst.chunks_exact(width) {
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, value): (&mut f64, &T)| *sum += f64::from((*value).into()));
        }
        let divisor = n_before.max(1) as f64;
        out.extend(sums.iter().map(|sum| rounded((sum / divisor) as f32)));
        out.extend_from_slice(&of_dst[place * width..]);
    }
    out
}

/// Returns the position of an added loop among the neighbours of a node: after the last one with a smaller id.
fn place_of_loop(neighbors: &[NodeId], dst: usize) -> usize {
    neighbors.iter().rposition(|src| src.index() < dst).map_or(0, |last| last + 1)
}

/// Adds a self loop of this type to each node of a validated graph that has none. `weight` returns an edge's new weight
/// from its source, its weight (1 if the graph has no weights, and for added loops) and its destination. `None` if the
/// result has no weights.
pub(crate) fn insert_self_loops<W>(graph: &Csc, loop_type: u8, weight: Option<W>) -> Result<Csc>
where
    W: Fn(usize, f64, usize) -> f32 + Sync,
{
    let indptr = indptr_with_loops(graph);
    let n_edges = indptr[graph.n_nodes()] as usize;
    let mut indices = vec![NodeId(0); n_edges];
    let mut weights = weight.as_ref().map(|_| vec![0.0; n_edges]);
    let mut types = graph.edge_types().map(|_| vec![0; n_edges]);
    let edges = Edges { indices: &mut indices, weights: weights.as_deref_mut(), types: types.as_deref_mut() };
    Filler { graph, indptr: &indptr, loop_type, weight }.fill(0, graph.n_nodes(), edges);
    let mut with_loops = Csc::new(indptr.into(), indices.into())?;
    if let Some(weights) = weights {
        with_loops = with_loops.with_weights(weights.into())?;
    }
    if let Some(types) = types {
        with_loops = with_loops.with_edge_types(types.into())?;
    }
    match graph.edge_times() {
        Some(times) => {
            let times = times_with_self_loops(graph, &with_loops, times.times());
            with_loops.with_edge_times(times)
        }
        None => Ok(with_loops),
    }
}

/// Returns the times of the edges of `with_loops`, to which self loops were added. `times` are those of the edges of `graph`;
/// an added loop was always known.
///
/// ```
/// use kiln_graph::{CscBuilder, EdgeTimes, add_self_loops, times_with_self_loops};
/// let graph = CscBuilder::new(2).build(&[0], &[1])?;
/// let times = times_with_self_loops(&graph, &add_self_loops(&graph)?, &[7]);
/// assert_eq!(times, [EdgeTimes::ALWAYS, 7, EdgeTimes::ALWAYS]);
/// # Ok::<(), kiln_graph::Error>(())
/// ```
///
/// # Panics
/// Panics if `with_loops` has fewer edges into a node than `graph`, or there are fewer times than edges.
pub fn times_with_self_loops(graph: &Csc, with_loops: &Csc, times: &[i64]) -> Vec<i64> {
    let mut all = Vec::with_capacity(with_loops.n_edges() as usize);
    for dst in 0..graph.n_nodes() {
        let edges = edges_into(graph, dst);
        let of_dst = &times[edges.clone()];
        let n_added = edges_into(with_loops, dst).len() - edges.len();
        let place = if n_added == 0 { edges.len() } else { place_of_loop(&graph.indices()[edges], dst) };
        all.extend_from_slice(&of_dst[..place]);
        all.extend(std::iter::repeat_n(EdgeTimes::ALWAYS, n_added));
        all.extend_from_slice(&of_dst[place..]);
    }
    all
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
    weights: Option<&'a mut [f32]>,
    types: Option<&'a mut [u8]>,
}

impl<'a> Edges<'a> {
    fn split_at(self, n_edges: usize) -> (Edges<'a>, Edges<'a>) {
        let (indices, more_indices) = self.indices.split_at_mut(n_edges);
        let (weights, more_weights) = self.weights.map(|weights| weights.split_at_mut(n_edges)).unzip();
        let (types, more_types) = self.types.map(|types| types.split_at_mut(n_edges)).unzip();
        let left = Edges { indices, weights, types };
        (left, Edges { indices: more_indices, weights: more_weights, types: more_types })
    }
}

struct Filler<'a, W> {
    graph: &'a Csc,
    /// The `indptr` of the result.
    indptr: &'a [u64],
    loop_type: u8,
    weight: Option<W>,
}

impl<W: Fn(usize, f64, usize) -> f32 + Sync> Filler<'_, W> {
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
        // The edges after the loop move by one place.
        let added_loop = (ids.len() < out.indices.len()).then(|| place_of_loop(ids, dst));
        for (position, (edge, &src)) in edges.zip(ids).enumerate() {
            let to = position + usize::from(added_loop.is_some_and(|place| place <= position));
            let old_weight = self.graph.weights().map_or(1.0, |weights| f64::from(weights[edge]));
            out.indices[to] = src;
            if let (Some(weights), Some(weight)) = (&mut out.weights, &self.weight) {
                weights[to] = weight(src.index(), old_weight, dst);
            }
            if let (Some(types), Some(from)) = (&mut out.types, self.graph.edge_types()) {
                types[to] = from[edge];
            }
        }
        let Some(place) = added_loop else { return };
        out.indices[place] = NodeId(dst as u32);
        if let (Some(weights), Some(weight)) = (out.weights, &self.weight) {
            weights[place] = weight(dst, 1.0, dst);
        }
        if let Some(types) = out.types {
            types[place] = self.loop_type;
        }
    }
}

/// Returns the range of the edges into a node of a validated graph.
pub(crate) fn edges_into(graph: &Csc, dst: usize) -> std::ops::Range<usize> {
    graph.indptr()[dst] as usize..graph.indptr()[dst + 1] as usize
}

/// Returns true if a node of a validated graph has a self loop.
pub(crate) fn has_loop(graph: &Csc, dst: usize) -> bool {
    graph.indices()[edges_into(graph, dst)].contains(&NodeId(dst as u32))
}
