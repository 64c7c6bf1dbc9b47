//! Tests of ranks that are processes: their collectives and their failures. Each test starts this test program several
//! times, directly with the store as engine and, if the feature `mpi` is on, with `mpirun`.

mod bodies;
mod certificates;
mod connections;
mod duplicates;
mod engines;
mod start;
mod strangers;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kiln_comm::{JobError, LaunchFlags, RankConfig, RankError, ThreadRanks, launch};

use crate::start::{DEADLINE, Engine, Job, mpirun_is_missing};

/// The entry point of processes that were started as ranks. Does nothing in the test process itself.
#[test]
fn body_of_a_rank() {
    start::run_body();
}

#[test]
fn prints_why_ranks_over_mpi_are_not_tested() {
    if let Some(reason) = mpirun_is_missing() {
        use std::io::Write;
        // A direct write bypasses the output capture of the test harness.
        let mut stdout = std::io::stdout();
        let kind = if cfg!(feature = "mpi") { "other" } else { "run" };
        writeln!(stdout, "kiln-skip: {kind}: ranks over MPI: {reason}").unwrap();
    }
}

#[test]
fn launch_rejects_a_token_file_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "a-word-of-this-test").unwrap();
    let vars = |name: &str| match name {
        "RANK" | "LOCAL_RANK" => Some("0".to_owned()),
        "WORLD_SIZE" => Some("2".to_owned()),
        "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
        "MASTER_PORT" => Some("29500".to_owned()),
        "KILN_JOB_TOKEN_FILE" => Some(path.display().to_string()),
        _ => None,
    };
    for (mode, expected) in [(0o644, "other users can read the file: run `chmod 600` on it"), (0o600, "")] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let config = RankConfig::from_vars_or_threads(2, &LaunchFlags::default(), vars);
        match expected {
            "" => assert!(format!("{config:?}").contains("Process"), "{config:?}"),
            _ => {
                let error = launch(config, |rank| Ok::<_, RankError>(rank.info)).unwrap_err();
                assert!(matches!(error, RankError::Join(JobError::Token(_))), "{error:?}");
                assert_eq!(
                    (error.to_string().ends_with(expected), error.exit_status()),
                    (true, 70),
                    "{error}"
                );
            }
        }
    }
}

/// Sums do not depend on the transport that MPI uses.
#[test]
fn mpi_over_tcp_is_bit_identical_to_threads() {
    if mpirun_is_missing().is_none() {
        let expected = ThreadRanks::of(2).run(|comm| Ok(bodies::collectives(comm)?)).unwrap();
        let ended = Job::start(Engine::Mpi, 2, "collectives", &[("OMPI_MCA_btl", "self,tcp")]).wait();
        ended.check_all(0);
        ended.expect(&format!("digest of rank 1: {:016x}", expected[1]));
    }
}

#[test]
fn a_stored_value_is_available_to_other_ranks() {
    let ended = Job::start(Engine::Store, 2, "value", &[]).wait();
    ended.check_all(0);
    ended.expect("rank 0 got from rank 1");
}

/// Waits until the listener at this address has `n` connections.
fn wait_for_connections(address: SocketAddr, n: usize) {
    let (port, started) = (format!(":{:04X}", address.port()), Instant::now());
    // The columns are a number, the local address, the remote one and the state; 01 is "established".
    let is_one = |line: &&str| {
        let mut columns = line.split_whitespace().skip(1);
        columns.next().is_some_and(|local| local.ends_with(&port)) && columns.nth(1) == Some("01")
    };
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux should list its connections");
        if n <= table.lines().filter(is_one).count() {
            return;
        }
        assert!(started.elapsed() < DEADLINE, "{address} should have {n} connections: {table}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Rank 0 is stopped before all processes have joined. Those that have joined end after the deadline.
#[test]
fn joining_processes_end_if_rank_0_is_stopped() {
    let mut job = Job::prepare(3, "steps");
    let vars = [("KILN_TEST_DEADLINE", "3"), ("KILN_TEST_JOIN", "60")];
    job.spawn(0, &vars);
    job.spawn(1, &vars);
    // Rank 0 connects to itself, too. A rank that is connected but has not joined ends in the same way.
    wait_for_connections(job.address(), 2);
    std::thread::sleep(Duration::from_secs(1));
    job.strike_children(&[0], "STOP");
    let ended = job.wait();
    ended.check_others(0, 75);
    ended.expect("it has been silent for 3s");
}

/// The first lines follow after 10 s.
#[test]
fn waiting_processes_log_what_they_wait_for() {
    let vars = [("KILN_TEST_JOIN", "12")];
    let mut without_first = Job::prepare(2, "steps");
    without_first.spawn(1, &vars);
    let mut without_second = Job::prepare(2, "steps");
    without_second.spawn(0, &vars);
    without_first.wait_for("waiting for rank 0 at 127.0.0.1:");
    without_second.wait_for("waiting for rank 1 to join: 10");
    without_first.wait().check_each(&[75]);
    without_second.wait().check_each(&[75]);
}

/// A scheduler may stop all ranks for longer than the deadline. When they continue, no rank counts as lost.
#[test]
fn job_continues_after_all_ranks_were_stopped() {
    let mut job = Job::start(Engine::Store, 3, "some steps", &[("KILN_TEST_DEADLINE", "6")]);
    job.since("step 60");
    job.strike_children(&[0, 1, 2], "STOP");
    std::thread::sleep(Duration::from_secs(8));
    job.strike_children(&[0, 1, 2], "CONT");
    job.wait().check_all(0);
}

/// Dropping the process group on one rank fails the job on all ranks.
#[test]
fn dropping_the_process_group_ends_the_job() {
    let ended = Job::start(Engine::Store, 2, "dropped", &[]).wait();
    ended.check_each(&[70, 3]);
    ended.expect_process("has left before it ran its body", 1);
}

/// The deadline also applies to sums outside the engine.
#[test]
fn a_device_sum_that_hangs_ends_the_job() {
    let ended = Job::start(Engine::Store, 2, "device", &[("KILN_TEST_DEADLINE", "4")]).wait();
    ended.check_all(75);
    ended.expect("1 sums");
    ended.expect_seconds("has waited in device_sum of 5 f32 (collective 5 of channel \"job\") for ", 4.0);
}

#[test]
fn processes_with_different_settings_are_refused() {
    let mut job = Job::prepare(2, "value");
    job.spawn(0, &[("KILN_TEST_SETTING", "0.1")]);
    job.spawn(1, &[("KILN_TEST_SETTING", "0.2")]);
    let ended = job.wait();
    ended.check_all(70);
    ended.expect("--lr is 0.");
    ended.expect("start all processes with the same --lr");
}

/// The refused process does not take the place of the rank, which joins later.
#[test]
fn a_wrong_token_is_refused() {
    let mut job = Job::prepare(2, "value");
    job.spawn(0, &[]);
    job.spawn(1, &[("KILN_JOB_TOKEN", "another-word-of-this-test")]);
    assert_eq!(job.processes[1].wait().unwrap().code(), Some(70));
    job.spawn(1, &[]);
    let ended = job.wait();
    ended.check_each(&[0, 70, 0]);
    ended.expect("missing or wrong token: use the same token for all processes of the job");
}

/// Ranks with certificates of one authority join. Those with another authority or without certificates are refused.
#[cfg(feature = "tls")]
#[test]
fn certificates_of_another_authority_are_refused() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates::write(folder.path(), 2);
    certificates::write(other.path(), 2);
    let own = [("KILN_TEST_TLS", folder.path().to_str().unwrap())];
    let ended = Job::start(Engine::Store, 2, "value", &own).wait();
    ended.check_all(0);
    ended.expect("rank 0 got from rank 1");
    for foreign in [vec![("KILN_TEST_TLS", other.path().to_str().unwrap())], vec![]] {
        let mut job = Job::prepare(2, "value");
        job.spawn(0, &[own[0], ("KILN_TEST_JOIN", "3")]);
        job.spawn(1, &[&foreign[..], &[("KILN_TEST_JOIN", "2")]].concat());
        let ended = job.wait();
        ended.check_all(75);
        // On a loaded machine, rank 0 may be missing, too.
        ended.expect("1 did not join within 3s");
    }
}

/// The program may be built without the requested engine, and the machine may lack its library.
#[test]
fn missing_engines_are_reported() {
    let said = |engine: &str| {
        let mut job = Job::prepare(2, "value");
        job.spawn(0, &[("KILN_TEST_ENGINE", engine), ("KILN_TEST_JOIN", "2")]);
        job.wait()
    };
    let nccl = said("nccl");
    nccl.check_one_of(&[70, 75]);
    match cfg!(feature = "nccl") {
        false => nccl.expect("build it with the feature `nccl`"),
        // If NCCL is installed, the job fails because this test does not start rank 1.
        true => nccl.expect_one_of(&[
            "NCCL is not installed",
            "NVIDIA driver is not installed",
            "1 did not join within 2s",
        ]),
    }
    let mpi = said("mpi");
    mpi.check_all(70);
    match cfg!(feature = "mpi") {
        false => mpi.expect("build it with the feature `mpi`"),
        true => mpi.expect("rank 0 of 2, local rank 0, by torchrun, master 127.0.0.1:"),
    }
}

#[test]
fn two_processes_of_one_rank_are_refused() {
    let mut job = Job::prepare(3, "value");
    for rank in [0, 1, 1] {
        job.spawn(rank, &[]);
    }
    let ended = job.wait();
    ended.check_all(70);
    ended.expect("two processes claim rank 1");
}

#[test]
fn joining_ends_if_other_processes_never_start() {
    let mut job = Job::prepare(3, "value");
    job.spawn(0, &[("KILN_TEST_JOIN", "2")]);
    let ended = job.wait();
    ended.check_all(75);
    // On a loaded machine, rank 0 may be missing, too.
    ended.expect("1, 2 did not join within 2s");
    let mut job = Job::prepare(3, "value");
    job.spawn(1, &[("KILN_TEST_JOIN", "2")]);
    let ended = job.wait();
    ended.check_all(75);
    ended.expect("cannot connect to rank 0: no answer from 127.0.0.1:");
    assert!(Duration::from_secs(2) < DEADLINE);
}
