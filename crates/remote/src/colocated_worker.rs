use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use kiln_comm::rpc::{Tls, Token};
use kiln_comm::{Communicator, RankInfo};
use kiln_graph::NodeId;
use kiln_partition::{Part, PartitionBook};

use crate::{ConnectConfig, DistGraph, Error, Result, RuleRegistry, ServeConfig, Server};

/// The addresses and limits by which the ranks of worker mode reach each other.
#[derive(Debug, Clone)]
pub struct ColocatedWorkerConfig {
    /// Name or address of this machine, at which the others reach it; nothing is served at any other.
    pub host: String,
    /// What ranks want to hear of each other: rank 0's counts for all, and if it has none, it makes one.
    pub token: Option<Token>,
    /// Certificates, for both sides.
    pub tls: Option<Tls>,
    /// What edges may be picked by.
    pub rules: RuleRegistry,
    /// Bytes of answers that may be under way: as [`ConnectConfig::in_flight_bytes`].
    pub in_flight_bytes: usize,
}

impl ColocatedWorkerConfig {
    /// A token of rank 0, no certificates, the built-in rules, 256 MiB under way.
    pub fn new(host: impl Into<String>) -> Self {
        let (host, rules) = (host.into(), RuleRegistry::default());
        Self { host, token: None, tls: None, rules, in_flight_bytes: 256 << 20 }
    }
}

/// A rank of worker mode: it holds a part of the graph, which it serves to the other ranks, and trains.
///
/// Where there are more ranks than parts, each part has as many ranks, those that follow each other: the ranks of a
/// machine, of which the first one serves the part and the others map the same files.
#[derive(Debug)]
pub struct ColocatedWorker {
    graph: Arc<DistGraph>,
    server: Option<Server>,
    meeting: Box<dyn Communicator>,
}

impl ColocatedWorker {
    /// The part of a rank, among so many parts; `None` where the ranks cannot share them equally.
    pub fn part_of(rank_info: RankInfo, n_parts: usize) -> Option<usize> {
        let ranks_per_part = ranks_per_part(rank_info.world_size, n_parts)?;
        Some(rank_info.rank / ranks_per_part)
    }

    /// Serves this rank's part where it is its first rank, and connects to the servers of the others. A meeting;
    /// `meeting` is a channel of its own, so that nothing of this waits for gradients.
    ///
    /// # Errors
    /// [`Error::BadParts`] for another part than [`ColocatedWorker::part_of`] says or parts that do not belong
    /// together, what [`Server::start`] and [`DistGraph::connect`] say, and [`Error::Ranks`].
    pub fn meet(
        mut meeting: Box<dyn Communicator>,
        part: Arc<Part>,
        config: ColocatedWorkerConfig,
    ) -> Result<Self> {
        let rank_info = meeting.rank_info();
        let (n_parts, index) = (part.book.n_parts(), part.index);
        if Self::part_of(rank_info, n_parts) != Some(index) {
            let RankInfo { rank, world_size, .. } = rank_info;
            let reason = format!(
                "rank {rank} of {world_size} holds part {index} of {n_parts}: start as many ranks as there are parts, or a \
                 multiple, and give each part to as many ranks, in order"
            );
            return Err(Error::BadParts { reason });
        }
        let ColocatedWorkerConfig { host, token, tls, rules, in_flight_bytes } = config;
        let token = agree(&mut *meeting, token)?;
        let part_of = |rank: usize| Self::part_of(RankInfo { rank, ..rank_info }, n_parts);
        let serves = |rank: usize| rank == 0 || part_of(rank - 1) != part_of(rank);
        let host = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host };
        let mut server = None;
        if serves(rank_info.rank) {
            let (tls, rules) = (tls.clone(), rules.clone());
            let serve = ServeConfig { tls, rules, ..ServeConfig::new(format!("{host}:0"), token.clone()) };
            server = Some(Server::start(Arc::clone(&part), serve)?);
        }
        let port = server.as_ref().map(|server| server.address().port());
        let address = port.map_or_else(String::new, |port| format!("{host}:{port}"));
        let servers = meeting.all_gather(address.as_bytes())?;
        let of_others = |rank: usize| serves(rank) && part_of(rank) != Some(index);
        let servers = servers.into_iter().enumerate().filter(|(rank, _)| of_others(*rank));
        let servers: Vec<String> =
            servers.map(|(_, name)| String::from_utf8_lossy(&name).into_owned()).collect();
        let connect = ConnectConfig {
            own: Some(part),
            tls,
            rules,
            in_flight_bytes,
            ..ConnectConfig::new(servers, token)
        };
        let graph = Arc::new(DistGraph::connect(connect)?);
        Ok(Self { graph, server, meeting })
    }

    /// The whole graph.
    pub fn graph(&self) -> &Arc<DistGraph> {
        &self.graph
    }

    /// Which rank trains on which node: one that holds its part, so that neither its edges nor its row travel. For
    /// `ItemSampler::shard_by_owner`.
    pub fn owner(&self) -> impl Fn(NodeId) -> usize + Send + Sync + 'static {
        let book = Arc::clone(self.graph.book());
        let ranks_per_part = ranks_per_part(self.meeting.rank_info().world_size, book.n_parts()).unwrap_or(1);
        move |node| owner(&book, ranks_per_part, node)
    }

    /// Waits until no rank asks any more, at most so long, and ends what it serves. A meeting.
    ///
    /// # Errors
    /// [`Error::Ranks`].
    pub fn end(self, deadline: Duration) -> Result<()> {
        let Self { graph, server, mut meeting } = self;
        // Gives the leases back, unless somebody else still holds the graph.
        drop(graph);
        meeting.barrier(deadline)?;
        drop(server);
        Ok(())
    }
}

fn ranks_per_part(world_size: usize, n_parts: usize) -> Option<usize> {
    (0 < n_parts && world_size.is_multiple_of(n_parts)).then(|| world_size / n_parts)
}

/// The nodes of a part go round among its ranks.
fn owner(book: &PartitionBook, ranks_per_part: usize, node: NodeId) -> usize {
    // Nodes that are not there are an error of whoever samples them.
    let place = book.place(node);
    place.map_or(0, |place| place.part * ranks_per_part + place.row.index() % ranks_per_part)
}

/// The word of rank 0, that it was given or makes. Others' do not count: launchers give the environment to some alone.
fn agree(meeting: &mut dyn Communicator, given: Option<Token>) -> Result<Token> {
    let mut word = match (meeting.rank_info().rank, given) {
        (0, Some(token)) => token.word().as_bytes().to_vec(),
        (0, None) => Token::random_text()?.into_bytes(),
        _ => Vec::new(),
    };
    meeting.broadcast(0, &mut word)?;
    Ok(Token::new(&String::from_utf8_lossy(&word))?)
}
