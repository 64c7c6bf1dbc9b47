use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use kiln_comm::rpc::{Tls, Token};
use kiln_comm::{Communicator, RankInfo};
use kiln_graph::NodeId;
use kiln_partition::{Part, PartitionBooks};

use crate::client::connect::{DEADLINE, IN_FLIGHT_BYTES, JOIN_WITHIN};
use crate::local_part::LocalPart;
use crate::{ConnectConfig, DistGraph, Error, Result, RuleRegistry, ServeConfig, Server};

/// The configuration of a rank in worker mode.
#[derive(Debug, Clone)]
pub struct ColocatedWorkerConfig {
    /// The name or address at which other ranks reach this machine. The server listens at this address only.
    pub host: String,
    /// The token that rank 0 sends to all ranks; if `None`, rank 0 draws a random token. The values on other ranks are
    /// ignored.
    pub token: Option<Token>,
    /// The certificates of clients and servers; `None` for connections without TLS.
    pub tls: Option<Tls>,
    /// The sampling rules that ranks know by name.
    pub rules: RuleRegistry,
    /// The limit on in-flight response bytes; see [`ConnectConfig::in_flight_bytes`].
    pub in_flight_bytes: usize,
    /// The time without progress after which a request fails; see [`ConnectConfig::deadline`].
    pub deadline: Duration,
    /// The longest time to wait for the servers of the other ranks; see [`ConnectConfig::join_within`].
    pub join_within: Duration,
}

impl ColocatedWorkerConfig {
    /// Creates a configuration with a random token, the built-in rules, 256 MiB of in-flight responses and no
    /// certificates.
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            token: None,
            tls: None,
            rules: RuleRegistry::default(),
            in_flight_bytes: IN_FLIGHT_BYTES,
            deadline: DEADLINE,
            join_within: JOIN_WITHIN,
        }
    }
}

/// A rank in worker mode: it trains, holds a partition of the graph and serves it to the other ranks.
///
/// If there are more ranks than partitions, each partition is shared by the same number of consecutive ranks, which run
/// on one machine. The first of them serves the partition, the others map the same files.
#[derive(Debug)]
pub struct ColocatedWorker {
    graph: Arc<DistGraph>,
    server: Option<Server>,
    meeting: Box<dyn Communicator>,
}

impl ColocatedWorker {
    /// Returns the partition of a rank, or `None` if the ranks cannot share `n_parts` partitions equally.
    pub fn part_of(rank_info: RankInfo, n_parts: usize) -> Option<usize> {
        let ranks_per_part = ranks_per_part(rank_info.world_size, n_parts)?;
        Some(rank_info.rank / ranks_per_part)
    }

    /// Serves the partition if this rank is the first of the ranks that share it, and connects to the servers of the
    /// other partitions. Collective: every rank must call it. `meeting` must be a duplicated communicator that is used
    /// for nothing else, so that its collectives do not wait for those of gradients.
    ///
    /// # Errors
    /// Returns [`Error::BadParts`] if `part` is not the one that [`ColocatedWorker::part_of`] assigns or the partitions
    /// do not form one graph, [`Error::Ranks`] if a collective fails, and the errors of [`Server::start`] and
    /// [`DistGraph::connect`].
    pub fn meet(
        mut meeting: Box<dyn Communicator>,
        part: impl Into<Arc<Part>>,
        config: ColocatedWorkerConfig,
    ) -> Result<Self> {
        let rank_info = meeting.rank_info();
        let part = part.into();
        let (n_parts, index) = (part.n_parts(), part.index);
        if Self::part_of(rank_info, n_parts) != Some(index) {
            let RankInfo { rank, world_size, .. } = rank_info;
            let reason = format!(
                "rank {rank} of {world_size} holds partition {index} of {n_parts}: start as many ranks as partitions, \
                 or a multiple, and give each partition to the same number of consecutive ranks"
            );
            return Err(Error::BadParts { reason });
        }
        let ColocatedWorkerConfig { host, token, tls, rules, in_flight_bytes, deadline, join_within } =
            config;
        let token = agree(&mut *meeting, token)?;
        let part_of = |rank: usize| Self::part_of(RankInfo { rank, ..rank_info }, n_parts);
        let serves = |rank: usize| rank == 0 || part_of(rank - 1) != part_of(rank);
        let host = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host };
        // The edges that were made for requests, such as their order by time, are those of this rank, too.
        let held = Arc::new(LocalPart::new(part, rules.clone()));
        let mut server = None;
        if serves(rank_info.rank) {
            let tls = tls.clone();
            let serve = ServeConfig { tls, ..ServeConfig::new(format!("{host}:0"), token.clone()) };
            server = Some(Server::start_local_part(Arc::clone(&held), serve)?);
        }
        let port = server.as_ref().map(|server| server.address().port());
        let address = port.map_or_else(String::new, |port| format!("{host}:{port}"));
        let servers = meeting.all_gather(address.as_bytes())?;
        let of_others = |rank: usize| serves(rank) && part_of(rank) != Some(index);
        let servers = servers.into_iter().enumerate().filter(|(rank, _)| of_others(*rank));
        let servers: Vec<String> =
            servers.map(|(_, name)| String::from_utf8_lossy(&name).into_owned()).collect();
        let connect = ConnectConfig {
            tls,
            rules,
            in_flight_bytes,
            deadline,
            join_within,
            watch: meeting.watch(),
            ..ConnectConfig::new(servers, token)
        };
        let graph = Arc::new(DistGraph::with_local_part(Some(held), connect)?);
        // A rank that fails stops its server. One that is still connecting would wait for the server to be restarted.
        meeting.all_gather(&[])?;
        Ok(Self { graph, server, meeting })
    }

    /// Returns the client of the whole graph.
    pub fn graph(&self) -> &Arc<DistGraph> {
        &self.graph
    }

    /// Returns a function from a node to the rank that trains on it, for `ItemSampler::shard_by_owner`. That rank holds
    /// the node's partition, so the node's edges and features are local.
    pub fn owner(&self) -> impl Fn(NodeId) -> usize + Send + Sync + 'static {
        let books = self.graph.books().clone();
        let ranks_per_part =
            ranks_per_part(self.meeting.rank_info().world_size, books.n_parts()).unwrap_or(1);
        move |node| owner(&books, ranks_per_part, node)
    }

    /// Waits at most `deadline` until all ranks have finished, and stops this rank's server. Collective: every rank
    /// must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`] if another rank does not call it in time or has failed.
    pub fn end(self, deadline: Duration) -> Result<()> {
        let Self { graph, server, mut meeting } = self;
        // This drop ends the leases, unless other references to the graph exist.
        drop(graph);
        meeting.barrier(deadline)?;
        drop(server);
        Ok(())
    }
}

fn ranks_per_part(world_size: usize, n_parts: usize) -> Option<usize> {
    (0 < n_parts && world_size.is_multiple_of(n_parts)).then(|| world_size / n_parts)
}

/// Returns the rank that trains on a node: the nodes of a partition are dealt to its ranks in turn.
fn owner(books: &PartitionBooks, ranks_per_part: usize, node: NodeId) -> usize {
    // Invalid nodes may go to any rank, because the sampler returns an error for them.
    let place = books.place(node);
    place.map_or(0, |place| place.part * ranks_per_part + place.row.index() % ranks_per_part)
}

/// Broadcasts the token of rank 0, which is given or random. Tokens given to other ranks are ignored, because some
/// launchers set environment variables on some ranks only.
fn agree(meeting: &mut dyn Communicator, given: Option<Token>) -> Result<Token> {
    let mut word = match (meeting.rank_info().rank, given) {
        (0, Some(token)) => token.word().as_bytes().to_vec(),
        (0, None) => Token::random_text()?.into_bytes(),
        _ => Vec::new(),
    };
    meeting.broadcast(0, &mut word)?;
    Ok(Token::new(&String::from_utf8_lossy(&word))?)
}
