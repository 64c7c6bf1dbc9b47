//! Errors and panics in a loader are returned for their batch, and all threads exit.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use kiln_graph::NodeId;
use kiln_loader::{
    BatchError, Batcher, Error, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, Phase, SeedBatch,
    StageTimes,
};

const N_STEPS: usize = 20;
const PASS: Phase = Phase::Train { epoch: 0 };
/// The numbers of workers with which every fault is tested; with 0 workers the caller's thread makes the batches.
const WORKERS: [usize; 5] = [0, 1, 2, 8, 40];

/// The value that marks the scratch of a batch that panicked.
const BROKEN: usize = usize::MAX;

/// The number of threads that have made a batch and have not exited.
#[derive(Clone, Default)]
struct Census(Arc<AtomicUsize>);

/// A thread-local value that is dropped when its thread exits.
struct Inhabitant(Census);

thread_local!(static INHABITANT: RefCell<Option<Inhabitant>> = const { RefCell::new(None) });

impl Census {
    fn enter(&self) {
        INHABITANT.with_borrow_mut(|slot| {
            if slot.is_none() {
                self.0.fetch_add(1, Ordering::SeqCst);
                *slot = Some(Inhabitant(self.clone()));
            }
        });
    }

    /// Returns the number of threads that have made a batch and have not exited, except the calling thread.
    fn n_workers(&self) -> usize {
        INHABITANT.with_borrow_mut(|slot| *slot = None);
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Inhabitant {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The fault that a batcher produces at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Error,
    PanicStr,
    PanicString,
    PanicAny,
    PanicInSize,
}

/// A batch with a size of `n_bytes`, which subtracts its size from `live_bytes` on drop.
struct Batch {
    step: usize,
    n_bytes: usize,
    live_bytes: Arc<AtomicUsize>,
    panics_in_size: bool,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.live_bytes.fetch_sub(self.n_bytes, Ordering::SeqCst);
    }
}

/// A batcher that makes batches of `n_bytes(step)` bytes and produces a fault at the step `at_step`.
struct Faulty {
    fault: Fault,
    at_step: usize,
    n_bytes: fn(usize) -> usize,
    census: Census,
    live_bytes: Arc<AtomicUsize>,
    most_bytes: Arc<AtomicUsize>,
    /// The largest number of steps that one scratch was used for.
    most_used: Arc<AtomicUsize>,
    /// The channel that receives every step that is begun.
    begun: Mutex<Option<Sender<usize>>>,
}

impl Faulty {
    fn new(fault: Fault, at_step: usize) -> Self {
        Self {
            fault,
            at_step,
            n_bytes: |_| 10,
            census: Census::default(),
            live_bytes: Arc::default(),
            most_bytes: Arc::default(),
            most_used: Arc::default(),
            begun: Mutex::new(None),
        }
    }

    /// Adds a channel that receives every step that is begun.
    fn telling(mut self) -> (Self, Receiver<usize>) {
        let (sender, receiver) = mpsc::channel();
        self.begun = Mutex::new(Some(sender));
        (self, receiver)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("disk {0} failed")]
struct OnFire(u32);

impl Batcher for Faulty {
    type Item = NodeId;
    type Batch = Batch;
    /// The steps that this scratch was used for, and `BROKEN` if one of them panicked.
    type Scratch = Vec<usize>;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Vec<usize>,
        _times: &mut StageTimes,
    ) -> Result<Batch, BatchError> {
        self.census.enter();
        let step = seeds.step;
        assert!(!scratch.contains(&BROKEN), "a scratch should not be reused after a panic");
        scratch.push(step);
        self.most_used.fetch_max(scratch.len(), Ordering::SeqCst);
        if let Some(begun) = &*self.begun.lock().unwrap() {
            // The test may have dropped the receiver.
            let _ = begun.send(step);
        }
        let fault = if step == self.at_step { self.fault } else { Fault::None };
        if !matches!(fault, Fault::None | Fault::Error) {
            scratch.push(BROKEN);
        }
        match fault {
            Fault::None | Fault::PanicInSize => {}
            Fault::Error => return Err(BatchError::other(OnFire(7))),
            Fault::PanicStr => panic!("the batcher panicked"),
            Fault::PanicString => panic!("the batcher panicked at {step}"),
            Fault::PanicAny => std::panic::panic_any(7_u8),
        }
        let n_bytes = (self.n_bytes)(step);
        let live = self.live_bytes.fetch_add(n_bytes, Ordering::SeqCst) + n_bytes;
        self.most_bytes.fetch_max(live, Ordering::SeqCst);
        let panics_in_size = fault == Fault::PanicInSize;
        Ok(Batch { step, n_bytes, live_bytes: Arc::clone(&self.live_bytes), panics_in_size })
    }

    fn n_bytes(batch: &Batch) -> usize {
        assert!(!batch.panics_in_size, "the batcher panicked in `n_bytes`");
        batch.n_bytes
    }
}

fn items(n_steps: usize) -> ItemSampler {
    let nodes: Vec<NodeId> = (0..n_steps as u32).map(NodeId).collect();
    ItemSampler::new(nodes, ItemSamplerConfig { batch_size: 1, ..Default::default() }).unwrap()
}

fn loader(batcher: Faulty, n_steps: usize, workers: usize, queue_bytes: usize) -> Loader<Faulty> {
    Loader::new(items(n_steps), batcher, LoaderConfig { workers, queue_bytes }).unwrap()
}

/// Checks that the batches before `at_step` are returned, then the fault, then nothing; returns the error.
fn check_fault(fault: Fault, at_step: usize, workers: usize, queue_bytes: usize) -> Error {
    let batcher = Faulty::new(fault, at_step);
    let (census, live_bytes) = (batcher.census.clone(), Arc::clone(&batcher.live_bytes));
    let loader = loader(batcher, N_STEPS, workers, queue_bytes);
    let mut batches = loader.epoch(PASS);
    for step in 0..at_step {
        assert_eq!(batches.next().unwrap().unwrap().step, step);
    }
    let Some(Err(error)) = batches.next() else { panic!("step {at_step} should fail, {workers} workers") };
    assert_eq!(census.n_workers(), 0, "all threads should have exited, {workers} workers");
    assert!(batches.next().is_none() && batches.next().is_none());
    assert_eq!(batches.size_hint(), (0, Some(0)));
    drop(batches);
    assert_eq!(live_bytes.load(Ordering::SeqCst), 0, "all batches should have been dropped");
    error
}

fn check_fault_everywhere(fault: Fault, check: impl Fn(&Error, usize)) {
    for workers in WORKERS {
        for queue_bytes in [0, 30, 1 << 20] {
            for at_step in [0, 1, 7, N_STEPS - 1] {
                check(&check_fault(fault, at_step, workers, queue_bytes), at_step);
            }
        }
    }
}

fn check_panic(fault: Fault, expected: impl Fn(usize) -> String) {
    check_fault_everywhere(fault, |error, at_step| {
        let Error::WorkerPanicked { step, message } = error else { panic!("{error}") };
        assert_eq!((*step, message.as_str()), (at_step, expected(at_step).as_str()));
    });
}

#[test]
fn an_error_is_returned_in_place_of_its_batch() {
    check_fault_everywhere(Fault::Error, |error, at_step| {
        let Error::Batch { step, source: BatchError::Other(source) } = error else { panic!("{error}") };
        assert_eq!((*step, source.downcast_ref::<OnFire>().unwrap().0), (at_step, 7));
        assert_eq!(error.to_string(), format!("loading the batch of step {at_step} failed: disk 7 failed"));
    });
}

#[test]
fn a_panic_is_returned_as_an_error_in_place_of_its_batch() {
    check_panic(Fault::PanicStr, |_| "the batcher panicked".to_owned());
    check_panic(Fault::PanicString, |step| format!("the batcher panicked at {step}"));
    check_panic(Fault::PanicAny, |_| "a panic without a message".to_owned());
    check_panic(Fault::PanicInSize, |_| "the batcher panicked in `n_bytes`".to_owned());
}

#[test]
fn a_loader_can_be_reused_after_a_fault() {
    for workers in WORKERS {
        let loader = loader(Faulty::new(Fault::PanicStr, 3), N_STEPS, workers, 1 << 20);
        for _ in 0..3 {
            let outcomes: Vec<bool> = loader.epoch(PASS).map(|batch| batch.is_ok()).collect();
            assert_eq!(outcomes, [true, true, true, false]);
        }
    }
}

#[test]
fn scratches_are_reused_in_the_next_epoch() {
    for workers in [0, 1] {
        let batcher = Faulty::new(Fault::None, 0);
        let most_used = Arc::clone(&batcher.most_used);
        let loader = loader(batcher, N_STEPS, workers, 50);
        assert_eq!(loader.epoch(PASS).chain(loader.epoch(PASS)).filter(Result::is_ok).count(), 2 * N_STEPS);
        assert_eq!(loader.epoch(PASS).count(), N_STEPS);
        assert!(most_used.load(Ordering::SeqCst) >= 2 * N_STEPS, "{workers} workers");
    }
}

#[test]
fn batches_are_returned_in_order_and_the_threads_exit() {
    for workers in WORKERS {
        let batcher = Faulty::new(Fault::None, 0);
        let census = batcher.census.clone();
        let loader = loader(batcher, N_STEPS, workers, 50);
        let mut batches = loader.epoch(PASS);
        assert_eq!((batches.n_steps(), loader.n_steps(PASS)), (N_STEPS, N_STEPS));
        let steps: Vec<usize> = batches.by_ref().map(|batch| batch.unwrap().step).collect();
        assert_eq!(steps, (0..N_STEPS).collect::<Vec<_>>());
        assert_eq!(census.n_workers(), 0, "{workers} workers");
    }
}

#[test]
fn a_drop_joins_workers_that_wait_because_the_queue_is_full() {
    for workers in [1, 2, 8] {
        let (batcher, begun) = Faulty::new(Fault::None, 0).telling();
        let (census, live_bytes) = (batcher.census.clone(), Arc::clone(&batcher.live_bytes));
        let loader = loader(batcher, N_STEPS, workers, 30);
        let batches = loader.epoch(PASS);
        // Three batches fill the queue and the caller takes no batch, so a fourth must not begin.
        let mut first: Vec<usize> = begun.iter().take(3).collect();
        first.sort();
        assert_eq!(first, [0, 1, 2]);
        drop(batches);
        assert_eq!((census.n_workers(), live_bytes.load(Ordering::SeqCst)), (0, 0));
        assert!(begun.try_recv().is_err(), "no step should begin while the queue is full");
    }
}

#[test]
fn a_drop_in_the_middle_of_an_epoch_joins_the_threads() {
    for workers in WORKERS {
        for n_taken in [0, 1, 5] {
            let batcher = Faulty::new(Fault::None, 0);
            let (census, live_bytes) = (batcher.census.clone(), Arc::clone(&batcher.live_bytes));
            let loader = loader(batcher, N_STEPS, workers, 1 << 20);
            let mut batches = loader.epoch(PASS);
            for step in 0..n_taken {
                assert_eq!(batches.next().unwrap().unwrap().step, step);
            }
            // The loader may be dropped first: `Batches` shares its state.
            drop(loader);
            drop(batches);
            assert_eq!((census.n_workers(), live_bytes.load(Ordering::SeqCst)), (0, 0));
        }
    }
}

#[test]
fn threads_exit_when_the_caller_panics() {
    let batcher = Faulty::new(Fault::None, 0);
    let census = batcher.census.clone();
    let loader = Arc::new(loader(batcher, N_STEPS, 4, 1 << 20));
    let caller = std::thread::spawn(move || {
        let mut batches = loader.epoch(PASS);
        let batch = batches.next();
        assert!(batch.is_none(), "the caller panics on purpose");
    });
    assert!(caller.join().is_err());
    assert_eq!(census.n_workers(), 0);
}

#[test]
fn queued_batches_never_exceed_the_byte_limit() {
    for workers in [1, 2, 8] {
        for n_batches in [1, 3, 5] {
            let batcher = Faulty::new(Fault::None, 0);
            let most_bytes = Arc::clone(&batcher.most_bytes);
            let loader = loader(batcher, 200, workers, n_batches * 10);
            for batch in loader.epoch(PASS) {
                drop(batch.unwrap());
            }
            // The limit does not include the batch that the caller holds.
            let most = most_bytes.load(Ordering::SeqCst);
            assert!(
                most <= (n_batches + 1) * 10,
                "{most} bytes, queue of {n_batches} batches, {workers} workers"
            );
        }
    }
}

#[test]
fn batches_of_growing_and_varying_sizes_are_all_returned() {
    let sizes: [fn(usize) -> usize; 3] = [|step| step * 10, |step| (step * 7919) % 101, |_| 0];
    for n_bytes in sizes {
        for workers in WORKERS {
            for queue_bytes in [0, 1, 100] {
                let batcher = Faulty { n_bytes, ..Faulty::new(Fault::None, 0) };
                let loader = loader(batcher, N_STEPS, workers, queue_bytes);
                let steps: Vec<usize> = loader.epoch(PASS).map(|batch| batch.unwrap().step).collect();
                assert_eq!(steps, (0..N_STEPS).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn no_items_give_no_batches() {
    for workers in WORKERS {
        let loader = loader(Faulty::new(Fault::None, 0), 0, workers, 0);
        assert!(loader.epoch(PASS).next().is_none());
    }
}

#[test]
fn rejects_too_many_workers() {
    let config = LoaderConfig { workers: 1025, ..Default::default() };
    let error = Loader::new(items(1), Faulty::new(Fault::None, 0), config).unwrap_err();
    assert!(matches!(error, Error::TooManyWorkers { workers: 1025, max: 1024 }));
}
