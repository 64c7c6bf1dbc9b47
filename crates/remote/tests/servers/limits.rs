//! The memory that one request takes on a server.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_graph::NodeId;
use kiln_partition::Part;
use kiln_remote::{DistGraph, DistNeighborSampler, ServeConfig, Server};
use kiln_sample::{
    Fanout, FrontierSampler, NeighborSampler, Neighbors, NodeKey, RngKey, SamplerConfig, Scratch, Seeds,
    Selection,
};

use crate::cluster::{config, token, write_only_part};

const MIB: usize = 1 << 20;

/// The number of threads of the server under test.
const N_THREADS: usize = 2;
/// The memory limit of a response of the server under test, in bytes.
const RESPONSE_BYTES: usize = 2 * MIB;

/// The allowance in bytes for other memory of the process: allocators, stacks and the buffers of one connection.
const BESIDES: usize = 10 * MIB;

/// The environment variable with the folder of the partition that [`serve_for_another_process`] serves.
const PART: &str = "KILN_TEST_PART";

/// The process whose memory is measured: it serves a partition until it is killed.
#[test]
fn serve_for_another_process() {
    let Some(folder) = std::env::var_os(PART) else { return };
    let part = Arc::new(Part::open(&folder).unwrap());
    let config = ServeConfig {
        n_threads: N_THREADS,
        response_bytes: RESPONSE_BYTES,
        ..ServeConfig::new("127.0.0.1:0", token())
    };
    let server = Server::start(part, config).unwrap();
    let address = Path::new(&folder).join("address");
    std::fs::write(address.with_extension("tmp"), server.address().to_string()).unwrap();
    std::fs::rename(address.with_extension("tmp"), address).unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

struct Process(Child);

impl Process {
    /// Returns the peak memory of the process in bytes, including mapped files.
    fn peak_bytes(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn folder_bytes(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    files.sum::<u64>() as usize
}

#[test]
#[cfg(target_os = "linux")]
fn one_request_stays_within_the_memory_limit_of_the_server() {
    // If the edges of one request were sampled at once, each would need at least 28 bytes, 117 MB in total.
    let data = kiln_data::synthetic::rmat(14, 256, 4, 0).unwrap();
    let n_nodes = data.graph.n_nodes();
    let root = tempfile::tempdir().unwrap();
    let folder = write_only_part(&data, root.path());
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args(["limits::serve_for_another_process", "--exact", "--nocapture"]).env(PART, &folder);
    let server = Process(server.spawn().unwrap());
    let (address, started) = (folder.join("address"), Instant::now());
    while !address.exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "the server should start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let address = std::fs::read_to_string(address).unwrap();
    let graph = Arc::new(DistGraph::connect(config(vec![address])).unwrap());
    let before = server.peak_bytes();
    let seeds = Seeds::nodes((0..n_nodes as u32).map(NodeId).collect());
    let whole = NeighborSampler::new(Arc::clone(data.csc().unwrap()), [Fanout::All]);
    let expected = whole.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap();
    let all = |neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| {
        (0..neighbors.degree() as u32).for_each(|position| picks.push(position));
    };
    let samplers = [
        DistNeighborSampler::new(Arc::clone(&graph), [Fanout::All]),
        // The server does not know this rule, so it sends neighbour lists, and the client samples them.
        DistNeighborSampler::with_config(graph, SamplerConfig::new([1]).with_rule(all)).unwrap(),
    ];
    for sampler in samplers {
        let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap();
        assert!(sampled == expected, "ranges of rows should not change the sample");
    }
    let grown = server.peak_bytes() - before;
    let stated = N_THREADS * RESPONSE_BYTES + folder_bytes(&folder) + BESIDES;
    let at_once = 28 * data.graph.n_edges() as usize;
    println!("memory grew by {} MiB, limit {}; at once {}", grown / MIB, stated / MIB, at_once / MIB);
    assert!(3 * stated < 2 * at_once, "the request is too small for this test");
    assert!(grown < stated, "memory grew by {grown} bytes, expected less than {stated}");
}
