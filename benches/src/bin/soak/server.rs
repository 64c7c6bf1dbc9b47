//! The graph server, its well-behaved client, and the client that is killed.

use std::fmt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kiln_benches::Result;
use kiln_comm::rpc::Token;
use kiln_data::Dataset;
use kiln_graph::NodeId;
use kiln_partition::{Method, Part, PartitionBook, PartitionMeta, part_dir, write_parts};
use kiln_remote::{ConnectConfig, DistGraph, DistNeighborSampler, RuleRegistry, ServeConfig, Server};
use kiln_sample::{
    Fanout, FrontierSampler, NeighborSampler, Neighbors, NodeKey, RngKey, Scratch, Seeds, Selection,
};

use crate::Soak;

/// The name of the rule that panics on the server.
pub(crate) const PANICS: &str = "panics";

const FANOUTS: [Fanout; 2] = [Fanout::UpTo(10), Fanout::UpTo(5)];

/// The time within which the server must start, accept a client, and answer each of its requests.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn token() -> Result<Token> {
    Ok(Token::new("a-word-of-the-soak-test")?)
}

/// Returns the rules that the server and its clients register. Clients register `panics` without calling it.
fn rules() -> Result<RuleRegistry> {
    Ok(RuleRegistry::default()
        .register(PANICS, |_: Neighbors<'_>, _: NodeKey, _: u32, _: &mut Selection| {
            panic!("intended by the soak test")
        })?)
}

pub(crate) fn connect(address: &str) -> Result<Arc<DistGraph>> {
    let config = ConnectConfig::new(vec![address.to_owned()], token()?);
    let config = ConnectConfig { rules: rules()?, deadline: DEADLINE, join_within: DEADLINE, ..config };
    Ok(Arc::new(DistGraph::connect(config)?))
}

/// A server in a separate process, which is killed when this value is dropped.
pub(crate) struct ServerProcess {
    process: Child,
    pub(crate) address: String,
}

impl ServerProcess {
    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.process.id())
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.usage().n_descriptors > 0
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The memory and the number of descriptors of a process, from `/proc`; zeros if it has exited.
pub(crate) struct Usage {
    pub(crate) rss_bytes: usize,
    pub(crate) n_descriptors: usize,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"));
        Self { rss_bytes: kib.unwrap_or(0) << 10, n_descriptors: descriptors.map_or(0, Iterator::count) }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB, {} descriptors", self.rss_bytes >> 20, self.n_descriptors)
    }
}

/// Returns a command that is limited to 256 descriptors and writes its output to a file.
pub(crate) fn limited(program: &Path, log: &Path) -> Result<Command> {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""]).arg(program);
    let log = std::fs::File::create(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(command)
}

/// Generates a graph, and starts a server that holds it as one partition. Returns the server and the data set.
pub(crate) fn start(folder: &Path) -> Result<(ServerProcess, Dataset)> {
    let data = kiln_data::synthetic::rmat(14, 16, 8, 0)?;
    let book = PartitionBook::from_parts(&vec![0; data.graph.n_nodes()], 1)?;
    let meta = PartitionMeta { hash: data.hash()?, method: Method::Random, n_cut_edges: 0 };
    write_parts(&data, &book, &meta, None, folder.join("parts"))?;
    let part = part_dir(folder.join("parts"), 0);
    let mut command = limited(&std::env::current_exe()?, &folder.join("server.log"))?;
    let process = command.arg("serve").arg(&part).spawn()?;
    let mut server = ServerProcess { process, address: String::new() };
    let address = part.join("address");
    let started = Instant::now();
    while !address.exists() {
        if DEADLINE < started.elapsed() {
            return Err("the server did not start in time: see server.log".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    server.address = std::fs::read_to_string(address)?;
    Ok((server, data))
}

/// Runs the server in this process until the process is killed.
pub(crate) fn serve(part: &Path) -> Result {
    let config = ServeConfig {
        rules: rules()?,
        n_threads: 2,
        lease: Duration::from_secs(5),
        ..ServeConfig::new("127.0.0.1:0", token()?)
    };
    let server = Server::start(Arc::new(Part::open(part)?), config)?;
    let address = part.join("address");
    std::fs::write(address.with_extension("tmp"), server.address().to_string())?;
    std::fs::rename(address.with_extension("tmp"), address)?;
    loop {
        std::thread::sleep(DEADLINE);
    }
}

fn batch(n_nodes: usize, step: u64) -> (Seeds, RngKey) {
    let seeds = (0..64).map(|at| NodeId(((step * 64 + at) % n_nodes as u64) as u32));
    (Seeds::nodes(seeds.collect()), RngKey::new(step))
}

/// Samples blocks from the server until the soak test ends, and compares them with blocks of the whole graph.
pub(crate) fn sample_and_compare(soak: &Soak, data: &Dataset, n_samples: &AtomicUsize) {
    let outcome = || -> Result {
        let sampler = DistNeighborSampler::new(connect(&soak.server)?, FANOUTS);
        let whole = NeighborSampler::new(Arc::clone(data.csc()?), FANOUTS);
        let mut scratch = Scratch::default();
        for step in 0.. {
            if soak.is_over() {
                break;
            }
            let (seeds, key) = batch(data.graph.n_nodes(), step);
            let expected = whole.sample_blocks(&seeds, key, &mut scratch)?;
            if sampler.sample_blocks(&seeds, key, &mut scratch)? != expected {
                return Err(format!("the blocks of step {step} differ from those of the whole graph").into());
            }
            n_samples.fetch_add(1, Ordering::Relaxed);
            soak.pause(Duration::from_millis(50));
        }
        Ok(())
    };
    if let Err(error) = outcome() {
        soak.fail(format!("a well-behaved client failed: {error}"));
    }
}

/// Samples whole neighbourhoods from the server until the process is killed.
pub(crate) fn sample_until_killed(address: &str) -> Result {
    let graph = connect(address)?;
    let sampler = DistNeighborSampler::new(Arc::clone(&graph), [Fanout::All, Fanout::All]);
    for step in 0.. {
        let (seeds, key) = batch(graph.n_nodes(), step);
        sampler.sample_blocks(&seeds, key, &mut Scratch::default())?;
    }
    Ok(())
}
