use kiln_nn::TimedParts;

/// An error of minibatches whose items are sampled at their own times ([`Messages::AtItemTime`](crate::Messages::AtItemTime)).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ItemTimesError {
    /// The nodes that have targets have no times.
    #[error(
        "the nodes of the type `{node_type}` have no times, at which their neighbours would be sampled: state the `time` of their \
         table in the spec of an import"
    )]
    NoTimes {
        /// The name of the type.
        node_type: String,
    },
    /// A node of the split has no time.
    #[error(
        "node {node} of the split has no time, so that all edges would be known to it: give it one, or leave it out of the split"
    )]
    NoTime {
        /// The number of the node within its type.
        node: u32,
    },
    /// The links have no times.
    #[error(
        "the links of {name} have no times, at which their nodes would be sampled: split them by `kiln data split-links \
         --with-times`, or set the time of each"
    )]
    NoLinkTimes {
        /// The name of the data.
        name: String,
    },
    /// A link of the split has no time.
    #[error(
        "link {link} of the split has no time, so that all edges would be known to it: give it one, or leave it out of the split"
    )]
    NoLinkTime {
        /// The number of the link.
        link: u32,
    },
    /// Negatives are drawn from what was known at the times of links, and links have none.
    #[error(
        "the negatives `{sampler}` are those at the times of links: let links have times (--messages item-time), or use others"
    )]
    NegativesNeedTimes {
        /// The name of their sampler.
        sampler: String,
    },
    /// No edges and no sources of edges have times.
    #[error(
        "neither the edges nor their sources have times, so that all edges are known at the time of each item: state the `time` of \
         a relation or of a table in the spec of an import, or train without --messages item-time"
    )]
    NoEdgeTimes,
    /// Limits of times were given, and items are not sampled at their times.
    #[error("--until and --time-window are about the times of items: add --messages item-time")]
    LimitsWithoutTimes,
    /// The sampling rule reads times, and items have none.
    #[error(
        "the rule `{rule}` picks by time: let items have times (--messages item-time), or use another rule"
    )]
    RuleNeedsTimes {
        /// The name of the rule.
        rule: &'static str,
    },
    /// The model reads ages, and batches carry none ([`NeighborLoader::ages`](crate::NeighborLoader::ages)).
    #[error(
        "the model reads the ages of nodes and edges, which the batches of the loader do not carry: add them to the loader"
    )]
    NoAges,
    /// Batches carry ages, and the model reads none ([`NeighborLoader::encode_times`](crate::NeighborLoader::encode_times)).
    #[error(
        "the batches of the loader carry the ages of nodes and edges, and the model reads none: use a model with an encoding of \
         times, or a loader without ages"
    )]
    AgesNotRead,
    /// Ages are those at the times of items, and items are not sampled at them.
    #[error(
        "the age of a node or an edge is that at the time of an item: let items have times (--messages item-time), or leave out \
         --time-encoding"
    )]
    AgesWithoutItemTimes,
    /// The model reads the ages of other types of nodes, or of other relations, than those with times.
    #[error(
        "the model reads the ages of {expected:?}, but the data has times of {got:?}: create the model for this data"
    )]
    OtherAges {
        /// The types and relations of the model.
        expected: TimedParts,
        /// Those with times.
        got: TimedParts,
    },
    /// No part of the data whose ages the model could read has times.
    #[error(
        "there are no ages to encode: no nodes have times, and no edges whose features the model reads; state the times of nodes \
         or edges, or use a model with edge features, such as transformer"
    )]
    NothingToEncode,
    /// The rows of a task table were to be sampled at other times than their own.
    #[error(
        "the rows of the task table `{table}` are sampled at their own times: remove --messages, or use --messages item-time"
    )]
    TaskTableNeedsTimes {
        /// The name of the table.
        table: String,
    },
    /// A setting does not apply to items with times.
    #[error("{what} is not possible with items that are sampled at their own times, because {reason}: {fix}")]
    NotPossible {
        /// What is not possible.
        what: &'static str,
        /// The reason, as a clause.
        reason: &'static str,
        /// What to do.
        fix: &'static str,
    },
}

impl ItemTimesError {
    /// The error of a graph of what was known at one time, whose edges cannot be ordered.
    pub(crate) const CUT: Self = Self::NotPossible {
        what: "a graph of what was known at one time",
        reason: "its edges have no times",
        fix: "use the whole graph",
    };
}
