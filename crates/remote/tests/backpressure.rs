//! Backpressure: if a trainer is slower than its servers, batches and responses wait within the configured memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use kiln_comm::rpc::Token;
use kiln_data::synthetic;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Phase};
use kiln_partition::{Method, Part, PartitionBook, PartitionMeta, part_dir, write_parts};
use kiln_remote::{ConnectConfig, DistFeatureStore, DistGraph, DistNeighborSampler, ServeConfig, Server};
use kiln_sample::Fanout;

const MIB: usize = 1 << 20;

/// The number of feature columns. A row takes 2 KiB.
const DIM: usize = 512;

/// Returns the anonymous memory of this process in bytes, without mapped files.
fn anonymous() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn slow_trainer_keeps_memory_within_the_documented_limits() {
    // On systems without this file, the memory cannot be measured.
    if !std::path::Path::new("/proc/self/status").exists() {
        return;
    }
    let data = synthetic::rmat(16, 4, DIM, 0).unwrap();
    let owners: Vec<u16> = (0..data.graph.n_nodes()).map(|node| (node % 2) as u16).collect();
    let book = PartitionBook::from_parts(&owners, 2).unwrap();
    let meta = PartitionMeta { hash: data.hash().unwrap(), method: Method::Random, n_cut_edges: 0 };
    let root = tempfile::tempdir().unwrap();
    write_parts(&data, &book, &meta, None, root.path().join("parts")).unwrap();
    drop(data);
    let token = Token::new("a-word-of-this-test").unwrap();
    let serve = |part| {
        let part = Part::open(part_dir(root.path().join("parts"), part)).unwrap();
        Server::start(Arc::new(part), ServeConfig::new("127.0.0.1:0", token.clone())).unwrap()
    };
    let servers: Vec<Server> = (0..2).map(serve).collect();
    let addresses: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let config = ConnectConfig {
        n_channels: 1,
        in_flight_bytes: 8 * MIB,
        ..ConnectConfig::new(addresses, token.clone())
    };
    let graph = Arc::new(DistGraph::connect(config).unwrap());
    let sampler = Arc::new(DistNeighborSampler::new(Arc::clone(&graph), [Fanout::UpTo(3)]));
    let features = Arc::new(DistFeatureStore::new(Arc::clone(&graph)).unwrap());
    let targets = graph.targets().unwrap().values.clone();
    let batcher = NodeBatcher::new(sampler, features, targets);
    let items = ItemSamplerConfig { batch_size: 512, ..ItemSamplerConfig::default() };
    let items = ItemSampler::new((0..1 << 16).map(kiln_graph::NodeId).collect::<Vec<_>>(), items).unwrap();
    let (workers, queue_bytes) = (4, 8 * MIB);
    let loader = Loader::new(items, batcher, LoaderConfig { workers, queue_bytes }).unwrap();
    let before = anonymous();
    let (mut peak, mut n_bytes, mut n_rows) = (0, 0, 0);
    for batch in loader.epoch(Phase::Train { epoch: 0 }) {
        let batch = batch.unwrap();
        n_rows += batch.input.only().unwrap().x.n_values() / DIM;
        n_bytes += batch.input.only().unwrap().x.n_bytes();
        std::thread::sleep(Duration::from_millis(20));
        peak = peak.max(anonymous());
    }
    assert_eq!(graph.take_fetch_stats().remote_rows, n_rows as u64);
    // The limit is the sum of the graph's limit, the loader's queue, one batch in training, the buffers of the servers'
    // connections, and freed memory that allocators retain.
    let told = graph.memory_bytes() + queue_bytes + 4 * MIB + servers.len() * 16 * MIB + 16 * MIB;
    let grown = peak.saturating_sub(before);
    println!("{} MiB received, memory grew by {} MiB, limit {}", n_bytes / MIB, grown / MIB, told / MIB);
    assert!(2 * told < n_bytes, "{n_bytes} bytes of batches are too few for this test");
    assert!(grown < told, "memory grew by {grown} bytes, expected less than {told}");
}
