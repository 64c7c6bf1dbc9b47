//! The bodies that ranks run in these tests.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use anyhow::{Context, bail};
use kiln_comm::{CommBackend, Communicator, Rank, RankConfig, Reduce, launch};

use crate::start::{DEADLINE, deadline};

/// The deadline of a barrier that a rank misses.
const SHORT: Duration = Duration::from_secs(3);

/// A time that is longer than any job of these tests.
const FOREVER: Duration = Duration::from_secs(3600);

/// Runs the body of this name.
pub(crate) fn run(name: &str, mut comm: Box<dyn Communicator>) -> anyhow::Result<()> {
    let rank = comm.rank_info().rank;
    match name {
        "collectives" => {
            let digest = collectives(comm)?;
            println!("digest of rank {rank}: {digest:016x}");
            Ok(())
        }
        "value" | "machine" => Ok(comm.barrier(Duration::from_secs(60))?),
        "mismatch" => {
            meet(&mut *comm, 3, DEADLINE)?;
            comm.set_step(3);
            Ok(comm.all_reduce_sum(Reduce::F32(&mut vec![1.0; if rank == 1 { 6 } else { 5 }]))?)
        }
        "panic" | "panic in a thread" | "failure" | "transient failure" => {
            meet(&mut *comm, 3, DEADLINE)?;
            comm.set_step(3);
            comm.set_stage("forward");
            match (name, rank) {
                ("panic", 1) => panic!("the lights went out"),
                ("panic in a thread", 1) => {
                    let _ = std::thread::spawn(|| panic!("the lights went out")).join();
                    std::thread::sleep(FOREVER);
                }
                ("failure" | "transient failure", 2) => {
                    comm.set_stage("backward");
                    Err::<(), _>(std::io::Error::other("no space left")).context("the disk is full")?;
                }
                _ => {}
            }
            meet(&mut *comm, u64::MAX, DEADLINE)
        }
        "early" => {
            meet(&mut *comm, 3, DEADLINE)?;
            if rank == 1 { Ok(()) } else { Ok(comm.all_reduce_sum(Reduce::U64(&mut [1]))?) }
        }
        "steps" | "dropped" => meet(&mut *comm, u64::MAX, DEADLINE),
        "some steps" => meet(&mut *comm, 120, deadline()),
        "steps until told" => meet_until(&mut *comm, &std::env::var("KILN_TEST_END")?),
        "asleep" => {
            meet(&mut *comm, 7, DEADLINE)?;
            comm.set_step(7);
            if rank == 1 {
                comm.set_stage("sample");
                std::thread::sleep(FOREVER);
            }
            meet(&mut *comm, u64::MAX, SHORT)
        }
        "device" => {
            meet(&mut *comm, 3, DEADLINE)?;
            comm.set_step(3);
            let mut n_sums = 0;
            comm.device_sum(5, &mut || n_sums += 1)?;
            println!("{n_sums} sums");
            Ok(comm.device_sum(5, &mut || std::thread::sleep(FOREVER))?)
        }
        _ => bail!("there is no body `{name}`"),
    }
}

/// Runs a program as a user writes it, with `launch`: the ranks are threads, or this process is one of several.
pub(crate) fn launched(engine: CommBackend) {
    let sums =
        launch(RankConfig::from_env_or_threads(2).backend(engine), |Rank { mut comm, info, threads }| {
            let mut sum = [info.rank as f32, 1.0];
            comm.all_reduce_sum(Reduce::F32(&mut sum))?;
            println!(
                "rank {} of {}, local rank {}, at least {} thread",
                info.rank,
                info.world_size,
                info.local_rank,
                threads.min(1)
            );
            Ok::<_, kiln_comm::Error>(sum)
        });
    println!("sums {:?}", sums.expect("the ranks should run"));
}

/// Calls a barrier with this deadline in each step, after 20 ms. Rank 0 prints the step.
fn meet(comm: &mut dyn Communicator, n_steps: u64, deadline: Duration) -> anyhow::Result<()> {
    let rank = comm.rank_info().rank;
    for step in 0..n_steps {
        comm.set_step(step);
        comm.set_stage("steps");
        if rank == 0 {
            println!("step {step}");
        }
        std::thread::sleep(Duration::from_millis(20));
        comm.barrier(deadline)?;
    }
    Ok(())
}

/// Opens a file and sums a value in each step, after 20 ms, until rank 0 finds `file`. Rank 0 prints the
/// step.
fn meet_until(comm: &mut dyn Communicator, file: &str) -> anyhow::Result<()> {
    let rank = comm.rank_info().rank;
    for step in 0.. {
        comm.set_step(step);
        if rank == 0 {
            println!("step {step}");
        }
        std::thread::sleep(Duration::from_millis(20));
        std::fs::File::open("/dev/null").context("a checkpoint")?;
        // All ranks learn of the file in the same step.
        let mut n_found = [u64::from(rank == 0 && std::path::Path::new(file).exists())];
        comm.all_reduce_sum(Reduce::U64(&mut n_found))?;
        if n_found != [0] {
            break;
        }
    }
    Ok(())
}

/// A number of f32 whose sum needs several messages in the store.
const OF_SEVERAL_MESSAGES: usize = 4_500_000;

/// Runs all collectives in the world, two channels, a subgroup and a channel of it. Returns a digest of the results.
pub(crate) fn collectives(mut comm: Box<dyn Communicator>) -> kiln_comm::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let rank_info = comm.rank_info();
    digest(&mut *comm, &mut hasher)?;
    digest(&mut *comm.duplicate("other")?, &mut hasher)?;
    digest(&mut *comm.duplicate("other")?, &mut hasher)?;
    // The subgroup contains the last two ranks in reverse order.
    let pair = [rank_info.world_size - 1, rank_info.world_size - 2];
    if pair.contains(&rank_info.rank) {
        let mut pair = comm.subgroup(&pair)?;
        (pair.rank_info().rank, pair.rank_info().world_size).hash(&mut hasher);
        digest(&mut *pair, &mut hasher)?;
        let mut channel = pair.duplicate("pair")?;
        digest_sum(&mut *channel, OF_SEVERAL_MESSAGES, &mut hasher)?;
        digest(&mut *channel, &mut hasher)?;
    }
    digest(&mut *comm, &mut hasher)?;
    if rank_info.world_size == 2 {
        digest_sum(&mut *comm, OF_SEVERAL_MESSAGES, &mut hasher)?;
        digest(&mut *comm, &mut hasher)?;
    }
    Ok(hasher.finish())
}

/// Sums values of very different magnitudes, so that the result depends on the order of the ranks.
fn digest_sum(
    comm: &mut dyn Communicator,
    n_values: usize,
    hasher: &mut DefaultHasher,
) -> kiln_comm::Result<()> {
    let rank = comm.rank_info().rank;
    let mut values: Vec<f32> = (0..n_values).map(|at| wild(at, rank)).collect();
    comm.all_reduce_sum(Reduce::F32(&mut values))?;
    // Millions of values are hashed by one product each, because tests are not optimized.
    let mix =
        |hash: u64, value: &f32| (hash ^ u64::from(value.to_bits())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    values.iter().fold(0, mix).hash(hasher);
    Ok(())
}

fn digest(comm: &mut dyn Communicator, hasher: &mut DefaultHasher) -> kiln_comm::Result<()> {
    let (rank, world_size) = (comm.rank_info().rank, comm.rank_info().world_size);
    for n_values in [0, 1, 3, 1000, 100_003] {
        digest_sum(comm, n_values, hasher)?;
    }
    let mut counts = [u64::MAX, rank as u64];
    comm.all_reduce_sum(Reduce::U64(&mut counts))?;
    counts.hash(hasher);
    let bytes = |len: usize| -> Vec<u8> { (0..len).map(|at| (at * 7 + rank) as u8).collect() };
    comm.all_gather(&bytes(5))?.hash(hasher);
    comm.all_gather(&bytes(rank * 1000))?.hash(hasher);
    let messages: Vec<Vec<u8>> = (0..world_size).map(|to| bytes(to * 100 + 10 * rank)).collect();
    comm.all_to_all(&messages)?.hash(hasher);
    comm.all_to_all(&vec![Vec::new(); world_size])?.hash(hasher);
    // First only the last rank receives data. Then only rank 1 sends data.
    let to_last = |to| if to + 1 == world_size { bytes(40) } else { Vec::new() };
    comm.all_to_all(&(0..world_size).map(to_last).collect::<Vec<_>>())?.hash(hasher);
    comm.all_gather(&bytes(if rank == 1 { 9 } else { 0 }))?.hash(hasher);
    for root in 0..world_size {
        let mut own = bytes(root * 10);
        comm.broadcast(root, &mut own)?;
        own.hash(hasher);
    }
    comm.barrier(Duration::from_secs(60))
}

/// Returns a value of a sign, a mantissa and an exponent (-20 to 20) that a hash of the arguments determines.
fn wild(at: usize, rank: usize) -> f32 {
    let word = (at as u64 ^ (rank as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let exponent = 127 - 20 + (word >> 32) as u32 % 41;
    f32::from_bits(word as u32 & 0x807f_ffff | exponent << 23)
}
