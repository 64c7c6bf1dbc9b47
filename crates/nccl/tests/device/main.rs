//! Tests of communicators whose ranks are threads of one process. They run if `KILN_DEVICE` is `cuda` and the process
//! has NCCL and two GPUs, or one for the test with one rank: real ones, or the stub driver of `cargo xtask test --device
//! cuda --stub`.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kiln_nccl::{Buffer, Comm, CudaStream, Error, UniqueId};

const DEADLINE: Duration = Duration::from_secs(300);

/// A time limit for aborts: far above the few seconds that an abort takes, and below [`DEADLINE`].
const SOON: Duration = Duration::from_secs(120);

fn on_two_gpus(what: &str, test: impl FnOnce()) {
    on_gpus(2, what, test);
}

/// Runs the test if `KILN_DEVICE` is `cuda` and the process has NCCL and this many GPUs, otherwise prints the reason for
/// skipping it. Tests run one at a time, because they share the GPUs.
fn on_gpus(n_gpus: i32, what: &str, test: impl FnOnce()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let is_asked_for = std::env::var("KILN_DEVICE").is_ok_and(|name| name.starts_with("cuda"));
    let reason = match kiln_nccl::check() {
        _ if !is_asked_for => "KILN_DEVICE is not cuda".to_owned(),
        Err(error) => error.to_string(),
        Ok(()) if kiln_nccl::CudaContext::device_count().unwrap() < n_gpus => {
            format!("there are fewer than {n_gpus} GPUs")
        }
        Ok(()) => {
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            return test();
        }
    };
    // A direct write bypasses the output capture of the test harness.
    let mut out = std::io::stdout();
    writeln!(out, "kiln-skip: gpu: {what}: {reason}").unwrap();
}

fn upload(stream: &Arc<CudaStream>, values: &[f32]) -> cudarc::driver::CudaSlice<f32> {
    stream.context().bind_to_thread().unwrap();
    let memory = stream.clone_htod(values).unwrap();
    stream.synchronize().unwrap();
    memory
}

fn buffer<T>(
    memory: &cudarc::driver::CudaSlice<T>,
    stream: &Arc<CudaStream>,
    start: usize,
    len: usize,
) -> Buffer {
    use cudarc::driver::DevicePtr;
    let address = memory.device_ptr(stream).0 + (start * size_of::<T>()) as u64;
    Buffer { address, len }
}

fn sum(comm: &mut Comm, values: &[f32]) -> Result<Vec<f32>, Error> {
    let stream = Arc::clone(comm.stream());
    let memory = upload(&stream, values);
    // SAFETY: the memory has this number of values, was written above, and is read only after the call.
    unsafe { comm.all_reduce_sum(buffer(&memory, &stream, 0, values.len())) }?;
    Ok(stream.clone_dtoh(&memory).unwrap())
}

/// Returns the indices of the first GPUs, at most three. With three ranks, a sum depends on the order of the additions.
fn gpus() -> Vec<usize> {
    (0..kiln_nccl::CudaContext::device_count().unwrap().min(3) as usize).collect()
}

fn is_stub() -> bool {
    std::env::var_os("CUDA_STUB_DIR").is_some()
}

/// Runs a function on each rank, in one thread per rank.
fn on_ranks<R: Send>(comms: Vec<Comm>, body: impl Fn(&mut Comm) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let body = &body;
        let ranks: Vec<_> = comms.into_iter().map(|mut comm| scope.spawn(move || body(&mut comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn all_reduce_of_one_rank_keeps_its_values() {
    on_gpus(1, "sums of one rank by NCCL", || {
        let mut comms = Comm::for_devices(&[0], DEADLINE).unwrap();
        let values: Vec<f32> = (0..70_000).map(|place| place as f32 - 0.25).collect();
        for len in [1, 1000, values.len()] {
            assert_eq!(sum(&mut comms[0], &values[..len]).unwrap(), values[..len]);
        }
    });
}

#[test]
fn all_reduce_sums_over_ranks_in_threads() {
    on_two_gpus("sums by NCCL", || {
        let gpus = gpus();
        let comms = Comm::for_devices(&gpus, DEADLINE).unwrap();
        let sums = on_ranks(comms, |comm| {
            let rank = comm.rank();
            assert_eq!((comm.n_ranks(), comm.stream().context().ordinal()), (gpus.len(), gpus[rank]));
            let first = sum(comm, &[1.0, rank as f32, [1e8, 1.0, -1e8][rank]]).unwrap();
            // The second call checks that a communicator can be used repeatedly.
            [first, sum(comm, &[2.0; 1000]).unwrap()].concat()
        });
        let n_ranks = gpus.len() as f32;
        for sums in &sums {
            assert_eq!(sums[..2], [n_ranks, n_ranks * (n_ranks - 1.0) / 2.0]);
            assert_eq!(sums[3..], [2.0 * n_ranks; 1000]);
        }
        assert!(sums.iter().all(|other| *other == sums[0]), "the sums of all ranks should be bit-identical");
        if is_stub() {
            // 1e8 + 1 rounds to 1e8, so the sum would be 1 in another order.
            assert_eq!((gpus.len(), sums[0][2]), (3, 0.0), "the stub should add in the order of the ranks");
        }
    });
}

/// The stub driver traces the number of existing events whenever one is created or destroyed.
#[test]
fn all_reduce_leaks_no_cuda_events() {
    let Some(folder) = std::env::var_os("CUDA_STUB_DIR") else { return };
    on_two_gpus("events of NCCL", || {
        let trace = std::path::Path::new(&folder).join(format!("trace.{}", std::process::id()));
        let n_held = || {
            let trace = std::fs::read_to_string(&trace).unwrap();
            let last = trace
                .lines()
                .rfind(|line| line.contains(" event-create ") || line.contains(" event-destroy "));
            last.map_or(0, |line| line.split(' ').nth(3).unwrap().parse::<u64>().unwrap())
        };
        let before = n_held();
        let comms = Comm::for_devices(&[0, 1], DEADLINE).unwrap();
        on_ranks(comms, |comm| (0..20).for_each(|_| drop(sum(comm, &[1.0; 10]).unwrap())));
        assert_eq!(n_held(), before);
    });
}

#[test]
fn exchange_transfers_buffers_of_different_lengths() {
    on_two_gpus("exchanges by NCCL", || {
        let comms = Comm::for_devices(&[1, 0], DEADLINE).unwrap();
        let received: Vec<Vec<u8>> = on_ranks(comms, |comm| {
            let stream = Arc::clone(comm.stream());
            stream.context().bind_to_thread().unwrap();
            // Rank 0 sends 3 bytes to itself and 5 to rank 1, which sends 2 to rank 0 and none to itself.
            let (sent, taken) = [([3, 5], [3, 2]), ([2, 0], [5, 0])][comm.rank()];
            let outgoing: Vec<u8> = (0..8).map(|byte| 100 * comm.rank() as u8 + byte).collect();
            let outgoing = stream.clone_htod(&outgoing).unwrap();
            let incoming = stream.alloc_zeros::<u8>(8).unwrap();
            stream.synchronize().unwrap();
            let parts = |memory, lens: [usize; 2]| {
                [buffer(memory, &stream, 0, lens[0]), buffer(memory, &stream, lens[0], lens[1])]
            };
            // SAFETY: the buffers are disjoint ranges of these allocations on this rank's GPU. The writes above are
            // complete, and nothing else uses the buffers until the call returns.
            unsafe { comm.exchange(&parts(&outgoing, sent), &parts(&incoming, taken)) }.unwrap();
            stream.clone_dtoh(&incoming).unwrap()
        });
        assert_eq!(received, [[0, 1, 2, 100, 101, 0, 0, 0], [3, 4, 5, 6, 7, 0, 0, 0]]);
    });
}

/// NCCL alone would wait forever for a rank that failed.
#[test]
fn dropping_a_rank_aborts_the_others() {
    on_two_gpus("aborts of NCCL", || {
        let mut comms = Comm::for_devices(&[0, 1], DEADLINE).unwrap();
        let (gone, mut left) = (comms.remove(0), comms.remove(0));
        let start = Instant::now();
        let waiting = thread::spawn(move || {
            let first = sum(&mut left, &[1.0]);
            (first, sum(&mut left, &[1.0]))
        });
        drop(gone);
        let (first, second) = waiting.join().unwrap();
        assert!(matches!(first, Err(Error::Aborted { rank: 1, .. })), "{first:?}");
        assert!(matches!(second, Err(Error::Aborted { rank: 1, .. })), "{second:?}");
        assert!(start.elapsed() < SOON);
    });
}

#[test]
fn all_reduce_aborts_at_the_deadline_if_a_rank_does_not_call() {
    on_two_gpus("deadlines of NCCL", || {
        // The deadline also covers the start, which may take longer on a loaded machine.
        let comms = (0..20).find_map(|_| Comm::for_devices(&[0, 1], Duration::from_secs(1)).ok());
        let mut comms = comms.unwrap();
        let start = Instant::now();
        let error = sum(&mut comms[0], &[1.0]).unwrap_err();
        assert!(error.to_string().contains("did not call within the deadline"), "{error}");
        assert!(start.elapsed() < SOON);
    });
}

/// Each rank joins in its own thread and waits for the others, like ranks in separate processes.
#[test]
fn all_reduce_works_for_ranks_that_joined_separately() {
    on_two_gpus("joining NCCL", || {
        let id = UniqueId::new().unwrap();
        let sums: Vec<Vec<f32>> = thread::scope(|scope| {
            let join = |rank: usize| {
                let id = UniqueId::from_bytes(&id.bytes()).unwrap();
                let mut comm = Comm::join(rank, rank, 2, &id, DEADLINE).unwrap();
                sum(&mut comm, &[rank as f32, 3.0]).unwrap()
            };
            let ranks = [0, 1].map(|rank| scope.spawn(move || join(rank)));
            ranks.map(|rank| rank.join().unwrap()).into()
        });
        assert_eq!(sums, [[1.0, 6.0], [1.0, 6.0]]);
    });
}

#[test]
fn join_aborts_at_the_deadline_if_a_rank_is_missing() {
    on_two_gpus("a missing rank of NCCL", || {
        let start = Instant::now();
        let error = Comm::join(0, 0, 2, &UniqueId::new().unwrap(), Duration::from_secs(1)).unwrap_err();
        assert!(matches!(error, Error::Aborted { rank: 0, .. }), "{error}");
        assert!(start.elapsed() < SOON);
        // The library still works after the abort.
        let sums = on_ranks(Comm::for_devices(&[0, 1], DEADLINE).unwrap(), |comm| sum(comm, &[1.0]).unwrap());
        assert_eq!(sums, [[2.0], [2.0]]);
    });
}

#[test]
fn rejects_shared_and_missing_devices() {
    on_two_gpus("devices of NCCL", || {
        let error = Comm::for_devices(&[0, 0], DEADLINE).unwrap_err();
        assert_eq!(error, Error::SharedDevice { index: 0 });
        let error = Comm::for_devices(&[0, 99], DEADLINE).unwrap_err();
        assert!(matches!(error, Error::NoDevice { index: 99, .. }), "{error}");
    });
}

#[test]
fn rejects_a_unique_id_of_the_wrong_length() {
    let error = UniqueId::from_bytes(&[7; 127]).unwrap_err();
    assert_eq!(error, Error::BadId { expected: 128, got: 127 });
    assert_eq!(UniqueId::from_bytes(&[7; 128]).unwrap().bytes(), [7; 128]);
}
