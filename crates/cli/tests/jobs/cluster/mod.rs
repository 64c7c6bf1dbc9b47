//! A real Slurm of two nodes on this machine, for tests of programs that run on clusters: `cluster.sh`, which says
//! what a node is, and its end with the test.
//!
//! A test that is killed leaves its cluster running. `ip netns list` shows it as `PREFIXsw`, and
//! `cluster.sh down DIR PREFIX` ends it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::process::{self, Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jobs/cluster/cluster.sh");

/// A Slurm with the nodes `vnode1` and `vnode2`, of 4 CPUs each, that ends when it is dropped.
///
/// Several may exist at once. What a node sees is what the machine has, without its `/tmp`: of that it has another
/// one, with [`Cluster::dir`], this package and the folder of what was built where they are.
#[derive(Debug)]
pub(crate) struct Cluster {
    dir: TempDir,
    prefix: String,
}

impl Cluster {
    /// Starts one, in less than a second. Both nodes are idle then.
    ///
    /// # Errors
    /// What failed, with the ends of all logs, after at most a minute. Nothing of it is left then.
    pub(crate) fn up() -> Result<Cluster, String> {
        static N_STARTED: AtomicUsize = AtomicUsize::new(0);
        // The paths of sockets are short, so this is not below the folder of what is built.
        let dir = tempfile::Builder::new().prefix("kiln-").tempdir().map_err(|error| error.to_string())?;
        let prefix = format!("k{:x}x{}", process::id(), N_STARTED.fetch_add(1, Ordering::Relaxed));
        let built =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("tmp should be in the folder of builds");
        // Made before it is up, so that a failure here ends with `down` too, which does no harm twice.
        let cluster = Cluster { dir, prefix };
        let mut up = cluster.script("up");
        up.env("KEEP", format!("{}:{}", env!("CARGO_MANIFEST_DIR"), built.display()));
        run(up).map(|_| cluster)
    }

    /// What this machine lacks to run one, as "slurmctld, munged", or `None` if it has everything.
    pub(crate) fn missing() -> Option<String> {
        let mut missing = Command::new("bash");
        missing.args([SCRIPT, "missing"]);
        let lacks = run(missing).unwrap_or_else(|error| error).trim().to_owned();
        if lacks.is_empty() { None } else { Some(lacks) }
    }

    /// A command on the login node, from which jobs are submitted.
    ///
    /// It becomes the program, so that the child's PID is the program's. It has no time limit.
    pub(crate) fn command(&self, program_and_args: &[&str]) -> Command {
        let mut command = self.script("exec");
        // There may be more ranks than CPUs: who waits for a message must leave them to who is to send it.
        command.args(program_and_args).env("OMPI_MCA_mpi_yield_when_idle", "1");
        command
    }

    /// Where the nodes and the test see the same files, in a place for this cluster alone.
    ///
    /// Names that a test gives its files there should not be those of `cluster.sh`, such as `log` and `run`.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Takes the link of node 1 or 2 down: what it sends and is sent gets lost, and nobody is told.
    ///
    /// # Panics
    /// If there is no such node.
    pub(crate) fn cut(&self, node: usize) {
        self.set_link("cut", node);
    }

    /// Brings the link of node 1 or 2 up again.
    ///
    /// # Panics
    /// If there is no such node.
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
            eprintln!("the cluster {} did not end: {error}", self.prefix);
        }
    }
}

/// What the command says on its standard output, or on the other if it fails.
fn run(mut command: Command) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let said = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if status.success() { Ok(said(stdout)) } else { Err(format!("{status}: {}", said(stderr))) }
}
