//! Tests of `kiln train` on partitioned graphs and of `kiln serve`, as users run them: results agree with those on the
//! whole graph in both modes and across a server restart, and memory stays within the reported bounds.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use kiln::data::synthetic::FakeConfig;
use kiln::partition::{CacheConfig, part_dir};
use kiln::sample::Fanout;
use kiln_testkit::free_port;
use serde_json::Value;
use tempfile::TempDir;

use crate::partitioned;

const TOKEN: (&str, &str) = ("KILN_GRAPH_TOKEN", "a-word-of-this-test");

/// The flags of all runs.
const FLAGS: &str = "--hidden 16 --lr 0.01 --threads-per-rank 1 --dropout 0.1";

/// A folder for a dataset in the kiln format, whole and in partitions, and for runs on it.
pub(crate) struct Data {
    pub(crate) root: TempDir,
}

impl Data {
    pub(crate) fn of(n_nodes: usize) -> Self {
        Self::wide(n_nodes, 64)
    }

    fn wide(n_nodes: usize, num_channels: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        let config = FakeConfig { avg_num_nodes: n_nodes, num_channels, ..Default::default() };
        let cache = CacheConfig { ratio: 0.1, fanouts: vec![Fanout::UpTo(5); 2], batch_size: 64, seed: 0 };
        partitioned::write(config, Some(&cache), root.path());
        Self { root }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Trains with the flags into a new folder `out`. Returns the results and the output of the run.
    pub(crate) fn run(&self, flags: &str, out: &str) -> (Learned, String) {
        let out = self.path(out);
        let output = command("train", flags).args(["--out", out.to_str().unwrap()]).output().unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{flags}: {said}");
        (Learned::of(&out), said)
    }

    /// Trains on the whole graph in one process.
    fn whole(&self, flags: &str, out: &str) -> Learned {
        let data = self.path("whole");
        let flags = format!("{FLAGS} --fanouts 4,6 --epochs 2 --data {} {flags}", data.display());
        self.run(&flags, out).0
    }

    fn partitioned(&self, flags: &str, out: &str) -> (Learned, String) {
        self.run(&format!("{FLAGS} --fanouts 4,6 --epochs 2 {flags}"), out)
    }
}

pub(crate) fn command(subcommand: &str, flags: &str) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", "600", env!("CARGO_BIN_EXE_kiln"), subcommand])
        .args(flags.split_whitespace())
        .env(TOKEN.0, TOKEN.1);
    command.stdin(Stdio::null());
    command
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Learned {
    pub(crate) weights_hash: String,
    pub(crate) losses: Vec<f64>,
    peak_bytes: u64,
}

impl Learned {
    pub(crate) fn of(folder: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
        let loss = |line: &str| serde_json::from_str::<Value>(line).unwrap()["train_loss"].as_f64().unwrap();
        Self {
            weights_hash: summary["weights_hash"].as_str().unwrap().to_owned(),
            losses: read("metrics.jsonl").lines().map(loss).collect(),
            peak_bytes: summary["peak_rss_anon_bytes"].as_u64().unwrap(),
        }
    }

    pub(crate) fn check_close(&self, other: &Self) {
        assert_eq!(self.losses.len(), other.losses.len());
        for (a, b) in self.losses.iter().zip(&other.losses) {
            assert!((a - b).abs() < 1e-4 * b, "{a} {b}");
        }
    }
}

/// A server of a partition. Dropping it kills the process.
pub(crate) struct Server {
    child: Child,
    // The output is kept open, because the server prints again when it exits.
    said: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(parts: &Path, part: usize, listen: &str, flags: &str) -> Self {
        let folder = part_dir(parts, part);
        let flags = format!("--part {} --listen {listen} --lease 10 {flags}", folder.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command.arg("serve").args(flags.split_whitespace()).env(TOKEN.0, TOKEN.1).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once(" at ").unwrap_or_else(|| panic!("{line}")).1.to_owned();
        Self { child, said, address }
    }

    /// Starts a server for each partition of a folder, at ports that stay free when the servers end.
    pub(crate) fn all(parts: &Path, n_parts: usize) -> Vec<Self> {
        let listen = || format!("127.0.0.1:{}", free_port());
        (0..n_parts).map(|part| Self::start(parts, part, &listen(), "")).collect()
    }

    /// Returns the flags for training with these servers.
    pub(crate) fn flags(servers: &[Self]) -> String {
        format!("--mode server {}", Self::addresses(servers))
    }

    /// Returns the flag for predictions with these servers.
    pub(crate) fn addresses(servers: &[Self]) -> String {
        let addresses: Vec<&str> = servers.iter().map(|server| &*server.address).collect();
        format!("--servers {}", addresses.join(","))
    }

    /// Waits until the server exits, and returns its remaining output.
    fn end(mut self) -> String {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn worker_mode_matches_training_on_the_whole_graph() {
    let data = Data::of(2000);
    let whole = data.whole("--batch-size 128", "whole-1");
    let parts = data.path("parts");
    for (n_ranks, batch_size, flags) in
        [(2, 64, ""), (2, 64, "--no-static-cache --cache-size 20KiB"), (4, 32, "--workers 0")]
    {
        let flags =
            format!("--parts {} --ranks {n_ranks} --batch-size {batch_size} {flags}", parts.display());
        let (learned, said) = data.partitioned(&flags, &format!("parts-{n_ranks}{}", flags.len()));
        learned.check_close(&whole);
        for rank in 0..n_ranks {
            let start = format!("trainer {rank}  epoch   2  loss {:.4}  ", learned.losses[1]);
            let line = said
                .lines()
                .find(|line| line.starts_with(&start))
                .unwrap_or_else(|| panic!("{start}: {said}"));
            assert!(line.contains(" own, ") && line.contains(" MiB received"), "{line}");
            let rate = line.split("cache hits ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
            assert!(0.0 < rate.parse::<f64>().unwrap(), "{line}");
        }
    }
}

/// Of three devices, the ranks use two, because they must share two partitions equally.
#[test]
fn ranks_auto_is_a_multiple_of_the_partitions() {
    let data = Data::of(500);
    let parts = format!("--parts {} --batch-size 64", data.path("parts").display());
    let (auto, _) = data.partitioned(&format!("{parts} --ranks auto --device cpu,cpu,cpu"), "auto");
    let (two, _) = data.partitioned(&format!("{parts} --ranks 2"), "two");
    assert_eq!(auto.weights_hash, two.weights_hash);
}

/// In server mode, items are split among the ranks as on the whole graph, so the results are bit-identical. A run that
/// continues across the restart of a server gives identical weights, too.
#[test]
fn server_mode_is_bit_identical_across_a_server_restart() {
    let data = Data::of(2000);
    let mut servers = Server::all(&data.path("parts"), 2);
    for (n_ranks, batch_size) in [(1, 128), (2, 64)] {
        let flags = format!("--ranks {n_ranks} --batch-size {batch_size}");
        let whole = data.whole(&flags, &format!("whole-{n_ranks}"));
        let (learned, said) =
            data.partitioned(&format!("{flags} {}", Server::flags(&servers)), &format!("servers-{n_ranks}"));
        assert_eq!(learned.weights_hash, whole.weights_hash, "{said}");
        assert_eq!(learned.losses, whole.losses);
    }
    let undisturbed = data.path("undisturbed");
    let flags = format!("{FLAGS} --fanouts 4,6 --epochs 10 --batch-size 128 {}", Server::flags(&servers));
    let start = |out: &Path| {
        let mut command = command("train", &flags);
        command.arg("--out").arg(out).stdout(Stdio::piped()).spawn().unwrap()
    };
    assert!(start(&undisturbed).wait_with_output().unwrap().status.success());
    let restart = |trial: usize| {
        let disturbed = data.path(&format!("disturbed-{trial}"));
        let mut program = start(&disturbed);
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("epoch   2")));
        let address = servers.remove(1).address.clone();
        // While the server is down, the trainer retries its requests.
        std::thread::sleep(Duration::from_secs(1));
        let is_waiting = program.try_wait().unwrap().is_none();
        servers.push(Server::start(&data.path("parts"), 1, &address, ""));
        assert_eq!(lines.filter(|line| line.contains("test accuracy")).count(), 1);
        assert!(program.wait().unwrap().success());
        assert_eq!(Learned::of(&disturbed).weights_hash, Learned::of(&undisturbed).weights_hash);
        is_waiting
    };
    // On a loaded machine, the trainer may have finished before the server was killed.
    assert!((0..10).any(restart), "the trainer should wait for the server");
}

/// The peak memory is at most the reported bounds plus the memory of a step, and grows much less than the features do
/// when the graph is eight times as large.
#[test]
fn a_trainer_in_server_mode_stays_within_its_reported_memory() {
    const ALIKE: &str = "--epochs 1 --batch-size 64 --drop-last";
    let mut peaks = Vec::new();
    for n_nodes in [2500, 20_000] {
        let data = Data::wide(n_nodes, 1024);
        // The memory of a step is the peak of a run on local files, whose mapped pages do not count.
        let whole = data.path("whole");
        let step = format!("{FLAGS} --fanouts 2,3 {ALIKE} --workers 0 --data {}", whole.display());
        let step = data.run(&step, "step").0.peak_bytes;
        let servers = Server::all(&data.path("parts"), 2);
        let flags = "--workers 1 --worker-concurrency 1 --channel-size 8MiB --cache-size 4MiB";
        let flags = format!("{FLAGS} --fanouts 2,3 {ALIKE} {flags} {}", Server::flags(&servers));
        let (learned, said) = data.run(&flags, "run");
        let told = said.lines().find_map(|line| line.strip_prefix("memory          at most ")).unwrap();
        let told: Vec<u64> = told.split(' ').filter_map(|word| word.parse().ok()).collect();
        let (graph, batches) = (told[0] << 20, told[1] << 20);
        let (peak, files) = (learned.peak_bytes, bytes_in(&whole));
        println!("{n_nodes} nodes: peak {peak}, bounds {graph} and {batches}, a step {step}, files {files}");
        assert!(peak <= graph + batches + step, "{peak} {graph} {batches} {step}");
        peaks.push((peak, graph, files));
    }
    let [(small, told_small, files_small), (large, told_large, files_large)] = peaks[..] else { panic!() };
    // The peak grows by far less than the size of the additional features. Each peak depends on how many requests and
    // batches happened to be in memory at once, up to the channel size of 8 MiB.
    let more = told_large - told_small + 2 * (8 << 20);
    assert!(large < small + more && 3 * more < files_large - files_small, "{small} {large} {more}");
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let bytes = |path: PathBuf| if path.is_dir() { bytes_in(&path) } else { path.metadata().unwrap().len() };
    entries.map(|entry| bytes(entry.path())).sum()
}

#[test]
fn servers_exit_after_their_last_client() {
    let data = Data::of(500);
    let servers: Vec<Server> = (0..2)
        .map(|part| Server::start(&data.path("parts"), part, "127.0.0.1:0", "--until-released 1"))
        .collect();
    data.partitioned(&Server::flags(&servers), "run");
    for server in servers {
        assert!(server.end().contains("exiting, 0 clients"));
    }
}

#[test]
fn health_reports_a_server_and_rejects_a_wrong_token() {
    let data = Data::of(500);
    let listen = format!("127.0.0.1:{}", free_port());
    let flags = "--threads 1 --max-connections 8 --verify";
    let server = Server::start(&data.path("parts"), 1, &listen, flags);
    let ask = |address: &str, token: &str, expected: &str| {
        let once = |_| {
            let mut command = command("health", address);
            let output = command.env(TOKEN.0, token).output().unwrap();
            (output.status.success(), text(&output))
        };
        // On a loaded machine, a response may take longer than the five seconds that the program waits.
        (0..10).map(once).find(|(_, said)| said.contains(expected)).expect(expected)
    };
    let (is_well, said) = ask(&server.address, TOKEN.1, "part 1, 0 clients, ");
    assert!(is_well && said.starts_with("part 1, 0 clients, "), "{said}");
    let refused = "refused the request: missing or wrong token";
    let (is_well, said) = ask(&server.address, "a-word-of-another-test", refused);
    assert!(!is_well, "{said}");
    let address = server.address.clone();
    drop(server);
    let (is_well, said) = ask(&address, TOKEN.1, "is lost: waited ");
    assert!(!is_well && said.contains("for its health"), "{said}");
}

#[test]
fn rejects_invalid_partition_flags() {
    let data = Data::of(500);
    let servers = Server::all(&data.path("parts"), 2);
    let of_servers = Server::flags(&servers);
    let only_one = format!("--mode server --servers {}", servers[0].address);
    let parts = format!("--parts {}", data.path("parts").display());
    let other = ("KILN_GRAPH_TOKEN", "a-word-of-another-test");
    for (flags, token, expected) in [
        ("--mode worker", TOKEN, "--mode worker needs --parts DIR"),
        ("--mode server", TOKEN, "--mode server needs --servers HOST:PORT"),
        (&format!("{parts} {of_servers}"), TOKEN, "--mode server needs --servers HOST:PORT"),
        (&format!("--host a {of_servers}"), TOKEN, "--host requires --mode worker"),
        (&format!("--graph-mode device {of_servers}"), TOKEN, "servers sample on the CPU"),
        (&format!("--parts {}", data.path("whole").display()), TOKEN, "contains no partition"),
        (&parts, TOKEN, "1 ranks cannot share 2 partitions equally"),
        (&format!("--ranks 3 {parts}"), TOKEN, "3 ranks cannot share 2 partitions equally"),
        (&format!("--ranks 2 --uneven drop {parts}"), TOKEN, "sharded by owner cannot be dropped or padded"),
        (
            &format!("--ranks 2 --data sbm {parts}"),
            TOKEN,
            "--data does not apply to training on nodes of a partitioned graph",
        ),
        (&format!("--ranks 2 --eval exact {parts}"), TOKEN, "--eval exact needs the whole graph"),
        (&format!("--parts {}", data.path("nowhere").display()), TOKEN, "nowhere: No such file"),
        (&only_one, TOKEN, "no server holds partition 1 of 2"),
        (&of_servers, other, "missing or wrong token: use the same token for clients and servers"),
        // Without the flag, the process waits for 300 s.
        ("--servers 127.0.0.1:9 --join-within 1", TOKEN, "127.0.0.1:9"),
        ("--servers localhost", TOKEN, "expected HOST:PORT, such as node1:7400"),
        ("--servers node1:7400,,node2:7400", TOKEN, "invalid value '' for '--servers"),
        ("--servers node1:74000", TOKEN, "invalid value 'node1:74000' for '--servers"),
        (&of_servers, ("KILN_GRAPH_TOKEN", ""), "set KILN_GRAPH_TOKEN to the token of the servers"),
        (&of_servers, ("KILN_GRAPH_TOKEN", "short"), "at least 16"),
    ] {
        let out = data.path("none");
        let output = command("train", flags).env(token.0, token.1).arg("--out").arg(out).output().unwrap();
        let said = text(&output);
        assert!(!output.status.success() && said.contains(expected), "{flags}: expected {expected}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    let part = part_dir(data.path("parts"), 0);
    for (part, listen, expected) in [
        (data.path("whole"), "127.0.0.1:0", "whole"),
        (part.clone(), &*servers[0].address, "cannot listen at"),
        (part, "nowhere", "cannot listen at nowhere"),
    ] {
        let mut serve = command("serve", &format!("--listen {listen}"));
        let said = text(&serve.arg("--part").arg(part).output().unwrap());
        assert!(said.contains(expected) && said.starts_with("Error"), "expected {expected}: {said}");
    }
}

/// The private key is a secret like the token, so every command that takes it rejects a file that other users can read.
#[cfg(unix)]
#[test]
fn rejects_a_key_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("own.key");
    std::fs::write(&key, "no key").unwrap();
    let tls = format!("--tls-ca ca.pem --tls-cert own.pem --tls-key {}", key.display());
    let said = |mode: u32| {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        let flags = format!("127.0.0.1:9 {tls}");
        let mut serve = command("health", &flags);
        text(&serve.output().unwrap())
    };
    for mode in [0o644, 0o640, 0o604] {
        let said = said(mode);
        assert!(
            said.contains("--tls-key=") && said.contains("other users can read the file: run `chmod 600`"),
            "{mode:o}: {said}"
        );
    }
    let said = said(0o600);
    assert!(!said.contains("chmod") && said.contains("own.pem: No such file"), "{said}");
}
