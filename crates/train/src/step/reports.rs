use std::time::{Duration, Instant};

use kiln_loader::StageTimes;
use serde::Serialize;

use crate::step::memory::{MemoryUse, PeakMemory};
use crate::step::metric_sums::MetricSums;

/// Where the time of a step or of an epoch went. The first three stages ran in the loader's workers,
/// beside the others; `wait` is what of them was not hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timings {
    /// Picking seeds, sampling and gathering, summed over the workers.
    pub loader: StageTimes,
    /// Waiting for the loader.
    pub wait: Duration,
    /// Receiving the batch. Copying it to the device is a part of the loader's `gather`.
    pub upload: Duration,
    /// The model and the loss, and waiting for it; on other devices than the processor, all work of the device that the
    /// loss waits for.
    pub forward: Duration,
    /// Gradients.
    pub backward: Duration,
    /// Averaging gradients over the ranks.
    pub sync: Duration,
    /// The optimizer's step.
    pub update: Duration,
}

impl Timings {
    /// The stages by name, in seconds, in the order in which a batch passes them.
    pub fn seconds(&self) -> [(&'static str, f64); 9] {
        self.stages().map(|(name, time)| (name, time.as_secs_f64()))
    }

    /// The stages in nanoseconds, in the order of [`Timings::seconds`].
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

    /// The stages that [`Timings::to_nanos`] gave these numbers of.
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

/// One step of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// The step within the epoch.
    pub step: usize,
    /// Counts of all ranks, under the parameters before the update.
    pub counts: MetricSums,
    /// Time from asking for the batch to the end of the update. Where losses are read several steps at a time, the first
    /// of these has the wait for the device of all of them.
    pub wall: Duration,
}

/// The mean time of a step, the first steps left out: they wait for the loader's first batches and for
/// memory that later steps find in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeanStepTime {
    n_warmup: u64,
    n_seen: u64,
    sum: Duration,
}

impl MeanStepTime {
    /// A mean that leaves out the first `n_warmup` steps.
    pub fn new(n_warmup: u64) -> Self {
        Self { n_warmup, n_seen: 0, sum: Duration::ZERO }
    }

    /// Takes the time of the next step.
    pub fn add(&mut self, wall: Duration) {
        self.n_seen += 1;
        if self.n_warmup < self.n_seen {
            self.sum += wall;
        }
    }

    /// Steps that the mean is taken over.
    pub fn n_steps(&self) -> u64 {
        self.n_seen.saturating_sub(self.n_warmup)
    }

    /// The mean; `None` before a step after the warm-up.
    pub fn mean(&self) -> Option<Duration> {
        let n_steps = self.n_steps();
        (0 < n_steps).then(|| self.sum.div_f64(n_steps as f64))
    }
}

/// One epoch of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochReport {
    /// Number of steps.
    pub n_steps: usize,
    /// Counts of all ranks, each step's under its own parameters.
    pub counts: MetricSums,
    /// Where this rank's time went.
    pub timings: Timings,
    /// Time from the first batch asked for to the last update; what was done again after a stop counts once.
    pub wall: Duration,
    /// The most memory seen in the epoch.
    pub peak_memory: MemoryUse,
}

/// A step whose loss and outputs are still on the device.
pub(crate) struct Unread {
    /// The step within the epoch.
    pub(crate) step: usize,
    /// Its time without the wait for its loss.
    pub(crate) wall: Duration,
    /// Waits for the device and reads them.
    pub(crate) read: Box<dyn FnOnce() -> MetricSums>,
}

impl std::fmt::Debug for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unread").field("step", &self.step).finish_non_exhaustive()
    }
}

/// The epoch that a trainer is in.
#[derive(Debug)]
pub(crate) struct EpochState {
    /// The epoch, from 0.
    pub(crate) epoch: usize,
    /// Steps that are done, those before a resumption included; the same of all that follows.
    pub(crate) n_steps: usize,
    /// Counts of these steps, of all ranks, but for those that are unread.
    pub(crate) counts: MetricSums,
    /// The last steps, in their order, as far as nobody has waited for them.
    pub(crate) unread: Vec<Unread>,
    pub(crate) timings: Timings,
    pub(crate) memory: PeakMemory,
    /// When its first step of this process began.
    pub(crate) started: Option<Instant>,
    /// Time that steps before a resumption took.
    earlier: Duration,
}

impl EpochState {
    /// The start of an epoch, counted from 0.
    pub(crate) fn start(epoch: usize) -> Self {
        Self::resume(epoch, 0, MetricSums::default(), Timings::default(), Duration::ZERO)
    }

    /// An epoch of which some steps were done, by a process that is no more.
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

    /// How long its steps took.
    pub(crate) fn wall(&self) -> Duration {
        self.earlier + self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }
}
