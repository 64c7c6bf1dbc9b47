//! A real Slurm cluster of two nodes on this machine, for tests of programs that run on clusters. It wraps
//! `cluster.sh`, which documents the nodes, and stops the cluster when the test ends.
//!
//! A test that is killed leaves its cluster running: `ip netns list` lists `PREFIXsw`, and `cluster.sh down DIR PREFIX`
//! stops it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::process::{self, Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jobs/cluster/cluster.sh");

/// A Slurm cluster with the nodes `vnode1` and `vnode2`, of 4 CPUs each, which is stopped on drop.
///
/// Several clusters may exist at once. A node has the file system of the machine, but its own `/tmp`, in which only
/// [`Cluster::dir`], this package and the target folder are visible at their paths.
#[derive(Debug)]
pub(crate) struct Cluster {
    dir: TempDir,
    prefix: String,
}

impl Cluster {
    /// Starts a cluster, and waits until both nodes are idle.
    ///
    /// # Errors
    /// Returns the failure with the ends of all logs, after a few minutes. The cluster is cleaned up by then.
    pub(crate) fn up() -> Result<Cluster, String> {
        static N_STARTED: AtomicUsize = AtomicUsize::new(0);
        // Socket paths are limited in length, so the folder is not below the target folder.
        let dir = tempfile::Builder::new().prefix("kiln-").tempdir().map_err(|error| error.to_string())?;
        let prefix = format!("k{:x}x{}", process::id(), N_STARTED.fetch_add(1, Ordering::Relaxed));
        let built =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("tmp should be below the target folder");
        // The value is created before the start, so that a failure of the script also drops it, which calls `down`.
        // Calling `down` twice is harmless.
        let cluster = Cluster { dir, prefix };
        let mut up = cluster.script("up");
        up.env("KEEP", format!("{}:{}", env!("CARGO_MANIFEST_DIR"), built.display()));
        run(up).map(|_| cluster)
    }

    /// Returns the requirements that this machine lacks, such as "slurmctld, munged", or `None` if it has all.
    pub(crate) fn missing() -> Option<String> {
        let mut missing = Command::new("bash");
        missing.args([SCRIPT, "missing"]);
        let lacks = run(missing).unwrap_or_else(|error| error).trim().to_owned();
        if lacks.is_empty() { None } else { Some(lacks) }
    }

    /// Returns a command that runs on the login node, from which jobs are submitted.
    ///
    /// The child's PID is that of the program. There is no time limit.
    pub(crate) fn command(&self, program_and_args: &[&str]) -> Command {
        let mut command = self.script("exec");
        // There may be more ranks than CPUs, so a rank that waits for a message must yield its CPU.
        command.args(program_and_args).env("OMPI_MCA_mpi_yield_when_idle", "1");
        command
    }

    /// Returns the folder that the nodes and the test share, which belongs to this cluster only.
    ///
    /// A test must not use names of `cluster.sh` in it, such as `log` and `run`.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Takes the link of node 1 or 2 down: its packets are lost in both directions, without an error at any end.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub(crate) fn cut(&self, node: usize) {
        self.set_link("cut", node);
    }

    /// Brings the link of node 1 or 2 up again.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub(crate) fn mend(&self, node: usize) {
        self.set_link("mend", node);
    }

    fn set_link(&self, action: &str, node: usize) {
        let mut command = self.script(action);
        command.arg(node.to_string());
        if let Err(error) = run(command) {
            panic!("{action} of node {node}: {error}");
        }
    }

    fn script(&self, action: &str) -> Command {
        let mut command = Command::new("bash");
        command.args([SCRIPT, action]).arg(self.dir()).arg(&self.prefix);
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = run(self.script("down")) {
            eprintln!("cannot stop the cluster {}: {error}", self.prefix);
        }
    }
}

/// Runs the command, and returns its standard output, or its status and standard error if it fails.
fn run(mut command: Command) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let said = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if status.success() { Ok(said(stdout)) } else { Err(format!("{status}: {}", said(stderr))) }
}
