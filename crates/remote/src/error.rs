use std::io;
use std::ops::Range;
use std::time::Duration;

use kiln_graph::{EdgeColumns, NodeId};

/// An error of using a partitioned graph or of serving a partition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A graph server is lost, refused a request, or sent an invalid response.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The partitions do not contain what was requested.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The partitions cannot be read, are invalid, do not form one complete graph, or cannot be shared by the ranks.
    #[error("{reason}")]
    BadParts {
        /// The problem, such as a missing or duplicate partition, and what to do.
        reason: String,
    },
    /// A destination has more edges to leave out than one request may list.
    #[error(
        "node {} has {n_edges} edges to leave out, but a request to a graph server may list at most {most}: use \
         smaller batches",
        node.0
    )]
    TooManyExcluded {
        /// The destination of the edges.
        node: kiln_graph::NodeId,
        /// The number of its edges to leave out.
        n_edges: usize,
        /// The maximum number per request.
        most: usize,
    },
    /// The token that servers require is not set.
    #[error(
        "graph servers require a token: set KILN_GRAPH_TOKEN to the token of the servers, or KILN_GRAPH_TOKEN_FILE to \
         a file that contains it and that only you can read"
    )]
    NoToken,
    /// The address at which other ranks reach this rank's partition is unknown.
    #[error("{reason}: give the name or address of this machine (--host)")]
    NoHost {
        /// The reason why the address is unknown.
        reason: String,
    },
    /// A sampling rule is not registered, or is registered already.
    #[error("{reason}")]
    BadRule {
        /// The problem with the rule's name, and what to do.
        reason: String,
    },
    /// The sampler given for the local partition does not match it.
    #[error("the sampler of the local partition {reason}")]
    BadSampler {
        /// The mismatch, and what to do.
        reason: String,
    },
    /// A server cannot listen at its address.
    #[error("graph server cannot listen at {address}: give it a free port of this machine")]
    Listen {
        /// The address.
        address: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The network threads could not be started.
    #[error("cannot start the network threads")]
    Threads(#[source] io::Error),
    /// The token, certificates or address of a connection cannot be used.
    #[error(transparent)]
    Rpc(#[from] kiln_comm::rpc::Error),
    /// A collective of the ranks of worker mode failed.
    #[error(transparent)]
    Ranks(#[from] kiln_comm::Error),
    /// A partition or a partition book cannot be used.
    #[error(transparent)]
    Partition(#[from] kiln_partition::Error),
    /// The local partition could not be sampled.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// Local feature rows could not be gathered.
    #[error(transparent)]
    Feature(#[from] kiln_feature::Error),
}

/// An error of a graph server: it is lost, or refuses a request, or its response is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A request has made no progress within its deadline, despite retries.
    #[error(
        "graph server {server}{} is lost: waited {waited:.1?} for {asked}: {reason}; restart it with the same \
         partition, or increase the deadline",
        of_part(*part)
    )]
    PeerLost {
        /// The server's address.
        server: String,
        /// The server's partition; `None` if the server has never responded.
        part: Option<usize>,
        /// The kind of data requested.
        asked: &'static str,
        /// The time without progress.
        waited: Duration,
        /// The outcome of the last attempt.
        reason: String,
    },
    /// A request was given up, because the job of this rank has ended.
    #[error("{asked} of graph server {server} is no longer needed: {cause}")]
    JobEnded {
        /// The server's address.
        server: String,
        /// The kind of data requested.
        asked: &'static str,
        /// Why the job has ended: the error of another rank.
        cause: String,
    },
    /// A server refused a request, and would refuse it again.
    #[error("graph server {server} refused the request: {reason}")]
    Refused {
        /// The server's address.
        server: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// A server panicked while it computed a response.
    #[error(
        "graph server {server} panicked while computing {asked}: {reason}; its log has the location, and a custom \
         sampling rule is the likely cause"
    )]
    ServerPanicked {
        /// The server's address.
        server: String,
        /// The kind of data requested.
        asked: &'static str,
        /// The panic's message.
        reason: String,
    },
    /// A server sent an invalid response.
    #[error(
        "graph server {server} sent {found} in response to a request for {asked}, expected {expected}: use the same \
         version of kiln for clients and servers"
    )]
    BadAnswer {
        /// The server's address.
        server: String,
        /// The kind of data requested.
        asked: &'static str,
        /// A description of a valid response.
        expected: String,
        /// A description of the response received.
        found: String,
    },
}

/// A request for nodes, edges, features, targets or keys that the partitions do not contain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// A sampled edge has a type that is not below the number of edge types that the partitions record.
    #[error(
        "an edge has type {edge_type}, but the partitions record {n_edge_types} edge types: partition the data again"
    )]
    UnknownEdgeType {
        /// The type of the edge.
        edge_type: u8,
        /// The recorded number of edge types.
        n_edge_types: usize,
    },
    /// Features of edges were requested, and the edges of the partitions have none.
    #[error(
        "the partitions have no edge features: partition data that has some, without --add-self-loops, or use another \
         model"
    )]
    NoEdgeFeatures,
    /// A column of edges was requested that the edges of the partitions do not have.
    #[error(
        "the edges of the partitions have no column `{name}`: partition data that has it, without --add-self-loops"
    )]
    NoEdgeColumn {
        /// The name of the column.
        name: String,
    },
    /// The operation needs a homogeneous graph, and the partitions are of a heterogeneous one.
    #[error("the partitions are of a heterogeneous graph: use {instead}")]
    Heterogeneous {
        /// The function to use instead.
        instead: &'static str,
    },
    /// There is no node type or relation at a position.
    #[error("there is no {what} {position}, expected below {n_known}")]
    NoSuchPosition {
        /// The noun: a node type or a relation.
        what: &'static str,
        /// The requested position.
        position: usize,
        /// The number of node types or relations.
        n_known: usize,
    },
    /// A destination does not have the type of a relation's destinations.
    #[error(
        "node {} has no edges of relation `{relation}`, expected nodes of its destinations' type, which are {nodes:?}: \
         sample with DistGraph::hetero_sampler",
        node.0
    )]
    NotOfType {
        /// The destination.
        node: NodeId,
        /// The name of the relation.
        relation: String,
        /// The nodes of the relation's destination type.
        nodes: Range<u32>,
    },
    /// Features of a node type were requested that has none.
    #[error("the nodes of type {node_type} have no features: train their rows instead")]
    NoFeaturesOfType {
        /// The position of the node type.
        node_type: usize,
    },
    /// Targets were requested, and the partitions have none.
    #[error("the partitions have no targets: partition data that has some")]
    NoTargets,
    /// The times of the nodes of a type were requested that has none.
    #[error("the nodes of type {node_type} have no times: partition a dataset whose nodes have times")]
    NoTimesOfType {
        /// The position of the node type.
        node_type: usize,
    },
    /// The keys of the nodes of a type were requested that has none.
    #[error("the nodes of type {node_type} have no keys: partition a dataset whose nodes have names")]
    NoKeysOfType {
        /// The position of the node type.
        node_type: usize,
    },
}

impl ContentError {
    /// Returns the error of partitions without a column of edges.
    pub(crate) fn no_column(name: &str) -> Self {
        match name {
            EdgeColumns::FEATURES => Self::NoEdgeFeatures,
            _ => Self::NoEdgeColumn { name: name.to_owned() },
        }
    }
}

fn of_part(part: Option<usize>) -> String {
    part.map_or_else(String::new, |part| format!(" (partition {part})"))
}
