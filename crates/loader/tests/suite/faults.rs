//! Whatever goes wrong in a loader arrives at its batch, and no thread is left behind.
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
/// Numbers of workers that every fault is tried with; 0 is the caller's own thread.
const WORKERS: [usize; 5] = [0, 1, 2, 8, 40];

/// Stands in a scratch for a panic.
const BROKEN: usize = usize::MAX;

/// Counts the threads that fetched something and have not ended.
#[derive(Clone, Default)]
struct Census(Arc<AtomicUsize>);

/// Lives as long as the thread in whose local storage it lies.
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

    /// Threads alive, apart from the calling one.
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

/// What happens at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Error,
    PanicStr,
    PanicString,
    PanicAny,
    PanicInSize,
}

/// A batch that counts as `n_bytes` and says when it is dropped.
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

/// Fetches batches of `n_bytes(step)` bytes and fails as told.
struct Faulty {
    fault: Fault,
    at_step: usize,
    n_bytes: fn(usize) -> usize,
    census: Census,
    live_bytes: Arc<AtomicUsize>,
    most_bytes: Arc<AtomicUsize>,
    /// The most steps that one scratch was used for.
    most_used: Arc<AtomicUsize>,
    /// Told of every step that is begun.
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

    /// With a channel that is told of every step that is begun.
    fn telling(mut self) -> (Self, Receiver<usize>) {
        let (sender, receiver) = mpsc::channel();
        self.begun = Mutex::new(Some(sender));
        (self, receiver)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("disk {0} is on fire")]
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
        assert!(!scratch.contains(&BROKEN), "the scratch of a panic came back");
        scratch.push(step);
        self.most_used.fetch_max(scratch.len(), Ordering::SeqCst);
        if let Some(begun) = &*self.begun.lock().unwrap() {
            // The test may have stopped listening.
            let _ = begun.send(step);
        }
        let fault = if step == self.at_step { self.fault } else { Fault::None };
        if !matches!(fault, Fault::None | Fault::Error) {
            scratch.push(BROKEN);
        }
        match fault {
            Fault::None | Fault::PanicInSize => {}
            Fault::Error => return Err(BatchError::other(OnFire(7))),
            Fault::PanicStr => panic!("no such luck"),
            Fault::PanicString => panic!("no such luck at {step}"),
            Fault::PanicAny => std::panic::panic_any(7_u8),
        }
        let n_bytes = (self.n_bytes)(step);
        let live = self.live_bytes.fetch_add(n_bytes, Ordering::SeqCst) + n_bytes;
        self.most_bytes.fetch_max(live, Ordering::SeqCst);
        let panics_in_size = fault == Fault::PanicInSize;
        Ok(Batch { step, n_bytes, live_bytes: Arc::clone(&self.live_bytes), panics_in_size })
    }

    fn n_bytes(batch: &Batch) -> usize {
        assert!(!batch.panics_in_size, "size unknown");
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

/// Runs into the fault at `at_step` and checks what comes before and after it; returns the error.
fn check_fault(fault: Fault, at_step: usize, workers: usize, queue_bytes: usize) -> Error {
    let batcher = Faulty::new(fault, at_step);
    let (census, live_bytes) = (batcher.census.clone(), Arc::clone(&batcher.live_bytes));
    let loader = loader(batcher, N_STEPS, workers, queue_bytes);
    let mut batches = loader.epoch(PASS);
    for step in 0..at_step {
        assert_eq!(batches.next().unwrap().unwrap().step, step);
    }
    let Some(Err(error)) = batches.next() else { panic!("no fault at step {at_step}, {workers} workers") };
    assert_eq!(census.n_workers(), 0, "threads are left, {workers} workers");
    assert!(batches.next().is_none() && batches.next().is_none());
    assert_eq!(batches.size_hint(), (0, Some(0)));
    drop(batches);
    assert_eq!(live_bytes.load(Ordering::SeqCst), 0, "batches are left");
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
fn an_error_arrives_at_its_batch() {
    check_fault_everywhere(Fault::Error, |error, at_step| {
        let Error::Batch { step, source: BatchError::Other(source) } = error else { panic!("{error}") };
        assert_eq!((*step, source.downcast_ref::<OnFire>().unwrap().0), (at_step, 7));
        assert_eq!(error.to_string(), format!("the batch of step {at_step} failed: disk 7 is on fire"));
    });
}

#[test]
fn a_panic_arrives_at_its_batch() {
    check_panic(Fault::PanicStr, |_| "no such luck".to_owned());
    check_panic(Fault::PanicString, |step| format!("no such luck at {step}"));
    check_panic(Fault::PanicAny, |_| "a panic without a message".to_owned());
    check_panic(Fault::PanicInSize, |_| "size unknown".to_owned());
}

#[test]
fn a_loader_works_again_after_a_fault() {
    for workers in WORKERS {
        let loader = loader(Faulty::new(Fault::PanicStr, 3), N_STEPS, workers, 1 << 20);
        for _ in 0..3 {
            let outcomes: Vec<bool> = loader.epoch(PASS).map(|batch| batch.is_ok()).collect();
            assert_eq!(outcomes, [true, true, true, false]);
        }
    }
}

#[test]
fn scratches_are_kept_from_one_epoch_to_the_next() {
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
fn batches_come_in_order_and_the_threads_end() {
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
fn a_drop_joins_workers_that_wait_for_a_full_queue() {
    for workers in [1, 2, 8] {
        let (batcher, begun) = Faulty::new(Fault::None, 0).telling();
        let (census, live_bytes) = (batcher.census.clone(), Arc::clone(&batcher.live_bytes));
        let loader = loader(batcher, N_STEPS, workers, 30);
        let batches = loader.epoch(PASS);
        // Three batches fill the queue: with nobody to take one, no fourth is begun.
        let mut first: Vec<usize> = begun.iter().take(3).collect();
        first.sort();
        assert_eq!(first, [0, 1, 2]);
        drop(batches);
        assert_eq!((census.n_workers(), live_bytes.load(Ordering::SeqCst)), (0, 0));
        assert!(begun.try_recv().is_err(), "a step was begun that the queue has no room for");
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
            // The loader may go first: the pass has all that it needs.
            drop(loader);
            drop(batches);
            assert_eq!((census.n_workers(), live_bytes.load(Ordering::SeqCst)), (0, 0));
        }
    }
}

#[test]
fn a_caller_that_panics_leaves_no_thread_behind() {
    let batcher = Faulty::new(Fault::None, 0);
    let census = batcher.census.clone();
    let loader = Arc::new(loader(batcher, N_STEPS, 4, 1 << 20));
    let caller = std::thread::spawn(move || {
        let mut batches = loader.epoch(PASS);
        let batch = batches.next();
        assert!(batch.is_none(), "the training step went wrong");
    });
    assert!(caller.join().is_err());
    assert_eq!(census.n_workers(), 0);
}

#[test]
fn the_queue_never_holds_more_than_its_bytes() {
    for workers in [1, 2, 8] {
        for n_batches in [1, 3, 5] {
            let batcher = Faulty::new(Fault::None, 0);
            let most_bytes = Arc::clone(&batcher.most_bytes);
            let loader = loader(batcher, 200, workers, n_batches * 10);
            for batch in loader.epoch(PASS) {
                drop(batch.unwrap());
            }
            // One more is in the caller's hands.
            let most = most_bytes.load(Ordering::SeqCst);
            assert!(
                most <= (n_batches + 1) * 10,
                "{most} bytes, queue of {n_batches} batches, {workers} workers"
            );
        }
    }
}

#[test]
fn batches_of_growing_and_uneven_sizes_all_arrive() {
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
fn too_many_workers_are_refused() {
    let config = LoaderConfig { workers: 1025, ..Default::default() };
    let error = Loader::new(items(1), Faulty::new(Fault::None, 0), config).unwrap_err();
    assert!(matches!(error, Error::TooManyWorkers { workers: 1025, max: 1024 }));
}
