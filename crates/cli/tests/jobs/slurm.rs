#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kiln::data::format;
use kiln::data::synthetic::{self, FakeConfig};

use crate::cluster::Cluster;
use crate::run::{
    self, PROGRAM, alone, flags, learned, next_checkpoint, of_threads, over_within, process_of, signal,
    succeed, until, until_within,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/launch/slurm.sbatch");

/// Starts a Slurm cluster of two nodes. Prints a skip line and returns `None` if the machine cannot run one.
pub(crate) fn cluster() -> Option<Cluster> {
    let lacks = match cfg!(feature = "mpi") {
        true => Cluster::missing(),
        false => Some("the feature `mpi`".to_owned()),
    };
    match lacks {
        None => Some(Cluster::up().unwrap()),
        Some(lacks) => {
            run::skip("multi_node under Slurm", &format!("without {lacks}"));
            None
        }
    }
}

/// A job of the script that users submit.
struct Batch<'a> {
    cluster: &'a Cluster,
    id: String,
    /// The folder of the run.
    folder: PathBuf,
    said: PathBuf,
}

impl<'a> Batch<'a> {
    /// Submits a job and waits for its first checkpoint.
    fn submit(cluster: &'a Cluster, epochs: usize, deadline: &str) -> Self {
        let (folder, said) = (cluster.dir().join("the-run"), cluster.dir().join("said"));
        let output = said.to_str().unwrap();
        let mut sbatch =
            cluster.command(&["timeout", "300", "sbatch", "--parsable", "-N2", "--ntasks-per-node=2"]);
        sbatch.args(["--time=30", "--output", output, SCRIPT, PROGRAM]).args(flags(epochs, 32));
        sbatch.args(["--checkpoint-every", "5", "--deadline", deadline, "--continue"]).arg(&folder);
        let id = succeed(&mut sbatch).trim().to_owned();
        let batch = Self { cluster, id, folder, said };
        next_checkpoint(&batch.folder);
        batch
    }

    fn state(&self) -> String {
        let said =
            succeed(&mut self.cluster.command(&["timeout", "120", "scontrol", "show", "job", &self.id]));
        let state = said.split_whitespace().find_map(|word| word.strip_prefix("JobState="));
        state.unwrap_or_else(|| panic!("expected the state of the job in: {said}")).to_owned()
    }

    /// Waits until Slurm has requeued and restarted the job. Slurm holds it for 12 s, while the nodes clean up after
    /// the last start.
    fn go_on(&self) {
        until("the job in the queue", || self.state() == "PENDING");
        until("the next start", || self.state() != "PENDING");
    }

    /// Waits at most twenty minutes for the end of the job, and returns its output.
    fn end(&self) -> String {
        let said = || fs::read_to_string(&self.said).unwrap_or_default();
        let what = || format!("the end of the job, in state {} with the output: {}", self.state(), said());
        until_within(Duration::from_secs(1200), what, || {
            ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"].contains(&&*self.state())
        });
        said()
    }
}

/// Three runs over MPI and one with the engine `store` give weights bit-identical to those of threads. The loss curve
/// of one rank with the global batch differs only by rounding.
#[test]
fn ranks_on_two_nodes_match_thread_ranks() {
    let _alone = alone();
    let Some(cluster) = cluster() else { return };
    let expected = of_threads(cluster.dir(), 2, 4, 32);
    let alone = of_threads(cluster.dir(), 2, 1, 128);
    for (loss, alone) in expected.losses.iter().zip(&alone.losses) {
        assert!((loss - alone).abs() < 1e-4 * alone, "{loss} {alone}");
    }
    for (trial, mpi, engine) in
        [(0, "pmix", "mpi"), (1, "pmix", "auto"), (2, "pmix", "mpi"), (3, "none", "store")]
    {
        let out = cluster.dir().join(format!("trial-{trial}"));
        let mpi = format!("--mpi={mpi}");
        let srun =
            ["timeout", "600", "srun", "--kill-on-bad-exit=1", &mpi, "-N2", "--ntasks-per-node=2", PROGRAM];
        let mut srun = cluster.command(&srun);
        srun.args(flags(2, 32)).args(["--engine", engine, "--out"]).arg(&out);
        let said = succeed(srun.env("KILN_JOB_TOKEN", "a-word-of-this-test"));
        assert!(said.contains("2 on vnode1, 2 on vnode2; engine "), "{said}");
        assert_eq!(learned(&out), expected, "{mpi} {engine}: {said}");
    }
}

/// Reads the weights of the only run that the example `ranks` has written in a folder.
fn weights_of_ranks(folder: &Path) -> Vec<u8> {
    let runs = fs::read_dir(folder.join("runs")).unwrap();
    let runs: Vec<PathBuf> = runs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(runs.len(), 1, "only rank 0 should write files: {runs:?}");
    fs::read(runs[0].join("best.safetensors")).unwrap()
}

/// The example `ranks` trains on two threads, and unchanged on two nodes that srun starts.
#[test]
fn ranks_example_on_two_nodes_matches_thread_ranks() {
    // The example belongs to another package. Its binary is beside `kiln` if the whole workspace was built.
    let example = Path::new(PROGRAM).with_file_name("ranks");
    if !example.exists() {
        return run::skip("the example `ranks` under Slurm", "kiln-examples was not built");
    }
    let _alone = alone();
    let Some(cluster) = cluster() else { return };
    let set = cluster.dir().join("set");
    let data = synthetic::fake(FakeConfig { avg_num_nodes: 1000, ..FakeConfig::default() }).unwrap();
    format::write(&data, &set).unwrap();
    let [of_threads, of_nodes] = ["threads", "nodes"].map(|name| {
        let folder = cluster.dir().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    });
    succeed(Command::new(&example).arg(&set).current_dir(&of_threads));
    let mut srun =
        cluster.command(&["timeout", "600", "srun", "--kill-on-bad-exit=1", "--mpi=pmix", "-N2", "-n2"]);
    succeed(srun.arg("--chdir").arg(&of_nodes).arg(&example).arg(&set));
    assert_eq!(weights_of_ranks(&of_nodes), weights_of_ranks(&of_threads));
}

/// Sends the signal that Slurm sends shortly before the time limit. The job is requeued and resumes.
#[test]
fn a_job_at_its_time_limit_resumes_after_a_requeue() {
    let _alone = alone();
    let Some(cluster) = cluster() else { return };
    let expected = of_threads(cluster.dir(), 40, 4, 32);
    let batch = Batch::submit(&cluster, 40, "60");
    succeed(&mut cluster.command(&["timeout", "120", "scancel", "--batch", "--signal=USR1", &batch.id]));
    batch.go_on();
    let said = batch.end();
    assert!(said.contains("stopped after ") && said.contains("resumed after "), "{said}");
    assert!(said.contains("started 1 times before; exit status 0"), "{said}");
    assert_eq!(learned(&batch.folder), expected);
}

/// A rank is killed; then the link of a node is cut, and the ranks on both sides exit. Each time the job is requeued,
/// and it ends with the weights of an undisturbed run.
#[test]
fn a_job_that_loses_ranks_resumes_to_identical_weights() {
    let _alone = alone();
    let Some(cluster) = cluster() else { return };
    let expected = of_threads(cluster.dir(), 100, 4, 32);
    let batch = Batch::submit(&cluster, 100, "10");
    over_within(Duration::from_secs(5), &batch.folder, || {
        signal(process_of(&batch.folder, "SLURM_PROCID", 1).unwrap(), "KILL");
    });
    batch.go_on();
    over_within(Duration::from_secs(10 + 2), &batch.folder, || cluster.cut(2));
    cluster.mend(2);
    batch.go_on();
    let said = batch.end();
    assert!(said.contains("exit status 0"), "{said}");
    let is_told = |rank: usize, node: usize, what: &str| {
        let name = format!("rank {rank} (vnode{node}, pid ");
        said.lines().any(|line| line.contains(&name) && line.contains(what) && line.contains(" of step "))
    };
    assert!(is_told(1, 1, "is gone: its connection has closed"), "{said}");
    assert!((2..4).any(|rank| is_told(rank, 2, "last seen")), "{said}");
    assert_eq!(learned(&batch.folder), expected);
}
