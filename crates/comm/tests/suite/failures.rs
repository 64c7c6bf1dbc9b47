//! Tests that all ranks end when one fails, with errors that contain the cause, the collective and the step.
#![allow(clippy::unwrap_used)]

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kiln_comm::{BoxError, Communicator, Error, RankError, Reduce, Result, ThreadGroup, ThreadRanks};

/// A deadline that is never reached: a rank that waits for it hangs the test.
const NEVER: Duration = Duration::from_secs(1_000_000);
/// A deadline that ranks are meant to miss.
const SHORT: Duration = Duration::from_millis(200);

/// What a rank does instead of calling its collective.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Panic,
    Fail,
    Return,
}

/// Runs the ranks. Returns, by rank, the error that the communicator returned to each body, and the outcome of the run.
fn run(
    n_ranks: usize,
    deadline: Duration,
    body: impl Fn(&mut dyn Communicator, usize) -> std::result::Result<(), BoxError> + Sync,
) -> (Vec<Option<Error>>, std::result::Result<Vec<()>, RankError>) {
    let errors = Mutex::new(vec![None; n_ranks]);
    let outcome = ThreadRanks { n_ranks, threads_per_rank: 1, deadline }.run(|mut comm| {
        let rank = comm.rank_info().rank;
        let outcome = body(comm.as_mut(), rank);
        if let Err(error) = &outcome {
            errors.lock().unwrap()[rank] = error.downcast_ref::<Error>().cloned();
        }
        outcome
    });
    (errors.into_inner().unwrap(), outcome)
}

/// Runs five sums and a barrier, one per step. The fault replaces the collective of step `k`. Checks all errors.
fn check_fault(fault: Fault, rank_at_fault: usize, k: u64, expected: &str) {
    let (errors, outcome) = run(3, NEVER, |comm, rank| {
        for step in 0..6 {
            comm.set_step(step);
            if (rank, step) == (rank_at_fault, k) {
                match fault {
                    Fault::Panic => panic!("index {k} out of bounds"),
                    Fault::Fail => return Err("disk full".into()),
                    Fault::Return => return Ok(()),
                }
            }
            if step < 5 { comm.all_reduce_sum(Reduce::F32(&mut [1.0; 4]))? } else { comm.barrier(NEVER)? }
        }
        Ok(())
    });
    let collective = if k < 5 { "all_reduce_sum of 4 f32" } else { "barrier" };
    let expected = format!("{collective} (collective {}): rank {rank_at_fault} {expected}", k + 1);
    for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != rank_at_fault) {
        assert_eq!(error.as_ref().unwrap().to_string(), expected, "on rank {rank}");
    }
    let error = outcome.unwrap_err();
    match fault {
        Fault::Panic => {
            assert_eq!(error.to_string(), format!("rank {rank_at_fault}: panicked: index {k} out of bounds"));
        }
        Fault::Fail => assert_eq!(error.to_string(), format!("rank {rank_at_fault}: disk full")),
        Fault::Return => assert!(error.to_string().ends_with(&expected), "{error}"),
    }
}

fn check_fault_everywhere(fault: Fault, expected: impl Fn(u64) -> String) {
    for rank in 0..3 {
        for k in 0..6 {
            check_fault(fault, rank, k, &expected(k));
        }
    }
}

#[test]
fn a_panic_ends_all_ranks() {
    check_fault_everywhere(Fault::Panic, |k| format!("panicked in step {k}: index {k} out of bounds"));
}

#[test]
fn an_error_ends_all_ranks() {
    check_fault_everywhere(Fault::Fail, |k| format!("failed in step {k}: disk full"));
}

#[test]
fn an_early_return_ends_all_ranks() {
    check_fault_everywhere(Fault::Return, |k| {
        format!(
            "left in step {k}: it returned without an error, or dropped its communicator; \
             all ranks must call the same collectives"
        )
    });
}

/// One rank drops its communicator, and its body continues until the others have failed.
#[test]
fn a_dropped_communicator_ends_all_ranks() {
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let outcome = ThreadRanks { n_ranks: 3, threads_per_rank: 1, deadline: NEVER }.run(|mut comm| {
        if comm.rank_info().rank == 1 {
            drop(comm);
            return Ok([(); 2].map(|()| receiver.lock().unwrap().recv().unwrap()).to_vec());
        }
        let error = comm.barrier(NEVER).unwrap_err();
        sender.send(error.clone())?;
        Err(error.into())
    });
    let error = outcome.unwrap_err();
    let expected = "barrier (collective 1): rank 1 left before its first step: it returned without an error, or \
                    dropped its communicator; all ranks must call the same collectives";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[test]
fn step_set_in_a_channel_applies_to_the_whole_rank() {
    let (errors, _) = run(2, NEVER, |comm, rank| {
        if rank == 1 {
            comm.duplicate("x")?.set_step(7);
            comm.duplicate("x")?.subgroup(&[1])?.set_step(9);
            return Err("disk full".into());
        }
        let mut again = [comm.duplicate("x")?, comm.duplicate("x")?];
        Ok(again[1].barrier(NEVER)?)
    });
    let expected = "barrier (collective 1 of channel \"x\" (taking 2)): rank 1 failed in step 9: disk full";
    assert_eq!(errors[0].as_ref().unwrap().to_string(), expected);
}

#[test]
fn buffers_are_unchanged_after_an_error() {
    let (_, outcome) = run(2, NEVER, |comm, rank| {
        if rank == 1 {
            return Err("disk full".into());
        }
        let (mut floats, mut bytes) = ([1.5, -2.0], vec![1, 2, 3]);
        assert!(comm.all_reduce_sum(Reduce::F32(&mut floats)).is_err());
        assert!(comm.broadcast(1, &mut bytes).is_err());
        assert_eq!((floats, bytes), ([1.5, -2.0], vec![1, 2, 3]));
        Ok(())
    });
    assert_eq!(outcome.unwrap_err().to_string(), "rank 1: disk full");
}

/// Without `ThreadRanks`, the ends of bodies are not reported, only drops of communicators.
#[test]
fn dropping_a_communicator_without_thread_ranks_ends_the_other_ranks() {
    for is_panicking in [false, true] {
        let mut comms = ThreadGroup::new(2, NEVER);
        let (mut second, mut first) = (comms.pop().unwrap(), comms.pop().unwrap());
        let error = thread::scope(|scope| {
            let waits = scope.spawn(move || first.barrier(NEVER).unwrap_err());
            let leaves = scope.spawn(move || {
                second.set_step(3);
                assert!(!is_panicking, "requested panic");
            });
            assert_eq!(leaves.join().is_err(), is_panicking);
            waits.join().unwrap()
        });
        let Error::Over { rank, reason } = error else { panic!("{error}") };
        let expected = match is_panicking {
            true => "barrier (collective 1): rank 1 panicked in step 3",
            false => {
                "barrier (collective 1): rank 1 left in step 3: it returned without an error, or dropped its \
                 communicator; all ranks must call the same collectives"
            }
        };
        assert_eq!((rank, &*reason), (1, expected));
    }
}

/// Runs two ranks. Rank 1 calls `late` after `wait` has failed on rank 0 because rank 1 missed the deadline.
fn check_late(
    wait: impl Fn(&mut dyn Communicator) -> Result<()> + Sync,
    late: impl Fn(&mut dyn Communicator) -> Result<()> + Sync,
) -> (Vec<String>, String) {
    let (sender, receiver): (Sender<()>, Receiver<()>) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let (errors, outcome) = run(2, SHORT, |comm, rank| {
        comm.set_step(10 + rank as u64);
        comm.barrier(NEVER)?;
        if rank == 1 {
            receiver.lock().unwrap().recv()?;
            return Ok(late(comm)?);
        }
        let outcome = wait(comm);
        sender.send(())?;
        Ok(outcome?)
    });
    let errors = errors.into_iter().map(|error| error.unwrap().to_string()).collect();
    (errors, outcome.unwrap_err().to_string())
}

#[test]
fn a_missed_deadline_ends_all_ranks() {
    let barrier = |comm: &mut dyn Communicator| comm.barrier(NEVER);
    let gather = |comm: &mut dyn Communicator| comm.all_gather(&[1]).map(drop);
    let (errors, outcome) = check_late(gather, barrier);
    let missed = "rank 1, last seen in step 11, did not join all_gather (collective 2) within 200ms; find what \
                  delayed it, or set a longer deadline";
    let late = "this rank, 1, was late in step 11: the other ranks waited 200ms for it in all_gather (collective \
                2) and failed; find what delayed it, or set a longer deadline";
    assert_eq!(errors, [missed, late]);
    assert_eq!(outcome, format!("rank 1: {late}"));
}

/// Ranks 0 and 2 wait, rank 2 with a deadline that is never reached. The short deadline of rank 0 applies to both.
#[test]
fn a_barrier_uses_the_shortest_deadline_of_its_callers() {
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Mutex::new(receiver);
    let (errors, _) = run(3, NEVER, |comm, rank| {
        let deadline = [SHORT, NEVER, NEVER][rank];
        if rank == 1 {
            receiver.lock().unwrap().recv()?;
            receiver.lock().unwrap().recv()?;
        }
        let outcome = comm.barrier(deadline);
        sender.send(())?;
        Ok(outcome?)
    });
    assert!(matches!(errors[1], Some(Error::Late { rank: 1, deadline: SHORT, .. })), "{errors:?}");
    // On a busy machine, rank 2 may call the barrier only after the deadline, and is then late itself.
    match errors[2].as_ref().unwrap() {
        Error::Over { rank, reason } => {
            let missed =
                "rank 1, last seen before its first step, did not join barrier (collective 1) within 200ms";
            assert!(*rank == 1 && reason.contains(missed), "{reason}");
        }
        error => assert!(matches!(error, Error::Late { rank: 2, deadline: SHORT, .. }), "{error}"),
    }
}

#[test]
fn late_error_names_the_channel_that_a_rank_never_created() {
    let wait = |comm: &mut dyn Communicator| comm.duplicate("loss")?.barrier(SHORT);
    let late = |comm: &mut dyn Communicator| comm.duplicate("los")?.barrier(SHORT);
    let (errors, _) = check_late(wait, late);
    assert_eq!(
        errors[0],
        "rank 1, last seen in step 11, did not join barrier (collective 1 of channel \"loss\") within 200ms; \
         it never created channel \"loss\""
    );
}

/// Three threads of each rank wait in different groups when another rank ends.
#[test]
fn end_of_a_rank_wakes_all_threads_of_the_other_ranks() {
    for fault in [Fault::Panic, Fault::Fail, Fault::Return] {
        let (sender, receiver) = mpsc::channel();
        let receiver = Mutex::new(receiver);
        let (_, outcome) = run(3, NEVER, |comm, rank| {
            let channels = [comm.duplicate("a")?, comm.duplicate("b")?, comm.subgroup(&[0, 1, 2])?];
            if rank == 2 {
                for _ in 0..6 {
                    receiver.lock().unwrap().recv()?;
                }
                match fault {
                    Fault::Panic => panic!("requested panic"),
                    Fault::Fail => return Err("requested failure".into()),
                    Fault::Return => return Ok(()),
                }
            }
            let outcomes = thread::scope(|scope| {
                let wait = |mut channel: Box<dyn Communicator>| {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        sender.send(()).unwrap();
                        channel.all_gather(&[]).map(drop)
                    })
                };
                let threads = channels.map(wait);
                threads.map(|thread| thread.join().unwrap())
            });
            for outcome in &outcomes {
                let Err(Error::Over { rank, .. }) = outcome else { panic!("{outcome:?}") };
                assert_eq!(*rank, 2);
            }
            outcomes.into_iter().collect::<Result<()>>()?;
            Ok(())
        });
        let error = outcome.unwrap_err();
        assert_eq!(error.rank() == Some(2), fault != Fault::Return, "{error}");
    }
}

/// Ranks 0, 1 and 2 wait in different groups, two of which do not contain the failed rank 3.
#[test]
fn a_failure_ends_collectives_of_groups_without_the_failed_rank() {
    let (errors, outcome) = run(4, NEVER, |comm, rank| {
        let mut group = match rank {
            0 => comm.subgroup(&[0, 3])?,
            1 => comm.subgroup(&[2, 1])?.duplicate("y")?,
            2 => comm.duplicate("x")?.subgroup(&[1, 2])?,
            _ => return Err("disk full".into()),
        };
        Ok(group.all_reduce_sum(Reduce::U64(&mut [1]))?)
    });
    let groups = ["subgroup [0, 3]", "channel \"y\" of subgroup [2, 1]", "subgroup [1, 2] of channel \"x\""];
    for (error, group) in errors.iter().zip(groups) {
        let expected = format!(
            "all_reduce_sum of 1 u64 (collective 1 of {group}): rank 3 failed before its first step: disk full"
        );
        assert_eq!(error.as_ref().unwrap().to_string(), expected);
    }
    assert_eq!(outcome.unwrap_err().to_string(), "rank 3: disk full");
}

/// After the end of the world, every collective in every group, old or new, fails at once with the same cause.
#[test]
fn every_later_collective_returns_the_same_cause() {
    let causes = Arc::new(Mutex::new(Vec::new()));
    let (_, outcome) = run(3, NEVER, |comm, rank| {
        let mut groups = [comm.duplicate("x")?, comm.subgroup(&[2, 0, 1])?];
        if rank == 2 {
            return Err("gone".into());
        }
        assert!(comm.barrier(NEVER).is_err());
        let mut later = vec![comm.duplicate("later")?, comm.subgroup(&[rank])?];
        let groups = groups.iter_mut().chain(&mut later);
        for comm in groups {
            let send = vec![Vec::new(); comm.rank_info().world_size];
            let outcomes = [
                comm.all_reduce_sum(Reduce::U64(&mut [1])),
                comm.all_gather(&[]).map(drop),
                comm.all_to_all(&send).map(drop),
                comm.broadcast(0, &mut Vec::new()),
                comm.barrier(NEVER),
            ];
            for outcome in outcomes {
                let Err(Error::Over { rank, reason }) = outcome else { panic!("{outcome:?}") };
                let (_, cause) = reason.split_once(": ").unwrap();
                causes.lock().unwrap().push((rank, cause.to_owned()));
            }
        }
        Ok(())
    });
    let expected = (2, "rank 2 failed before its first step: gone".to_owned());
    let causes = causes.lock().unwrap();
    assert_eq!(causes.len(), 2 * 4 * 5);
    assert!(causes.iter().all(|cause| *cause == expected));
    assert_eq!(outcome.unwrap_err().to_string(), "rank 2: gone");
}
