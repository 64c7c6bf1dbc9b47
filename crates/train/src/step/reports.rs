use std::time::{Duration, Instant};

use kiln_loader::StageTimes;
use serde::Serialize;

use crate::step::memory::{MemoryUse, PeakMemory};
use crate::step::task::metric_sums::MetricSums;

/// The time that a step or an epoch spent in each stage. The first three stages run in the loader's workers, in
/// parallel with the others; `wait` is the loader time that did not overlap with compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timings {
    /// The time of selecting seeds, sampling and gathering, summed over the workers.
    pub loader: StageTimes,
    /// The time that the trainer waited for the loader.
    pub wait: Duration,
    /// The time of receiving the batch. Copying it to the device is part of the loader's `gather`.
    pub upload: Duration,
    /// The time of the model and the loss, until the loss is read. On asynchronous devices this includes all work of
    /// the device that the loss depends on.
    pub forward: Duration,
    /// The time of the backward pass.
    pub backward: Duration,
    /// The time of averaging gradients over the ranks.
    pub sync: Duration,
    /// The time of the optimizer step.
    pub update: Duration,
}

impl Timings {
    /// Returns the seconds of each stage by name, in the order of the stages of a batch.
    pub fn seconds(&self) -> [(&'static str, f64); 9] {
        self.stages().map(|(name, time)| (name, time.as_secs_f64()))
    }

    /// Returns the nanoseconds of each stage, in the order of [`Timings::seconds`].
    pub(crate) fn to_nanos(self) -> [u64; 9] {
        self.stages().map(|(_, time)| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    fn stages(&self) -> [(&'static str, Duration); 9] {
        [
            ("seeds", self.loader.seeds),
            ("sample", self.loader.sample),
            ("gather", self.loader.gather),
            ("wait", self.wait),
            ("upload", self.upload),
            ("forward", self.forward),
            ("backward", self.backward),
            ("sync", self.sync),
            ("update", self.update),
        ]
    }

    /// Decodes the numbers of [`Timings::to_nanos`].
    pub(crate) fn from_nanos(nanos: [u64; 9]) -> Self {
        let [seeds, sample, gather, wait, upload, forward, backward, sync, update] =
            nanos.map(Duration::from_nanos);
        let loader = StageTimes { seeds, sample, gather };
        Self { loader, wait, upload, forward, backward, sync, update }
    }
}

impl Serialize for Timings {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.seconds())
    }
}

/// The report of one training step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// The step within the epoch, from 0.
    pub step: usize,
    /// The metric sums of all ranks, computed with the parameters before the update.
    pub counts: MetricSums,
    /// The time from requesting the batch to the end of the update. If losses are read several steps at a time, the
    /// first of these steps includes the wait until the device has completed all of them.
    pub wall: Duration,
}

/// The mean step time without the first steps, which wait for the loader's first batches and for memory allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeanStepTime {
    n_warmup: u64,
    n_seen: u64,
    sum: Duration,
}

impl MeanStepTime {
    /// Creates a mean that skips the first `n_warmup` steps.
    pub fn new(n_warmup: u64) -> Self {
        Self { n_warmup, n_seen: 0, sum: Duration::ZERO }
    }

    /// Adds the time of the next step.
    pub fn add(&mut self, wall: Duration) {
        self.n_seen += 1;
        if self.n_warmup < self.n_seen {
            self.sum += wall;
        }
    }

    /// Returns the number of steps in the mean.
    pub fn n_steps(&self) -> u64 {
        self.n_seen.saturating_sub(self.n_warmup)
    }

    /// Returns the mean; `None` if no step after the warm-up was added yet.
    pub fn mean(&self) -> Option<Duration> {
        let n_steps = self.n_steps();
        (0 < n_steps).then(|| self.sum.div_f64(n_steps as f64))
    }
}

/// The report of one training epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochReport {
    /// The number of steps.
    pub n_steps: usize,
    /// The metric sums of all ranks. Those of each step are computed with the parameters before its update.
    pub counts: MetricSums,
    /// The time of each stage on this rank.
    pub timings: Timings,
    /// The time from requesting the first batch to the last update. Steps that were repeated after a stop count once.
    pub wall: Duration,
    /// The peak memory in the epoch.
    pub peak_memory: MemoryUse,
}

/// A step whose loss and outputs are still on the device.
pub(crate) struct Unread {
    /// The step within the epoch, from 0.
    pub(crate) step: usize,
    /// The time of the step without the wait for its loss.
    pub(crate) wall: Duration,
    /// Waits for the device and reads the loss and the outputs.
    pub(crate) read: Box<dyn FnOnce() -> MetricSums>,
}

impl std::fmt::Debug for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unread").field("step", &self.step).finish_non_exhaustive()
    }
}

/// The state of a trainer's current epoch.
#[derive(Debug)]
pub(crate) struct EpochState {
    /// The number of the epoch, from 0.
    pub(crate) epoch: usize,
    /// The number of completed steps, including those before a resumption.
    pub(crate) n_steps: usize,
    /// The metric sums of all ranks for the completed steps, including those before a resumption, without the unread
    /// steps.
    pub(crate) counts: MetricSums,
    /// The last steps, in order, whose losses have not been read yet.
    pub(crate) unread: Vec<Unread>,
    /// The time of each stage in the completed steps, including those before a resumption.
    pub(crate) timings: Timings,
    pub(crate) memory: PeakMemory,
    /// The start of the first step in this process.
    pub(crate) started: Option<Instant>,
    /// The time of the steps before a resumption.
    earlier: Duration,
}

impl EpochState {
    /// Returns the state at the start of an epoch, counted from 0.
    pub(crate) fn start(epoch: usize) -> Self {
        Self::resume(epoch, 0, MetricSums::default(), Timings::default(), Duration::ZERO)
    }

    /// Returns the state of an epoch of which an earlier process completed some steps.
    pub(crate) fn resume(
        epoch: usize,
        n_steps: usize,
        counts: MetricSums,
        timings: Timings,
        earlier: Duration,
    ) -> Self {
        let memory = PeakMemory::default();
        let unread = Vec::new();
        Self { epoch, n_steps, counts, unread, timings, memory, started: None, earlier }
    }

    pub(crate) fn report(&self) -> EpochReport {
        let &Self { n_steps, counts, timings, memory, .. } = self;
        EpochReport { n_steps, counts, timings, wall: self.wall(), peak_memory: memory.get() }
    }

    /// Returns the time of all steps so far.
    pub(crate) fn wall(&self) -> Duration {
        self.earlier + self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }
}
