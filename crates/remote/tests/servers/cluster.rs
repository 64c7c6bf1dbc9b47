//! Helpers that create partitioned graphs, which this process serves to itself.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kiln_comm::rpc::Token;
use kiln_data::{Dataset, DatasetTargets, Layout, NodeNames, Split};
use kiln_feature::{DenseFeatures, FeatureStore, Labels, Targets};
use kiln_graph::{CscBuilder, NodeId, gcn_norm};
use kiln_partition::{
    CacheConfig, Method, Part, PartitionBook, PartitionBooks, PartitionMeta, part_dir, write_parts,
};
use kiln_remote::{
    ConnectConfig, DistGraph, DistNeighborSampler, Error, RuleRegistry, ServeConfig, Server, ServerError,
};
use kiln_sample::{Fanout, SamplerConfig};
use kiln_testkit::free_port;

/// The time after which a wait counts as endless. It is much longer than any wait on a loaded machine.
pub(crate) const HANGS: Duration = Duration::from_secs(120);

pub(crate) const N_NODES: usize = 500;

/// Returns a pseudorandom number that depends only on `number`.
pub(crate) fn wild(number: u64) -> u64 {
    let mixed = (number ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 20
}

pub(crate) fn token() -> Token {
    Token::new("a-word-of-this-test").unwrap()
}

/// Creates a sampler by the rule that the client knows by this name.
pub(crate) fn by_name(
    graph: Arc<DistGraph>,
    fanouts: impl IntoIterator<Item = impl Into<Fanout>>,
    name: &str,
) -> kiln_remote::Result<DistNeighborSampler> {
    let config = SamplerConfig::new(fanouts).with_rule(graph.rule(name)?);
    DistNeighborSampler::with_config(graph, config)
}

/// Returns a data set whose weighted graph has hubs, self-loops, parallel edges and edge types; with fewer than 8 nodes,
/// it has self-loops only.
pub(crate) fn data(n_nodes: usize, features: Arc<dyn FeatureStore>) -> Dataset {
    let n_edges = 12 * n_nodes as u64;
    let node = |number: u64| (wild(number) % n_nodes.max(1) as u64) as u32;
    let hub = |number: u64| if number.is_multiple_of(5) { node(number) % 7 } else { node(number) };
    let n_edges = if n_nodes < 8 { 0 } else { n_edges };
    let srcs: Vec<u32> = (0..n_edges).map(hub).collect();
    let dsts: Vec<u32> = (0..n_edges).map(|edge| hub(edge + n_edges)).collect();
    let graph = gcn_norm(&CscBuilder::new(n_nodes).build(&srcs, &dsts).unwrap()).unwrap();
    let edge_types: Vec<u8> = (0..graph.n_edges()).map(|edge| wild(edge) as u8).collect();
    let graph = graph.with_edge_types(edge_types.into()).unwrap();
    let classes: Vec<i32> = (0..n_nodes as u64).map(|node| (wild(node) % 4) as i32).collect();
    let split = |rest: u64| -> kiln_graph::SharedArray<NodeId> {
        let nodes = (0..n_nodes as u64).filter(|node| wild(*node) % 3 == rest);
        nodes.map(|node| NodeId(node as u32)).collect()
    };
    Dataset {
        name: "hubs".to_owned(),
        graph: graph.into(),
        features: vec![Some(features)],
        feature_columns: vec![Vec::new()],
        targets: Some(DatasetTargets {
            node_type: 0,
            values: Labels::new(classes, 4).into(),
            split: Split { train: split(0), val: split(1), test: split(2) },
            class_names: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
        }),
        layout: Layout::Plain,
        first_new: None,
        times: Default::default(),
        names: vec![Arc::new(NodeNames::default())],
        edge_type_names: Vec::new(),
        preparation: Default::default(),
        links: None,
        tasks: Vec::new(),
        notes: Vec::new(),
    }
}

pub(crate) fn features(n_nodes: usize, dim: usize) -> Arc<dyn FeatureStore> {
    let values: Vec<f32> = (0..(n_nodes * dim) as u64).map(|at| wild(at) as f32).collect();
    Arc::new(DenseFeatures::from_f32(values, dim).unwrap())
}

pub(crate) fn hubs() -> Dataset {
    data(N_NODES, features(N_NODES, 3))
}

/// Returns the class labels of a graph.
pub(crate) fn labels(graph: &DistGraph) -> &Arc<Labels> {
    match graph.targets().map(|targets| &targets.values) {
        Some(Targets::Classes(labels)) => labels,
        other => panic!("the targets are {other:?}"),
    }
}

/// Partitions a data set, with node `v` in partition `owner(v)`.
pub(crate) fn parts(
    data: &Dataset,
    n_parts: usize,
    owner: impl Fn(u32) -> usize,
    cache: Option<&CacheConfig>,
) -> Vec<Arc<Part>> {
    parts_of(data, data.hash().unwrap(), n_parts, owner, cache)
}

/// Same as [`parts`], but records `hash` as that of the data set.
pub(crate) fn parts_with_hash(
    data: &Dataset,
    hash: &str,
    n_parts: usize,
    owner: impl Fn(u32) -> usize,
) -> Vec<Arc<Part>> {
    parts_of(data, hash.to_owned(), n_parts, owner, None)
}

fn parts_of(
    data: &Dataset,
    hash: String,
    n_parts: usize,
    owner: impl Fn(u32) -> usize,
    cache: Option<&CacheConfig>,
) -> Vec<Arc<Part>> {
    let owners: Vec<u16> = (0..data.graph.n_nodes() as u32).map(|node| owner(node) as u16).collect();
    let book = PartitionBooks::from_parts(data.graph.types().clone(), &owners, n_parts).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("parts");
    let meta = PartitionMeta { hash, method: Method::Random, n_cut_edges: 0 };
    write_parts(data, &book, &meta, cache, &out).unwrap();
    // Mapped files outlive the removed folder.
    (0..n_parts).map(|part| Arc::new(Part::open(part_dir(&out, part)).unwrap())).collect()
}

/// Writes a data set as a single partition, and returns its folder.
pub(crate) fn write_only_part(data: &Dataset, root: &Path) -> PathBuf {
    let book = PartitionBook::from_parts(&vec![0; data.graph.n_nodes()], 1).unwrap();
    let meta = PartitionMeta { hash: data.hash().unwrap(), method: Method::Random, n_cut_edges: 0 };
    write_parts(data, &book, &meta, None, root.join("parts")).unwrap();
    part_dir(root.join("parts"), 0)
}

/// The lease time of the tests' servers.
pub(crate) const LEASE: Duration = Duration::from_secs(8);

/// Starts a server. Its port stays free when the server is dropped: the system gives it to no other socket.
pub(crate) fn serve(part: &Arc<Part>) -> Server {
    serve_at(&format!("127.0.0.1:{}", free_port()), part)
}

pub(crate) fn serve_at(address: &str, part: &Arc<Part>) -> Server {
    serve_with_lease(address, part, LEASE)
}

pub(crate) fn serve_with_lease(address: &str, part: &Arc<Part>, lease: Duration) -> Server {
    let config = ServeConfig { n_threads: 2, lease, ..ServeConfig::new(address, token()) };
    Server::start(Arc::clone(part), config).unwrap()
}

pub(crate) fn addresses(servers: &[Server]) -> Vec<String> {
    servers.iter().map(|server| server.address().to_string()).collect()
}

pub(crate) fn config(servers: Vec<String>) -> ConnectConfig {
    ConnectConfig { deadline: HANGS, join_within: HANGS, ..ConnectConfig::new(servers, token()) }
}

/// Connects with a short deadline. If it passes before the servers respond, as it may on a loaded machine,
/// connects again.
pub(crate) fn connect_hastily(config: &ConnectConfig) -> Arc<DistGraph> {
    let started = Instant::now();
    loop {
        match DistGraph::connect(config.clone()) {
            Ok(graph) => return Arc::new(graph),
            Err(Error::Server(ServerError::PeerLost { .. })) if started.elapsed() < HANGS => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits for a condition.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < HANGS, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A graph whose partitions are all served, except for the local one if there is one.
pub(crate) struct Cluster {
    // The graph is dropped first, because its drop ends the leases with the servers.
    pub(crate) graph: Arc<DistGraph>,
    pub(crate) servers: Vec<Server>,
}

impl Cluster {
    pub(crate) fn of(parts: &[Arc<Part>], own: Option<usize>, rules: RuleRegistry) -> Self {
        let serve = |part: &Arc<Part>| {
            let config = ServeConfig {
                rules: rules.clone(),
                n_threads: 2,
                ..ServeConfig::new("127.0.0.1:0", token())
            };
            Server::start(Arc::clone(part), config).unwrap()
        };
        let others = parts.iter().enumerate().filter(|(part, _)| Some(*part) != own);
        let servers: Vec<Server> = others.map(|(_, part)| serve(part)).collect();
        let own = own.map(|own| Arc::clone(&parts[own]));
        let config = ConnectConfig { own, rules, ..config(addresses(&servers)) };
        Self { graph: Arc::new(DistGraph::connect(config).unwrap()), servers }
    }
}

/// A proxy in front of a server. It can drop all bytes without closing connections, and close each connection after a
/// number of bytes.
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    state: Arc<LinkState>,
}

#[derive(Default)]
struct LinkState {
    is_cut: AtomicBool,
    /// The number of bytes from the server after which a connection is closed; 0 for no limit.
    limit: AtomicUsize,
}

impl Link {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::<LinkState>::default());
        let of_link = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let ways = [(client.try_clone(), server.try_clone(), false), (Ok(server), Ok(client), true)];
                for (from, to, is_limited) in ways {
                    let (from, to, state) = (from.unwrap(), to.unwrap(), Arc::clone(&of_link));
                    std::thread::spawn(move || carry(from, to, &state, is_limited));
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
    }

    /// Closes each connection after `n_bytes` from the server.
    pub(crate) fn close_after(&self, n_bytes: usize) {
        self.state.limit.store(n_bytes, Ordering::SeqCst);
    }
}

/// Copies bytes in one direction. Bytes received while the link is cut are lost, which breaks their connection.
fn carry(mut from: TcpStream, mut to: TcpStream, state: &LinkState, is_limited: bool) {
    let (mut bytes, mut n_sent) = (vec![0; 1 << 16], 0);
    while let Ok(n_bytes) = from.read(&mut bytes) {
        if n_bytes == 0 {
            break;
        }
        if state.is_cut.load(Ordering::SeqCst) {
            continue;
        }
        let limit = state.limit.load(Ordering::SeqCst);
        let n_left = if is_limited && 0 < limit { limit - n_sent.min(limit) } else { n_bytes };
        if 0 < limit {
            n_sent += n_bytes.min(n_left);
        }
        if to.write_all(&bytes[..n_bytes.min(n_left)]).is_err() || n_left < n_bytes {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
