use std::io;
use std::time::Duration;

/// Why a graph that lies elsewhere could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A server has not answered for as long as it was given, whatever was tried.
    #[error(
        "the graph server {server}{} is lost: {asked} has waited {waited:.1?} for it; {reason}. Start it again with the \
         same part, or give it more time",
        of_part(*part)
    )]
    PeerLost {
        /// Its address.
        server: String,
        /// The part that it holds; not known of one that has never answered.
        part: Option<usize>,
        /// What it was asked for.
        asked: &'static str,
        /// How long it was tried.
        waited: Duration,
        /// What came of the last try.
        reason: String,
    },
    /// A server does not answer this client.
    #[error("the graph server {server} refuses: {reason}")]
    Refused {
        /// Its address.
        server: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A server panicked while it computed a response.
    #[error(
        "the graph server {server} panicked while it computed {asked}: {reason}. Its log has the place; a sampling rule of \
         one's own is the likely cause"
    )]
    ServerPanicked {
        /// Its address.
        server: String,
        /// What it was asked for.
        asked: &'static str,
        /// The panic's message.
        reason: String,
    },
    /// A server answers what cannot be.
    #[error(
        "the graph server {server} answers {asked} with {found}, expected {expected}: is it of this version?"
    )]
    BadAnswer {
        /// Its address.
        server: String,
        /// What it was asked for.
        asked: &'static str,
        /// What should have come.
        expected: String,
        /// What came.
        found: String,
    },
    /// The servers together are not the graph.
    #[error("{reason}")]
    BadParts {
        /// What is missing, twice there or different.
        reason: String,
    },
    /// Servers expect a token, and there is none.
    #[error(
        "graph servers expect a token: set KILN_GRAPH_TOKEN to theirs, or KILN_GRAPH_TOKEN_FILE to a file with it that only \
         you can read"
    )]
    NoToken,
    /// A rank serves its part, and other ranks do not know where.
    #[error("{reason}: give the name or address of this machine (--host)")]
    NoHost {
        /// Why its address is not known.
        reason: String,
    },
    /// A rule of this name is not known, or is there already.
    #[error("{reason}")]
    BadRule {
        /// Which one, and what is known.
        reason: String,
    },
    /// The sampler that was given for the part that lies here does not fit.
    #[error("the sampler of the part that lies here {reason}")]
    BadSampler {
        /// In what, and what to do.
        reason: String,
    },
    /// A server cannot serve there.
    #[error("a graph server cannot listen at {address}: give it a free port of this machine")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The threads that wait for the network could not be started.
    #[error("the threads that wait for the network could not be started")]
    Threads(#[source] io::Error),
    /// The processes cannot let each other in.
    #[error(transparent)]
    Rpc(#[from] kiln_comm::rpc::Error),
    /// The ranks of worker mode could not meet.
    #[error(transparent)]
    Ranks(#[from] kiln_comm::Error),
    /// A part or a partition book cannot be used.
    #[error(transparent)]
    Partition(#[from] kiln_partition::Error),
    /// The part that lies here cannot be sampled.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// The rows that lie here cannot be gathered.
    #[error(transparent)]
    Feature(#[from] kiln_feature::Error),
}

fn of_part(part: Option<usize>) -> String {
    part.map_or_else(String::new, |part| format!(" (part {part})"))
}

/// An error and its sources, in a line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |&error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
