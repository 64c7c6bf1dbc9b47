//! Tests of `ThreadRanks`: pools, results, and which rank's error is returned.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use kiln_comm::{BoxError, Communicator, Failure, RankError, ThreadRanks};
use rayon::prelude::*;

/// A deadline that is never reached: a rank that waits for it hangs the test.
const NEVER: Duration = Duration::from_secs(1_000_000);

fn ranks(n_ranks: usize, threads_per_rank: usize) -> ThreadRanks {
    ThreadRanks { n_ranks, threads_per_rank, deadline: NEVER }
}

fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn results_are_ordered_by_rank() {
    for n_ranks in [1, 2, 5] {
        let all = ranks(n_ranks, 1).run(|comm| Ok(comm.rank_info().rank * 10)).unwrap();
        assert_eq!(all, (0..n_ranks).map(|rank| rank * 10).collect::<Vec<_>>());
    }
}

#[test]
fn a_rank_computes_on_the_threads_of_its_pool() {
    for (n_ranks, threads_per_rank) in [(1, 1), (1, 3), (3, 1), (2, 4)] {
        let all = ranks(n_ranks, threads_per_rank).run(|mut comm| {
            comm.barrier(NEVER)?;
            let names: BTreeSet<String> =
                rayon::broadcast(|_| thread_name()).into_iter().chain([thread_name()]).collect();
            let in_loop: BTreeSet<String> = (0..1000).into_par_iter().map(|_| thread_name()).collect();
            assert!(in_loop.is_subset(&names));
            Ok((rayon::current_num_threads(), names))
        });
        for (rank, (n_threads, names)) in all.unwrap().into_iter().enumerate() {
            let expected: BTreeSet<String> =
                (0..threads_per_rank).map(|thread| format!("kiln-rank-{rank}-{thread}")).collect();
            assert_eq!((n_threads, names), (threads_per_rank, expected));
        }
    }
}

#[test]
fn machine_pool_has_the_threads_of_all_ranks() {
    let pool = ranks(3, 2).machine_pool().unwrap();
    assert_eq!((pool.current_num_threads(), pool.install(rayon::current_num_threads)), (6, 6));
}

#[test]
fn ranks_share_the_cores() {
    let n_cores = thread::available_parallelism().unwrap().get();
    assert_eq!(ThreadRanks::default(), ThreadRanks::of(1));
    assert_eq!((ThreadRanks::default().n_ranks, ThreadRanks::default().threads_per_rank), (1, n_cores));
    assert_eq!(ThreadRanks::default().deadline, Duration::from_secs(600));
    for n_ranks in 1..=n_cores {
        let ThreadRanks { threads_per_rank, .. } = ThreadRanks::of(n_ranks);
        assert!(n_ranks * threads_per_rank <= n_cores && n_cores < n_ranks * (threads_per_rank + 1));
    }
    assert_eq!(ThreadRanks::of(n_cores + 1).threads_per_rank, 1);
}

#[test]
fn invalid_numbers_of_ranks_and_threads_are_rejected() {
    let refused = |n_ranks, threads_per_rank| {
        let error = ranks(n_ranks, threads_per_rank).run(|_| Ok(())).unwrap_err();
        let same = ranks(n_ranks, threads_per_rank).machine_pool().unwrap_err();
        assert_eq!((error.to_string(), error.rank()), (same.to_string(), None));
        error
    };
    assert!(matches!(refused(0, 1), RankError::NoRanks));
    assert!(matches!(refused(1, 0), RankError::NoThreads));
    assert_eq!(
        refused(205, 5).to_string(),
        "205 ranks with 5 threads each exceed the limit of 1024 threads: use fewer, ideally one per core"
    );
    assert!(matches!(refused(usize::MAX, 2), RankError::TooManyThreads { max: 1024, .. }));
    assert!(matches!(ThreadRanks::of(0).run(|_| Ok(())), Err(RankError::NoRanks)));
}

#[derive(Debug, thiserror::Error)]
#[error("checkpoint is damaged")]
struct Damaged(#[source] std::io::Error);

fn damaged() -> Damaged {
    Damaged(std::io::Error::other("byte 7"))
}

/// Returns the texts of the error chain as anyhow prints it.
fn texts(error: RankError) -> Vec<String> {
    anyhow::Error::from(error).chain().map(ToString::to_string).collect()
}

#[test]
fn error_chain_contains_each_text_once() {
    let fails = |n_ranks| {
        ranks(n_ranks, 1).run(|mut comm| {
            if comm.rank_info().rank + 1 == n_ranks {
                return Err(damaged().into());
            }
            Ok(comm.barrier(NEVER)?)
        })
    };
    assert_eq!(texts(fails(1).unwrap_err()), ["checkpoint is damaged", "byte 7"]);
    assert_eq!(texts(fails(3).unwrap_err()), ["rank 2: checkpoint is damaged", "byte 7"]);
    let Err(RankError::Rank { rank: 2, n_ranks: 3, failure: Failure::Failed(error) }) = fails(3) else {
        panic!()
    };
    assert!(error.downcast_ref::<Damaged>().unwrap().source().is_some());

    let error = ranks(2, 1).run(|mut comm| {
        if comm.rank_info().rank == 0 {
            Err::<(), _>(damaged()).context("epoch 3")?;
        }
        Ok(comm.barrier(NEVER)?)
    });
    assert_eq!(texts(error.unwrap_err()), ["rank 0: epoch 3", "checkpoint is damaged", "byte 7"]);
}

/// The errors of the other ranks may occur long before that of the rank that caused them.
#[test]
fn returns_the_error_of_the_rank_that_caused_the_others() {
    for culprit in [0, 3] {
        let (sender, receiver) = mpsc::channel();
        let receiver = Mutex::new(receiver);
        let error = ranks(4, 1).run(|mut comm| {
            if comm.rank_info().rank == culprit {
                drop(comm);
                for _ in 0..3 {
                    receiver.lock().unwrap().recv()?;
                }
                return Err("out of memory".into());
            }
            let outcome = comm.barrier(NEVER);
            sender.send(())?;
            Ok(outcome?)
        });
        assert_eq!(error.unwrap_err().to_string(), format!("rank {culprit}: out of memory"));
    }
}

#[test]
fn a_panic_is_returned_with_its_message() {
    let run = |n_ranks, body: fn(Box<dyn Communicator>) -> Result<(), BoxError>| {
        ranks(n_ranks, 2).run(body).unwrap_err().to_string()
    };
    assert_eq!(run(1, |_| panic!("no such luck")), "panicked: no such luck");
    let at = "rank 1: panicked: ";
    assert_eq!(
        run(2, |mut comm| {
            if comm.rank_info().rank == 1 {
                std::panic::panic_any(7_u8);
            }
            Ok(comm.barrier(NEVER)?)
        }),
        format!("{at}a panic without a message")
    );
    // A parallel loop in the pool panics while the body waits for it.
    assert_eq!(
        run(2, |mut comm| {
            let rank = comm.rank_info().rank;
            (0..100).into_par_iter().for_each(|i| assert!((rank, i) != (1, 77), "item {i}"));
            Ok(comm.barrier(NEVER)?)
        }),
        format!("{at}item 77")
    );
    // A spawned job of the pool panics, and the body does not wait for it.
    assert_eq!(
        run(2, |mut comm| {
            if comm.rank_info().rank == 1 {
                rayon::spawn(|| panic!("left alone"));
                return Ok(());
            }
            comm.barrier(NEVER).map_err(|_| "the other rank is gone".into())
        }),
        format!("{at}left alone")
    );
    assert_eq!(
        run(1, |_| {
            rayon::spawn(|| panic!("left alone"));
            Ok(())
        }),
        "panicked: left alone"
    );
}

#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words for it")
    }
}

impl StdError for Unspeakable {}

/// Formatting the error runs user code after the body.
#[test]
fn a_panic_in_the_display_of_an_error_is_returned() {
    let error = ranks(2, 1).run(|mut comm| match comm.rank_info().rank {
        0 => Err(Unspeakable.into()),
        _ => Ok(comm.barrier(NEVER)?),
    });
    assert_eq!(error.unwrap_err().to_string(), "rank 0: panicked: no words for it");
}

/// No thread of a rank runs after `run` has returned, and jobs spawned in its pool have completed.
#[test]
fn run_waits_for_all_jobs_of_the_pools() {
    let n_done = Arc::new(AtomicUsize::new(0));
    ranks(2, 2)
        .run(|_| {
            for _ in 0..100 {
                let n_done = Arc::clone(&n_done);
                rayon::spawn(move || {
                    n_done.fetch_add(1, Ordering::SeqCst);
                });
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(n_done.load(Ordering::SeqCst), 200);
    assert_eq!(Arc::strong_count(&n_done), 1);
}

/// A body may return its communicator, but no other rank exists any more.
#[test]
fn collectives_fail_on_a_communicator_that_outlives_its_rank() {
    let mut comms = ranks(2, 1).run(|mut comm| {
        comm.set_step(8);
        Ok(comm)
    });
    let comm = &mut comms.as_mut().unwrap()[1];
    let gone = |collective| {
        format!(
            "{collective}: rank 1 left in step 8: it returned without an error, or dropped its communicator; \
             all ranks must call the same collectives"
        )
    };
    assert_eq!(comm.barrier(NEVER).unwrap_err().to_string(), gone("barrier (collective 1)"));
    let mut channel = comm.duplicate("x").unwrap();
    assert_eq!(channel.barrier(NEVER).unwrap_err().to_string(), gone("barrier (collective 1)"));
}
