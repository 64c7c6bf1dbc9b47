use std::ops::Range;
use std::path::Path;

use kiln_graph::{Csc, EdgeId, NodeId};
use kiln_mem::prefetch;

use crate::excluded::{RemovedEdges, SamplerId};
use crate::group_picks::{GroupBuffers, GroupPicks};
use crate::hop_rule::{HopRule, RuleKind, remaining_self_loops};
use crate::lanes::{MOST_DSTS, MOST_PICKS};
use crate::{
    DamagedGraphError, Dsts, EdgeWeights, Error, Fanout, Frontier, HopRequest, Neighbors, Result, RngKey,
    RuleError, Selection,
};

/// The sampler of one hop, which picks edges in groups of destinations.
///
/// Nearly every read is a cache miss at a random address, but a processor overlaps many of them. Therefore the `indptr`
/// entries of a group are prefetched while the previous group is picked. The sources are read after all picks of the
/// group, in a loop that does nothing else, so the processor overlaps about a hundred reads.
pub(crate) struct HopSampler<'a, R: ?Sized> {
    pub(crate) graph: &'a Csc,
    pub(crate) rule: &'a R,
    pub(crate) request: &'a HopRequest,
    /// The rows of the graph.
    pub(crate) rows: RowIds<'a>,
    /// The identity of the graph and of its rows.
    pub(crate) id: &'a SamplerId,
}

/// The edges that a hop has picked, and the buffers of its destinations.
pub(crate) struct HopOutput<'b> {
    /// The edges to leave out, which are taken destination by destination.
    pub(crate) removed: &'b mut RemovedEdges,
    pub(crate) picks: &'b mut Selection,
    pub(crate) out: &'b mut Frontier,
}

/// The nodes to which the rows of a graph belong. A node's global id keys its random draws.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowIds<'a> {
    /// Row `i` is node `i`.
    All,
    /// Row `i` is node `i` for the caller, and its global id is `ids[i]`.
    Listed(&'a [NodeId]),
    /// Row `i` is the node `first + i`.
    From(u32),
}

/// The maximum number of destinations in a group.
const GROUP: usize = MOST_DSTS;

/// The approximate maximum number of edges in a group: enough to overlap their reads, and few enough that their ids
/// stay in the L1 cache.
const GROUP_EDGES: usize = 1024;

/// The maximum number of edges to reserve memory for in advance: about 200 MB.
const MOST_RESERVED: usize = 1 << 24;

impl<R: HopRule + ?Sized> HopSampler<'_, R> {
    /// Fills `out` with the edges picked for `dsts`.
    pub(crate) fn fill(
        &self,
        dsts: Dsts<'_>,
        picks: &mut Selection,
        buffers: &mut GroupBuffers,
        out: &mut Frontier,
    ) -> Result<()> {
        let times = self.times(dsts)?;
        let dsts = dsts.nodes();
        if self.request.weights != EdgeWeights::None && self.graph.weights().is_none() {
            return Err(Error::NoWeights);
        }
        if self.request.edge_types && self.graph.edge_types().is_none() {
            return Err(Error::NoEdgeTypes);
        }
        let edges_per_dst = self.edges_per_dst();
        self.begin(dsts.len(), edges_per_dst, out);
        let mut removed = std::mem::take(&mut picks.removed);
        self.find_removed(dsts, &mut removed)?;
        let group = (GROUP_EDGES / edges_per_dst.max(1)).clamp(1, GROUP);
        let mut output = HopOutput { removed: &mut removed, picks, out };
        match &times {
            None => self.fill_untimed(dsts, group, &mut buffers.picked, &mut output)?,
            Some(times) => self.fill_timed(dsts, times, group, &mut buffers.timed, &mut output)?,
        }
        picks.removed = removed;
        Ok(())
    }

    /// Fills `out` with the edges picked for destinations without times, in groups of `group`.
    fn fill_untimed(
        &self,
        dsts: &[NodeId],
        group: usize,
        picked: &mut GroupPicks,
        output: &mut HopOutput<'_>,
    ) -> Result<()> {
        let HopOutput { removed, picks, out } = output;
        self.ask_for_ranges(&dsts[..group.min(dsts.len())]);
        for first in (0..dsts.len()).step_by(group) {
            let end = (first + group).min(dsts.len());
            let next_end = (first + 2 * group).min(dsts.len());
            self.ask_for_ranges(&dsts[end..next_end]);
            self.pick_group(&dsts[first..end], first, picked)?;
            for (position, &dst) in (first..end).zip(&dsts[first..end]) {
                let removed = removed.next(position);
                match picked.dsts.get(position - first) {
                    Some((edges, None)) if removed.is_empty() => self.take_all(edges.clone(), out),
                    Some((edges, Some(place))) if removed.is_empty() => {
                        self.take_picks(edges, edges.len(), picked.lanes.picks_of(*place), out);
                    }
                    _ => self.pick(dst, position, removed, picks, out)?,
                }
                self.end_dst(out)?;
            }
            self.read(out.edge_ids.len(), out);
        }
        Ok(())
    }

    /// Picks from all destinations of a group that have more neighbours than the fanout, if the rule is uniform.
    fn pick_group(&self, dsts: &[NodeId], first: usize, picked: &mut GroupPicks) -> Result<()> {
        picked.dsts.clear();
        picked.lanes.clear();
        let Fanout::UpTo(fanout) = self.request.fanout else { return Ok(()) };
        let fanout = fanout as usize;
        if self.rule.kind() != RuleKind::Uniform || !(1..=MOST_PICKS).contains(&fanout) {
            return Ok(());
        }
        for (position, &dst) in (first..).zip(dsts) {
            let edges = self.edge_range(dst, position)?;
            let is_drawn = fanout < edges.len();
            let place = is_drawn.then(|| picked.lanes.push(self.node(dst), edges.len() as u32));
            picked.dsts.push((edges, place));
        }
        picked.lanes.pick(self.request.key, fanout);
        Ok(())
    }

    /// Returns the global id of a destination of the graph.
    #[inline]
    pub(crate) fn node(&self, dst: NodeId) -> NodeId {
        match self.rows {
            RowIds::Listed(ids) => ids[dst.index()],
            RowIds::All | RowIds::From(_) => dst,
        }
    }

    /// Returns the row of a destination. If there is none, the graph does not have the returned row.
    #[inline]
    fn row(&self, dst: NodeId) -> NodeId {
        match self.rows {
            RowIds::From(first) => NodeId(dst.0.wrapping_sub(first)),
            RowIds::All | RowIds::Listed(_) => dst,
        }
    }

    /// Returns the range of the edges into a destination; see [`in_edge_range`].
    #[inline]
    pub(crate) fn edge_range(&self, dst: NodeId, position: usize) -> Result<Range<usize>> {
        range_of_row(self.graph, self.row(dst), dst, position)
    }

    /// Finds the edges to leave out. A destination without a global id is not a node of the graph, which is an error of
    /// [`HopSampler::pick`].
    fn find_removed(&self, dsts: &[NodeId], removed: &mut RemovedEdges) -> Result<()> {
        removed.find(
            self.id,
            self.request.excluded.as_ref(),
            dsts,
            |dst: NodeId| match self.rows {
                RowIds::Listed(ids) => ids.get(dst.index()).copied().unwrap_or(dst),
                RowIds::All | RowIds::From(_) => dst,
            },
            |dst, position| Ok(&self.graph.indices()[self.edge_range(dst, position)?]),
        )
    }

    /// Estimates the number of edges to pick per destination: the graph's mean degree, limited to the fanout.
    fn edges_per_dst(&self) -> usize {
        let mean = self.graph.n_edges().div_ceil(self.graph.n_nodes().max(1) as u64) as usize;
        match self.request.fanout {
            Fanout::All => mean,
            Fanout::UpTo(fanout) => mean.min(fanout as usize),
        }
    }

    fn begin(&self, n_dst: usize, edges_per_dst: usize, out: &mut Frontier) {
        let n_edges = self.n_reserved(n_dst, edges_per_dst);
        out.indptr.clear();
        out.indptr.reserve(n_dst + 1);
        out.indptr.push(0);
        out.srcs.clear();
        out.srcs.reserve(n_edges);
        out.edge_ids.clear();
        out.edge_ids.reserve(n_edges);
        out.weights = (self.request.weights != EdgeWeights::None).then(|| {
            let mut weights = out.weights.take().unwrap_or_default();
            weights.clear();
            weights.reserve(n_edges);
            weights
        });
        out.edge_types = self.request.edge_types.then(|| {
            let mut edge_types = out.edge_types.take().unwrap_or_default();
            edge_types.clear();
            edge_types.reserve(n_edges);
            edge_types
        });
    }

    /// Returns the number of edges to reserve memory for. It is 0 for whole neighbourhoods: their sizes differ too much
    /// from the graph's mean, so the vectors grow on demand.
    fn n_reserved(&self, n_dst: usize, edges_per_dst: usize) -> usize {
        match self.request.fanout {
            Fanout::All => 0,
            Fanout::UpTo(_) => n_dst.saturating_mul(edges_per_dst).min(MOST_RESERVED),
        }
    }

    pub(crate) fn ask_for_ranges(&self, dsts: &[NodeId]) {
        for &dst in dsts {
            let row = self.row(dst).index();
            prefetch(self.graph.indptr(), row);
            prefetch(self.graph.indptr(), row + 1);
        }
    }

    /// Picks one destination's edges without those at the positions `removed`, and appends their ids and their weight
    /// factors.
    #[inline]
    fn pick(
        &self,
        dst: NodeId,
        position: usize,
        removed: &[u32],
        picks: &mut Selection,
        out: &mut Frontier,
    ) -> Result<()> {
        let edges = self.edge_range(dst, position)?;
        let node = self.node(dst);
        match removed.is_empty() {
            true => self.pick_from_all(node, edges, picks, out),
            false => self.pick_from_remaining(node, edges, removed, self.request.key, picks, out),
        }
    }

    /// Appends the next entry of `indptr`, after the edges of a destination.
    #[inline]
    pub(crate) fn end_dst(&self, out: &mut Frontier) -> Result<()> {
        let n_edges = out.edge_ids.len() as u64;
        let layer = self.request.layer;
        let end = u32::try_from(n_edges).map_err(|_| Error::BlockTooLarge { layer, n_edges })?;
        out.indptr.push(end);
        Ok(())
    }

    /// Picks from all of a destination's edges.
    #[inline]
    fn pick_from_all(
        &self,
        node: NodeId,
        edges: Range<usize>,
        picks: &mut Selection,
        out: &mut Frontier,
    ) -> Result<()> {
        match self.request.fanout {
            Fanout::All => self.take_all(edges, out),
            Fanout::UpTo(0) if !self.rule.keeps_self_loops() => {}
            Fanout::UpTo(_) if edges.is_empty() => {}
            Fanout::UpTo(fanout) => {
                let neighbors = neighbors(self.graph, node, edges);
                picks.clear();
                self.rule.pick(neighbors, self.request.key.node(node), fanout, picks);
                picks.sort();
                check_picks(node, picks.positions(), neighbors.degree())?;
                out.edge_ids.extend(
                    picks.positions().iter().map(|&pick| EdgeId(neighbors.first_edge.0 + u64::from(pick))),
                );
                if let Some(factors) = &mut out.weights {
                    self.push_factors(
                        neighbors.degree(),
                        || neighbors.self_loops(),
                        picks.positions(),
                        factors,
                    );
                }
            }
        }
        Ok(())
    }

    /// Picks from a destination's edges without those at the positions `removed`, as if the graph did not have them.
    pub(crate) fn pick_from_remaining(
        &self,
        node: NodeId,
        edges: Range<usize>,
        removed: &[u32],
        key: RngKey,
        picks: &mut Selection,
        out: &mut Frontier,
    ) -> Result<()> {
        let neighbors = neighbors(self.graph, node, edges);
        let n_remaining = neighbors.degree() - removed.len();
        picks.clear();
        match self.request.fanout {
            Fanout::All => picks.extend_ascending(0..n_remaining as u32),
            Fanout::UpTo(0) if !self.rule.keeps_self_loops() => {}
            Fanout::UpTo(_) if n_remaining == 0 => {}
            Fanout::UpTo(fanout) => {
                self.rule.pick_remaining(neighbors, removed, key.node(node), fanout, picks);
                picks.sort();
            }
        }
        check_picks(node, picks.positions(), n_remaining)?;
        if let Some(factors) = &mut out.weights {
            match self.request.fanout {
                Fanout::All => factors.resize(factors.len() + n_remaining, 1.0),
                Fanout::UpTo(_) => {
                    self.push_factors(
                        n_remaining,
                        || remaining_self_loops(neighbors, removed),
                        picks.positions(),
                        factors,
                    );
                }
            }
        }
        // Both lists ascend, so the number of removed edges before a pick only grows.
        let mut n_before = 0;
        out.edge_ids.extend(picks.positions().iter().map(|&pick| {
            while removed.get(n_before).is_some_and(|&position| position <= pick + n_before as u32) {
                n_before += 1;
            }
            EdgeId(neighbors.first_edge.0 + u64::from(pick) + n_before as u64)
        }));
        Ok(())
    }

    /// Takes the picks of a rule that picks from `n_edges` edges of a destination with equal probability.
    #[inline]
    pub(crate) fn take_picks(
        &self,
        edges: &Range<usize>,
        n_edges: usize,
        picks: impl ExactSizeIterator<Item = u32>,
        out: &mut Frontier,
    ) {
        if let Some(factors) = &mut out.weights {
            let factor = match self.request.weights {
                EdgeWeights::Stored => 1.0,
                _ => (n_edges as f64 / picks.len() as f64) as f32,
            };
            factors.resize(factors.len() + picks.len(), factor);
        }
        out.edge_ids.extend(picks.map(|pick| EdgeId(edges.start as u64 + u64::from(pick))));
    }

    pub(crate) fn take_all(&self, edges: Range<usize>, out: &mut Frontier) {
        if let Some(factors) = &mut out.weights {
            factors.resize(factors.len() + edges.len(), 1.0);
        }
        out.edge_ids.extend(edges.map(|edge| EdgeId(edge as u64)));
    }

    /// Appends the factor by which the weight of each pick is multiplied: 1 with [`EdgeWeights::Stored`], otherwise the
    /// number of edges divided by the number of picks, which is exactly 1 if all edges are picked. Self loops that the
    /// rule always keeps, at the positions `kept`, are excluded from both numbers; their factor is 1.
    fn push_factors(
        &self,
        degree: usize,
        kept: impl FnOnce() -> Range<usize>,
        picks: &[u32],
        factors: &mut Vec<f32>,
    ) {
        if self.request.weights == EdgeWeights::Stored {
            return factors.resize(factors.len() + picks.len(), 1.0);
        }
        let kept = if self.rule.keeps_self_loops() { kept() } else { 0..0 };
        let is_drawn = |pick: u32| !kept.contains(&(pick as usize));
        let n_drawn = picks.iter().filter(|pick| is_drawn(**pick)).count();
        let factor = ((degree - kept.len()) as f64 / n_drawn as f64) as f32;
        factors.extend(picks.iter().map(|&pick| if is_drawn(pick) { factor } else { 1.0 }));
    }

    /// Reads the sources, the weights and the types of the edges that were picked since the last call, and multiplies
    /// the weights by their factors.
    pub(crate) fn read(&self, end: usize, out: &mut Frontier) {
        let n_read = out.srcs.len();
        let edge_ids = &out.edge_ids[n_read..end];
        let indices = self.graph.indices();
        out.srcs.extend(edge_ids.iter().map(|edge| indices[edge.index()]));
        if let (Some(factors), Some(weights)) = (&mut out.weights, self.graph.weights()) {
            for (factor, edge) in factors[n_read..].iter_mut().zip(edge_ids) {
                *factor *= weights[edge.index()];
            }
        }
        if let (Some(edge_types), Some(all)) = (&mut out.edge_types, self.graph.edge_types()) {
            edge_types.extend(edge_ids.iter().map(|edge| all[edge.index()]));
        }
    }
}

/// Checks that picks are positions below the number of neighbours. They ascend, so the last one suffices.
#[inline]
fn check_picks(dst: NodeId, picks: &[u32], degree: usize) -> Result<()> {
    match picks.last() {
        Some(&pick) if degree <= pick as usize => {
            Err(Error::Rule(RuleError::PickOutOfRange { dst, pick, degree }))
        }
        _ => Ok(()),
    }
}

/// Returns the range of the edges into `dst` in a graph's `indices`. All values are checked, because a mapped graph may
/// not have been validated. `position` is the position of `dst` in the caller's list, for errors.
///
/// # Errors
/// Returns [`Error::SeedOutOfRange`] if the graph does not have the node, [`DamagedGraphError::BadEdgeRange`] if the
/// range is invalid, and [`Error::DegreeTooLarge`] if it has more than 2^32 - 1 edges.
#[inline]
pub fn in_edge_range(graph: &Csc, dst: NodeId, position: usize) -> Result<Range<usize>> {
    range_of_row(graph, dst, dst, position)
}

/// Returns the range of the edges of a row, which belongs to `dst`.
#[inline]
fn range_of_row(graph: &Csc, row: NodeId, dst: NodeId, position: usize) -> Result<Range<usize>> {
    let indptr = graph.indptr();
    if row.index() >= graph.n_nodes() {
        return Err(Error::SeedOutOfRange { node: dst, position, n_nodes: graph.n_nodes() });
    }
    let start = indptr[row.index()];
    let end = indptr[row.index() + 1];
    if start > end || end > graph.n_edges() {
        let n_edges = graph.n_edges();
        let file = graph.indptr_path().map(Path::to_owned);
        return Err(Error::DamagedGraph(DamagedGraphError::BadEdgeRange {
            node: dst,
            start,
            end,
            n_edges,
            file,
        }));
    }
    if end - start > u64::from(u32::MAX) {
        return Err(Error::DegreeTooLarge { dst, degree: end - start });
    }
    Ok(start as usize..end as usize)
}

#[inline]
fn neighbors(graph: &Csc, dst: NodeId, edges: Range<usize>) -> Neighbors<'_> {
    let first_edge = EdgeId(edges.start as u64);
    Neighbors {
        weights: graph.weights().map(|weights| &weights[edges.clone()]),
        edge_types: graph.edge_types().map(|types| &types[edges.clone()]),
        ..Neighbors::new(dst, &graph.indices()[edges], first_edge)
    }
}
