//! Shows how far an epoch is: a bar on a terminal, nothing elsewhere, where the lines of whole epochs
//! are enough.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use kiln_train::{EpochReport, MeanStepTime, MetricSums, Resumed, Run, StepReport, TrainCallback};

/// Steps that the mean time of an iteration leaves out.
const WARMUP_STEPS: u64 = 10;

/// Prints a line, where ranks are processes on the first of them. That nobody reads it any more (`| head`) is no reason to stop a run that writes files.
pub fn say(line: impl fmt::Display) {
    if crate::launch().is_some_and(|launch| launch.rank != 0) {
        return;
    }
    let _ = writeln!(io::stdout(), "{line}");
}

/// Progress over all steps of a run.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    n_epochs: usize,
    /// Steps of an epoch.
    n_steps: usize,
    n_ranks: usize,
    n_seeds: u64,
    loss_every: Option<usize>,
    step_time: MeanStepTime,
    /// Files that were reported as replaced.
    replaced: BTreeSet<PathBuf>,
}

impl Progress {
    /// A bar for `n_epochs` of `n_steps` each, on standard error if that is a terminal. With `loss_every`, a
    /// line after so many steps of an epoch.
    pub fn new(n_epochs: usize, n_steps: usize, n_ranks: usize, loss_every: Option<usize>) -> Self {
        let bar = ProgressBar::new(n_epochs.saturating_mul(n_steps) as u64);
        let style = ProgressStyle::with_template("{bar:30} step {pos}/{len}  {msg}  {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let step_time = MeanStepTime::new(WARMUP_STEPS);
        Self { bar, n_epochs, n_steps, n_ranks, n_seeds: 0, loss_every, step_time, replaced: BTreeSet::new() }
    }

    /// Takes the bar away, and says how long an iteration took.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
        if let Some(mean) = self.step_time.mean() {
            let (ms, n_steps) = (mean.as_secs_f64() * 1e3, self.step_time.n_steps());
            say(format_args!(
                "iteration       {ms:.1} ms, mean of {n_steps} after {WARMUP_STEPS} for warm-up"
            ));
        }
    }
}

impl TrainCallback for Progress {
    fn started(&mut self, run: &Run) {
        let Some(Resumed { epoch, step, n_ranks, damage }) = run.resumed() else { return };
        if let Some(damage) = damage {
            say(format_args!("note: {damage}: going on from the checkpoint before it"));
        }
        say(format_args!("going on after {epoch} epochs and {step} steps"));
        if *n_ranks != self.n_ranks {
            let ranks = self.n_ranks;
            say(format_args!(
                "note: on {ranks} ranks after {n_ranks}: the same items, samples and masks, but sums round otherwise, and a batch normalisation sees other batches"
            ));
        }
        self.bar.set_position((epoch * self.n_steps + step) as u64);
        self.bar.reset_eta();
    }

    fn step(&mut self, report: &StepReport) {
        self.step_time.add(report.wall);
        self.n_seeds += report.counts.total;
        let seeds_per_second = self.n_seeds as f64 / self.bar.elapsed().as_secs_f64().max(1e-9);
        self.bar.set_message(format!("loss {:.4}  {seeds_per_second:.0} seeds/s", report.counts.loss()));
        self.bar.inc(1);
        if self.loss_every.is_some_and(|every| report.step.is_multiple_of(every)) {
            let (step, loss) = (report.step, report.counts.loss());
            self.bar.suspend(|| say(format_args!("step {step:5}  loss {loss:.4}")));
        }
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        let seconds = train.wall.as_secs_f64();
        let line = format!(
            "epoch {epoch:3}/{}  loss {:.4}  train {:.4}  val {:.4}  {seconds:.2} s  {:.0} seeds/s{}",
            self.n_epochs,
            train.counts.loss(),
            train.counts.accuracy(),
            val.accuracy(),
            train.counts.total as f64 / seconds,
            if is_best { "  *" } else { "" },
        );
        self.bar.suspend(|| say(line));
    }

    fn warning(&mut self, text: &str) {
        // Standard output may be a file on the disk that is full.
        self.bar.suspend(|| drop(writeln!(io::stderr(), "warning: {text}")));
    }

    fn file_replaced(&mut self, path: &Path) {
        if self.replaced.insert(path.to_owned()) {
            let path = path.display();
            let line = format!(
                "note: {path} was replaced or removed: this run goes on with the file that it has opened"
            );
            self.bar.suspend(|| say(line));
        }
    }
}

/// Prints a line an epoch for each rank, with what else there is to say of it.
pub(crate) struct TrainerLine<F> {
    pub(crate) rank: usize,
    pub(crate) besides: F,
}

impl<F: Fn() -> S, S: fmt::Display> TrainCallback for TrainerLine<F> {
    fn step(&mut self, _: &StepReport) {}

    fn epoch(&mut self, epoch: usize, train: &EpochReport, _: &MetricSums, _: bool) {
        let (rank, loss, seconds) = (self.rank, train.counts.loss(), train.wall.as_secs_f64());
        let besides = (self.besides)();
        // Of every process, not of the first one alone.
        let line = format!("trainer {rank}  epoch {epoch:3}  loss {loss:.4}  {seconds:.2} s  {besides}");
        let _ = writeln!(io::stdout(), "{line}");
    }
}
