//! The graphs that pass the messages of each phase of a split by time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Device;
use kiln_data::{TimeKind, TimeSplit};
use kiln_kernels::DeviceFeatures;
use kiln_loader::Phase;
use kiln_sample::TimeLimits;

use crate::device_copy::{DeviceCopies, DeviceCopy};
use crate::source::Source;
use crate::{ItemTimesError, Result};

/// The edges over which messages pass. Without a split by time, and unless items have times of their own, they pass over all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Messages {
    /// Only the edges that were known before the split's time of the phase ([`TimeSplit::cuts`]).
    #[default]
    Known,
    /// All edges, also those that are later than the items: a leak, so that the metrics are better than those of predictions of
    /// the future.
    All,
    /// For each item, only the edges that were known at the time of the item: its tree contains no later edge, and no edge from a
    /// later node. Items are nodes with times ([`Dataset::with_node_times`](kiln_data::Dataset::with_node_times)), or links and edges
    /// with times ([`LinkTargets::with_times`](kiln_data::LinkTargets::with_times),
    /// [`LinkSplitConfig::with_times`](kiln_data::LinkSplitConfig::with_times)). The limits state whether edges at the time itself are
    /// known, and how old edges may be.
    ///
    /// Neighbours are sampled on the host. It is PyG's `NeighborLoader` with `time_attr` and
    /// `input_time`, and its `LinkNeighborLoader` with `edge_label_time`, except that items of equal time share rows, and that the samples do not depend on the batch.
    AtItemTime(TimeLimits),
}

impl Messages {
    /// For each item, the edges before its own time, however old: the default of task tables.
    pub const AT_ITEM_TIME: Self = Self::AtItemTime(TimeLimits { includes_equal: false, window: None });

    /// The kinds of messages by the names of `--messages`, with their meanings.
    pub const NAMED: [(&'static str, &'static str, Self); 3] = [
        ("known", "Edges that were known before the split's time of the phase", Self::Known),
        ("all", "All edges, also later ones than the items: metrics are too good", Self::All),
        ("item-time", "For each item, edges that were known at its own time", Self::AT_ITEM_TIME),
    ];

    /// Returns the messages at the times of items with these limits. `window` is a length of time as text
    /// ([`TimeKind::parse_window`]).
    ///
    /// ```
    /// use kiln::Messages;
    /// use kiln::data::TimeKind;
    /// use kiln::sample::TimeLimits;
    /// let at_item_time = Messages::AtItemTime(TimeLimits::default());
    /// let limited = at_item_time.limited(true, Some("2h"), TimeKind::Date)?;
    /// let limits = TimeLimits { includes_equal: true, window: Some(7_200_000_000) };
    /// assert_eq!(limited, Messages::AtItemTime(limits));
    /// # Ok::<(), kiln::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`ItemTimesError::LimitsWithoutTimes`] if there are limits for other messages, and
    /// [`TimeError::NoTime`](kiln_data::TimeError::NoTime) for a text that is no length of time.
    pub fn limited(self, includes_equal: bool, window: Option<&str>, times: TimeKind) -> Result<Self> {
        if !matches!(self, Self::AtItemTime(_)) {
            return match includes_equal || window.is_some() {
                true => Err(ItemTimesError::LimitsWithoutTimes.into()),
                false => Ok(self),
            };
        }
        let window =
            window.map(|text| times.parse_window(text)).transpose().map_err(kiln_data::Error::from)?;
        Ok(Self::AtItemTime(TimeLimits { includes_equal, window: window.flatten() }))
    }
}

/// The graphs of the phases, each of which is made when it is first needed. Clones of a loader share them, and phases with equal
/// times do.
#[derive(Clone, Default)]
pub(crate) struct PhaseGraphs(Arc<Mutex<Vec<PhaseGraph>>>);

/// The edges of the graph of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PhaseEdges {
    /// Those that were known before a time.
    Before(i64),
    /// All, ordered by time.
    ByTime,
    /// Those that items of this time know.
    KnownAt(TimeLimits, i64),
}

/// The graph of a phase, with its copies on devices.
#[derive(Clone)]
pub(super) struct PhaseGraph {
    edges: PhaseEdges,
    pub(super) source: Arc<dyn Source>,
    pub(super) copies: DeviceCopies,
}

impl PhaseGraphs {
    /// Returns the graph with these edges of a source. `windows` are those of relations, which are the same in all calls.
    pub(super) fn get_or_make(
        &self,
        source: &Arc<dyn Source>,
        edges: PhaseEdges,
        windows: &BTreeMap<String, Option<u64>>,
    ) -> Result<PhaseGraph> {
        // The lock is held while the graph is made, so that other ranks of the process wait and share it.
        let mut graphs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(graph) = graphs.iter().find(|graph| graph.edges == edges) {
            return Ok(graph.clone());
        }
        let source = match edges {
            PhaseEdges::Before(time) => source.before(time)?,
            PhaseEdges::ByTime => source.order_by_time()?,
            PhaseEdges::KnownAt(limits, time) => source.known_at(limits, windows, time)?,
        };
        let graph = PhaseGraph { edges, source, copies: DeviceCopies::default() };
        graphs.push(graph.clone());
        Ok(graph)
    }

    /// Returns the graphs without their copies on devices, which a changed configuration makes invalid.
    pub(crate) fn without_copies(&self) -> Self {
        let mut graphs = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        graphs.iter_mut().for_each(|graph| graph.copies = graph.copies.graphs_only());
        Self(Arc::new(Mutex::new(graphs)))
    }

    /// Returns all copies on devices.
    pub(crate) fn copies(&self) -> Vec<DeviceCopy> {
        let graphs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        graphs.iter().flat_map(|graph| graph.copies.all()).collect()
    }

    /// Returns the features that a phase has already copied to a device.
    pub(crate) fn features_on(&self, device: &Device) -> Option<Arc<DeviceFeatures>> {
        let graphs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        graphs.iter().find_map(|graph| graph.copies.on(device)).map(|copy| copy.features)
    }
}

/// Returns the first time that is too late for the messages of a phase.
pub(crate) fn cut_of(split: &TimeSplit, phase: Phase) -> i64 {
    let [train, val, test] = split.cuts();
    match phase {
        Phase::Train { .. } => train,
        Phase::Validation => val,
        Phase::Test => test,
    }
}
