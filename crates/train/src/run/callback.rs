use std::path::Path;

use crate::run::state::Run;
use crate::step::metric_sums::MetricSums;
use crate::step::reports::{EpochReport, StepReport};

/// Receives a run's progress.
pub trait TrainCallback {
    /// The run started, or resumed ([`Run::resumed`]). Called once by [`RunConfig::fit`](crate::RunConfig::fit).
    fn started(&mut self, _run: &Run) {}

    /// A training step was done.
    fn step(&mut self, report: &StepReport);

    /// An epoch, counted from 1, was trained, validated and recorded.
    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool);

    /// The run has a warning for its user ([`Run::take_warnings`]). Ignored where an observer has no use for it.
    fn warning(&mut self, _text: &str) {}

    /// A file that this process has mapped was replaced: its path names another file, or none. The run goes on with the
    /// old one. Called before each [`TrainCallback::epoch`] from then on.
    fn file_replaced(&mut self, _path: &Path) {}
}

/// Ignores everything.
impl TrainCallback for () {
    fn step(&mut self, _: &StepReport) {}

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
}

/// Nobody, or somebody: on ranks that print nothing and the one that does.
impl<O: TrainCallback> TrainCallback for Option<O> {
    fn started(&mut self, run: &Run) {
        if let Some(callback) = self {
            callback.started(run);
        }
    }

    fn step(&mut self, report: &StepReport) {
        if let Some(callback) = self {
            callback.step(report);
        }
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        if let Some(callback) = self {
            callback.epoch(epoch, train, val, is_best);
        }
    }

    fn warning(&mut self, text: &str) {
        if let Some(callback) = self {
            callback.warning(text);
        }
    }

    fn file_replaced(&mut self, path: &Path) {
        if let Some(callback) = self {
            callback.file_replaced(path);
        }
    }
}

/// Any, chosen at run time.
impl TrainCallback for Box<dyn TrainCallback> {
    fn started(&mut self, run: &Run) {
        (**self).started(run);
    }

    fn step(&mut self, report: &StepReport) {
        (**self).step(report);
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        (**self).epoch(epoch, train, val, is_best);
    }

    fn warning(&mut self, text: &str) {
        (**self).warning(text);
    }

    fn file_replaced(&mut self, path: &Path) {
        (**self).file_replaced(path);
    }
}

/// Two, in this order.
impl<A: TrainCallback, B: TrainCallback> TrainCallback for (A, B) {
    fn started(&mut self, run: &Run) {
        self.0.started(run);
        self.1.started(run);
    }

    fn step(&mut self, report: &StepReport) {
        self.0.step(report);
        self.1.step(report);
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        self.0.epoch(epoch, train, val, is_best);
        self.1.epoch(epoch, train, val, is_best);
    }

    fn warning(&mut self, text: &str) {
        self.0.warning(text);
        self.1.warning(text);
    }

    fn file_replaced(&mut self, path: &Path) {
        self.0.file_replaced(path);
        self.1.file_replaced(path);
    }
}
