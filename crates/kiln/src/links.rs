//! The links that a loader trains on, and the graph that passes their messages.

use std::sync::Arc;

use kiln_data::{DatasetLinks, LinkSplit, LinkTargets, TimeSplit};
use kiln_graph::Relations;
use kiln_loader::LinkRelation;

use crate::source::Source;
use crate::{Error, Result};

/// Links with their split into training, validation and test, and the graph that passes the messages.
///
/// A [`LinkSplit`] has a message graph of its own, without the links of the validation and the test. [`DatasetLinks`] and, for
/// a graph of one type, [`LinkTargets`] are links alone: the graph of the loader must then be a partitioned graph without those
/// links, as the partitions of a dataset with links are.
#[derive(Debug, Clone)]
pub struct TrainingLinks {
    messages: MessageGraph,
    links: DatasetLinks,
    /// False for links whose relation was not stated, which must be the only one.
    has_relation: bool,
}

/// The graph that passes the messages of links.
#[derive(Debug, Clone)]
pub(crate) enum MessageGraph {
    /// The graph of the loader.
    OfLoader,
    /// A graph of the links' own.
    Own {
        graph: Arc<Relations>,
        /// The split of the links by time; `None` for another split.
        time_split: Option<TimeSplit>,
    },
}

impl TrainingLinks {
    /// Returns the source with the graph that passes messages.
    ///
    /// # Errors
    /// Returns [`Error::NeedsPartitionedGraph`] for links without a message graph on a whole graph, [`Error::OtherRelations`]
    /// and [`Error::OtherGraph`] if the links are those of another graph, [`Error::NeedsWholeGraph`] for a split on a
    /// partitioned graph, and [`Error::Data`] if a node of a link or of a negative is not in the graph.
    pub(crate) fn message_source(&self, source: &Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        if !matches!(self.messages, MessageGraph::OfLoader) {
            return source.with_messages(&self.messages);
        }
        if source.whole().is_some() {
            // The graph of a dataset may have the links of the validation and the test.
            return Err(Error::NeedsPartitionedGraph);
        }
        if source.is_heterogeneous() && !self.has_relation {
            return Err(Error::OtherRelations { name: source.name().to_owned() });
        }
        self.links.check(source.schema())?;
        Ok(Arc::clone(source))
    }

    /// Returns the relation of the links in a heterogeneous graph.
    pub(crate) fn relation(&self, source: &dyn Source) -> Option<LinkRelation> {
        let DatasetLinks { relation, reverse, .. } = self.links;
        source.is_heterogeneous().then_some(LinkRelation { position: relation, reverse })
    }

    /// Returns the number of edges of the message graph of a split; `None` if the graph of the loader passes the messages.
    pub(crate) fn n_message_edges(&self) -> Option<u64> {
        match &self.messages {
            MessageGraph::OfLoader => None,
            MessageGraph::Own { graph, .. } => Some(graph.n_edges()),
        }
    }

    pub(crate) fn into_targets(self) -> LinkTargets {
        Arc::unwrap_or_clone(self.links.targets)
    }
}

impl From<&LinkSplit> for TrainingLinks {
    fn from(split: &LinkSplit) -> Self {
        let graph = Arc::clone(split.message());
        Self {
            messages: MessageGraph::Own { graph, time_split: split.time_split() },
            links: split.dataset_links().clone(),
            has_relation: true,
        }
    }
}

impl From<&DatasetLinks> for TrainingLinks {
    fn from(links: &DatasetLinks) -> Self {
        Self { messages: MessageGraph::OfLoader, links: links.clone(), has_relation: true }
    }
}

impl From<&LinkTargets> for TrainingLinks {
    fn from(targets: &LinkTargets) -> Self {
        (&Arc::new(targets.clone())).into()
    }
}

impl From<&Arc<LinkTargets>> for TrainingLinks {
    fn from(targets: &Arc<LinkTargets>) -> Self {
        Self { messages: MessageGraph::OfLoader, links: Arc::clone(targets).into(), has_relation: false }
    }
}
