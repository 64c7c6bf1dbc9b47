//! The hop of destinations with times: each picks only from the edges that it knows, as if the graph had no others.
//!
//! Rules that read only the number of edges pick positions in the order by time, so a destination with many edges costs no
//! more than one with few. Rules that read neighbours get the known ones in ascending order.

use kiln_graph::{EdgeColumns, NodeId};
use kiln_mem::prefetch_far;

use crate::group_picks::TimedPicks;
use crate::hop::{HopOutput, HopSampler};
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

    /// Fills `out` with the edges picked for destinations with times, in groups of `group`.
    ///
    /// A pick is a cache miss in the order, and then one in the sources. So the picks of a group are drawn while the entries of the
    /// order that those of the group before it read are on their way, and its sources are read one group later.
    pub(crate) fn fill_timed(
        &self,
        dsts: &[NodeId],
        times: &HopTimes<'_>,
        group: usize,
        buffers: &mut [TimedPicks; 2],
        output: &mut HopOutput<'_>,
    ) -> Result<()> {
        let [mut drawn, mut waiting] = buffers.each_mut();
        let group_of = |first: usize| first.min(dsts.len())..(first + group).min(dsts.len());
        self.ask_for_ranges(&dsts[group_of(0)]);
        for first in (0..dsts.len() + group).step_by(group) {
            let own = group_of(first);
            let next = group_of(first + group);
            self.ask_for_ranges(&dsts[next.clone()]);
            self.draw_timed_group(&dsts[own.clone()], own.start, times, drawn)?;
            std::mem::swap(&mut drawn, &mut waiting);
            if let Some(before) = first.checked_sub(group) {
                let n_edges = output.out.edge_ids.len();
                self.take_timed_group(&dsts[group_of(before)], before, times, drawn, output)?;
                self.read(n_edges, output.out);
            }
            self.ask_for_orders(&dsts[next], times);
        }
        self.read(output.out.edge_ids.len(), output.out);
        Ok(())
    }

    /// Asks for the orders by time of the next destinations, whose ranges of edges have been asked for.
    fn ask_for_orders(&self, dsts: &[NodeId], times: &HopTimes<'_>) {
        for dst in dsts {
            // An error in a range is found when it is used.
            if let Ok(edges) = self.edge_range(*dst, 0) {
                times.prefetch(&edges);
            }
        }
    }

    /// Draws positions among the known edges of all destinations of a group, if the rule reads only the number of edges, and asks
    /// for their entries in the order.
    fn draw_timed_group(
        &self,
        dsts: &[NodeId],
        first: usize,
        times: &HopTimes<'_>,
        drawn: &mut TimedPicks,
    ) -> Result<()> {
        let TimedPicks { dsts: places, edges, lanes } = drawn;
        places.clear();
        lanes.clear();
        let Fanout::UpTo(fanout) = self.request.fanout else { return Ok(()) };
        let fanout = fanout as usize;
        let kind = self.timed_kind(times);
        let is_counted = matches!(kind, RuleKind::Uniform | RuleKind::MostRecent);
        if !is_counted || !(1..=MOST_PICKS).contains(&fanout) {
            return Ok(());
        }
        edges.clear();
        for (position, &dst) in (first..).zip(dsts) {
            edges.push(self.edge_range(dst, position)?);
        }
        times.known_of_group(first, dsts, edges, places)?;
        for ((position, &dst), (known, place)) in (first..).zip(dsts).zip(&mut *places) {
            let takes_all = known.len() == known.edges.len() && known.len() <= fanout;
            // A destination that takes all it knows needs no draw; the number only has to be one that can be drawn from.
            let n_known = known.len().max(fanout + 1) as u32;
            *place = (!takes_all).then(|| lanes.push_keyed(times.key(position), self.node(dst), n_known));
        }
        lanes.pick_keyed(fanout);
        for (known, place) in &*places {
            let Some(place) = place else { continue };
            let n_picks = known.len().min(fanout);
            if known.len() <= fanout || kind == RuleKind::MostRecent {
                // Places without a pick are sorted to the end.
                lanes.picks_of_mut(*place).for_each(|pick| *pick = u32::MAX);
                let last = known.len() as u32 - n_picks as u32..;
                lanes.picks_of_mut(*place).take(n_picks).zip(last).for_each(|(pick, rank)| *pick = rank);
            }
            times.prefetch_picks(known, lanes.picks_of(*place).take(n_picks));
        }
        Ok(())
    }

    /// Takes the edges of a group whose picks were drawn, and asks for their sources.
    fn take_timed_group(
        &self,
        dsts: &[NodeId],
        first: usize,
        times: &HopTimes<'_>,
        drawn: &mut TimedPicks,
        output: &mut HopOutput<'_>,
    ) -> Result<()> {
        let HopOutput { removed, picks, out } = output;
        let TimedPicks { dsts: places, lanes, .. } = drawn;
        let fanout = match self.request.fanout {
            Fanout::All => 0,
            Fanout::UpTo(fanout) => fanout as usize,
        };
        for (known, place) in &*places {
            let Some(place) = place else { continue };
            times.to_places(known, lanes.picks_of_mut(*place).take(known.len().min(fanout)))?;
        }
        if !places.is_empty() {
            lanes.sort();
        }
        let n_edges = out.edge_ids.len();
        for ((at, position), &dst) in (first..).enumerate().zip(dsts) {
            let removed = removed.next(position);
            match places.get(at) {
                Some((known, None)) if removed.is_empty() => self.take_all(known.edges.clone(), out),
                Some((known, Some(place))) if removed.is_empty() => {
                    let taken = lanes.picks_of(*place).take(known.len());
                    self.take_picks(&known.edges, known.len(), taken, out);
                }
                _ => self.pick_timed(dst, position, times, removed, picks, out)?,
            }
            self.end_dst(out)?;
        }
        for edge in &out.edge_ids[n_edges..] {
            prefetch_far(self.graph.indices(), edge.index());
        }
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
        let known = times.known(position, dst, edges.clone())?;
        let node = self.node(dst);
        let key = times.key(position);
        let kind = self.timed_kind(times);
        let fanout = match self.request.fanout {
            Fanout::All => u32::MAX,
            Fanout::UpTo(fanout) => fanout,
        };
        if kind == RuleKind::OfNeighbors && self.request.fanout != Fanout::All {
            let unknown = unknown_edges(times, &known, removed)?;
            return self.pick_from_remaining(node, edges, &unknown, key, picks, out);
        }
        let removed = known_positions(times, &known, removed)?;
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
            *pick = times.place(&known, *pick)?;
        }
        picks.sort();
        self.take_picks(&edges, n_known, picks.positions().iter().copied(), out);
        Ok(())
    }
}

/// Returns the positions among the known edges of those that are removed, ascending. `removed` are positions among all edges
/// of the destination.
fn known_positions(times: &HopTimes<'_>, known: &KnownEdges, removed: &[u32]) -> Result<Vec<u32>> {
    let mut positions = Vec::with_capacity(removed.len());
    for place in removed {
        positions.extend(times.known_position(known, *place)?);
    }
    positions.sort_unstable();
    Ok(positions)
}

/// Returns the positions of a destination's edges that are removed or not known, ascending.
fn unknown_edges(times: &HopTimes<'_>, known: &KnownEdges, removed: &[u32]) -> Result<Vec<u32>> {
    let mut is_left_out = vec![true; known.edges.len()];
    for position in 0..known.len() as u32 {
        is_left_out[times.place(known, position)? as usize] = false;
    }
    for place in removed {
        is_left_out[*place as usize] = true;
    }
    Ok((0..known.edges.len() as u32).filter(|place| is_left_out[*place as usize]).collect())
}
