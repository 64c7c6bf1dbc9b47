//! Property tests with random programs of collectives, with and without a failing rank.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kiln_comm::{BoxError, Communicator, Error, Failure, RankError, Reduce, ThreadRanks};
use proptest::prelude::*;

const N_RANKS: usize = 4;
/// A deadline that is never reached: a rank that waits for it hangs the test.
const NEVER: Duration = Duration::from_secs(1_000_000);

#[derive(Debug, Clone, Copy)]
enum Op {
    F32(usize),
    U64(usize),
    Gather,
    AllToAll,
    /// A broadcast whose root is this number modulo the size of the group.
    Broadcast(usize),
    Barrier,
}

/// An operation and the index of its group in [`groups`].
type Step = (usize, Op);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Panic,
    Fail,
    Return,
}

/// The members of each group, in the order of [`groups`].
const MEMBERS: [&[usize]; 5] = [&[0, 1, 2, 3], &[0, 1, 2, 3], &[2, 0], &[2, 0], &[3, 1, 0]];

fn groups(
    mut comm: Box<dyn Communicator>,
    rank: usize,
) -> kiln_comm::Result<Vec<Option<Box<dyn Communicator>>>> {
    let mut channel = comm.duplicate("a")?;
    let mut pair = MEMBERS[2].contains(&rank).then(|| comm.subgroup(MEMBERS[2])).transpose()?;
    let of_pair = pair.as_mut().map(|pair| pair.duplicate("a")).transpose()?;
    let three = MEMBERS[4].contains(&rank).then(|| channel.subgroup(MEMBERS[4])).transpose()?;
    Ok(vec![Some(comm), Some(channel), pair, of_pair, three])
}

fn float(rank: usize, step: usize, i: usize) -> f32 {
    let sign = if (rank + i).is_multiple_of(2) { 1.0 } else { -1.0 };
    sign * (1.0 + rank as f32 / 3.0) * 10_f32.powi(((rank * 5 + step * 3 + i * 7) % 16) as i32 - 8)
}

fn count(rank: usize, step: usize, i: usize) -> u64 {
    (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (step * 31 + i) as u64
}

fn message(from: usize, to: usize, step: usize) -> Vec<u8> {
    vec![(from * 16 + to) as u8; (from + 2 * to + step) % 5]
}

/// Runs one collective and compares its result with the inputs of the members.
fn make(
    comm: &mut dyn Communicator,
    members: &[usize],
    op: Op,
    step: usize,
    rank: usize,
) -> kiln_comm::Result<()> {
    match op {
        Op::F32(n) => {
            let mut buf: Vec<f32> = (0..n).map(|i| float(rank, step, i)).collect();
            comm.all_reduce_sum(Reduce::F32(&mut buf))?;
            let values = |i| members.iter().map(move |rank| float(*rank, step, i));
            let sum = |i| values(i).reduce(|sum, value| sum + value).unwrap().to_bits();
            let bits: Vec<u32> = buf.iter().map(|sum| sum.to_bits()).collect();
            assert_eq!(bits, (0..n).map(sum).collect::<Vec<_>>());
        }
        Op::U64(n) => {
            let mut buf: Vec<u64> = (0..n).map(|i| count(rank, step, i)).collect();
            comm.all_reduce_sum(Reduce::U64(&mut buf))?;
            let sum = |i| members.iter().fold(0_u64, |sum, rank| sum.wrapping_add(count(*rank, step, i)));
            assert_eq!(buf, (0..n).map(sum).collect::<Vec<_>>());
        }
        Op::Gather => {
            let gathered = comm.all_gather(&message(rank, 0, step))?;
            assert_eq!(gathered, members.iter().map(|from| message(*from, 0, step)).collect::<Vec<_>>());
        }
        Op::AllToAll => {
            let send: Vec<Vec<u8>> = members.iter().map(|to| message(rank, *to, step)).collect();
            let received = comm.all_to_all(&send)?;
            assert_eq!(received, members.iter().map(|from| message(*from, rank, step)).collect::<Vec<_>>());
        }
        Op::Broadcast(root) => {
            let root = root % members.len();
            let mut bytes = message(rank, 1, step);
            comm.broadcast(root, &mut bytes)?;
            assert_eq!(bytes, message(members[root], 1, step));
        }
        Op::Barrier => comm.barrier(NEVER)?,
    }
    Ok(())
}

/// Runs the program. `fault` contains the rank at fault, and the number of its collectives before the fault.
fn run(
    program: &[Step],
    fault: Option<(usize, usize, Fault)>,
    n_ended: &AtomicUsize,
) -> Result<Vec<()>, RankError> {
    ThreadRanks { n_ranks: N_RANKS, threads_per_rank: 1, deadline: NEVER }.run(|comm| {
        let rank = comm.rank_info().rank;
        let outcome = (|| -> Result<(), BoxError> {
            let mut groups = groups(comm, rank)?;
            let mut n_made = 0;
            for (step, (group, op)) in program.iter().enumerate() {
                let Some(comm) = &mut groups[*group] else { continue };
                if let Some((_, _, fault)) = fault.filter(|(other, at, _)| (*other, *at) == (rank, n_made)) {
                    match fault {
                        Fault::Panic => {
                            n_ended.fetch_add(1, Ordering::SeqCst);
                            panic!("requested");
                        }
                        Fault::Fail => return Err("requested".into()),
                        Fault::Return => return Ok(()),
                    }
                }
                comm.set_step(step as u64);
                make(comm.as_mut(), MEMBERS[*group], *op, step, rank)?;
                n_made += 1;
            }
            Ok(())
        })();
        n_ended.fetch_add(1, Ordering::SeqCst);
        outcome
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..40_usize).prop_map(Op::F32),
        (0..40_usize).prop_map(Op::U64),
        Just(Op::Gather),
        Just(Op::AllToAll),
        (0..N_RANKS).prop_map(Op::Broadcast),
        Just(Op::Barrier),
    ]
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..MEMBERS.len(), op()), 1..40)
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![Just(Fault::Panic), Just(Fault::Fail), Just(Fault::Return)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn random_programs_of_collectives_equal_a_sequential_loop(program in program()) {
        run(&program, None, &AtomicUsize::new(0)).unwrap();
    }

    #[test]
    fn all_ranks_end_after_a_fault_of_any_rank_at_any_place(
        program in program(), rank in 0..N_RANKS, place in 0.0..1.0, fault in fault(),
    ) {
        let own: Vec<&[usize]> =
            program.iter().map(|(group, _)| MEMBERS[*group]).filter(|members| members.contains(&rank)).collect();
        prop_assume!(!own.is_empty());
        let at = (place * own.len() as f64) as usize;
        let n_ended = AtomicUsize::new(0);
        let outcome = run(&program, Some((rank, at, fault)), &n_ended);
        prop_assert_eq!(n_ended.into_inner(), N_RANKS);
        let Err(RankError::Rank { rank: told, failure, .. }) = outcome else {
            return Err(TestCaseError::fail("the run should fail"));
        };
        match (fault, failure) {
            (Fault::Panic, Failure::Panicked { message }) => prop_assert_eq!((told, &*message), (rank, "requested")),
            (Fault::Fail, Failure::Failed(error)) => {
                prop_assert_eq!((told, error.to_string()), (rank, "requested".to_owned()));
            }
            (Fault::Return, Failure::Failed(error)) => {
                let Some(Error::Over { rank: first, .. }) = error.downcast_ref() else { panic!("{error}") };
                prop_assert_eq!(*first, rank);
            }
            (_, failure) => panic!("{failure}"),
        }
    }
}
