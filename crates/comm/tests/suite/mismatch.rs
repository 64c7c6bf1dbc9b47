//! Tests of ranks that call different collectives.
#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::Duration;

use kiln_comm::{Communicator, Error, Reduce, Result, ThreadGroup};

/// A deadline that is never reached: a rank that waits for it hangs the test.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// A collective that a rank calls.
#[derive(Debug, Clone, Copy)]
enum Call {
    F32(usize),
    U64(usize),
    Gather,
    AllToAll,
    Broadcast(usize),
    Barrier,
}

impl Call {
    fn make(self, comm: &mut dyn Communicator) -> Result<()> {
        match self {
            Self::F32(n) => comm.all_reduce_sum(Reduce::F32(&mut vec![1.0; n])),
            Self::U64(n) => comm.all_reduce_sum(Reduce::U64(&mut vec![1; n])),
            Self::Gather => comm.all_gather(&[1, 2]).map(drop),
            Self::AllToAll => comm.all_to_all(&vec![Vec::new(); comm.rank_info().world_size]).map(drop),
            Self::Broadcast(root) => comm.broadcast(root, &mut Vec::new()),
            Self::Barrier => comm.barrier(NEVER),
        }
    }
}

/// Runs three ranks of which the last one calls `other`, and checks the errors of all.
fn check_mismatch(call: Call, other: Call, texts: [&str; 2]) {
    let comms = ThreadGroup::new(3, NEVER);
    let errors: Vec<Error> = thread::scope(|scope| {
        let rank = |(rank, mut comm): (usize, ThreadGroup)| {
            scope.spawn(move || {
                comm.barrier(NEVER).unwrap();
                comm.set_step(5 + rank as u64);
                let call = if rank == 2 { other } else { call };
                let error = call.make(&mut comm).unwrap_err();
                // The mismatch is detected before the drop of any communicator.
                assert!(comm.barrier(NEVER).is_err());
                error
            })
        };
        let threads: Vec<_> = comms.into_iter().enumerate().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let [text, other] = texts;
    // The rank that called first is named first.
    let expected = [0, 1].map(|rank| {
        let (first, second) = (format!("rank {rank} is in {text}"), format!("rank 2 is in {other}"));
        let steps = (format!("in step {}", 5 + rank), "in step 7");
        let start = "ranks called different collectives";
        let end = "all ranks must call the same collectives in the same order";
        [
            format!("{start}: {first} (collective 2), {}; {second}, {}; {end}", steps.0, steps.1),
            format!("{start}: {second} (collective 2), {}; {first}, {}; {end}", steps.1, steps.0),
        ]
    });
    for error in &errors {
        assert_eq!(error.to_string(), errors[0].to_string());
        assert!(expected.concat().contains(&error.to_string()), "{error}");
    }
}

#[test]
fn ranks_in_different_collectives_are_both_named() {
    let kinds = [
        (Call::F32(3), "all_reduce_sum of 3 f32"),
        (Call::Gather, "all_gather"),
        (Call::AllToAll, "all_to_all"),
        (Call::Broadcast(1), "broadcast from rank 1"),
        (Call::Barrier, "barrier"),
    ];
    for (i, (call, text)) in kinds.iter().enumerate() {
        for (j, (other, other_text)) in kinds.iter().enumerate() {
            if i != j {
                check_mismatch(*call, *other, [text, other_text]);
            }
        }
    }
}

#[test]
fn different_lengths_are_a_mismatch_error() {
    check_mismatch(Call::F32(5), Call::F32(6), ["all_reduce_sum of 5 f32", "all_reduce_sum of 6 f32"]);
    check_mismatch(Call::U64(0), Call::U64(1), ["all_reduce_sum of 0 u64", "all_reduce_sum of 1 u64"]);
}

#[test]
fn different_element_types_are_a_mismatch_error() {
    check_mismatch(Call::F32(5), Call::U64(5), ["all_reduce_sum of 5 f32", "all_reduce_sum of 5 u64"]);
    check_mismatch(Call::F32(0), Call::U64(0), ["all_reduce_sum of 0 f32", "all_reduce_sum of 0 u64"]);
}

#[test]
fn different_roots_are_a_mismatch_error() {
    check_mismatch(
        Call::Broadcast(0),
        Call::Broadcast(2),
        ["broadcast from rank 0", "broadcast from rank 2"],
    );
}

/// Messages contain ranks and roots of the world, also for a subgroup.
#[test]
fn mismatch_in_a_subgroup_names_ranks_of_the_world() {
    let comms = ThreadGroup::new(3, NEVER);
    let errors: Vec<Option<Error>> = thread::scope(|scope| {
        let rank = |(rank, mut comm): (usize, ThreadGroup)| {
            scope.spawn(move || {
                let mut pair = if rank > 0 { comm.subgroup(&[2, 1]).unwrap() } else { return None };
                let error = pair.broadcast(rank - 1, &mut Vec::new()).unwrap_err();
                assert!(comm.barrier(NEVER).is_err());
                Some(error)
            })
        };
        let threads: Vec<_> = comms.into_iter().enumerate().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // Rank 1 passes root 0 of the subgroup [2, 1], which is rank 2 of the world.
    let text = errors[1].as_ref().unwrap().to_string();
    let place = "(collective 1 of subgroup [2, 1]), before its first step";
    let texts = [
        format!("rank 1 is in broadcast from rank 2 {place}; rank 2 is in broadcast from rank 1, "),
        format!("rank 2 is in broadcast from rank 1 {place}; rank 1 is in broadcast from rank 2, "),
    ];
    assert!(texts.iter().any(|expected| text.contains(expected)), "{text}");
    assert_eq!(errors[2].as_ref().unwrap().to_string(), text);
}
