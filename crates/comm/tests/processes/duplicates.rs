//! Tests of processes that have the token but are not ranks of the job: duplicates and other attempts.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use tempfile::TempDir;

use crate::start::{Engine, Job};

/// Returns the path of the file that ends a job of the body `steps until told`. A job that ended by itself
/// might end before another process has reached rank 0, which takes long on a loaded machine.
fn end_in(folder: &TempDir) -> String {
    folder.path().join("end").to_str().unwrap().to_owned()
}

/// A process is started while the job runs, with the rank of a live process. Only the new process ends.
#[test]
fn a_late_duplicate_does_not_end_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let end = end_in(&folder);
    let mut job = Job::start(Engine::Store, 3, "steps until told", &[("KILN_TEST_END", &*end)]);
    job.wait_for("step 20");
    job.spawn(1, &[]);
    assert_eq!(job.processes[3].wait().unwrap().code(), Some(70));
    std::fs::write(end, "").unwrap();
    let ended = job.wait();
    ended.check_each(&[0, 0, 0, 70]);
    ended.expect_once("refused a process, the job continues (1 so far): ");
    // Both rank 0 and the refused process print this.
    ended.expect_process("is alive, heard from ", 1);
    ended.expect("is a duplicate: start each rank once");
}

/// Each late process differs from the ranks in a setting, the world size or the token.
#[test]
fn late_processes_with_other_settings_do_not_end_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let end = end_in(&folder);
    let mut job = Job::start(Engine::Store, 3, "steps until told", &[("KILN_TEST_END", &*end)]);
    job.wait_for("step 20");
    job.spawn(2, &[("KILN_TEST_SETTING", "another")]);
    job.spawn(1, &[("WORLD_SIZE", "2")]);
    job.spawn(7, &[("WORLD_SIZE", "9")]);
    job.spawn(1, &[("KILN_JOB_TOKEN", "another-word-of-this-test")]);
    for process in 3..7 {
        assert_eq!(job.processes[process].wait().unwrap().code(), Some(70));
    }
    std::fs::write(end, "").unwrap();
    let ended = job.wait();
    ended.check_each(&[0, 0, 0, 70, 70, 70, 70]);
    ended.expect("has world size 9, rank 0 has 3");
    ended.expect("missing or wrong token: use the same token for all processes of the job");
    ended.expect_once("calls with a missing or wrong token: 1 so far, the last one from 127.0.0.1:");
}

/// A rank is silent, and a process with the same rank is started. The job ends with the status for a restart.
#[test]
fn a_duplicate_of_a_silent_rank_ends_the_job() {
    let mut job = Job::start(Engine::Store, 3, "steps", &[]);
    job.kill_at_step(60, 1, "STOP");
    // A silent rank counts as alive for five seconds, without the pauses of rank 0 on a loaded machine.
    std::thread::sleep(Duration::from_secs(7));
    job.spawn(1, &[]);
    let ended = job.wait();
    ended.check_others(1, 75);
    ended.expect("two processes claim rank 1");
}

/// After rank 0 was stopped and continued, it must not treat the other ranks as silent.
#[test]
fn a_duplicate_is_refused_after_all_ranks_were_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let end = end_in(&folder);
    let mut job = Job::start(Engine::Store, 2, "steps until told", &[("KILN_TEST_END", &*end)]);
    // `since` keeps the job from counting rank 0 as the victim, which is killed when all others have ended.
    job.since("step 60");
    job.strike_children(&[0, 1], "STOP");
    job.spawn(1, &[]);
    std::thread::sleep(Duration::from_secs(7));
    job.strike_children(&[0, 1], "CONT");
    assert_eq!(job.processes[2].wait().unwrap().code(), Some(70));
    std::fs::write(end, "").unwrap();
    job.wait().check_each(&[0, 0, 70]);
}

fn attempt(restart: &'static str) -> [(&'static str, &'static str); 2] {
    [("TORCHELASTIC_RUN_ID", "a-job"), ("TORCHELASTIC_RESTART_COUNT", restart)]
}

/// Returns the variables of an attempt at a job of the body `steps until told`.
fn attempt_until<'a>(restart: &'static str, end: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut vars = attempt(restart).to_vec();
    vars.push(("KILN_TEST_END", end));
    vars
}

/// A process of the next attempt joins while the previous one still runs. Neither attempt ends because of the other.
#[test]
fn a_process_of_the_next_attempt_waits_for_its_rank_0() {
    let folder = tempfile::tempdir().unwrap();
    let end = end_in(&folder);
    let mut job = Job::prepare(2, "steps until told");
    (0..2).for_each(|rank| job.spawn(rank, &attempt_until("0", &end)));
    job.wait_for("step 20");
    job.spawn(1, &attempt_until("1", &end));
    job.wait_for(
        "belongs to job a-job, agent restart 1 and has to wait for the end of job a-job, agent restart 0",
    );
    std::fs::write(&end, "").unwrap();
    for rank in 0..2 {
        assert_eq!(job.processes[rank].wait().unwrap().code(), Some(0));
    }
    job.spawn(0, &attempt_until("1", &end));
    job.wait().check_all(0);
}

/// All processes of the next attempt start while the previous one still runs, so the port of rank 0 is in use.
#[test]
fn rank_0_of_the_next_attempt_waits_for_the_port() {
    let folder = tempfile::tempdir().unwrap();
    let end = end_in(&folder);
    let mut job = Job::prepare(2, "steps until told");
    (0..2).for_each(|rank| job.spawn(rank, &attempt_until("0", &end)));
    job.wait_for("step 20");
    (0..2).for_each(|rank| job.spawn(rank, &attempt_until("1", &end)));
    job.wait_for("rank 0 cannot listen at ");
    std::fs::write(end, "").unwrap();
    job.wait().check_each(&[0, 0, 0, 0]);
}

/// The limit for a port that is in use is that of joining, and rank 0 names the port when both end.
#[test]
fn a_port_that_stays_in_use_is_named() {
    let mut job = Job::prepare(2, "value");
    let _used = std::net::TcpListener::bind(("127.0.0.1", job.port)).unwrap();
    job.spawn(0, &[("KILN_TEST_JOIN", "1")]);
    let expected = format!("Error: rank 0 cannot listen at 127.0.0.1:{}: give --master HOST:PORT", job.port);
    let ended = job.wait();
    ended.check_each(&[70]);
    ended.expect(&expected);
}

/// An agent of torchrun that replaces a lost one counts its restarts from 0, in the same attempt as the others.
#[test]
fn agents_of_one_run_may_differ_in_restart_counts() {
    let mut job = Job::prepare(2, "value");
    job.spawn(0, &attempt("1"));
    job.spawn(1, &attempt("0"));
    job.wait().check_each(&[0, 0]);
}

/// A process of another run joins while the ranks of this one are still joining.
#[test]
fn a_process_of_another_run_does_not_end_a_starting_job() {
    let mut job = Job::prepare(2, "value");
    job.spawn(0, &attempt("1"));
    job.stranger();
    job.spawn(1, &[("TORCHELASTIC_RUN_ID", "another-job"), ("KILN_TEST_JOIN", "2")]);
    assert_eq!(job.processes[1].wait().unwrap().code(), Some(75));
    job.spawn(1, &attempt("1"));
    let ended = job.wait();
    ended.check_each(&[0, 75, 0]);
    ended.expect("belongs to job another-job, this rank 0 to job a-job, agent restart 1");
}
