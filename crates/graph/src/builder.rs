//! The builder that converts an edge list (COO) to [`Csc`].
//!
//! Edges are sorted in parallel by destination and then by source, so the result does not depend on the number of
//! threads.

use rayon::prelude::*;

use crate::build_options::{Duplicates, SelfLoops};
use crate::by_dst::{Entry, sort_by_dst};
use crate::coo::{Codes, Directions, Edges, remove_duplicates};
use crate::csc::check_node_count;
use crate::{
    ColumnError, ColumnValues, Csc, EdgeColumn, EdgeColumns, EdgeId, Error, NodeId, Result, SharedArray,
};

/// The minimum in-degree of a destination whose edges are sorted on all threads.
const LEAST_PARALLEL: usize = 1 << 16;

/// The entry of the edge list from which an edge of the graph was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeOrigin {
    /// The edge at this position of the edge list, as given.
    Forward(u64),
    /// The reverse of the edge at this position, added by [`CscBuilder::symmetrize`].
    Reverse(u64),
    /// A self loop added by [`SelfLoops::Add`].
    AddedLoop,
}

/// A graph with the origin of each edge in the edge list.
#[derive(Debug, Clone)]
pub struct TracedGraph {
    /// The graph that was built.
    pub graph: Csc,
    /// The origin code of each edge, in CSC order: twice the position in the edge list, plus 1 for a reverse edge;
    /// `2 * n_coo_edges` or above for an added self loop.
    origins: SharedArray<u64>,
    n_coo_edges: u64,
}

impl TracedGraph {
    /// Returns the origin of an edge in the edge list.
    ///
    /// # Panics
    /// Panics if the graph does not have the edge.
    pub fn origin(&self, edge: EdgeId) -> EdgeOrigin {
        let code = self.origins[edge.index()];
        match code / 2 {
            position if position >= self.n_coo_edges => EdgeOrigin::AddedLoop,
            position if code.is_multiple_of(2) => EdgeOrigin::Forward(position),
            position => EdgeOrigin::Reverse(position),
        }
    }

    /// Returns the reverse edge of each edge of a symmetrized graph, in CSC order: the edge of the opposite direction
    /// that comes from the same entry of the edge list. `None` for self loops, for graphs that were not symmetrized,
    /// and if [`Duplicates::Remove`] removed the reverse edge in favour of another entry's edge.
    pub fn reverse_edges(&self) -> Vec<Option<EdgeId>> {
        const NONE: u64 = u64::MAX;
        let mut edge_of_code = vec![NONE; 2 * self.n_coo_edges as usize];
        for (edge, &code) in self.origins.iter().enumerate() {
            if let Some(slot) = edge_of_code.get_mut(code as usize) {
                *slot = edge as u64;
            }
        }
        self.origins
            .iter()
            .map(|&code: &u64| match edge_of_code.get((code ^ 1) as usize) {
                Some(&edge) if edge != NONE => Some(EdgeId(edge)),
                _ => None,
            })
            .collect()
    }
}

/// Builds a [`Csc`] from an edge list in memory.
///
/// Peak memory, without the edge list itself, is at most 2.5 times the graph's arrays before duplicates are removed,
/// plus 1 MiB per thread. The arrays take 8 bytes per node and 4 per edge. Graphs with columns or origins need 4 more bytes
/// per edge during the build (8 if the edge list has more than about 2^31 entries), and 8 more with columns besides weights
/// and types.
///
/// ```
/// use kiln_graph::{CscBuilder, NodeId};
/// let graph = CscBuilder::new(3).symmetrize().build(&[0, 1], &[1, 2])?;
/// assert_eq!(graph.indptr(), [0, 1, 3, 4]);
/// assert_eq!(graph.in_neighbors(NodeId(1)), [NodeId(0), NodeId(2)]);
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CscBuilder<'a> {
    n_nodes: usize,
    symmetrize: bool,
    duplicates: Duplicates,
    self_loops: SelfLoops,
    weights: Option<&'a [f32]>,
    edge_types: Option<&'a [u8]>,
    /// The columns of the edges of the list besides `weights` and `edge_types`, which are borrowed.
    columns: EdgeColumns,
    reverse_type_offset: u8,
    /// True if sources have other numbers than destinations.
    is_bipartite: bool,
}

impl<'a> CscBuilder<'a> {
    /// Creates a builder for a graph of `n_nodes` nodes that keeps all edges as given.
    pub fn new(n_nodes: usize) -> Self {
        Self {
            n_nodes,
            symmetrize: false,
            duplicates: Duplicates::Keep,
            self_loops: SelfLoops::Keep,
            weights: None,
            edge_types: None,
            columns: EdgeColumns::default(),
            reverse_type_offset: 0,
            is_bipartite: false,
        }
    }

    /// Adds the reverse of each edge, with the same weight. Self loops are not duplicated.
    pub fn symmetrize(self) -> Self {
        Self { symmetrize: true, ..self }
    }

    /// Sets the policy for parallel edges.
    pub fn duplicates(self, duplicates: Duplicates) -> Self {
        Self { duplicates, ..self }
    }

    /// Sets the policy for self loops.
    pub fn self_loops(self, self_loops: SelfLoops) -> Self {
        Self { self_loops, ..self }
    }

    /// Sets the weight of each edge of the list.
    pub fn weights(self, weights: &'a [f32]) -> Self {
        Self { weights: Some(weights), ..self }
    }

    /// Sets the type of each edge of the list.
    pub fn edge_types(self, edge_types: &'a [u8]) -> Self {
        Self { edge_types: Some(edge_types), ..self }
    }

    /// Sets columns of the edges of the list. A reverse edge has the row of its edge. Weights and types may be
    /// among them instead of [`CscBuilder::weights`] and [`CscBuilder::edge_types`].
    pub fn columns(self, columns: EdgeColumns) -> Self {
        Self { columns, ..self }
    }

    /// Adds `offset` to the type of the reverse edges that [`CscBuilder::symmetrize`] adds, to distinguish the two
    /// directions. The largest type plus `offset` must be below 256.
    pub fn reverse_type_offset(self, offset: u8) -> Self {
        Self { reverse_type_offset: offset, ..self }
    }

    /// Builds an adjacency whose sources have other numbers than its destinations, which are the nodes of the builder. The
    /// caller has checked the ids. It is not combined with reverse edges or self loops, which it does not have.
    pub(crate) fn bipartite(self) -> Self {
        Self { is_bipartite: true, ..self }
    }

    /// Builds the graph of the edges `srcs[i] -> dsts[i]`.
    ///
    /// # Errors
    /// Returns [`Error::NodeOutOfRange`] for the first edge with a node id out of range, [`Error::LengthMismatch`] for
    /// arrays of different lengths, [`Error::TooMany`] for more than 2^32 - 1 nodes or edge types above 255, and
    /// [`ColumnError::AddedLoop`] if a self loop is added to edges with columns, of which it has no row.
    pub fn build(&self, srcs: &[u32], dsts: &[u32]) -> Result<Csc> {
        if self.weights.is_some() || self.edge_types.is_some() || !self.columns.is_empty() {
            return Ok(self.build_ordered(srcs, dsts)?.0);
        }
        let edges = self.edges(srcs, dsts)?;
        let (mut indptr, mut indices) = sort_by_dst(
            &edges,
            |_, src| src,
            |srcs: &mut [u32], _: &mut ()| match srcs.len() < LEAST_PARALLEL {
                true => srcs.sort_unstable(),
                false => srcs.par_sort_unstable(),
            },
        );
        if self.duplicates == Duplicates::Remove {
            remove_duplicates(&mut indptr, &mut indices, |src| *src);
        }
        let indices: Vec<NodeId> = bytemuck::cast_vec(indices);
        Csc::new(indptr.into(), indices.into())
    }

    /// Builds the graph and keeps the origin of each edge in the edge list, 8 bytes per edge.
    ///
    /// # Errors
    /// Returns the same errors as [`CscBuilder::build`].
    pub fn build_with_origins(&self, srcs: &[u32], dsts: &[u32]) -> Result<TracedGraph> {
        let (graph, origins) = self.build_ordered(srcs, dsts)?;
        Ok(TracedGraph { graph, origins: origins.into(), n_coo_edges: srcs.len() as u64 })
    }

    /// Builds the graph with its edge data, and returns the origin code of each edge. The codes are sorted instead of
    /// the sources, because a code identifies both its source and its edge data.
    fn build_ordered(&self, srcs: &[u32], dsts: &[u32]) -> Result<(Csc, Codes)> {
        let edges = self.edges(srcs, dsts)?;
        let codes_fit_32_bits = 2 * srcs.len() as u64 + self.n_nodes as u64 <= u64::from(u32::MAX);
        let (indptr, codes) = if codes_fit_32_bits {
            let (indptr, codes) = self.codes_by_dst(&edges, |code| code as u32);
            (indptr, Codes::Narrow(codes))
        } else {
            let (indptr, codes) = self.codes_by_dst(&edges, |code| code);
            (indptr, Codes::Wide(codes))
        };
        let graph = self.with_edge_data(&edges, indptr, &codes)?;
        Ok((graph, codes))
    }

    /// Sorts the origin codes by destination, then by source, then by position in the edge list, and removes duplicate
    /// edges if configured. Returns `indptr` and the codes.
    fn codes_by_dst<C: Entry + Ord + Into<u64>>(
        &self,
        edges: &Edges<'_>,
        narrow: impl Fn(u64) -> C + Sync,
    ) -> (Vec<u64>, Vec<C>) {
        let src = |code: C| edges.src(code.into());
        let order = |codes: &mut [C], pairs: &mut Vec<(u32, C)>| {
            if LEAST_PARALLEL <= codes.len() {
                // The codes are sorted in place, because pairs would need too much memory if nearly all edges have the
                // same destination.
                return codes.par_sort_unstable_by_key(|&code| (src(code), code));
            }
            // Looking up a source is a random read. Sorting pairs needs one such read per edge instead of one per
            // comparison.
            pairs.clear();
            pairs.extend(codes.iter().map(|&code| (src(code), code)));
            pairs.sort_unstable();
            codes.iter_mut().zip(pairs).for_each(|(code, pair)| *code = pair.1);
        };
        let (mut indptr, mut codes) = sort_by_dst(edges, |code, _| narrow(code), order);
        if self.duplicates == Duplicates::Remove {
            remove_duplicates(&mut indptr, &mut codes, |&code| src(code));
        }
        (indptr, codes)
    }

    fn with_edge_data(&self, edges: &Edges<'_>, indptr: Vec<u64>, codes: &Codes) -> Result<Csc> {
        let indices: Vec<NodeId> = codes.map(|code| NodeId(edges.src(code)));
        let mut graph = Csc::new(indptr.into(), indices.into())?;
        if let Some(weights) = self.given_weights() {
            let ordered: Vec<f32> = codes.map(|code| weights.get(code as usize / 2).copied().unwrap_or(1.0));
            graph = graph.with_weights(ordered.into())?;
        }
        if let Some(types) = self.given_types() {
            let ordered: Vec<u8> = codes.map(|code| match types.get(code as usize / 2) {
                Some(ty) if code % 2 == 1 => ty + self.reverse_type_offset,
                Some(ty) => *ty,
                None => 0,
            });
            graph = graph.with_edge_types(ordered.into())?;
        }
        for (name, column) in self.columns.rows().iter() {
            graph = graph.with_column(name, ordered_rows(column, codes)?)?;
        }
        Ok(graph)
    }

    fn given_weights(&self) -> Option<&[f32]> {
        self.weights.or_else(|| match self.columns.get(EdgeColumns::WEIGHTS)?.values() {
            ColumnValues::F32(weights) => Some(weights),
            _ => None,
        })
    }

    fn given_types(&self) -> Option<&[u8]> {
        self.edge_types.or_else(|| match self.columns.get(EdgeColumns::TYPES)?.values() {
            ColumnValues::U8(types) => Some(types),
            _ => None,
        })
    }

    /// Checks the number of nodes, the edge list and its edge data, and returns the edges to build the graph from.
    fn edges<'e>(&self, srcs: &'e [u32], dsts: &'e [u32]) -> Result<Edges<'e>> {
        check_node_count(self.n_nodes)?;
        let n_edges = srcs.len() as u64;
        let lengths = [
            ("dsts", Some(dsts.len())),
            ("weights", self.weights.map(<[f32]>::len)),
            ("edge_types", self.edge_types.map(<[u8]>::len)),
        ];
        for (what, got) in lengths {
            if let Some(got) = got.filter(|&got| got as u64 != n_edges) {
                return Err(Error::LengthMismatch { what, expected: n_edges, got: got as u64 });
            }
        }
        let borrowed =
            [(EdgeColumns::WEIGHTS, self.weights.is_some()), (EdgeColumns::TYPES, self.edge_types.is_some())];
        for (name, is_given) in borrowed {
            if is_given && self.columns.get(name).is_some() {
                return Err(ColumnError::Repeated { name: name.to_owned() }.into());
            }
        }
        for (name, column) in self.columns.iter() {
            let got = column.n_rows() as u64;
            if got != n_edges {
                return Err(ColumnError::Length { name: name.to_owned(), expected: n_edges, got }.into());
            }
        }
        let largest_type = self.given_types().and_then(|types| types.iter().max()).copied().unwrap_or(0);
        if self.symmetrize && largest_type.checked_add(self.reverse_type_offset).is_none() {
            let n = u64::from(largest_type) + u64::from(self.reverse_type_offset) + 1;
            return Err(Error::TooMany { what: "edge types", n, max: 256 });
        }
        if !self.is_bipartite {
            self.check_ids(srcs, dsts)?;
        }
        let directions = if self.symmetrize { Directions::Both } else { Directions::AsGiven };
        Ok(Edges::new(self.n_nodes, srcs, dsts, directions, self.self_loops))
    }

    fn check_ids(&self, srcs: &[u32], dsts: &[u32]) -> Result<()> {
        let n_nodes = self.n_nodes;
        let outside = |edge: usize| srcs[edge].max(dsts[edge]) as usize >= n_nodes;
        // A parallel maximum over all ids is fast; the edge is searched for only if an id is out of range.
        let largest = srcs.par_iter().chain(dsts).max().copied().unwrap_or(0) as usize;
        let first = || (0..srcs.len()).into_par_iter().find_first(|&edge| outside(edge));
        if let Some(edge) = (n_nodes <= largest).then(first).flatten() {
            let node = srcs[edge].max(dsts[edge]);
            return Err(Error::NodeOutOfRange { edge: edge as u64, node, n_nodes });
        }
        Ok(())
    }
}

/// Returns the rows of a list's edges in CSC order.
fn ordered_rows(column: &EdgeColumn, codes: &Codes) -> Result<EdgeColumn> {
    let rows: Vec<u64> = codes.map(|code| code / 2);
    column.select(rows.into_iter()).map_err(|error| match error {
        // The position of an added loop is above those of the list.
        Error::Column(ColumnError::NoRow { .. }) => ColumnError::AddedLoop.into(),
        other => other,
    })
}
