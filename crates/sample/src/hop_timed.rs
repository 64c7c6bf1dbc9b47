//! The hop of destinations with times: each picks only from the edges that it knows, as if the graph had no others.
//!
//! Rules that read only the number of edges pick positions in the order by time, so a destination with many edges costs no
//! more than one with few. Rules that read neighbours get the known ones in ascending order.

use std::ops::Range;

use kiln_graph::{EdgeColumns, NodeId};

use crate::group_picks::GroupPicks;
use crate::hop::HopSampler;
use crate::hop_rule::{HopRule, RuleKind};
use crate::known_edges::{HopTimes, KnownEdges};
use crate::lanes::MOST_PICKS;
use crate::most_recent::pick_last;
use crate::uniform::{pick_uniformly, pick_with_replacement};
use crate::{Dsts, Error, Fanout, Frontier, Result, Selection, TimesError};

impl<R: HopRule + ?Sized> HopSampler<'_, R> {
    /// Prepares the times of a hop's destinations; `None` if they have none.
    pub(crate) fn times<'a>(&'a self, dsts: Dsts<'a>) -> Result<Option<HopTimes<'a>>> {
        let Some(times) = dsts.times() else {
            return match self.rule.kind() {
                RuleKind::MostRecent => Err(Error::Times(TimesError::NoTimes)),
                _ => Ok(None),
            };
        };
        let edges = self.graph.edge_times();
        if edges.is_none() && self.graph.columns().get(EdgeColumns::TIMES).is_some() {
            return Err(Error::Times(TimesError::NoOrder));
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

    /// Asks for the orders by time of the next destinations, whose ranges of edges have been asked for.
    pub(crate) fn ask_for_orders(&self, dsts: &[NodeId], times: &HopTimes<'_>) {
        for dst in dsts {
            // An error in a range is found when it is used.
            if let Ok(edges) = self.edge_range(*dst, 0) {
                times.prefetch(&edges);
            }
        }
    }

    /// Picks from all destinations of a group, if the rule reads only the number of edges.
    pub(crate) fn pick_timed_group(
        &self,
        dsts: &[NodeId],
        first: usize,
        times: &HopTimes<'_>,
        picked: &mut GroupPicks,
    ) -> Result<()> {
        let GroupPicks { dsts: places, edges: all_edges, known: all_known, lanes } = picked;
        places.clear();
        lanes.clear();
        let Fanout::UpTo(fanout) = self.request.fanout else { return Ok(()) };
        let fanout = fanout as usize;
        let kind = self.timed_kind(times);
        let is_counted = matches!(kind, RuleKind::Uniform | RuleKind::MostRecent);
        if !is_counted || !(1..=MOST_PICKS).contains(&fanout) {
            return Ok(());
        }
        all_edges.clear();
        for (position, &dst) in (first..).zip(dsts) {
            all_edges.push(self.edge_range(dst, position)?);
        }
        times.known_of_group(first, dsts, all_edges, all_known)?;
        for (((position, &dst), edges), known) in (first..).zip(dsts).zip(&*all_edges).zip(&*all_known) {
            let takes_all = known.len() == edges.len() && known.len() <= fanout;
            // A destination that takes all it knows needs no draw; the number only has to be one that can be drawn from.
            let n_known = known.len().max(fanout + 1) as u32;
            let place = (!takes_all).then(|| lanes.push_keyed(times.key(position), self.node(dst), n_known));
            places.push((edges.clone(), place));
        }
        lanes.pick_keyed(fanout);
        for ((dst, (edges, place)), known) in dsts.iter().zip(&*places).zip(&*all_known) {
            let Some(place) = place else { continue };
            let n_picks = known.len().min(fanout);
            if known.len() <= fanout || kind == RuleKind::MostRecent {
                // Places without a pick are sorted to the end.
                lanes.picks_of_mut(*place).for_each(|pick| *pick = u32::MAX);
                let last = known.len() as u32 - n_picks as u32..;
                lanes.picks_of_mut(*place).take(n_picks).zip(last).for_each(|(pick, rank)| *pick = rank);
            }
            times.to_places(*known, *dst, edges, lanes.picks_of_mut(*place).take(n_picks))?;
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
