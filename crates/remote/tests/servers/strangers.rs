//! Connections to a server from processes that do not know the token.

use std::io::Read;
use std::net::TcpStream;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_comm::rpc::Token;
use kiln_graph::NodeId;
use kiln_remote::{DistGraph, DistNeighborSampler, Error, Health, ServeConfig, Server, ServerError};
use kiln_sample::{Fanout, FrontierSampler, RngKey, Scratch, Seeds};

use crate::cluster::{config, hubs, parts, token};

/// A timeout that is longer than the server takes to close unauthenticated connections.
const PATIENCE: Duration = Duration::from_secs(120);

fn idle(address: &str, n: usize) -> Vec<TcpStream> {
    (0..n).map(|_| TcpStream::connect(address).unwrap()).collect()
}

fn check_closed(mut stranger: &TcpStream) {
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may send its HTTP/2 settings before it closes the connection.
    let mut bytes = [0; 1024];
    while stranger.read(&mut bytes).expect("the server should close idle connections") != 0 {}
}

/// Idle connections reach the limit on connections. The connected client continues, and a new client connects once the
/// server has closed the idle ones.
#[test]
fn idle_connections_do_not_block_clients() {
    let part = &parts(&hubs(), 1, |_| 0, None)[0];
    let serve = ServeConfig { max_connections: 12, ..ServeConfig::new("127.0.0.1:0", token()) };
    let server = Server::start(Arc::clone(part), serve).unwrap();
    let address = server.address().to_string();
    let graph = Arc::new(DistGraph::connect(config(vec![address.clone()])).unwrap());
    let sampler = DistNeighborSampler::new(graph, [Fanout::UpTo(5); 2]);
    let sample = |step: u32| {
        let seeds = Seeds::nodes((0..20).map(|at| NodeId(step * 20 + at)).collect());
        sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())
    };
    // Both of the client's connections are open before the idle ones.
    (0..2).for_each(|step| drop(sample(step).unwrap()));
    // A client that waits for idle connections waits five seconds every time. On a loaded machine, one that
    // does not may be as slow, but not every time.
    let is_soon = (0..10).any(|_| {
        let strangers = idle(&address, 24);
        let started = Instant::now();
        (2..6).for_each(|step| drop(sample(step).unwrap()));
        let took = started.elapsed();
        let health = Health::ask(&*address, token(), None, PATIENCE).unwrap();
        assert_eq!(health.n_clients, 1);
        strangers.iter().for_each(check_closed);
        took < Duration::from_secs(4)
    });
    assert!(is_soon, "connected clients should not wait for idle connections");
    sample(6).unwrap();
}

/// The child process of [`idle_connections_do_not_exhaust_the_files_of_a_server`]. It serves until that test kills it,
/// at most for twice [`PATIENCE`].
#[test]
fn child_with_few_files() {
    let Ok(path) = std::env::var("KILN_TEST_ADDRESS") else { return };
    let part = &parts(&hubs(), 1, |_| 0, None)[0];
    let server = Server::start(Arc::clone(part), ServeConfig::new("127.0.0.1:0", token())).unwrap();
    // The file is renamed after writing, so that the parent never reads a partial file.
    std::fs::write(format!("{path}.new"), server.address().to_string()).unwrap();
    std::fs::rename(format!("{path}.new"), &path).unwrap();
    std::thread::sleep(2 * PATIENCE);
}

/// A child process that is killed at the end of the test, even if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Killed {
    fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }
}

/// With more idle connections than the server may open files, it uses at most half of the files, does not spin, and
/// accepts clients.
#[test]
fn idle_connections_do_not_exhaust_the_files_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("address");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" strangers::child_with_few_files --exact --nocapture"]);
    command.arg(std::env::current_exe().unwrap()).env("KILN_TEST_ADDRESS", &file);
    let child = Killed(command.spawn().unwrap());
    let started = Instant::now();
    while !file.exists() {
        assert!(started.elapsed() < PATIENCE, "the server should start");
        std::thread::sleep(Duration::from_millis(50));
    }
    let address = std::fs::read_to_string(&file).unwrap();
    let strangers = idle(&address, 70);
    let before = child.cpu_seconds();
    std::thread::sleep(Duration::from_secs(3));
    let n_files = std::fs::read_dir(format!("/proc/{}/fd", child.0.id())).unwrap().count();
    assert!(n_files < 60, "{n_files} of 64 files are open");
    Health::ask(&*address, token(), None, PATIENCE).unwrap();
    strangers.iter().for_each(check_closed);
    let spent = child.cpu_seconds() - before;
    assert!(spent < 3.0, "the server spent {spent} s on idle connections");
}

#[test]
fn wrong_tokens_are_counted() {
    let part = &parts(&hubs(), 1, |_| 0, None)[0];
    let server = Server::start(Arc::clone(part), ServeConfig::new("127.0.0.1:0", token())).unwrap();
    let address = server.address().to_string();
    for n in 1..=3 {
        let other = Token::new("another-word-of-this-test").unwrap();
        let error = Health::ask(&*address, other, None, PATIENCE).unwrap_err();
        assert!(matches!(error, Error::Server(ServerError::Refused { .. })), "{error}");
        assert_eq!(server.n_wrong_tokens(), n);
    }
    Health::ask(&*address, token(), None, PATIENCE).unwrap();
    assert_eq!(server.n_wrong_tokens(), 3);
}
