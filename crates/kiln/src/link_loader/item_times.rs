//! Links that are sampled at their own times.

use kiln_data::DatasetTimes;
use kiln_graph::{EdgeColumns, LinkId, SharedArray};
use kiln_loader::{LinkRelation, Phase};
use kiln_sample::Negatives;

use crate::batches::items_of;
use crate::neighbor_loader::cut_of;
use crate::source::Source;
use crate::{ItemTimesError, LinkNeighborLoader, Result};

impl LinkNeighborLoader {
    /// Returns the time of each link; `None` unless links are sampled at their own times.
    pub(super) fn link_times(&self) -> Option<&SharedArray<i64>> {
        self.nodes.item_time_limits().and_then(|_| self.targets.times())
    }

    /// Returns the negatives of a phase, whose nodes were known before the time of the phase, or of each link.
    pub(super) fn known_negatives(&self, phase: Phase) -> Negatives {
        let negatives = self.negatives_of(phase).clone();
        let source = self.nodes.source();
        if self.link_times().is_some() {
            return self.existing.get_or_make(phase, || match times_of_nodes(source) {
                Some(times) => negatives.existing(times),
                None => negatives,
            });
        }
        let Some(split) = self.nodes.time_split() else { return negatives };
        match source.nodes_before(cut_of(&split, phase)) {
            Some(are_known) => negatives.among(are_known),
            None => negatives,
        }
    }

    /// Checks that links have times if they are sampled at them, and that negatives and limits are possible then.
    pub(super) fn check_link_times(&self) -> Result<()> {
        self.nodes.check_item_time_settings()?;
        let Some(limits) = self.nodes.item_time_limits() else {
            for phase in [Phase::Train { epoch: 0 }, Phase::Validation, Phase::Test] {
                if let Some(sampler) = self.negatives_of(phase).sampler_of_times() {
                    return Err(ItemTimesError::NegativesNeedTimes { sampler: sampler.to_owned() }.into());
                }
            }
            return Ok(());
        };
        if limits.includes_equal {
            return Err(ItemTimesError::NotPossible {
                what: "reading edges until the time itself (--until), for links and edges,",
                reason: "the edge of a link has the time of the link, so that it would tell itself",
                fix: "read the edges before it",
            }
            .into());
        }
        self.check_times_of_link_edges()?;
        let name = || self.nodes.source().name().to_owned();
        let times = self.targets.times().ok_or_else(|| ItemTimesError::NoLinkTimes { name: name() })?;
        for (_, links) in self.targets.split().parts() {
            if let Some(link) = links.iter().find(|link| lacks_time(times, **link)) {
                return Err(ItemTimesError::NoLinkTime { link: link.0 }.into());
            }
        }
        self.times_of_exact_evaluation()?;
        Ok(())
    }

    /// Checks that the edges of the links' relation and of its reverse have times: otherwise, a link would read its own edge.
    fn check_times_of_link_edges(&self) -> Result<()> {
        let source = self.nodes.source();
        let columns = source.edge_columns();
        for relation in self.relation.map_or_else(|| vec![0], LinkRelation::excluded) {
            if !columns[relation].iter().any(|name| name == EdgeColumns::TIMES) {
                return Err(ItemTimesError::NotPossible {
                    what: "a link whose relation, or its reverse, has edges without times",
                    reason: "the link would read its own edge",
                    fix: "state the `time` of the relations in the spec of an import, or train without --messages item-time",
                }
                .into());
            }
        }
        Ok(())
    }

    /// Returns the time of the validation links and that of the test links, if they are evaluated exactly at their times.
    ///
    /// # Errors
    /// Returns [`ItemTimesError::NotPossible`] if the links of a part have several times.
    pub(super) fn times_of_exact_evaluation(&self) -> Result<[Option<i64>; 2]> {
        self.nodes.times_of_exact_evaluation(|phase| {
            let links = items_of(self.targets.split(), phase).iter();
            let times = self.link_times();
            Ok(links.filter_map(|link| times?.get(link.index()).copied()).collect())
        })
    }

    /// Returns a note on excluded edges that were set and are not needed, because links are sampled at their own times.
    pub(super) fn note_on_exclusion(&self) -> Option<String> {
        self.link_times().filter(|_| self.sets_exclusion)?;
        let note = "no edges are excluded from messages: the edge of a link is not before the time of the link, and earlier edges of \
                    its pair were known";
        Some(note.to_owned())
    }
}

/// Returns true if a link has no time, before which edges were known.
fn lacks_time(times: &[i64], link: LinkId) -> bool {
    times.get(link.index()).is_none_or(|time| [DatasetTimes::ALWAYS, DatasetTimes::NEVER].contains(time))
}

/// Returns the time of each node, by node, of types without times that of nodes that always existed; `None` if no type has times.
fn times_of_nodes(source: &dyn Source) -> Option<SharedArray<i64>> {
    let types = source.schema().types();
    let of_types: Vec<_> = (0..types.n_types()).map(|node_type| source.node_times(node_type)).collect();
    if of_types.iter().all(Option::is_none) {
        return None;
    }
    let mut times = Vec::new();
    for (node_type, of_type) in of_types.iter().enumerate() {
        match of_type {
            Some(of_type) => times.extend_from_slice(of_type),
            None => times.resize(times.len() + types.range(node_type).len(), DatasetTimes::ALWAYS),
        }
    }
    Some(times.into())
}
