//! Tests of channels and subgroups: their members, and that their collectives are independent.
#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::Duration;

use kiln_comm::{Communicator, RankInfo, Reduce, ThreadGroup, ThreadRanks};

/// A deadline that no rank reaches.
const DEADLINE: Duration = Duration::from_secs(600);

fn run<R: Send>(n_ranks: usize, body: impl Fn(Box<dyn Communicator>, usize) -> R + Sync) -> Vec<R> {
    let ranks = ThreadRanks { n_ranks, threads_per_rank: 1, deadline: DEADLINE };
    let outcome = ranks.run(|comm| {
        let rank = comm.rank_info().rank;
        Ok(body(comm, rank))
    });
    outcome.unwrap()
}

/// Returns the sum of `value` over the ranks of the group.
fn sum(comm: &mut dyn Communicator, value: u64) -> u64 {
    let mut buf = [value];
    comm.all_reduce_sum(Reduce::U64(&mut buf)).unwrap();
    buf[0]
}

/// Returns the values of the group's ranks, by rank.
fn gather(comm: &mut dyn Communicator, value: u8) -> Vec<u8> {
    comm.all_gather(&[value]).unwrap().concat()
}

#[test]
fn a_subgroup_is_ranked_by_its_list() {
    let all = run(5, |mut comm, rank| {
        let ranks = if rank % 2 == 0 { vec![4, 0, 2] } else { vec![3, 1] };
        let mut group = comm.subgroup(&ranks).unwrap();
        (group.rank_info(), gather(group.as_mut(), rank as u8), gather(comm.as_mut(), rank as u8))
    });
    let places = [(1, 3), (1, 2), (2, 3), (0, 2), (0, 3)];
    for (rank, (rank_info, members, everybody)) in all.into_iter().enumerate() {
        let (place, world_size) = places[rank];
        assert_eq!(rank_info, RankInfo { rank: place, world_size, local_rank: rank });
        assert_eq!(members, if rank % 2 == 0 { vec![4, 0, 2] } else { vec![3, 1] });
        assert_eq!(everybody, [0, 1, 2, 3, 4]);
    }
}

#[test]
fn sums_of_a_subgroup_are_in_the_order_of_its_ranks() {
    let values = [1e8_f32, 1.0, -1e8];
    let sum = |ranks: [usize; 3]| {
        let all = run(3, |mut comm, rank| {
            let mut buf = [values[rank]];
            comm.subgroup(&ranks).unwrap().all_reduce_sum(Reduce::F32(&mut buf)).unwrap();
            buf[0]
        });
        assert!(all.iter().all(|sum| *sum == all[0]));
        all[0]
    };
    assert_eq!((sum([0, 1, 2]), sum([2, 0, 1])), (0.0, 1.0));
}

#[test]
fn the_root_of_a_subgroup_is_one_of_its_ranks() {
    let all = run(3, |mut comm, rank| {
        let mut bytes = vec![rank as u8];
        if rank > 0 {
            comm.subgroup(&[2, 1]).unwrap().broadcast(0, &mut bytes).unwrap();
        }
        bytes
    });
    assert_eq!(all, [[0], [2], [2]]);
}

/// The ranks create the channels in different orders and use each in its own thread, while the body uses the world.
#[test]
fn threads_of_each_rank_use_channels_concurrently() {
    run(3, |mut comm, rank| {
        let names = if rank == 1 { ["ahead", "behind"] } else { ["behind", "ahead"] };
        let channels = names.map(|name| (name, comm.duplicate(name).unwrap()));
        thread::scope(|scope| {
            for (name, mut channel) in channels {
                scope.spawn(move || {
                    let step = if name == "ahead" { 7 } else { 11 };
                    for i in 0..200 {
                        assert_eq!(sum(channel.as_mut(), i * step + rank as u64), 3 * i * step + 3);
                    }
                });
            }
            for i in 0..200 {
                assert_eq!(sum(comm.as_mut(), i), 3 * i);
            }
        });
    });
}

/// A collective in a channel does not wait for an incomplete one in the world.
#[test]
fn channels_do_not_wait_for_each_other() {
    run(2, |mut comm, rank| {
        let mut channel = comm.duplicate("x").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                if rank == 0 {
                    comm.barrier(DEADLINE).unwrap();
                }
            });
            for _ in 0..10 {
                channel.barrier(DEADLINE).unwrap();
            }
        });
        if rank == 1 {
            comm.barrier(DEADLINE).unwrap();
        }
    });
}

#[test]
fn a_repeated_name_creates_another_channel() {
    run(2, |mut comm, rank| {
        let mut first = comm.duplicate("x").unwrap();
        let mut second = comm.duplicate("x").unwrap();
        let mut other = comm.duplicate("y").unwrap();
        // The threads reach the channels in any order, which may differ between the ranks.
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(gather(first.as_mut(), 10 + rank as u8), [10, 11]));
            scope.spawn(|| assert_eq!(gather(other.as_mut(), 30 + rank as u8), [30, 31]));
            assert_eq!(gather(second.as_mut(), 20 + rank as u8), [20, 21]);
        });
        drop((first, second));
        // A repeated name also creates another channel after the earlier channels with this name were dropped.
        for round in 0..20 {
            assert_eq!(gather(comm.duplicate("x").unwrap().as_mut(), round), [round, round]);
        }
        let mut pair = comm.subgroup(&[0, 1]).unwrap();
        assert_eq!(gather(pair.as_mut(), 1), [1, 1]);
        assert_eq!(gather(comm.subgroup(&[0, 1]).unwrap().as_mut(), 2), [2, 2]);
    });
}

#[test]
fn channels_and_subgroups_nest() {
    run(4, |mut comm, rank| {
        let mut channel = comm.duplicate("x").unwrap();
        let half = if rank < 2 { [1, 0] } else { [3, 2] };
        let mut of_channel = channel.subgroup(&half).unwrap();
        let mut of_world = comm.subgroup(&half).unwrap();
        let mut channel_of_half = of_world.duplicate("x").unwrap();
        // The list contains a rank of the group `channel_of_half`, not of the world. The local rank stays that of the
        // world.
        let mut alone = channel_of_half.subgroup(&[channel_of_half.rank_info().rank]).unwrap();
        assert_eq!(alone.rank_info(), RankInfo { rank: 0, world_size: 1, local_rank: rank });
        // Groups outlive their parents.
        drop((channel, of_world));
        let expected = half.map(|rank| rank as u8);
        assert_eq!(gather(channel_of_half.as_mut(), rank as u8), expected);
        assert_eq!(gather(of_channel.as_mut(), rank as u8), expected);
        assert_eq!(gather(alone.as_mut(), rank as u8), [rank as u8]);
        assert_eq!(gather(comm.as_mut(), rank as u8), [0, 1, 2, 3]);
    });
}

#[test]
fn a_rank_may_create_its_channel_long_after_another() {
    let mut comms = ThreadGroup::new(2, DEADLINE).into_iter();
    let (mut first, mut second) = (comms.next().unwrap(), comms.next().unwrap());
    let early: Vec<_> = (0..3).map(|_| first.duplicate("x").unwrap()).collect();
    let late: Vec<_> = (0..3).map(|_| second.duplicate("x").unwrap()).collect();
    thread::scope(|scope| {
        for (i, mut channel) in early.into_iter().enumerate() {
            scope.spawn(move || assert_eq!(gather(channel.as_mut(), i as u8), [i as u8, 10 + i as u8]));
        }
        for (i, mut channel) in late.into_iter().enumerate().rev() {
            assert_eq!(gather(channel.as_mut(), 10 + i as u8), [i as u8, 10 + i as u8]);
        }
    });
}
