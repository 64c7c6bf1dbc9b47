//! Processes that know the token and are no ranks of the job that they come to.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use crate::start::{Engine, Job};

/// A process that is started while the job runs, in the place of a rank that is alive: it alone is refused.
#[test]
fn a_late_duplicate_is_refused_alone() {
    let mut job = Job::start(Engine::Store, 3, "some steps", &[]);
    job.wait_for("step 20");
    job.spawn(1, &[]);
    let ended = job.wait();
    ended.check_each(&[0, 0, 0, 70]);
    ended.expect_once("refused a process, the job goes on (1 so far): ");
    // Rank 0 and the process itself.
    ended.expect_process("is alive, heard from ", 1);
    ended.expect("is a duplicate: start each rank once");
}

/// The same, with all that a process may come with: other settings, other sizes, other tokens.
#[test]
fn late_processes_of_any_kind_are_refused_alone() {
    let mut job = Job::start(Engine::Store, 3, "some steps", &[]);
    job.wait_for("step 20");
    job.spawn(2, &[("KILN_TEST_SETTING", "another")]);
    job.spawn(1, &[("WORLD_SIZE", "2")]);
    job.spawn(7, &[("WORLD_SIZE", "9")]);
    job.spawn(1, &[("KILN_JOB_TOKEN", "another-word-of-this-test")]);
    let ended = job.wait();
    ended.check_each(&[0, 0, 0, 70, 70, 70, 70]);
    ended.expect("says it is one of 9, rank 0 says 3");
    ended.expect("another token: all processes of a job have the same");
    ended.expect_once("calls with a wrong token or none: 1 so far, the last one from 127.0.0.1:");
}

/// A rank that fell silent, and a process that was started in its place: the job ends, to be started again as a whole.
#[test]
fn a_duplicate_of_a_silent_rank_ends_the_job() {
    let mut job = Job::start(Engine::Store, 3, "steps", &[]);
    job.kill_at_step(60, 1, "STOP");
    // More than the five seconds for which it counts as alive.
    std::thread::sleep(Duration::from_secs(6));
    job.spawn(1, &[]);
    let ended = job.wait();
    ended.check_others(1, 75);
    ended.expect("two processes say they are rank 1");
}

/// Rank 0 that was stopped finds the others silent when it goes on, and is wrong.
#[test]
fn a_duplicate_is_refused_after_all_ranks_were_stopped() {
    let mut job = Job::start(Engine::Store, 2, "some steps", &[]);
    job.wait_for("step 60");
    (0..2).for_each(|rank| job.strike_child(rank, "STOP"));
    job.spawn(1, &[]);
    std::thread::sleep(Duration::from_secs(7));
    (0..2).for_each(|rank| job.strike_child(rank, "CONT"));
    job.wait().check_each(&[0, 0, 70]);
}

fn attempt(restart: &'static str) -> [(&'static str, &'static str); 2] {
    [("TORCHELASTIC_RUN_ID", "a-job"), ("TORCHELASTIC_RESTART_COUNT", restart)]
}

/// A process of the next attempt comes while the one before still runs: neither ends because of the other.
#[test]
fn a_process_of_the_next_attempt_waits_for_it() {
    let mut job = Job::prepare(2, "some steps");
    (0..2).for_each(|rank| job.spawn(rank, &attempt("0")));
    job.wait_for("step 20");
    job.spawn(1, &attempt("1"));
    job.wait_for("is of job a-job, agent restart 1 and must wait for its end");
    for rank in 0..2 {
        assert_eq!(job.processes[rank].wait().unwrap().code(), Some(0));
    }
    job.spawn(0, &attempt("1"));
    job.wait().check_all(0);
}

/// All processes of the next attempt come while the one before still runs, rank 0 to the port that is in use.
#[test]
fn rank_0_of_the_next_attempt_waits_for_the_port() {
    let mut job = Job::prepare(2, "some steps");
    (0..2).for_each(|rank| job.spawn(rank, &attempt("0")));
    job.wait_for("step 20");
    (0..2).for_each(|rank| job.spawn(rank, &attempt("1")));
    job.wait_for("rank 0 cannot listen at ");
    job.wait().check_each(&[0, 0, 0, 0]);
}

/// An agent of torchrun that replaced a lost one begins to count at 0, in the same attempt as the others.
#[test]
fn agents_of_one_run_may_count_other_restarts() {
    let mut job = Job::prepare(2, "value");
    job.spawn(0, &attempt("1"));
    job.spawn(1, &attempt("0"));
    job.wait().check_each(&[0, 0]);
}

/// A process of another run comes while the ranks of this one join.
#[test]
fn a_process_of_another_run_does_not_end_a_job_that_begins() {
    let mut job = Job::prepare(2, "value");
    job.spawn(0, &attempt("1"));
    job.stranger();
    job.spawn(1, &[("TORCHELASTIC_RUN_ID", "another-job"), ("KILN_TEST_JOIN", "2")]);
    assert_eq!(job.processes[1].wait().unwrap().code(), Some(75));
    job.spawn(1, &attempt("1"));
    let ended = job.wait();
    ended.check_each(&[0, 75, 0]);
    ended.expect("is of job another-job, rank 0 here is of job a-job, agent restart 1");
}
