//! Tests of each engine. The names of the tests contain the engine, so that a run can select those of MPI.
#![allow(clippy::unwrap_used, reason = "the functions are tests")]

use std::time::Duration;

use kiln_comm::ThreadRanks;

use crate::bodies;
use crate::start::{self, Engine, Job, mpirun_is_missing};

/// The time in which a job must end after a fault. It is much longer than that takes on a loaded machine, and
/// shorter than the default deadline, after which the job would end in any case.
const SOON: Duration = Duration::from_secs(60);

/// Makes these functions tests of the store and tests of MPI. The latter do nothing where MPI is missing.
macro_rules! tests_of_engines {
    ($($test:ident,)+) => {
        mod store {
            use super::Engine;
            $(
                #[test]
                fn $test() {
                    super::$test(Engine::Store);
                }
            )+
        }

        mod mpi {
            use super::{Engine, mpirun_is_missing};
            $(
                #[test]
                fn $test() {
                    if mpirun_is_missing().is_none() {
                        super::$test(Engine::Mpi);
                    }
                }
            )+
        }
    };
}

tests_of_engines! {
    collectives_are_bit_identical_to_threads,
    launch_joins_the_processes_that_a_launcher_started,
    ranks_of_one_machine_find_each_other,
    different_collectives_are_an_error_that_names_both,
    a_panic_ends_the_job,
    an_error_ends_the_job,
    a_transient_error_ends_the_job_with_exit_status_75,
    a_rank_that_returns_early_ends_the_job,
    a_killed_rank_ends_the_job,
    a_stopped_rank_ends_the_job,
    a_rank_that_misses_a_collective_ends_the_job,
}

/// All collectives in the world, channels and subgroups are bit-identical to those of threads, in three runs.
fn collectives_are_bit_identical_to_threads(engine: Engine) {
    for n_ranks in [2, 4] {
        let expected = ThreadRanks::of(n_ranks).run(|comm| Ok(bodies::collectives(comm)?)).unwrap();
        for _ in 0..3 {
            let ended = Job::start(engine, n_ranks, "collectives", &[]).wait();
            ended.check_all(0);
            for (rank, expected) in expected.iter().enumerate() {
                ended.expect(&format!("digest of rank {rank}: {expected:016x}"));
            }
        }
    }
}

/// With the variables of torchrun or mpirun, `launch` runs one rank in each process.
fn launch_joins_the_processes_that_a_launcher_started(engine: Engine) {
    let ended = Job::start(engine, 2, "launch", &[]).wait();
    ended.check_all(0);
    for rank in 0..2 {
        ended.expect(&format!("rank {rank} of 2, local rank {rank}, at least 1 thread"));
    }
    ended.expect("sums [[1.0, 2.0]]");
}

fn ranks_of_one_machine_find_each_other(engine: Engine) {
    let ended = Job::start(engine, 3, "machine", &[]).wait();
    ended.check_all(0);
    for rank in 0..3 {
        ended.expect(&format!("rank {rank} of machine [0, 1, 2]: 3"));
    }
}

/// If ranks call different collectives, the call fails on all ranks instead of hanging.
fn different_collectives_are_an_error_that_names_both(engine: Engine) {
    let ended = Job::start(engine, 3, "mismatch", &[]).wait();
    ended.check_all(70);
    ended.expect(
        "ranks called different collectives: rank 0 is in all_reduce_sum of 5 f32 (collective 4 of channel \
         \"job\"), in step 3; rank 1 is in all_reduce_sum of 6 f32, in step 3",
    );
}

/// The message of a panic is printed once. All other processes end at once, and the rank at fault is named.
fn a_panic_ends_the_job(engine: Engine) {
    for body in ["panic", "panic in a thread"] {
        let mut job = Job::start(engine, 3, body, &[]);
        job.since("the lights went out");
        let ended = job.wait();
        ended.check_all(70);
        ended.within(SOON);
        ended.expect_once("the lights went out");
        ended.expect_process("has panicked in forward of step 3", 1);
    }
}

fn an_error_ends_the_job(engine: Engine) {
    let ended = Job::start(engine, 3, "failure", &[]).wait();
    ended.check_all(70);
    ended.expect_process("failed in backward of step 3", 2);
    ended.expect("the disk is full: no space left");
}

/// All processes of the job exit with the status for a restart, including the failing one.
fn a_transient_error_ends_the_job_with_exit_status_75(engine: Engine) {
    let ended = Job::start(engine, 3, "transient failure", &[]).wait();
    ended.check_all(75);
    ended.expect_process("failed in backward of step 3", 2);
    ended.expect("the disk is full: no space left");
}

/// The body of one rank returns while the others call a collective.
fn a_rank_that_returns_early_ends_the_job(engine: Engine) {
    let ended = Job::start(engine, 2, "early", &[("KILN_TEST_DEADLINE", "4")]).wait();
    ended.check_all(75);
    ended.expect_process("in end of step 2", 1);
}

/// All other processes end at once after `kill -9`, and name the lost rank.
fn a_killed_rank_ends_the_job(engine: Engine) {
    for victim in [0, 2] {
        let mut job = Job::start(engine, 3, "steps", &[]);
        let pid = job.kill_at_step(60, victim, "KILL");
        let ended = job.wait();
        ended.within(SOON);
        ended.check_others(victim, 75);
        ended.expect(&format!("rank {victim} ({}, pid {pid}) is gone", start::host()));
    }
}

/// Every other process ends when the deadline has passed since `kill -STOP`.
fn a_stopped_rank_ends_the_job(engine: Engine) {
    // The jobs run at the same time, because each waits for the deadline.
    std::thread::scope(|scope| {
        for victim in [0, 1] {
            scope.spawn(move || check_stopped(engine, victim));
        }
    });
}

fn check_stopped(engine: Engine, victim: usize) {
    let mut job = Job::start(engine, 3, "steps", &[("KILN_TEST_DEADLINE", "5")]);
    let pid = job.kill_at_step(60, victim, "STOP");
    let ended = job.wait();
    ended.within(Duration::from_secs(5) + SOON);
    ended.check_others(victim, 75);
    ended.expect(&format!("rank {victim} ({}, pid {pid})", start::host()));
    ended.expect("in steps of step ");
}

/// One rank is alive but does not call the collective. The others report the rank and its activity.
fn a_rank_that_misses_a_collective_ends_the_job(engine: Engine) {
    let ended = Job::start(engine, 3, "asleep", &[]).wait();
    ended.check_all(75);
    ended.expect_process("was last seen", 1);
    ended.expect("in sample of step 7");
    ended.expect_seconds("has waited in barrier (collective 8 of channel \"job\") for ", 3.0);
}
