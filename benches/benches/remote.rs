//! Stage `remote`: gathers features of a graph in two random partitions, so that half of the nodes are remote. One
//! partition is local; a server in this process serves the other one over loopback. The benches fetch remote rows over
//! one connection, and the rows of batches of local seeds with and without the static cache. The rates count bytes and
//! rows. For comparison, two threads transfer the same rows over a bare socket.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use kiln_benches::{Access, Input, Result, Stage, Work, inputs, n_threads};
use kiln_comm::rpc::Token;
use kiln_feature::{FeatureBuffer, FeatureDType, FeatureStore};
use kiln_graph::NodeId;
use kiln_partition::{
    CacheConfig, Method, Part, PartitionBook, PartitionMeta, PartitionStats, part_dir, partition_nodes,
    write_parts,
};
use kiln_remote::{ConnectConfig, DistFeatureStore, DistGraph, ServeConfig, Server};
use kiln_sample::{FrontierSampler, Scratch, Seeds};

/// The number of batches that a bench cycles through.
const N_BATCHES: usize = 4;

/// The size of the static cache, as a share of all nodes.
const CACHE_RATIO: f64 = 0.2;

/// The total size in bytes of the rows of one request, which is about that of a batch.
const GATHER_BYTES: usize = 64 << 20;

/// The size in bytes of a write to the bare socket.
const PIECE_BYTES: usize = 64 << 10;

/// A transfer without a protocol, as a lower bound of the time: a thread gathers rows of a partition and sends them
/// over a socket, and the caller stores them at their positions.
struct Bare {
    socket: TcpStream,
    piece: Vec<u8>,
}

impl Bare {
    /// Starts a thread that sends these rows of f32 values on each request. The thread ends when the value is dropped.
    fn start(part: Arc<Part>, rows: Vec<NodeId>, row_bytes: usize) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let socket = TcpStream::connect(listener.local_addr()?)?;
        socket.set_nodelay(true)?;
        let (mut client, _) = listener.accept()?;
        let rows_at_once = (PIECE_BYTES / row_bytes).max(1);
        std::thread::spawn(move || -> io::Result<()> {
            let Some(features) = &part.types[0].features else { return Ok(()) };
            let mut piece = FeatureBuffer::empty(features.dtype());
            loop {
                client.read_exact(&mut [0])?;
                for rows in rows.chunks(rows_at_once) {
                    features.gather(rows, &mut piece).map_err(io::Error::other)?;
                    let FeatureBuffer::F32(values) = &piece else { return Ok(()) };
                    client.write_all(bytemuck::cast_slice(values))?;
                }
            }
        });
        Ok(Self { socket, piece: vec![0; rows_at_once * row_bytes] })
    }

    /// Requests the rows, and stores each at its position in `all` as it arrives.
    fn gather(&mut self, places: &[usize], row_bytes: usize, all: &mut [u8]) -> io::Result<()> {
        self.socket.write_all(&[0])?;
        for places in places.chunks(self.piece.len() / row_bytes) {
            let piece = &mut self.piece[..places.len() * row_bytes];
            self.socket.read_exact(piece)?;
            for (row, place) in piece.chunks_exact(row_bytes).zip(places) {
                all[place * row_bytes..][..row_bytes].copy_from_slice(row);
            }
        }
        Ok(())
    }
}

/// A graph with a local partition and a partition on a server.
struct Partitioned {
    // The graph must be dropped before the server, because dropping the graph releases its lease at the server.
    graph: Arc<DistGraph>,
    _server: Server,
    there: Arc<Part>,
}

impl Partitioned {
    fn of(input: &Input) -> Result<Self> {
        let data = &input.dataset;
        let parts = partition_nodes(data.csc()?, &data.split().train, 2, Method::Random, 0)?;
        let n_cut_edges = PartitionStats::of(data.csc()?, &data.split().train, &parts, 2)?.n_cut_edges;
        let book = PartitionBook::from_parts(&parts, 2)?;
        let meta = PartitionMeta { hash: data.hash()?, method: Method::Random, n_cut_edges };
        let fanouts = input.fanouts.clone();
        let batch_size = kiln_benches::BATCH_SIZE;
        let cache = CacheConfig { ratio: CACHE_RATIO, fanouts, batch_size, seed: 0 };
        let folder = std::env::temp_dir().join(format!("kiln-bench-parts-{}", std::process::id()));
        write_parts(data, &book, &meta, Some(&cache), &folder)?;
        let open = |part| Part::open(part_dir(&folder, part)).map(Arc::new);
        let here = open(0)?;
        let there = open(1)?;
        // The partitions map these files, and mapped files remain readable after their removal.
        std::fs::remove_dir_all(&folder)?;
        let token = Token::new(&Token::random_text()?)?;
        let server = Server::start(Arc::clone(&there), ServeConfig::new("127.0.0.1:0", token.clone()))?;
        let config = ConnectConfig::new(vec![server.address().to_string()], token);
        let graph = DistGraph::connect(ConnectConfig { own: Some(here), n_channels: 1, ..config })?;
        Ok(Self { graph: Arc::new(graph), _server: server, there })
    }

    /// Returns remote nodes in random order. Their rows have at most [`GATHER_BYTES`] in total.
    fn others(&self, row_bytes: usize) -> Vec<NodeId> {
        let book = self.graph.books().of_type(0);
        let nodes = (0..book.n_nodes() as u32).map(NodeId);
        let mut others: Vec<NodeId> =
            nodes.filter(|node| book.place(*node).is_some_and(|place| place.part == 1)).collect();
        // The nodes are sorted by a hash, so that adjacent nodes of the list are not adjacent in the partition.
        others.sort_by_key(|node| node.0.wrapping_mul(0x9E37_79B1).rotate_left(16));
        others.truncate(GATHER_BYTES / row_bytes);
        others
    }

    /// Returns the input nodes of at most [`N_BATCHES`] batches. Only the local seeds of each batch are sampled.
    fn inputs_of_batches(&self, input: &Input) -> Result<Vec<Vec<NodeId>>> {
        let book = self.graph.books();
        let sampler = input.sampler();
        let mut scratch = Scratch::default();
        let mut inputs = Vec::new();
        for batch in input.batches(N_BATCHES)? {
            let own = batch
                .seeds
                .iter()
                .filter(|node: &&NodeId| book.place(**node).is_some_and(|place| place.part == 0))
                .copied()
                .collect();
            let sampled = sampler.sample_blocks(&Seeds::nodes(own), batch.key, &mut scratch)?;
            inputs.push(sampled.blocks[0].srcs().to_vec());
        }
        Ok(inputs)
    }
}

pub(crate) fn main() -> Result {
    let mut stage = Stage::new("remote");
    for input in inputs()? {
        let partitioned = Partitioned::of(&input)?;
        let features = input.dataset.node_features()?;
        let graph = &partitioned.graph;
        let row_bytes = features.dim() * features.dtype().bytes();
        let mut rows = FeatureBuffer::empty(features.dtype());
        let others = partitioned.others(row_bytes);
        let bytes = (others.len() * row_bytes) as u64;
        // The rows are copied at least twice, into the socket and out of it. A copy reads and writes each byte.
        let work = Work::new(bytes, "bytes", n_threads()).streamed(4 * bytes);
        let remote = DistFeatureStore::without_cache(Arc::clone(graph), 0)?;
        stage.bench(
            &format!("gather-{}x{}", features.dtype(), features.dim()),
            &input.name,
            work,
            |bencher| {
                bencher.iter(|| remote.gather(&others, &mut rows).expect("the server should send the rows"));
            },
        )?;
        if features.dtype() == FeatureDType::F32 {
            let rows_there = others.iter().filter_map(|node| graph.books().place(*node));
            let rows_there = rows_there.map(|place| place.row.local_node()).collect();
            let mut bare = Bare::start(Arc::clone(&partitioned.there), rows_there, row_bytes)?;
            let places: Vec<usize> = (0..others.len()).collect();
            let mut all = vec![0; bytes as usize];
            stage.bench(&format!("gather-bare-f32x{}", features.dim()), &input.name, work, |bencher| {
                bencher.iter(|| bare.gather(&places, row_bytes, &mut all).expect("the rows should arrive"));
            })?;
        }
        let batches = partitioned.inputs_of_batches(&input)?;
        let n_rows = (batches.iter().map(Vec::len).sum::<usize>() / batches.len()) as u64;
        let work = Work::new(n_rows, "rows", n_threads()).rows(
            2 * n_rows * row_bytes as u64,
            Access::Gather(row_bytes as u64),
            (features.n_rows() * row_bytes) as u64,
        );
        let mut travelled = Vec::new();
        for (variant, remote) in
            [("batch", remote), ("batch-cached", DistFeatureStore::new(Arc::clone(graph))?)]
        {
            graph.take_fetch_stats();
            batches.iter().try_for_each(|batch| remote.gather(batch, &mut rows))?;
            travelled.push(graph.take_fetch_stats().remote_rows);
            let mut next = 0;
            stage.bench(variant, &input.name, work, |bencher| {
                bencher.iter(|| {
                    next = (next + 1) % batches.len();
                    remote.gather(&batches[next], &mut rows).expect("the server should send the rows");
                });
            })?;
        }
        let [without, with] = travelled[..] else {
            return Err("expected row counts of the variants batch and batch-cached".into());
        };
        let fewer = 100.0 * (1.0 - with as f64 / without.max(1) as f64);
        eprintln!(
            "{}: {N_BATCHES} batches transfer {without} rows without the cache, {with} with it: {fewer:.1} % fewer",
            input.name
        );
    }
    stage.finish();
    Ok(())
}
