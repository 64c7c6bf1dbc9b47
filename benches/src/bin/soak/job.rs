//! The training jobs of the soak test, each with two ranks.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kiln_benches::Result;

use crate::server::{Usage, limited};
use crate::{MAX_RSS_BYTES, Soak};

/// The token by which the ranks of every job authenticate each other.
pub(crate) const TOKEN: &str = "a-word-of-the-soak-test";

/// The flags of a job: a short training of a GCN on a small random graph.
const FLAGS: &str = "--data fake:3000 --model gcn --hidden 64 --dropout 0 --lr 0.01 --fanouts 5,5 --val-batches 2 --threads-per-rank 1 --batch-size 64 --epochs 150 \
                     --checkpoint-every 50";

/// The time after which an unfinished job is an error.
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn rank_command(program: &Path, address: &str, rank: usize, log: &Path) -> Result<Command> {
    let mut command = limited(program, log)?;
    command.args(["train", "--engine", "store", "--world-size", "2", "--master", address]);
    command.args(["--rank", &rank.to_string(), "--local-rank", &rank.to_string()]);
    command.args(FLAGS.split_whitespace()).env("KILN_JOB_TOKEN", TOKEN);
    Ok(command)
}

/// The processes of a job, which are killed when this value is dropped.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Runs a job without disturbances, and returns the hash of its weights.
pub(crate) fn undisturbed(program: &Path, folder: &Path) -> Result<String> {
    run(program, folder, |_| (), |_| ())
}

/// Runs jobs until the soak test ends, and compares their weights with the expected hash.
pub(crate) fn repeat(soak: &Soak, folder: &Path, expected: &str, n_jobs: &AtomicUsize) {
    while !soak.is_over() {
        let show =
            |usage: &str| println!("job {}: rank 0 had {usage} at most", n_jobs.load(Ordering::Relaxed));
        match run(
            &soak.program,
            folder,
            |address: Option<&str>| {
                if let Ok(mut job) = soak.job.lock() {
                    *job = address.map(str::to_owned);
                }
            },
            show,
        ) {
            Ok(hash) if hash == expected => _ = n_jobs.fetch_add(1, Ordering::Relaxed),
            Ok(hash) => {
                return soak.fail(format!("a job ended with the weights {hash}, expected {expected}"));
            }
            Err(error) => return soak.fail(format!("a job failed: {error}")),
        }
    }
}

fn run(program: &Path, folder: &Path, publish: impl Fn(Option<&str>), show: impl Fn(&str)) -> Result<String> {
    let out = folder.join("run");
    let _ = std::fs::remove_dir_all(&out);
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let mut ranks = Ranks(Vec::new());
    for rank in 0..2 {
        let mut command = rank_command(program, &address, rank, &folder.join(format!("rank-{rank}.log")))?;
        ranks.0.push(command.arg("--out").arg(&out).spawn()?);
    }
    publish(Some(&address));
    let started = Instant::now();
    let mut most = Usage { rss_bytes: 0, n_descriptors: 0 };
    let mut statuses: [Option<ExitStatus>; 2] = [None, None];
    while statuses.iter().any(Option::is_none) {
        if LIMIT < started.elapsed() {
            return Err(format!("the job did not finish within {LIMIT:?}").into());
        }
        let used = Usage::of(ranks.0[0].id());
        most.rss_bytes = most.rss_bytes.max(used.rss_bytes);
        most.n_descriptors = most.n_descriptors.max(used.n_descriptors);
        std::thread::sleep(Duration::from_millis(100));
        for (status, process) in statuses.iter_mut().zip(&mut ranks.0) {
            *status = process.try_wait()?;
        }
    }
    publish(None);
    show(&most.to_string());
    if MAX_RSS_BYTES < most.rss_bytes {
        return Err(format!("rank 0 exceeded the memory limit: {most}").into());
    }
    if let Some(rank) = statuses.iter().position(|status| !status.is_some_and(|status| status.success())) {
        let log = std::fs::read_to_string(folder.join(format!("rank-{rank}.log")))?;
        return Err(format!("rank {rank} exited with {:?}: {log}", statuses[rank]).into());
    }
    let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("summary.json"))?)?;
    Ok(summary["weights_hash"].as_str().unwrap_or_default().to_owned())
}
