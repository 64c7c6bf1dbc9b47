//! From an edge list (COO) to [`Csc`]: a parallel sort by destination, and of each destination's edges, so that
//! the result does not depend on the number of threads.

use rayon::prelude::*;

use crate::by_dst::{Entry, sort_by_dst};
use crate::coo::{Codes, Directions, Edges, remove_duplicates};
use crate::csc::check_node_count;
use crate::{Csc, EdgeId, Error, NodeId, Result, SharedArray};

/// Edges of one destination that are sorted on all threads.
const LEAST_PARALLEL: usize = 1 << 16;

/// What to do with several edges from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// Keep each; they stand next to each other, in the order of the edge list.
    #[default]
    Keep,
    /// Keep the first in the order of the edge list, with its weight and type.
    Remove,
}

/// What to do with edges from a node to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SelfLoops {
    /// Leave them as they are.
    #[default]
    Keep,
    /// Drop them.
    Remove,
    /// Give one, of weight 1 and type 0, to each node that has none.
    Add,
}

/// Where an edge of a finished graph comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeOrigin {
    /// The edge at this position of the edge list, as given.
    Forward(u64),
    /// The reverse, made by symmetrizing, of the edge at this position.
    Reverse(u64),
    /// A self loop that [`SelfLoops::Add`] made.
    AddedLoop,
}

/// A finished graph with the way back to the edge list.
#[derive(Debug, Clone)]
pub struct TracedGraph {
    /// The graph.
    pub graph: Csc,
    /// One entry an edge, in CSC order: twice the position in the edge list, plus one for a reverse;
    /// [`TracedGraph::ADDED_LOOP`] or above for an added self loop.
    origins: SharedArray<u64>,
    n_coo_edges: u64,
}

impl TracedGraph {
    /// Where an edge comes from.
    ///
    /// # Panics
    /// When the edge is not one of the graph's.
    pub fn origin(&self, edge: EdgeId) -> EdgeOrigin {
        let code = self.origins[edge.index()];
        match code / 2 {
            position if position >= self.n_coo_edges => EdgeOrigin::AddedLoop,
            position if code.is_multiple_of(2) => EdgeOrigin::Forward(position),
            position => EdgeOrigin::Reverse(position),
        }
    }

    /// For each edge of a symmetrized graph, in CSC order, the edge that runs the other way and comes
    /// from the same entry of the edge list. `None` for self loops, for graphs that were not symmetrized,
    /// and where [`Duplicates::Remove`] dropped the twin in favour of another entry's edge.
    pub fn reverse_edges(&self) -> Vec<Option<EdgeId>> {
        const NONE: u64 = u64::MAX;
        let mut edge_of_code = vec![NONE; 2 * self.n_coo_edges as usize];
        for (edge, &code) in self.origins.iter().enumerate() {
            if let Some(slot) = edge_of_code.get_mut(code as usize) {
                *slot = edge as u64;
            }
        }
        let twin = |&code: &u64| match edge_of_code.get((code ^ 1) as usize) {
            Some(&edge) if edge != NONE => Some(EdgeId(edge)),
            _ => None,
        };
        self.origins.iter().map(twin).collect()
    }
}

/// Builds a [`Csc`] from an edge list in memory.
///
/// Peak memory, the edge list itself not counted, is at most 2.5 times the arrays of the graph before
/// duplicates are removed, and 1 MiB a thread: 8 bytes a node and 4 an edge, and 4 an edge more while weights, types or
/// origins are put in order (8 beyond 2^31 entries of the edge list).
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
    reverse_type_offset: u8,
}

impl<'a> CscBuilder<'a> {
    /// A builder for a graph of `n_nodes` nodes that keeps all edges as they are.
    pub fn new(n_nodes: usize) -> Self {
        Self {
            n_nodes,
            symmetrize: false,
            duplicates: Duplicates::Keep,
            self_loops: SelfLoops::Keep,
            weights: None,
            edge_types: None,
            reverse_type_offset: 0,
        }
    }

    /// Adds the reverse of each edge, with the same weight; self loops are not doubled.
    pub fn symmetrize(self) -> Self {
        Self { symmetrize: true, ..self }
    }

    /// What to do with parallel edges.
    pub fn duplicates(self, duplicates: Duplicates) -> Self {
        Self { duplicates, ..self }
    }

    /// What to do with self loops.
    pub fn self_loops(self, self_loops: SelfLoops) -> Self {
        Self { self_loops, ..self }
    }

    /// Gives each edge of the list a weight.
    pub fn weights(self, weights: &'a [f32]) -> Self {
        Self { weights: Some(weights), ..self }
    }

    /// Gives each edge of the list a type.
    pub fn edge_types(self, edge_types: &'a [u8]) -> Self {
        Self { edge_types: Some(edge_types), ..self }
    }

    /// Adds `offset` to the type of the edges that symmetrizing makes, so that the two directions can be
    /// told apart. The sum must stay below 256.
    pub fn reverse_type_offset(self, offset: u8) -> Self {
        Self { reverse_type_offset: offset, ..self }
    }

    /// Builds the graph of the edges `srcs[i] -> dsts[i]`.
    ///
    /// # Errors
    /// [`Error::NodeOutOfRange`] for the first edge that names a node the graph does not have,
    /// [`Error::LengthMismatch`] for arrays of different lengths, [`Error::TooMany`] for more than
    /// 2^32 - 1 nodes or edge types that leave a byte.
    pub fn build(&self, srcs: &[u32], dsts: &[u32]) -> Result<Csc> {
        if self.weights.is_some() || self.edge_types.is_some() {
            return Ok(self.build_ordered(srcs, dsts)?.0);
        }
        let edges = self.edges(srcs, dsts)?;
        let order = |srcs: &mut [u32], _: &mut ()| match srcs.len() < LEAST_PARALLEL {
            true => srcs.sort_unstable(),
            false => srcs.par_sort_unstable(),
        };
        let (mut indptr, mut indices) = sort_by_dst(&edges, |_, src| src, order);
        if self.duplicates == Duplicates::Remove {
            remove_duplicates(&mut indptr, &mut indices, |src| *src);
        }
        let indices: Vec<NodeId> = bytemuck::cast_vec(indices);
        Csc::new(indptr.into(), indices.into())
    }

    /// Builds the graph and keeps the way back from its edges to the edge list, 8 bytes an edge.
    ///
    /// # Errors
    /// As for [`CscBuilder::build`].
    pub fn build_with_origins(&self, srcs: &[u32], dsts: &[u32]) -> Result<TracedGraph> {
        let (graph, origins) = self.build_ordered(srcs, dsts)?;
        Ok(TracedGraph { graph, origins: origins.into(), n_coo_edges: srcs.len() as u64 })
    }

    /// The graph with its edge data, and the code of each edge's origin. The codes are sorted in place of
    /// the sources, since a code stands for its source and says where the edge data is.
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

    /// The codes by destination, then by source, then by position in the edge list.
    fn codes_by_dst<C: Entry + Ord + Into<u64>>(
        &self,
        edges: &Edges<'_>,
        narrow: impl Fn(u64) -> C + Sync,
    ) -> (Vec<u64>, Vec<C>) {
        let src = |code: C| edges.src(code.into());
        let order = |codes: &mut [C], pairs: &mut Vec<(u32, C)>| {
            if LEAST_PARALLEL <= codes.len() {
                // Without a copy, which would take too much memory where nearly all edges have one destination.
                return codes.par_sort_unstable_by_key(|&code| (src(code), code));
            }
            // A source is a read at a random place: once an edge rather than in each comparison. With weights, 124 M
            // edges took 27 s of processor time, and take 11 s.
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
        if let Some(weights) = self.weights {
            let ordered: Vec<f32> = codes.map(|code| weights.get(code as usize / 2).copied().unwrap_or(1.0));
            graph = graph.with_weights(ordered.into())?;
        }
        if let Some(types) = self.edge_types {
            let ordered: Vec<u8> = codes.map(|code| match types.get(code as usize / 2) {
                Some(ty) if code % 2 == 1 => ty + self.reverse_type_offset,
                Some(ty) => *ty,
                None => 0,
            });
            graph = graph.with_edge_types(ordered.into())?;
        }
        Ok(graph)
    }

    /// The checked edge list.
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
        let largest_type = self.edge_types.and_then(|types| types.iter().max()).copied().unwrap_or(0);
        if self.symmetrize && largest_type.checked_add(self.reverse_type_offset).is_none() {
            let n = u64::from(largest_type) + u64::from(self.reverse_type_offset) + 1;
            return Err(Error::TooMany { what: "edge types", n, max: 256 });
        }
        let n_nodes = self.n_nodes;
        let outside = |edge: usize| srcs[edge].max(dsts[edge]) as usize >= n_nodes;
        // The largest of all is found many at a time; which edge it is of matters only where it is too large.
        let largest = srcs.par_iter().chain(dsts).max().copied().unwrap_or(0) as usize;
        let first = || (0..srcs.len()).into_par_iter().find_first(|&edge| outside(edge));
        if let Some(edge) = (n_nodes <= largest).then(first).flatten() {
            let node = srcs[edge].max(dsts[edge]);
            return Err(Error::NodeOutOfRange { edge: edge as u64, node, n_nodes });
        }
        let directions = if self.symmetrize { Directions::Both } else { Directions::AsGiven };
        Ok(Edges::new(n_nodes, srcs, dsts, directions, self.self_loops))
    }
}
