//! The graphs of the phases of a loader.

use kiln_data::TimeSplit;
use kiln_loader::Phase;

use super::messages::{Messages, PhaseGraph, cut_of};
use crate::{NeighborLoader, Result};

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
        let Some(split) = self.time_split() else { return Ok(self.clone()) };
        let PhaseGraph { source, copies, .. } =
            self.phases.get_or_make(&self.source, cut_of(&split, phase))?;
        Ok(Self { source, copies, ..self.clone() })
    }

    /// Returns the setting of the messages that a run's result depends on; `None` for data without a split by time.
    pub(crate) fn messages_setting(&self) -> Option<(&'static str, String)> {
        let split = self.source.time_split()?;
        let messages = match self.messages {
            Messages::Known => format!("before {:?}", split.cuts()),
            Messages::All => "all".to_owned(),
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
