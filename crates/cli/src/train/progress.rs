//! The progress of a run: a bar on a terminal, and a line per epoch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use kiln::train::{
    EpochReport, MeanStepTime, MetricSums, Resumed, Run, StepReport, TrainCallback, Validation,
};
use serde_json::json;

use crate::output::{is_json, print_event, print_rank_zero, set_bar};

/// The number of steps at the start of a run that the mean iteration time excludes.
const WARMUP_STEPS: u64 = 10;

/// A callback that shows the progress over all steps of a run.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    n_epochs: usize,
    /// The number of finished epochs.
    n_done: usize,
    n_ranks: usize,
    n_seeds: u64,
    loss_every: Option<usize>,
    step_time: MeanStepTime,
    validation_time: MeanStepTime,
    /// The last validation.
    val: Option<Validation>,
    /// The files already reported as replaced.
    replaced: BTreeSet<PathBuf>,
}

impl Progress {
    /// Returns a progress bar for `n_epochs`, drawn on standard error if that is a terminal. With `loss_every`, it also
    /// prints the loss every `loss_every` steps of an epoch.
    pub(crate) fn new(n_epochs: usize, n_ranks: usize, loss_every: Option<usize>) -> Self {
        let bar = if is_json() { ProgressBar::hidden() } else { ProgressBar::no_length() };
        let style = ProgressStyle::with_template("{bar:30} step {pos}/{len}  {msg}  {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        set_bar(Some(bar.clone()));
        let (step_time, validation_time) = (MeanStepTime::new(WARMUP_STEPS), MeanStepTime::new(0));
        let (n_done, n_seeds, replaced) = (0, 0, BTreeSet::new());
        Self {
            bar,
            n_epochs,
            n_done,
            n_ranks,
            n_seeds,
            loss_every,
            step_time,
            validation_time,
            val: None,
            replaced,
        }
    }
}

/// Clears the bar, and prints the mean times of an iteration and of a validation.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        set_bar(None);
        if let Some(mean) = self.step_time.mean() {
            let (ms, n_steps) = (mean.as_secs_f64() * 1e3, self.step_time.n_steps());
            print_rank_zero(format_args!(
                "iteration       {ms:.1} ms, mean of {n_steps} after {WARMUP_STEPS} for warm-up"
            ));
        }
        if let Some(mean) = self.validation_time.mean() {
            let (ms, n_times) = (mean.as_secs_f64() * 1e3, self.validation_time.n_steps());
            print_rank_zero(format_args!("validation      {ms:.1} ms, mean of {n_times}"));
        }
    }
}

impl TrainCallback for Progress {
    fn started(&mut self, run: &Run, n_steps: usize) {
        self.bar.set_length(self.n_epochs.saturating_mul(n_steps) as u64);
        self.n_done = run.n_epochs();
        let Some(Resumed { epoch, step, n_ranks, damage }) = run.resumed() else { return };
        if let Some(damage) = damage {
            print_rank_zero(format_args!("note: {damage}: resuming from the previous checkpoint"));
        }
        print_rank_zero(format_args!("resumed after {epoch} epochs and {step} steps"));
        if *n_ranks != self.n_ranks {
            let ranks = self.n_ranks;
            print_rank_zero(format_args!(
                "note: resumed on {ranks} ranks, previously {n_ranks}: items, samples and dropout masks are identical, \
                 but sums round differently and batch normalisation sees other batches"
            ));
        }
        self.bar.set_position((epoch * n_steps + step) as u64);
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
            if is_json() {
                let epoch = self.n_done + 1;
                return print_event("step", json!({ "epoch": epoch, "step": step, "loss": loss }));
            }
            self.bar.suspend(|| print_rank_zero(format_args!("step {step:5}  loss {loss:.4}")));
        }
    }

    fn validated(&mut self, val: &Validation) {
        if let Some(wall) = val.wall {
            self.validation_time.add(wall);
        }
        self.val = Some(*val);
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        let seconds = train.wall.as_secs_f64();
        self.n_done = epoch;
        if is_json() {
            let Validation { metric, value, .. } = self.val.unwrap_or(val.into());
            let mut fields = json!({
                "epoch": epoch, "n_epochs": self.n_epochs, "loss": train.counts.loss(), "val_loss": val.loss(),
                "val_metric": metric.name(), "val_value": value, "seconds": seconds, "is_best": is_best,
            });
            if val.n_not_finite != 0 {
                fields["val_not_finite"] = val.n_not_finite.into();
            }
            return print_event("epoch", fields);
        }
        let line = format!(
            "epoch {epoch:3}/{}  loss {:.4}  {}  {seconds:.2} s  {:.0} seeds/s{}",
            self.n_epochs,
            train.counts.loss(),
            self.val.unwrap_or(val.into()).progress(&train.counts),
            train.counts.total as f64 / seconds,
            if is_best { "  *" } else { "" },
        );
        self.bar.suspend(|| print_rank_zero(line));
    }

    fn file_replaced(&mut self, path: &Path) {
        if self.replaced.insert(path.to_owned()) {
            let path = path.display();
            let line = format!(
                "note: {path} was replaced or removed: this run continues with the file that it opened"
            );
            self.bar.suspend(|| print_rank_zero(line));
        }
    }
}
