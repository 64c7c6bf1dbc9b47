//! The graphs of the phases of a loader.

use kiln_data::{DatasetTimes, TimeSplit};
use kiln_graph::{EdgeColumns, SharedArray};
use kiln_kernels::GraphMode;
use kiln_loader::Phase;
use kiln_sample::TimeLimits;

use super::messages::{Messages, PhaseGraph, cut_of};
use crate::source::GraphStep;
use crate::{Error, EvalMode, ItemTimesError, NeighborLoader, Result};

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
        Self { messages, ..self }
    }

    /// Returns the split whose times limit the messages; `None` if messages pass over all edges.
    pub(crate) fn time_split(&self) -> Option<TimeSplit> {
        self.source.time_split().filter(|_| self.messages == Messages::Known)
    }

    /// Returns the loader with the graph of a phase.
    ///
    /// # Errors
    /// Returns an error if the edges are damaged or do not fit in memory.
    pub(crate) fn phase_loader(&self, phase: Phase) -> Result<Self> {
        let before = match (self.messages, self.time_split()) {
            (Messages::AtItemTime(_), _) => None,
            (_, Some(split)) => Some(cut_of(&split, phase)),
            (_, None) => return Ok(self.clone()),
        };
        let PhaseGraph { source, copies, .. } = self.phases.get_or_make(&self.source, before)?;
        Ok(Self { source, copies, ..self.clone() })
    }

    /// Returns the edges that an item knows at its time; `None` unless each item has a time of its own.
    pub(crate) fn item_time_limits(&self) -> Option<TimeLimits> {
        match self.messages {
            Messages::AtItemTime(limits) => Some(limits),
            Messages::Known | Messages::All => None,
        }
    }

    /// Checks that items have times if they are sampled at them, and that no setting needs one graph for all items.
    pub(crate) fn check_item_times(&self) -> Result<()> {
        if self.item_time_limits().is_none() {
            return match self.sampling.rule.needs_times() {
                true => Err(ItemTimesError::RuleNeedsTimes { rule: "most-recent" }.into()),
                false => Ok(()),
            };
        }
        if self.source.whole().is_none() {
            return Err(Error::NeedsWholeGraph { what: "sampling at the times of items" });
        }
        let reads_features = self.edge_columns.iter().any(|name| **name == *EdgeColumns::FEATURES);
        let (what, reason, fix) = match (self.evaluation, self.graph_mode, self.source.graph_step()) {
            (_, _, GraphStep::SelfLoops) if reads_features => (
                "a self loop with edge features",
                "its features are the mean of all edges, also of later ones",
                "use a model without self loops, such as gine, or no edge features",
            ),
            (EvalMode::Exact { .. }, ..) => {
                ("exact evaluation", "it has one graph for all items", "use sampled evaluation")
            }
            (_, GraphMode::Device | GraphMode::ZeroCopy, _) => {
                ("sampling on a device", "its samplers have no times", "keep the graph on the host")
            }
            (_, _, GraphStep::GcnNorm) => {
                ("the normalisation of a GCN", "degrees count later edges", "use another model, such as sage")
            }
            _ => return self.check_times_of_items(),
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

    /// Returns the times of the nodes that have targets.
    ///
    /// # Errors
    /// Returns [`ItemTimesError::NoTimes`] if they have none.
    pub(crate) fn item_times(&self) -> Result<SharedArray<i64>> {
        let times = self.source.node_times(self.targets.node_type);
        Ok(times.ok_or_else(|| ItemTimesError::NoTimes {
            node_type: self.source.schema().types().names()[self.targets.node_type].clone(),
        })?)
    }

    /// Returns the setting of the messages that a run's result depends on; `None` for data without a split by time.
    pub(crate) fn messages_setting(&self) -> Option<(&'static str, String)> {
        let messages = match (self.messages, self.source.time_split()) {
            (Messages::AtItemTime(limits), _) => format!("at item time {limits:?}"),
            (_, None) => return None,
            (Messages::Known, Some(split)) => format!("before {:?}", split.cuts()),
            (Messages::All, Some(_)) => "all".to_owned(),
        };
        Some(("messages", messages))
    }

    /// Returns a note on edges that pass messages although they are later than the items.
    pub(crate) fn note_on_messages(&self) -> Option<String> {
        self.source.time_split().filter(|_| self.messages == Messages::All)?;
        let note = "messages pass over edges of all times: validation and test read edges that are later than their items, so \
                    the metrics are better than those of predictions of the future";
        Some(note.to_owned())
    }
}
