//! Tests the results of collectives against a plain loop over the ranks.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use kiln_comm::{Communicator, Error, RankInfo, Reduce, SingleRank, ThreadGroup, ThreadRanks};

/// A deadline that no rank reaches.
const DEADLINE: Duration = Duration::from_secs(600);
const N_RANKS: [usize; 5] = [1, 2, 3, 4, 7];
/// The number of repetitions. In each, the threads may reach a collective in a different order.
const N_REPEATS: usize = 50;

/// Runs `body` on ranks with one thread each, and returns the results by rank.
fn run<R: Send>(n_ranks: usize, body: impl Fn(&mut dyn Communicator, usize) -> R + Sync) -> Vec<R> {
    let ranks = ThreadRanks { n_ranks, threads_per_rank: 1, deadline: DEADLINE };
    let outcome = ranks.run(|mut comm| {
        let rank = comm.rank_info().rank;
        Ok(body(comm.as_mut(), rank))
    });
    outcome.unwrap()
}

/// Returns the `i`-th word of a pseudo-random stream of one rank.
fn bits(rank: usize, i: usize) -> u64 {
    let mixed = ((rank as u64) << 32 | i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Returns floats of both signs with magnitudes from 2^-40 to 2^41.
fn wild(rank: usize, n: usize) -> Vec<f32> {
    let value = |i| {
        let bits = bits(rank, i);
        let exponent = 127 - 40 + (bits >> 40) % 81;
        f32::from_bits((bits as u32 & 0x807f_ffff) | (exponent as u32) << 23)
    };
    (0..n).map(value).collect()
}

fn bytes(rank: usize, n: usize) -> Vec<u8> {
    (0..n).map(|i| bits(rank, i) as u8).collect()
}

/// Returns the bits of the sums over the ranks, where the values are added in this order of the ranks.
fn sum_in_order(order: &[usize], n: usize) -> Vec<u32> {
    let mut sums = wild(order[0], n);
    for rank in &order[1..] {
        for (sum, value) in sums.iter_mut().zip(wild(*rank, n)) {
            *sum += value;
        }
    }
    sums.into_iter().map(f32::to_bits).collect()
}

#[test]
fn floats_are_summed_in_the_order_of_the_ranks() {
    for n_ranks in N_RANKS {
        let order: Vec<usize> = (0..n_ranks).collect();
        let expected = sum_in_order(&order, 1000);
        for moved in 1..n_ranks {
            // Other orders must give other sums, except with two ranks, whose sum does not depend on the order.
            let mut other = order.clone();
            other.rotate_left(moved);
            assert!(n_ranks == 2 || sum_in_order(&other, 1000) != expected);
        }
        for _ in 0..N_REPEATS {
            let all = run(n_ranks, |comm, rank| {
                let mut buf = wild(rank, 1000);
                comm.all_reduce_sum(Reduce::F32(&mut buf)).unwrap();
                buf.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert!(all.iter().all(|sums| *sums == expected), "{n_ranks} ranks");
        }
    }
}

#[test]
fn the_first_two_ranks_are_summed_first() {
    let sum = |values: [f32; 3]| {
        let all = run(3, |comm, rank| {
            let mut buf = [values[rank]];
            comm.all_reduce_sum(Reduce::F32(&mut buf)).unwrap();
            buf[0].to_bits()
        });
        assert!(all.iter().all(|sum| *sum == all[0]));
        f32::from_bits(all[0])
    };
    assert_eq!(sum([1e8, 1.0, -1e8]), 0.0);
    assert_eq!(sum([1e8, -1e8, 1.0]), 1.0);
    assert!(sum([-0.0; 3]).is_sign_negative());
    assert_eq!(sum([f32::INFINITY, 1.0, 2.0]), f32::INFINITY);
    assert!(sum([f32::INFINITY, f32::NEG_INFINITY, 0.0]).is_nan());
}

#[test]
fn counts_wrap_on_overflow() {
    for n_ranks in N_RANKS {
        let expected: Vec<u64> = (0..100)
            .map(|i| (0..n_ranks).fold(0, |sum: u64, rank| sum.wrapping_add(bits(rank, i))))
            .collect();
        let all = run(n_ranks, |comm, rank| {
            let mut buf: Vec<u64> = (0..100).map(|i| bits(rank, i)).collect();
            comm.all_reduce_sum(Reduce::U64(&mut buf)).unwrap();
            buf
        });
        assert!(all.iter().all(|sums| *sums == expected), "{n_ranks} ranks");
    }
    let all = run(2, |comm, rank| {
        let mut buf = [[u64::MAX, 3][rank]];
        comm.all_reduce_sum(Reduce::U64(&mut buf)).unwrap();
        buf
    });
    assert_eq!(all, [[2], [2]]);
}

/// The buffers of one communicator grow and shrink; some lengths are close to the number of ranks.
#[test]
fn consecutive_sums_may_differ_in_length() {
    const LENGTHS: [usize; 9] = [0, 1, 2, 1000, 3, 0, 6, 7, 8];
    for n_ranks in N_RANKS {
        run(n_ranks, |comm, rank| {
            for n in LENGTHS {
                let mut floats: Vec<f32> = (0..n).map(|i| (rank * 10 + i) as f32).collect();
                let mut counts: Vec<u64> = (0..n).map(|i| (rank * 10 + i) as u64).collect();
                comm.all_reduce_sum(Reduce::F32(&mut floats)).unwrap();
                comm.all_reduce_sum(Reduce::U64(&mut counts)).unwrap();
                let sum = |i| (n_ranks * (n_ranks - 1) / 2 * 10 + n_ranks * i) as u64;
                assert_eq!(counts, (0..n).map(sum).collect::<Vec<_>>());
                assert_eq!(floats, (0..n).map(|i| sum(i) as f32).collect::<Vec<_>>());
            }
        });
    }
}

#[test]
fn all_gather_returns_the_bytes_of_all_ranks() {
    // Each rank sends a different length; rank 0 sends nothing.
    let sent = |rank: usize| bytes(rank, rank * 37);
    for n_ranks in N_RANKS {
        let expected: Vec<Vec<u8>> = (0..n_ranks).map(sent).collect();
        let all = run(n_ranks, |comm, rank| comm.all_gather(&sent(rank)).unwrap());
        assert!(all.iter().all(|gathered| *gathered == expected), "{n_ranks} ranks");
        let all = run(n_ranks, |comm, _| comm.all_gather(&[]).unwrap());
        assert!(all.iter().all(|gathered| *gathered == vec![Vec::<u8>::new(); n_ranks]));
    }
}

#[test]
fn all_to_all_delivers_each_message_to_its_rank() {
    // Each message depends on its sender and its receiver. Some messages are empty.
    let sent = |from: usize, to: usize| bytes(from * 10 + to, (from * 3 + to * 5) % 7);
    for n_ranks in N_RANKS {
        for _ in 0..N_REPEATS {
            let all = run(n_ranks, |comm, rank| {
                let send: Vec<Vec<u8>> = (0..n_ranks).map(|to| sent(rank, to)).collect();
                comm.all_to_all(&send).unwrap()
            });
            for (to, received) in all.into_iter().enumerate() {
                let expected: Vec<Vec<u8>> = (0..n_ranks).map(|from| sent(from, to)).collect();
                assert_eq!(received, expected, "rank {to} of {n_ranks}");
            }
        }
    }
}

#[test]
fn broadcast_copies_the_bytes_of_the_root() {
    for n_ranks in N_RANKS {
        let all = run(n_ranks, |comm, rank| {
            let broadcast = |root| {
                // The previous content of the buffer is longer or shorter than the root's data.
                let mut buf = bytes(rank, 5 * rank);
                comm.broadcast(root, &mut buf).unwrap();
                buf
            };
            (0..n_ranks).map(broadcast).collect::<Vec<_>>()
        });
        let expected: Vec<Vec<u8>> = (0..n_ranks).map(|root| bytes(root, 5 * root)).collect();
        assert!(all.iter().all(|got| *got == expected), "{n_ranks} ranks");
    }
}

/// No rank returns from the barrier before every rank has counted itself.
#[test]
fn a_barrier_waits_for_all_ranks() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for n_ranks in N_RANKS {
        let n_come = AtomicUsize::new(0);
        run(n_ranks, |comm, _| {
            for round in 1..=N_REPEATS {
                n_come.fetch_add(1, Ordering::SeqCst);
                comm.barrier(DEADLINE).unwrap();
                assert_eq!(n_come.load(Ordering::SeqCst), round * n_ranks);
                comm.barrier(DEADLINE).unwrap();
            }
        });
    }
}

#[test]
fn rank_info_matches_the_rank() {
    for n_ranks in N_RANKS {
        let all = run(n_ranks, |comm, _| comm.rank_info());
        let expected = |rank| RankInfo { rank, world_size: n_ranks, local_rank: rank };
        assert_eq!(all, (0..n_ranks).map(expected).collect::<Vec<_>>());
    }
}

/// [`SingleRank`] and a [`ThreadGroup`] of one rank must return the same results and errors.
#[test]
fn thread_group_of_one_behaves_like_single_rank() {
    let thread_group = ThreadGroup::new(1, DEADLINE).remove(0);
    let comms: [Box<dyn Communicator>; 2] = [Box::new(SingleRank::new()), Box::new(thread_group)];
    for mut comm in comms {
        assert_eq!(comm.rank_info(), RankInfo { rank: 0, world_size: 1, local_rank: 0 });
        let mut buf = [f32::MIN_POSITIVE, -0.0];
        comm.all_reduce_sum(Reduce::F32(&mut buf)).unwrap();
        assert_eq!(buf.map(f32::to_bits), [f32::MIN_POSITIVE, -0.0].map(f32::to_bits));
        assert_eq!(comm.all_gather(b"abc").unwrap(), [b"abc"]);
        assert_eq!(comm.all_to_all(&[b"abc".to_vec()]).unwrap(), [b"abc"]);
        let mut bytes = b"abc".to_vec();
        comm.broadcast(0, &mut bytes).unwrap();
        assert_eq!(bytes, b"abc");
        comm.barrier(Duration::ZERO).unwrap();
        comm.subgroup(&[0]).unwrap().duplicate("x").unwrap().barrier(DEADLINE).unwrap();

        assert_eq!(comm.all_to_all(&[]), Err(Error::SendCount { world_size: 1, got: 0 }));
        assert_eq!(comm.broadcast(1, &mut bytes), Err(Error::NoSuchRank { rank: 1, world_size: 1 }));
        for ranks in [&[][..], &[1], &[0, 0], &[0, 1]] {
            let expected = Error::BadSubgroup { ranks: ranks.to_vec(), rank: 0, world_size: 1 };
            assert_eq!(comm.subgroup(ranks).unwrap_err(), expected);
        }
    }
}

#[test]
fn invalid_arguments_are_rejected_without_ending_the_group() {
    run(3, |comm, rank| {
        let send = vec![Vec::new(); 2];
        assert_eq!(comm.all_to_all(&send), Err(Error::SendCount { world_size: 3, got: 2 }));
        let error = comm.broadcast(3, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "rank 3 does not exist in a group of 3: ranks count from 0");
        let others: Vec<usize> = (0..3).filter(|other| *other != rank).collect();
        for ranks in [&others[..], &[0, 1, 2, 0], &[0, 1, 2, 3], &[]] {
            let expected = Error::BadSubgroup { ranks: ranks.to_vec(), rank, world_size: 3 };
            assert_eq!(comm.subgroup(ranks).unwrap_err(), expected);
        }
        comm.barrier(DEADLINE).unwrap();
    });
}
