//! The graphs of the phases of a loader.

use std::fmt::Write as _;

use kiln_data::{DatasetTimes, TimeSplit};
use kiln_graph::{EdgeColumns, SharedArray};
use kiln_kernels::GraphMode;
use kiln_loader::Phase;
use kiln_sample::{Rule, SamplerConfig, TimeLimits};

use super::messages::{Messages, PhaseEdges, PhaseGraph, cut_of};
use crate::batches::items_of;
use crate::source::GraphStep;
use crate::{EvalMode, ItemTimesError, NeighborLoader, Result};

impl NeighborLoader {
    /// Sets the edges over which messages pass in data with a split by time
    /// ([`Dataset::with_time_split`](kiln_data::Dataset::with_time_split)): by default, those that were known in each phase.
    /// The source of an edge must have been known, too, and so must the nodes of drawn negatives.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use kiln::Messages;
    /// use kiln::data::TimeSplit;
    /// let data = kiln::data::synthetic::ring(100)?.with_node_times(0, (0..100).collect::<Vec<i64>>())?;
    /// let data = data.with_time_split(TimeSplit::new(None, 60, 80)?)?;
    /// // What the leak of later edges would gain.
    /// let loader = NeighborLoader::new(&data, [10, 10]).messages(Messages::All);
    /// // The neighbours that were known at the time of each node, the most recent first.
    /// use kiln::sample::TimeLimits;
    /// let loader = NeighborLoader::new(&data, [10, 10])
    ///     .messages(Messages::AtItemTime(TimeLimits::default()))
    ///     .rule(Rule::MostRecent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn messages(self, messages: Messages) -> Self {
        // The copies on devices are sampled within the time limits of the messages.
        Self { messages, ..self.unshared() }
    }

    /// Returns the split whose times limit the messages; `None` if messages pass over all edges.
    pub(crate) fn time_split(&self) -> Option<TimeSplit> {
        self.source.time_split().filter(|_| self.messages == Messages::Known)
    }

    /// Returns the loader with the graph and the sampler of a phase.
    ///
    /// # Errors
    /// Returns an error if the edges are damaged or do not fit in memory.
    pub(crate) fn phase_loader(&self, phase: Phase) -> Result<Self> {
        let of_phase = match (self.messages, self.time_split()) {
            (Messages::AtItemTime(_), _) => self.with_edges(PhaseEdges::ByTime)?,
            (_, Some(split)) => self.with_edges(PhaseEdges::Before(cut_of(&split, phase)))?,
            (_, None) => self.clone(),
        };
        Ok(Self { samplers: self.samplers.phase_samplers(phase), ..of_phase })
    }

    /// Returns the loader with the graph of an evaluation: that of its phase, or of what items of one time know.
    ///
    /// # Errors
    /// Returns the errors of [`NeighborLoader::phase_loader`].
    pub(crate) fn evaluated_loader(&self, phase: Phase, item_time: Option<i64>) -> Result<Self> {
        match (self.item_time_limits(), item_time) {
            (Some(limits), Some(time)) => self.with_edges(PhaseEdges::KnownAt(limits, time)),
            _ => self.phase_loader(phase),
        }
    }

    fn with_edges(&self, edges: PhaseEdges) -> Result<Self> {
        let PhaseGraph { source, copies, .. } =
            self.phases.get_or_make(&self.source, edges, &self.sampling.relation_windows)?;
        Ok(Self { source, copies, ..self.clone() })
    }

    /// Returns the time of the validation items and that of the test items, if they have times and are evaluated exactly, on one
    /// graph for all items of a part. `times_of` returns the times of the items of a phase.
    ///
    /// # Errors
    /// Returns [`ItemTimesError::NotPossible`] if the items of a part have several times.
    pub(crate) fn times_of_exact_evaluation(
        &self,
        times_of: impl Fn(Phase) -> Result<Vec<i64>>,
    ) -> Result<[Option<i64>; 2]> {
        let is_exact = matches!(self.evaluation, EvalMode::Exact { .. });
        if !is_exact || self.item_time_limits().is_none() {
            return Ok([None; 2]);
        }
        let mut of_parts = [None; 2];
        for (phase, of_part) in [Phase::Validation, Phase::Test].into_iter().zip(&mut of_parts) {
            let times = times_of(phase)?;
            if times.windows(2).any(|times| times[0] != times[1]) {
                return Err(ItemTimesError::NotPossible {
                    what: "exact evaluation of items of several times",
                    reason: "it has one graph for all items of a part",
                    fix: "use sampled evaluation, or let all items of the validation have one time, and all of the test",
                }
                .into());
            }
            *of_part = times.first().copied();
        }
        let [val, test] = of_parts;
        // A part without items has no graph of its own.
        Ok([val.or(test), test.or(val)])
    }

    /// Returns the times of the nodes of a phase.
    pub(crate) fn times_of_nodes(&self, phase: Phase) -> Result<Vec<i64>> {
        let times = self.item_times()?;
        let rows = self.target_rows(items_of(&self.targets.split, phase));
        Ok(rows.iter().filter_map(|row| times.get(row.index()).copied()).collect())
    }

    /// Returns the edges that an item knows at its time; `None` unless each item has a time of its own.
    pub(crate) fn item_time_limits(&self) -> Option<TimeLimits> {
        match self.messages {
            Messages::AtItemTime(time_limits) if !self.source.is_heterogeneous() => {
                let config = SamplerConfig { time_limits, ..self.sampling.clone() };
                Some(config.relation_config(self.only_relation()).time_limits)
            }
            Messages::AtItemTime(limits) => Some(limits),
            Messages::Known | Messages::All => None,
        }
    }

    /// Returns the name of the relation of a graph of one type of nodes.
    pub(super) fn only_relation(&self) -> &str {
        &self.source.schema().relations()[0].name
    }

    /// Returns true if the edges of a relation, or their sources, have times.
    fn relation_has_times(&self, relation: usize) -> bool {
        let src_type = self.source.schema().relations()[relation].src_type;
        let columns = &self.source.edge_columns()[relation];
        columns.iter().any(|name| name == EdgeColumns::TIMES) || self.source.node_times(src_type).is_some()
    }

    /// Checks that edges have times, and those of each relation whose own rule or window reads them.
    fn check_edge_times(&self) -> Result<()> {
        let schema = self.source.schema();
        self.sampling.check_relation_times(|name| Ok(self.relation_has_times(schema.require(name)?)))?;
        match (0..schema.relations().len()).any(|relation| self.relation_has_times(relation)) {
            true => Ok(()),
            false => Err(ItemTimesError::NoEdgeTimes.into()),
        }
    }

    /// Checks that nodes have times if they are sampled at them, and that no setting needs one graph for all items.
    pub(crate) fn check_item_times(&self) -> Result<()> {
        self.check_item_time_settings()?;
        if self.item_time_limits().is_none() {
            return Ok(());
        }
        self.check_times_of_items()?;
        self.times_of_exact_evaluation(|phase| self.times_of_nodes(phase))?;
        Ok(())
    }

    /// Checks that no setting needs one graph for all items if items are sampled at their times.
    pub(crate) fn check_item_time_settings(&self) -> Result<()> {
        if self.item_time_limits().is_none() {
            let mut rules = [&self.sampling.rule].into_iter().chain(self.sampling.relation_rules.values());
            return match (rules.any(Rule::needs_times), self.sampling.relation_windows.is_empty()) {
                (true, _) => Err(ItemTimesError::RuleNeedsTimes { rule: "most-recent" }.into()),
                (false, false) => Err(ItemTimesError::LimitsWithoutTimes.into()),
                (false, true) => Ok(()),
            };
        }
        let reads_features = self.edge_columns.iter().any(|name| **name == *EdgeColumns::FEATURES);
        let is_part_on_device = self.source.whole().is_none() && self.graph_mode != GraphMode::Host;
        let (what, reason, fix) = match (is_part_on_device, self.source.graph_step()) {
            (_, GraphStep::SelfLoops) if reads_features => (
                "a self loop with edge features",
                "its features are the mean of all edges, also of later ones",
                "use a model without self loops, such as gine, or no edge features",
            ),
            (true, _) => (
                "sampling a partition on a device",
                "its samplers have no times",
                "keep the graph on the host",
            ),
            (_, GraphStep::GcnNorm) => {
                ("the normalisation of a GCN", "degrees count later edges", "use another model, such as sage")
            }
            _ => return self.check_edge_times(),
        };
        Err(ItemTimesError::NotPossible { what, reason, fix }.into())
    }

    /// Checks that all items have times, before which edges were known.
    fn check_times_of_items(&self) -> Result<()> {
        let times = self.item_times()?;
        for (_, nodes) in self.targets.split.parts() {
            for row in self.target_rows(nodes).iter() {
                if times.get(row.index()) == Some(&DatasetTimes::NEVER) {
                    return Err(ItemTimesError::NoTime { node: row.0 }.into());
                }
            }
        }
        Ok(())
    }

    /// Returns the times of the nodes that have targets, or those of the rows of a task table.
    ///
    /// # Errors
    /// Returns [`ItemTimesError::NoTimes`] if they have none.
    pub(crate) fn item_times(&self) -> Result<SharedArray<i64>> {
        if let Some(table) = &self.table {
            return Ok(table.times.clone());
        }
        let times = self.source.node_times(self.targets.node_type);
        Ok(times.ok_or_else(|| ItemTimesError::NoTimes {
            node_type: self.source.schema().types().names()[self.targets.node_type].clone(),
        })?)
    }

    /// Returns the setting of the messages that a run's result depends on; `None` for data without a split by time.
    pub(crate) fn messages_setting(&self) -> Option<(&'static str, String)> {
        let messages = match (self.messages, self.source.time_split()) {
            (Messages::AtItemTime(limits), _) => {
                let limits = self.item_time_limits().unwrap_or(limits);
                format!("at item time {limits:?}{}", self.windows_of_relations(limits.window))
            }
            (_, None) => return None,
            (Messages::Known, Some(split)) => format!("before {:?}", split.cuts()),
            (Messages::All, Some(_)) => "all".to_owned(),
        };
        Some(("messages", messages))
    }

    /// Returns the windows of the relations of a heterogeneous graph that differ from that of the others, as one text.
    fn windows_of_relations(&self, of_all: Option<u64>) -> String {
        let mut text = String::new();
        for (name, window) in &self.sampling.relation_windows {
            if *window != of_all && self.source.is_heterogeneous() {
                let _ = write!(text, "; {name}: {window:?}");
            }
        }
        text
    }

    /// Returns a note on edges that pass messages although they are later than the items.
    pub(crate) fn note_on_messages(&self) -> Option<String> {
        self.source.time_split().filter(|_| self.messages == Messages::All)?;
        let note = "messages pass over edges of all times: validation and test read edges that are later than their items, so \
                    the metrics are better than those of predictions of the future";
        Some(note.to_owned())
    }
}
