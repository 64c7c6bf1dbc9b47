//! Starts ranks as processes, and checks their output and exit statuses.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use kiln_comm::{CommBackend, LaunchEnv, LaunchFlags, RankConfig, RankGroup, TransientError};
use kiln_testkit::free_port;

use crate::certificates;

/// The default deadline of ranks. A job that takes longer than twice this time counts as hung.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// The engine, which determines the launcher of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// The store; the test starts the processes.
    Store,
    /// MPI; `mpirun` starts the processes.
    Mpi,
}

/// Returns the reason why ranks over MPI cannot be tested here, if there is one.
pub(crate) fn mpirun_is_missing() -> Option<&'static str> {
    if !cfg!(feature = "mpi") {
        return Some("this was built without the feature `mpi`");
    }
    let found = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) { None } else { Some("there is no mpirun") }
}

/// The processes of one job.
pub(crate) struct Job {
    pub(crate) processes: Vec<Child>,
    engine: Engine,
    n_ranks: usize,
    body: &'static str,
    pub(crate) port: u16,
    lines: Receiver<String>,
    tell: mpsc::Sender<String>,
    seen: Vec<String>,
    /// The rank that was sent a signal.
    victim: Option<usize>,
    /// The time of the fault, from which the time to the end of the job is measured.
    struck: Option<Instant>,
}

impl Drop for Job {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
        }
    }
}

/// The outcome of a job.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit status of each process that the test started.
    statuses: Vec<ExitStatus>,
    lines: Vec<String>,
    engine: Engine,
    /// The time from the fault, or from the start of waiting, to the end.
    took: Duration,
}

impl Job {
    /// Starts all ranks with these additional variables.
    pub(crate) fn start(engine: Engine, n_ranks: usize, body: &'static str, vars: &[(&str, &str)]) -> Self {
        let mut job = Self::prepare(n_ranks, body);
        job.engine = engine;
        match engine {
            Engine::Store => (0..n_ranks).for_each(|rank| job.spawn(rank, vars)),
            Engine::Mpi => {
                let n_ranks = n_ranks.to_string();
                // The program `timeout` ends the processes even if the test does not stop them.
                let mut command = Command::new("timeout");
                command
                    .args(["--kill-after=5", "270", "mpirun"])
                    .args(["-n", &n_ranks, "--oversubscribe"])
                    .arg(std::env::current_exe().unwrap());
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                // If there are more ranks than cores, ranks that busy-wait are very slow.
                command.env("OMPI_MCA_mpi_yield_when_idle", "1");
                job.launch(command, vars);
            }
        }
        job
    }

    /// Creates a job without processes.
    pub(crate) fn prepare(n_ranks: usize, body: &'static str) -> Self {
        let (tell, lines) = mpsc::channel();
        let port = free_port();
        let (processes, seen, engine) = (Vec::new(), Vec::new(), Engine::Store);
        Self { processes, engine, n_ranks, body, port, lines, tell, seen, victim: None, struck: None }
    }

    /// Starts the process of a rank.
    pub(crate) fn spawn(&mut self, rank: usize, vars: &[(&str, &str)]) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        self.as_rank(&mut command, rank);
        self.launch(command, vars);
    }

    fn as_rank(&self, command: &mut Command, rank: usize) {
        let (rank, world_size) = (rank.to_string(), self.n_ranks.to_string());
        command.env("RANK", &rank).env("LOCAL_RANK", &rank).env("WORLD_SIZE", world_size);
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", self.port.to_string());
        command.env("KILN_JOB_TOKEN", "a-word-of-this-test");
    }

    /// Starts the process of a rank with a limit of `n_files` open files.
    pub(crate) fn spawn_with_files(&mut self, rank: usize, n_files: usize, vars: &[(&str, &str)]) {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("ulimit -n {n_files}; exec \"$0\" \"$@\""))
            .arg(std::env::current_exe().unwrap());
        self.as_rank(&mut command, rank);
        self.launch(command, vars);
    }

    fn launch(&mut self, mut command: Command, vars: &[(&str, &str)]) {
        command.args(["--exact", "body_of_a_rank", "--nocapture"]).env("KILN_TEST_BODY", self.body);
        command.envs(vars.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        self.read(process.stdout.take().unwrap());
        self.read(process.stderr.take().unwrap());
        self.processes.push(process);
    }

    fn read(&self, output: impl Read + Send + 'static) {
        let tell = self.tell.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
    }

    /// Waits until the job reaches the step, and sends the signal to the process of a rank. Returns its process id.
    pub(crate) fn kill_at_step(&mut self, step: u64, rank: usize, signal: &str) -> u32 {
        self.wait_for(&format!("step {step}"));
        let pid = self.pid(rank);
        let pid = pid.unwrap_or_else(|| panic!("rank {rank} did not print its process id: {:#?}", self.seen));
        let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap();
        assert!(status.success());
        (self.victim, self.struck) = (Some(rank), Some(Instant::now()));
        pid
    }

    /// Returns the process id of a rank, once the rank has printed it.
    fn pid(&self, rank: usize) -> Option<u32> {
        let said = format!("rank {rank} is process ");
        let (_, pid) = self.seen.iter().find_map(|line| line.split_once(&said))?;
        pid.trim().parse().ok()
    }

    /// Sends a signal to processes that the test has started, to all at once.
    pub(crate) fn strike_children(&mut self, processes: &[usize], signal: &str) {
        let pids = processes.iter().map(|process| self.processes[*process].id().to_string());
        assert!(Command::new("kill").arg(format!("-{signal}")).args(pids).status().unwrap().success());
        if signal == "STOP" && self.struck.is_none() {
            (self.victim, self.struck) = (processes.first().copied(), Some(Instant::now()));
        }
    }

    /// Waits for a line with this text, from which the time to the end of the job is measured.
    pub(crate) fn since(&mut self, text: &str) {
        self.wait_for(text);
        self.struck = Some(Instant::now());
    }

    /// Returns the address at which rank 0 listens.
    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Waits until rank 0 listens, and returns a connection on which nothing was sent.
    pub(crate) fn stranger(&self) -> TcpStream {
        let started = Instant::now();
        loop {
            match TcpStream::connect(self.address()) {
                Ok(stream) => return stream,
                Err(error) => assert!(started.elapsed() < DEADLINE, "rank 0 does not listen: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of open files and connections of a process that the test has started.
    pub(crate) fn n_files(&self, process: usize) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.processes[process].id())).unwrap().count()
    }

    pub(crate) fn wait_for(&mut self, text: &str) {
        let started = Instant::now();
        while !self.seen.iter().any(|line| line.contains(text)) {
            let rest = DEADLINE.saturating_sub(started.elapsed());
            match self.lines.recv_timeout(rest) {
                Ok(line) => self.seen.push(line),
                Err(_) => panic!("no process printed `{text}` in time: {:#?}", self.seen),
            }
        }
    }

    /// Waits until all processes have ended. A stopped process is killed when all others have ended.
    pub(crate) fn wait(mut self) -> Ended {
        let started = self.struck.unwrap_or_else(Instant::now);
        let victim = self.victim.filter(|_| self.engine == Engine::Store);
        let mut statuses: Vec<Option<ExitStatus>> = vec![None; self.processes.len()];
        let mut took = None;
        while statuses.iter().any(Option::is_none) {
            for (process, status) in self.processes.iter_mut().zip(&mut statuses) {
                *status = status.or(process.try_wait().unwrap());
            }
            let mut alive = statuses.iter().enumerate().filter(|(_, status)| status.is_none());
            let is_over = alive.all(|(rank, _)| Some(rank) == victim);
            if is_over || self.ranks_of_mpirun_have_ended() {
                took.get_or_insert_with(|| started.elapsed());
            }
            // The remaining processes hang, or the test has stopped them.
            if DEADLINE * 2 < started.elapsed() || is_over {
                self.processes.iter_mut().zip(&statuses).filter(|(_, status)| status.is_none()).for_each(
                    |(process, _)| {
                        let _ = process.kill();
                    },
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let (closed, _) = mpsc::channel();
        drop(std::mem::replace(&mut self.tell, closed));
        let mut lines = std::mem::take(&mut self.seen);
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(5)) {
            lines.push(line);
        }
        let statuses = statuses.into_iter().flatten().collect();
        let took = took.unwrap_or_else(|| started.elapsed());
        Ended { statuses, lines, engine: self.engine, took }
    }

    /// Returns true if all ranks of `mpirun`, except for one that the test signalled, have printed their process ids
    /// and ended. `mpirun` itself sleeps and ends up to two seconds later.
    fn ranks_of_mpirun_have_ended(&mut self) -> bool {
        self.seen.extend(self.lines.try_iter());
        let mut others = (0..self.n_ranks).filter(|rank| Some(*rank) != self.victim);
        self.engine == Engine::Mpi && others.all(|rank| self.pid(rank).is_some_and(has_ended))
    }
}

/// Returns true if the process does not exist or is a zombie.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.ok().and_then(|stat| Some(stat.rsplit_once(") ")?.1.starts_with('Z'))).unwrap_or(true)
}

impl Ended {
    /// Checks that every process ended with this status.
    pub(crate) fn check_all(&self, status: i32) {
        let got: Vec<Option<i32>> = self.statuses.iter().map(ExitStatus::code).collect();
        assert!(got.iter().all(|got| *got == Some(status)), "{got:?}, expected only {status}: {self:#?}");
    }

    /// Checks that the processes ended with these statuses, in the order in which they were started.
    pub(crate) fn check_each(&self, statuses: &[i32]) {
        let got: Vec<Option<i32>> = self.statuses.iter().map(ExitStatus::code).collect();
        let expected: Vec<Option<i32>> = statuses.iter().copied().map(Some).collect();
        assert_eq!(got, expected, "{self:#?}");
    }

    /// Checks that every process ended with one of these statuses.
    pub(crate) fn check_one_of(&self, statuses: &[i32]) {
        let is_one = |got: &ExitStatus| got.code().is_some_and(|got| statuses.contains(&got));
        assert!(self.statuses.iter().all(is_one), "expected exit statuses in {statuses:?}: {self:#?}");
    }

    /// Checks that all processes but this rank's ended with this status. `mpirun` may exit with another nonzero one.
    pub(crate) fn check_others(&self, rank: usize, status: i32) {
        for (process, got) in self.statuses.iter().enumerate() {
            match self.engine {
                Engine::Store if process == rank => {}
                Engine::Store => assert_eq!(got.code(), Some(status), "{self:#?}"),
                Engine::Mpi => assert!(got.code().is_some_and(|code| code != 0), "{self:#?}"),
            }
        }
    }

    /// Checks that the job ended within `limit`.
    pub(crate) fn within(&self, limit: Duration) {
        println!("{:?}: the job ended after {:.2} s", self.engine, self.took.as_secs_f64());
        assert!(self.took <= limit, "took {:?}, expected at most {limit:?}: {self:#?}", self.took);
    }

    /// Checks that a process printed a line with this text.
    pub(crate) fn expect(&self, text: &str) {
        assert!(self.lines.iter().any(|line| line.contains(text)), "no process printed `{text}`: {self:#?}");
    }

    /// Checks that a process printed this text, followed by a number of seconds that is at least `least`.
    pub(crate) fn expect_seconds(&self, text: &str, least: f64) {
        let told = |line: &String| line.split_once(text)?.1.split_once(" s")?.0.parse::<f64>().ok();
        let is_told = self.lines.iter().filter_map(told).any(|told| least <= told);
        assert!(is_told, "no process printed `{text}` and at least {least} s: {self:#?}");
    }

    /// Checks that a process printed a line with one of these texts.
    pub(crate) fn expect_one_of(&self, texts: &[&str]) {
        let is_one = |line: &String| texts.iter().any(|text| line.contains(text));
        assert!(self.lines.iter().any(is_one), "no process printed any of {texts:?}: {self:#?}");
    }

    pub(crate) fn expect_once(&self, text: &str) {
        assert_eq!(self.lines.iter().filter(|line| line.contains(text)).count(), 1, "`{text}`: {self:#?}");
    }

    /// Checks that a process printed a line with this text after the name of the rank's process.
    pub(crate) fn expect_process(&self, text: &str, rank: usize) {
        let is_told = |line: &String| {
            let name = format!("rank {rank} ({}, pid ", host());
            line.find(&name).is_some_and(|at| line[at..].contains(text))
        };
        assert!(self.lines.iter().any(is_told), "no line names rank {rank} before `{text}`: {self:#?}");
    }
}

pub(crate) fn host() -> String {
    String::from_utf8(Command::new("hostname").output().unwrap().stdout).unwrap().trim().to_owned()
}

/// Returns the deadline of ranks, from the environment or [`DEADLINE`].
pub(crate) fn deadline() -> Duration {
    seconds("KILN_TEST_DEADLINE").unwrap_or(DEADLINE)
}

fn seconds(name: &str) -> Option<Duration> {
    std::env::var(name).ok().map(|text| Duration::from_secs(text.parse().unwrap()))
}

/// Joins the job, runs the body that the environment names, and ends the process. Does nothing without a body.
pub(crate) fn run_body() {
    let Ok(body) = std::env::var("KILN_TEST_BODY") else { return };
    kiln_testkit::print_log();
    let var = |name: &str| std::env::var(name).ok();
    let launch = LaunchEnv::detect(&LaunchFlags::default(), var).unwrap().unwrap();
    let engine = match var("KILN_TEST_ENGINE").as_deref() {
        Some("nccl") => CommBackend::Nccl,
        Some("mpi") => CommBackend::Mpi,
        _ if launch.master.is_some() => CommBackend::Store,
        _ => CommBackend::Auto,
    };
    if body == "launch" {
        return crate::bodies::launched(engine);
    }
    let mut config = RankConfig::from_env_or_threads(0)
        .backend(engine)
        .threads_per_rank(1)
        .deadline(deadline())
        .join_within(seconds("KILN_TEST_JOIN").unwrap_or(DEADLINE))
        .version("1")
        .agree_on("--lr", var("KILN_TEST_SETTING").unwrap_or_default());
    if let Some(folder) = var("KILN_TEST_TLS") {
        config = config.tls(certificates::of(Path::new(&folder), launch.rank));
    }
    let group = RankGroup::join(config).unwrap_or_else(|error| {
        eprintln!("Error: {error}");
        std::process::exit(i32::from(error.status()))
    });
    let RankGroup::Process(job) = group else { panic!("the ranks should be processes") };
    println!("rank {} is process {}", launch.rank, std::process::id());
    if body == "machine" {
        let local = job.local_ranks();
        let n_local = job.run(|mut comm| Ok(comm.subgroup(&local)?.rank_info().world_size));
        println!("rank {} of machine {local:?}: {n_local}", launch.rank);
        std::process::exit(0);
    }
    if body == "dropped" && launch.rank == 1 {
        drop(job);
        std::process::exit(3);
    }
    if body == "value" {
        job.put(&format!("from {}", launch.rank), format!("rank {}", launch.rank).into_bytes()).unwrap();
        let other = (launch.rank + 1) % launch.world_size;
        let value = String::from_utf8(job.get(&format!("from {other}")).unwrap()).unwrap();
        println!("rank {} got from {value}", launch.rank);
    }
    job.run(|comm| {
        crate::bodies::run(&body, comm).map_err(|error| match body.as_str() {
            "transient failure" => TransientError(error.into()).into(),
            _ => error.into(),
        })
    });
    std::process::exit(0)
}
