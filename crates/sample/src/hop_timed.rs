//! The hop of destinations with times: each picks only from the edges that it knows, as if the graph had no others.
//!
//! Rules that read only the number of edges pick positions in the order by time, so a destination with many edges costs no
//! more than one with few. Rules that read neighbours get the known ones in ascending order.

use std::ops::Range;

use kiln_graph::{EdgeColumns, NodeId};

use crate::hop::HopSampler;
use crate::hop_rule::{HopRule, RuleKind};
use crate::known_edges::{HopTimes, KnownEdges};
use crate::lanes::{GroupPicks, MOST_PICKS};
use crate::most_recent::pick_last;
use crate::uniform::{pick_uniformly, pick_with_replacement};
use crate::{Dsts, Error, Fanout, Frontier, Result, RuleError, Selection};

impl<R: HopRule + ?Sized> HopSampler<'_, R> {
    /// Prepares the times of a hop's destinations; `None` if they have none.
    pub(crate) fn times<'a>(&'a self, dsts: Dsts<'a>) -> Result<Option<HopTimes<'a>>> {
        let Some(times) = dsts.times() else {
            return match self.rule.kind() {
                RuleKind::MostRecent => Err(Error::Rule(RuleError::NoTimes)),
                _ => Ok(None),
            };
        };
        let edges = self.graph.edge_times();
        if edges.is_none() && self.graph.columns().get(EdgeColumns::TIMES).is_some() {
            return Err(Error::NoTimeOrder);
        }
        Ok(Some(HopTimes::new(times, edges, self.request.key, self.request.time_limits)))
    }

    /// Returns what the picks from the edges of a hop depend on. Edges without times have no most recent ones.
    fn timed_kind(&self, times: &HopTimes<'_>) -> RuleKind {
        match self.rule.kind() {
            RuleKind::MostRecent if times.edges.is_none() => RuleKind::Uniform,
            kind => kind,
        }
    }

    /// Picks from all destinations of a group that know more edges than the fanout, if the rule is uniform.
    pub(crate) fn pick_timed_group(
        &self,
        dsts: &[NodeId],
        first: usize,
        times: &HopTimes<'_>,
        picked: &mut GroupPicks,
    ) -> Result<()> {
        picked.dsts.clear();
        picked.known.clear();
        picked.lanes.clear();
        let Fanout::UpTo(fanout) = self.request.fanout else { return Ok(()) };
        let fanout = fanout as usize;
        if self.timed_kind(times) != RuleKind::Uniform || !(1..=MOST_PICKS).contains(&fanout) {
            return Ok(());
        }
        for (position, &dst) in (first..).zip(dsts) {
            let edges = self.edge_range(dst, position)?;
            times.prefetch(&edges);
            picked.dsts.push((edges, None));
        }
        for ((position, &dst), (edges, place)) in (first..).zip(dsts).zip(&mut picked.dsts) {
            let known = times.known(position, dst, edges)?;
            if fanout < known.len() {
                let key = times.key(position);
                *place = Some(picked.lanes.push_keyed(key, self.node(dst), known.len() as u32));
            }
            picked.known.push(known);
        }
        picked.lanes.pick_keyed(fanout);
        let lanes = &mut picked.lanes;
        for ((dst, (edges, place)), known) in dsts.iter().zip(&picked.dsts).zip(&picked.known) {
            let Some(place) = place else { continue };
            for pick in lanes.picks_of_mut(*place) {
                *pick = times.place(*known, *dst, edges, *pick)?;
            }
        }
        lanes.sort();
        Ok(())
    }

    /// Picks from the edges that one destination knows, without those at the positions `removed` among all its edges.
    pub(crate) fn pick_timed(
        &self,
        dst: NodeId,
        position: usize,
        times: &HopTimes<'_>,
        removed: &[u32],
        picks: &mut Selection,
        out: &mut Frontier,
    ) -> Result<()> {
        let edges = self.edge_range(dst, position)?;
        let known = times.known(position, dst, &edges)?;
        let node = self.node(dst);
        let key = times.key(position);
        let kind = self.timed_kind(times);
        let fanout = match self.request.fanout {
            Fanout::All => u32::MAX,
            Fanout::UpTo(fanout) => fanout,
        };
        if kind == RuleKind::OfNeighbors && self.request.fanout != Fanout::All {
            let unknown = unknown_edges(times, known, dst, &edges, removed)?;
            return self.pick_from_remaining(node, edges, &unknown, key, picks, out);
        }
        let removed = known_positions(times, known, dst, &edges, removed)?;
        let n_known = known.len() - removed.len();
        picks.clear();
        match kind {
            _ if n_known == 0 || fanout == 0 => {}
            _ if self.request.fanout == Fanout::All => picks.extend_ascending(0..n_known as u32),
            RuleKind::Uniform | RuleKind::OfNeighbors => {
                pick_uniformly(n_known as u32, fanout, key.node(node), picks);
            }
            RuleKind::WithReplacement => {
                pick_with_replacement(n_known as u32, fanout, key.node(node), picks);
            }
            RuleKind::MostRecent => pick_last(n_known as u32, fanout, picks),
        }
        for pick in picks.positions_from(0) {
            for removed in &removed {
                // Removed positions ascend, so each that is not after the pick moves it by one.
                *pick += u32::from(removed <= pick);
            }
            *pick = times.place(known, dst, &edges, *pick)?;
        }
        picks.sort();
        self.take_picks(&edges, n_known, picks.positions().iter().copied(), out);
        Ok(())
    }
}

/// Returns the positions among the known edges of those that are removed, ascending. `removed` are positions among all edges
/// of the destination.
fn known_positions(
    times: &HopTimes<'_>,
    known: KnownEdges,
    dst: NodeId,
    edges: &Range<usize>,
    removed: &[u32],
) -> Result<Vec<u32>> {
    let mut positions = Vec::with_capacity(removed.len());
    for place in removed {
        positions.extend(times.known_position(known, dst, edges, *place)?);
    }
    positions.sort_unstable();
    Ok(positions)
}

/// Returns the positions of a destination's edges that are removed or not known, ascending.
fn unknown_edges(
    times: &HopTimes<'_>,
    known: KnownEdges,
    dst: NodeId,
    edges: &Range<usize>,
    removed: &[u32],
) -> Result<Vec<u32>> {
    let mut is_left_out = vec![true; edges.len()];
    for position in 0..known.len() as u32 {
        is_left_out[times.place(known, dst, edges, position)? as usize] = false;
    }
    for place in removed {
        is_left_out[*place as usize] = true;
    }
    Ok((0..edges.len() as u32).filter(|place| is_left_out[*place as usize]).collect())
}
