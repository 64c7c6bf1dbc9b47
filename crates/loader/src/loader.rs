use std::any::Any;
use std::fmt;
use std::iter::FusedIterator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::queue::{Made, Queue};
use crate::{Batcher, EpochPlan, Error, ItemSampler, Phase, Result, StageTimes};

/// The upper bound on the number of workers, which catches typing errors.
const MAX_WORKERS: usize = 1024;

/// The settings of a loader's worker threads and queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderConfig {
    /// The number of worker threads, at most 1,024. With 0, the caller's thread makes each batch on request.
    pub workers: usize,
    /// The limit in bytes of all batches that are finished or being made. Batches that the caller has taken do not
    /// count. One batch is always allowed, whatever its size.
    pub queue_bytes: usize,
}

impl Default for LoaderConfig {
    /// Returns two workers and a queue of 256 MiB.
    fn default() -> Self {
        Self { workers: 2, queue_bytes: 256 << 20 }
    }
}

/// A data loader: makes the batches of each phase in worker threads and returns them in order.
///
/// The batches do not depend on the number of workers or on the size of the queue. Each phase starts its own threads,
/// which exit at the latest when its [`Batches`] is dropped. Between phases the loader keeps only the workers' buffers.
pub struct Loader<F: Batcher> {
    items: ItemSampler<F::Item>,
    config: LoaderConfig,
    shared: Arc<Shared<F>>,
}

/// The state that phases share.
struct Shared<F: Batcher> {
    batcher: F,
    kept: Mutex<Kept<F::Scratch>>,
}

/// The state that a phase leaves for later phases. Its lock is never held together with another lock or while user
/// code runs.
struct Kept<S> {
    scratches: Vec<S>,
    /// The size of the largest batch of earlier phases in bytes; 0 before the first phase.
    largest_bytes: usize,
}

impl<F: Batcher> Loader<F> {
    /// Creates a loader of the sampler's batches, which `batcher` makes.
    ///
    /// # Errors
    /// Returns [`Error::TooManyWorkers`] for more than 1,024 workers.
    pub fn new(items: ItemSampler<F::Item>, batcher: F, config: LoaderConfig) -> Result<Self> {
        if config.workers > MAX_WORKERS {
            return Err(Error::TooManyWorkers { workers: config.workers, max: MAX_WORKERS });
        }
        let kept = Mutex::new(Kept { scratches: Vec::new(), largest_bytes: 0 });
        Ok(Self { items, config, shared: Arc::new(Shared { batcher, kept }) })
    }

    /// Returns the number of steps of a phase, the same on all ranks.
    pub fn n_steps(&self, phase: Phase) -> usize {
        self.items.n_steps(phase)
    }

    /// Returns the item sampler.
    pub fn items(&self) -> &ItemSampler<F::Item> {
        &self.items
    }

    /// Starts a phase and returns its batches. Shuffles the items and starts the worker threads, which start to make
    /// batches immediately. If a thread cannot be started, the iterator's first item is [`Error::Spawn`]. Phases may
    /// overlap: each has its own threads and queue.
    pub fn epoch(&self, phase: Phase) -> Batches<F> {
        self.epoch_from(phase, 0)
    }

    /// Same as [`Loader::epoch`], but starts at `first_step` and does not make the batches of earlier steps. Use it to
    /// resume a run. Returns no batches if `first_step` is not below the number of steps.
    pub fn epoch_from(&self, phase: Phase, first_step: usize) -> Batches<F> {
        let start = Instant::now();
        let order = self.items.epoch(phase);
        let n_steps = order.n_steps();
        let per_step = order.batches_per_step();
        let first_batch = first_step.min(n_steps) * per_step;
        let n_batches = n_steps * per_step;
        let largest_bytes = self.shared.kept().largest_bytes;
        let run = Arc::new(Run {
            queue: Queue::new(first_batch..n_batches, self.config.queue_bytes, largest_bytes),
            shuffle_time: start.elapsed(),
            first_batch,
            order,
            shared: Arc::clone(&self.shared),
        });
        let mut batches =
            Batches { run, threads: Vec::new(), inline: None, fault: None, next_batch: first_batch };
        if self.config.workers == 0 {
            batches.inline = Some(Scratch::new(&self.shared));
        } else {
            batches.spawn(self.config.workers.min(n_batches - first_batch));
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

/// The batches of one phase, in the order of their steps.
///
/// The iterator ends after an `Err`: it has then returned all batches before the failed step and discards later ones.
///
/// `Batches` owns the worker threads of the phase. They exit when all steps are made, after a fault, and on drop, which
/// joins them. A drop waits only for batches that are being made, because they cannot be interrupted. The queue is
/// bounded by [`LoaderConfig::queue_bytes`]. The threads cannot deadlock: steps are started and taken in order, a step
/// may always start if no earlier step is ready or in flight, and every started step is published, even after a panic.
pub struct Batches<F: Batcher> {
    run: Arc<Run<F>>,
    threads: Vec<JoinHandle<()>>,
    /// The buffers of the caller's thread if there are no workers.
    inline: Option<Scratch<F>>,
    /// The error of a thread that could not be started; `None` after the iterator has returned it.
    fault: Option<Error>,
    /// The next batch to return, counted over the whole phase.
    next_batch: usize,
}

/// The state that the threads of one phase share.
struct Run<F: Batcher> {
    queue: Queue<F::Batch>,
    order: EpochPlan<F::Item>,
    shuffle_time: Duration,
    first_batch: usize,
    shared: Arc<Shared<F>>,
}

impl<F: Batcher> Batches<F> {
    /// Returns the number of steps of the whole phase, including the steps that [`Loader::epoch_from`] skipped.
    pub fn n_steps(&self) -> usize {
        self.run.order.n_steps()
    }

    /// Waits until the iterator can return its next item without waiting for a worker, for at most this time, and returns whether
    /// it can. Without workers, and at the end, it can at once. A caller that must react to other events waits in short turns.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use kiln_feature::DenseFeatures;
    /// use kiln_graph::{CscBuilder, NodeId};
    /// use kiln_loader::{ItemSampler, Loader, LoaderConfig, NodeBatcher, Phase};
    /// use kiln_sample::{Fanout, NeighborSampler};
    /// let graph = Arc::new(CscBuilder::new(2).build(&[0], &[1])?);
    /// let sampler = Arc::new(NeighborSampler::new(graph, [Fanout::All]));
    /// let features = Arc::new(DenseFeatures::from_f32(vec![0.5, 1.5], 1)?);
    /// let batcher = NodeBatcher::without_targets(sampler, features);
    /// let items = ItemSampler::new([NodeId(1)], Default::default())?;
    /// let mut batches = Loader::new(items, batcher, LoaderConfig::default())?.epoch(Phase::Test);
    /// while !batches.wait(Duration::from_millis(100)) {
    ///     // Look whether the user wants to stop.
    /// }
    /// assert_eq!(batches.next().unwrap()?.input.only().unwrap().x.n_values(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self, at_most: Duration) -> bool {
        let is_waiting = self.fault.is_none() && self.inline.is_none() && self.next_batch < self.n_batches();
        !is_waiting || self.run.queue.wait_for(self.next_batch, at_most)
    }

    fn n_batches(&self) -> usize {
        self.n_steps() * self.run.order.batches_per_step()
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

    /// Ends the phase: starts and returns no further batches, and joins all threads.
    fn finish(&mut self) {
        self.next_batch = self.n_batches();
        self.run.queue.close();
        for thread in self.threads.drain(..) {
            // A thread can only panic after it has published its last step, while it drops values of the user's
            // types. The panic hook has reported it and no batch is lost, so the error is ignored.
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
        if self.next_batch >= self.n_batches() {
            return None;
        }
        let outcome = match &mut self.inline {
            Some(scratch) => self.run.make(self.next_batch, scratch).outcome,
            None => self.run.queue.take(self.next_batch),
        };
        self.next_batch += 1;
        if outcome.is_err() || self.next_batch == self.n_batches() {
            self.finish();
        }
        Some(outcome)
    }

    /// Returns 0 and the number of remaining batches as bounds, because a fault ends the iterator early.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.n_batches() - self.next_batch))
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
            .field("next_batch", &self.next_batch)
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl<F: Batcher> Run<F> {
    fn work(&self) {
        let mut scratch = Scratch::new(&self.shared);
        while let Some(batch) = self.queue.start() {
            self.queue.publish(batch, self.make(batch, &mut scratch));
        }
    }

    /// Makes one batch, counted over all steps. Converts a panic of the batcher into an error.
    fn make(&self, batch: usize, scratch: &mut Scratch<F>) -> Made<F::Batch> {
        let step = batch / self.order.batches_per_step();
        // Unwind safety: after a panic the buffers are discarded and the phase ends, so no code uses broken buffers.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let start = Instant::now();
            let seeds = self.order.batch(batch);
            let mut times = StageTimes { seeds: start.elapsed(), ..StageTimes::default() };
            if batch == self.first_batch {
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
                // The payload can have any type. If dropping it panicked, this step would never be published, so it is
                // not dropped.
                std::mem::forget(payload);
                Made { outcome: Err(Error::WorkerPanicked { step, message }), n_bytes: 0 }
            }
        }
    }
}

/// The buffers of one thread. On drop they are returned to the loader for later phases.
struct Scratch<F: Batcher> {
    /// The buffers; created on first use, inside the code that catches panics.
    buffers: Option<F::Scratch>,
    /// True if a panic occurred while the buffers were in use.
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

/// Returns the message of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
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

    /// A test cannot make the system refuse a thread, so this test sets the error that `spawn` would set.
    #[test]
    fn a_failed_thread_start_is_returned_as_the_first_item() {
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
