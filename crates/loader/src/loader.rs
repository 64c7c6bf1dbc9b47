use std::any::Any;
use std::fmt;
use std::iter::FusedIterator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::queue::{Made, Queue};
use crate::{Batcher, EpochPlan, Error, ItemSampler, Phase, Result, StageTimes};

/// The largest number of workers that is taken: more is a slip of the keyboard.
const MAX_WORKERS: usize = 1024;

/// How batches are made ahead of their use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Worker threads, at most 1,024. With 0 each batch is made in the caller's thread when it is asked
    /// for.
    pub workers: usize,
    /// Bytes of batches that may be finished or in the making, apart from those that the caller has
    /// taken. One batch is always allowed, whatever its size.
    pub queue_bytes: usize,
}

impl Default for LoaderConfig {
    /// Two workers and 256 MiB.
    fn default() -> Self {
        Self { workers: 2, queue_bytes: 256 << 20 }
    }
}

/// Makes the batches of each pass over a list of items, in worker threads, and hands them out in order.
///
/// The batches do not depend on the number of workers or on the bytes of the queue. Threads live as long
/// as the [`Batches`] of one pass; the loader itself only keeps the workers' buffers from pass to pass.
pub struct Loader<F: Batcher> {
    items: ItemSampler<F::Item>,
    config: LoaderConfig,
    shared: Arc<Shared<F>>,
}

/// What outlives a pass.
struct Shared<F: Batcher> {
    batcher: F,
    kept: Mutex<Kept<F::Scratch>>,
}

/// The lock around this is never held together with another, nor while code of the user's runs.
struct Kept<S> {
    scratches: Vec<S>,
    /// The largest batch of earlier passes, 0 before the first.
    largest_bytes: usize,
}

impl<F: Batcher> Loader<F> {
    /// A loader of the items' batches, made by `batcher`.
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`] for more than 1,024 workers.
    pub fn new(items: ItemSampler<F::Item>, batcher: F, config: LoaderConfig) -> Result<Self> {
        if config.workers > MAX_WORKERS {
            return Err(Error::TooManyWorkers { workers: config.workers, max: MAX_WORKERS });
        }
        let kept = Mutex::new(Kept { scratches: Vec::new(), largest_bytes: 0 });
        Ok(Self { items, config, shared: Arc::new(Shared { batcher, kept }) })
    }

    /// Number of steps in a pass, the same on all ranks.
    pub fn n_steps(&self, phase: Phase) -> usize {
        self.items.n_steps(phase)
    }

    /// The items and how they become batches.
    pub fn items(&self) -> &ItemSampler<F::Item> {
        &self.items
    }

    /// The batches of one pass. Shuffles the items and starts the workers, which begin at once; if one
    /// cannot be started, the first item is [`Error::Spawn`]. Passes may overlap: each has threads and a
    /// queue of its own.
    pub fn epoch(&self, phase: Phase) -> Batches<F> {
        self.epoch_from(phase, 0)
    }

    /// The batches of [`Loader::epoch`] from `first_step` on, as if the earlier ones had been taken, without
    /// the work of making them: to go on where a run was stopped. None when there are no more steps.
    pub fn epoch_from(&self, phase: Phase, first_step: usize) -> Batches<F> {
        let start = Instant::now();
        let order = self.items.epoch(phase);
        let n_steps = order.n_steps();
        let first_step = first_step.min(n_steps);
        let largest_bytes = self.shared.kept().largest_bytes;
        let run = Arc::new(Run {
            queue: Queue::new(first_step..n_steps, self.config.queue_bytes, largest_bytes),
            shuffle_time: start.elapsed(),
            first_step,
            order,
            shared: Arc::clone(&self.shared),
        });
        let mut batches =
            Batches { run, threads: Vec::new(), inline: None, fault: None, next_step: first_step };
        if self.config.workers == 0 {
            batches.inline = Some(Scratch::new(&self.shared));
        } else {
            batches.spawn(self.config.workers.min(n_steps - first_step));
        }
        batches
    }
}

impl<F: Batcher> fmt::Debug for Loader<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("items", &self.items.items().len())
            .field("sampler", self.items.config())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The batches of one pass, in the order of their steps.
///
/// After an `Err` the iterator is at its end: batches before the fault have all been handed out, later
/// ones never are.
///
/// This owns the pass's worker threads. They end when all steps are made, after a fault, and when this is
/// dropped, which joins them: dropping waits for the batches that are being made, which cannot be
/// interrupted, and for nothing else. The queue is bounded by [`LoaderConfig::queue_bytes`]. Nothing else
/// can wait for ever: steps are started and taken in order, a step may always be started when nothing
/// before it is ready or in flight, and every started step is handed over, panicked or not.
pub struct Batches<F: Batcher> {
    run: Arc<Run<F>>,
    threads: Vec<JoinHandle<()>>,
    /// The caller's own buffers when there are no workers.
    inline: Option<Scratch<F>>,
    /// Why the threads could not be started, until it is handed out.
    fault: Option<Error>,
    next_step: usize,
}

/// What the threads of one pass share.
struct Run<F: Batcher> {
    queue: Queue<F::Batch>,
    order: EpochPlan<F::Item>,
    shuffle_time: Duration,
    first_step: usize,
    shared: Arc<Shared<F>>,
}

impl<F: Batcher> Batches<F> {
    /// Number of steps in the whole pass, those before the first batch of these included.
    pub fn n_steps(&self) -> usize {
        self.run.order.n_steps()
    }

    fn spawn(&mut self, n_threads: usize) {
        for worker in 0..n_threads {
            let run = Arc::clone(&self.run);
            let named = thread::Builder::new().name(format!("kiln-loader-{worker}"));
            match named.spawn(move || run.work()) {
                Ok(thread) => self.threads.push(thread),
                Err(source) => {
                    self.fault = Some(Error::Spawn { worker, source });
                    return;
                }
            }
        }
    }

    /// Ends the pass: no batch is started or handed out any more, and no thread is left.
    fn finish(&mut self) {
        self.next_step = self.n_steps();
        self.run.queue.close();
        for thread in self.threads.drain(..) {
            // A thread can only have panicked after it published its last step, while dropping what the
            // user gave it; the panic hook has told of it and no batch is lost.
            let _ = thread.join();
        }
        self.inline = None;
        drop(self.run.queue.drain());
        let largest_bytes = self.run.queue.largest_bytes();
        let mut kept = self.run.shared.kept();
        kept.largest_bytes = kept.largest_bytes.max(largest_bytes);
    }
}

impl<F: Batcher> Iterator for Batches<F> {
    type Item = Result<F::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(fault) = self.fault.take() {
            self.finish();
            return Some(Err(fault));
        }
        if self.next_step >= self.n_steps() {
            return None;
        }
        let outcome = match &mut self.inline {
            Some(scratch) => self.run.make(self.next_step, scratch).outcome,
            None => self.run.queue.take(self.next_step),
        };
        self.next_step += 1;
        if outcome.is_err() || self.next_step == self.n_steps() {
            self.finish();
        }
        Some(outcome)
    }

    /// At most the steps that are left; a fault makes it fewer.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.n_steps() - self.next_step))
    }
}

impl<F: Batcher> FusedIterator for Batches<F> {}

impl<F: Batcher> Drop for Batches<F> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<F: Batcher> fmt::Debug for Batches<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("n_steps", &self.n_steps())
            .field("next_step", &self.next_step)
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl<F: Batcher> Run<F> {
    fn work(&self) {
        let mut scratch = Scratch::new(&self.shared);
        while let Some(step) = self.queue.start() {
            self.queue.publish(step, self.make(step, &mut scratch));
        }
    }

    /// Makes one batch; a panic of the user's code becomes an error here.
    fn make(&self, step: usize, scratch: &mut Scratch<F>) -> Made<F::Batch> {
        // After a panic the buffers are not used again and the pass ends, so nobody sees them broken.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let start = Instant::now();
            let seeds = self.order.step(step);
            let mut times = StageTimes { seeds: start.elapsed(), ..StageTimes::default() };
            if step == self.first_step {
                times.seeds += self.shuffle_time;
            }
            let buffers = scratch.buffers.get_or_insert_with(F::Scratch::default);
            let batch = self.shared.batcher.batch(seeds, buffers, &mut times)?;
            let n_bytes = F::n_bytes(&batch);
            Ok((batch, n_bytes))
        }));
        match outcome {
            Ok(Ok((batch, n_bytes))) => Made { outcome: Ok(batch), n_bytes },
            Ok(Err(source)) => Made { outcome: Err(Error::Batch { step, source }), n_bytes: 0 },
            Err(payload) => {
                scratch.is_broken = true;
                let message = message(payload.as_ref());
                // The payload is the user's: a panic while it is dropped would come before the hand-over.
                std::mem::forget(payload);
                Made { outcome: Err(Error::WorkerPanicked { step, message }), n_bytes: 0 }
            }
        }
    }
}

/// One thread's buffers, which go back to the loader when the thread is done with them.
struct Scratch<F: Batcher> {
    /// Made when they are first needed, where a panic is caught.
    buffers: Option<F::Scratch>,
    /// Whether a panic came by while they were in use.
    is_broken: bool,
    shared: Arc<Shared<F>>,
}

impl<F: Batcher> Scratch<F> {
    fn new(shared: &Arc<Shared<F>>) -> Self {
        Self { buffers: shared.kept().scratches.pop(), is_broken: false, shared: Arc::clone(shared) }
    }
}

impl<F: Batcher> Drop for Scratch<F> {
    fn drop(&mut self) {
        if let Some(buffers) = self.buffers.take().filter(|_| !self.is_broken) {
            self.shared.kept().scratches.push(buffers);
        }
    }
}

impl<F: Batcher> Shared<F> {
    fn kept(&self) -> MutexGuard<'_, Kept<F::Scratch>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a panic said.
fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchError, ItemSamplerConfig, SeedBatch};
    use kiln_graph::NodeId;

    struct Steps;

    impl Batcher for Steps {
        type Item = NodeId;
        type Batch = usize;
        type Scratch = ();

        fn batch(
            &self,
            seeds: SeedBatch,
            _: &mut (),
            _: &mut StageTimes,
        ) -> std::result::Result<usize, BatchError> {
            Ok(seeds.step)
        }

        fn n_bytes(_: &usize) -> usize {
            1
        }
    }

    /// The system cannot be made to refuse a thread, so the refusal is put where `spawn` puts it.
    #[test]
    fn a_thread_that_cannot_be_started_is_the_first_item() {
        let config = ItemSamplerConfig { batch_size: 1, ..Default::default() };
        let items = ItemSampler::new([0, 1, 2].map(NodeId), config).unwrap();
        let loader = Loader::new(items, Steps, LoaderConfig { workers: 2, queue_bytes: 1 }).unwrap();
        let mut batches = loader.epoch(Phase::Train { epoch: 0 });
        let source = std::io::Error::from(std::io::ErrorKind::WouldBlock);
        batches.fault = Some(Error::Spawn { worker: 2, source });
        assert!(matches!(batches.next(), Some(Err(Error::Spawn { worker: 2, .. }))));
        assert!(batches.threads.is_empty());
        assert!(batches.next().is_none());
    }
}
