//! The links that a loader trains on, and the graph that passes their messages.

use std::sync::Arc;

use kiln_data::{LinkSplit, LinkTargets, TypedLinkSplit, TypedLinks};
use kiln_feature::EdgeFeatures;
use kiln_graph::{Csc, GraphSchema, Relations};
use kiln_loader::LinkExclusion;

use crate::source::Source;
use crate::{Error, Result};

/// Links with their split into training, validation and test, and the graph that passes the messages.
///
/// A [`LinkSplit`] or a [`TypedLinkSplit`] has a message graph of its own, without the links of the validation and the test.
/// [`LinkTargets`] and [`TypedLinks`] are links alone: the graph of the loader must then be a partitioned graph without those
/// links, as the partitions of a dataset with links are.
#[derive(Debug, Clone)]
pub struct TrainingLinks {
    messages: MessageGraph,
    relation: Option<LinkRelation>,
    targets: LinkTargets,
}

/// The graph that passes the messages of links.
#[derive(Debug, Clone)]
pub(crate) enum MessageGraph {
    /// The graph of the loader.
    OfLoader,
    /// A graph of one type of nodes, with the features of its edges if they have some.
    One { graph: Arc<Csc>, edge_features: Option<EdgeFeatures> },
    /// The relations of a heterogeneous graph.
    Relations(Arc<Relations>),
}

/// The relation whose edges are the links, by its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkRelation {
    pub(crate) position: usize,
    /// The relation that has the reverse of each link; `None` if there is none.
    pub(crate) reverse: Option<usize>,
}

impl LinkRelation {
    /// Returns the relations from which the links of a training step are excluded.
    pub(crate) fn excluded(self) -> Vec<usize> {
        [self.position].into_iter().chain(self.reverse).collect()
    }

    /// Returns the edges that a training step leaves out of its messages by default.
    pub(crate) fn exclusion(self, schema: &GraphSchema) -> LinkExclusion {
        let [srcs, dsts] = schema.node_ranges(self.position);
        // The reverse of a link between two types is an edge of the reverse relation only.
        match self.reverse.is_some() || srcs == dsts {
            true => LinkExclusion::WithReverses,
            false => LinkExclusion::Directed,
        }
    }
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
        if self.relation.is_some() != source.is_heterogeneous() {
            return Err(Error::OtherRelations { name: source.name().to_owned() });
        }
        let schema = source.schema();
        match self.relation {
            Some(LinkRelation { position, reverse }) => {
                let targets = Arc::new(self.targets.clone());
                TypedLinks { relation: position, reverse, targets }.check(schema)?;
            }
            None => self.targets.check(schema.n_nodes())?,
        }
        Ok(Arc::clone(source))
    }

    pub(crate) fn relation(&self) -> Option<LinkRelation> {
        self.relation
    }

    /// Returns the number of edges of the message graph of a split; `None` if the graph of the loader passes the messages.
    pub(crate) fn n_message_edges(&self) -> Option<u64> {
        match &self.messages {
            MessageGraph::OfLoader => None,
            MessageGraph::One { graph, .. } => Some(graph.n_edges()),
            MessageGraph::Relations(graph) => Some(graph.n_edges()),
        }
    }

    pub(crate) fn into_targets(self) -> LinkTargets {
        self.targets
    }
}

impl From<&LinkSplit> for TrainingLinks {
    fn from(split: &LinkSplit) -> Self {
        let graph = Arc::clone(split.message());
        let edge_features = split.edge_features().cloned();
        Self {
            messages: MessageGraph::One { graph, edge_features },
            relation: None,
            targets: split.targets().clone(),
        }
    }
}

impl From<&TypedLinkSplit> for TrainingLinks {
    fn from(split: &TypedLinkSplit) -> Self {
        Self {
            messages: MessageGraph::Relations(Arc::clone(split.message())),
            relation: Some(LinkRelation { position: split.relation(), reverse: split.reverse() }),
            targets: split.of_relation().targets().clone(),
        }
    }
}

impl From<&LinkTargets> for TrainingLinks {
    fn from(targets: &LinkTargets) -> Self {
        Self { messages: MessageGraph::OfLoader, relation: None, targets: targets.clone() }
    }
}

impl From<&Arc<LinkTargets>> for TrainingLinks {
    fn from(targets: &Arc<LinkTargets>) -> Self {
        (&**targets).into()
    }
}

impl From<&TypedLinks> for TrainingLinks {
    fn from(links: &TypedLinks) -> Self {
        let TypedLinks { relation, reverse, targets } = links;
        Self {
            messages: MessageGraph::OfLoader,
            relation: Some(LinkRelation { position: *relation, reverse: *reverse }),
            targets: LinkTargets::clone(targets),
        }
    }
}
