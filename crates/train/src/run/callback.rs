use std::path::Path;

use crate::evaluate::validation::Validation;
use crate::run::state::Run;
use crate::step::reports::{EpochReport, StepReport};
use crate::step::task::metric_sums::MetricSums;

/// Receives a run's progress.
pub trait TrainCallback {
    /// Called when the run has started, or resumed ([`Run::resumed`]). An epoch has `n_steps` steps. Called once by
    /// [`RunConfig::fit`](crate::RunConfig::fit). A new run has no checkpoint yet: files that a callback writes to its folder
    /// before the first one would make the folder look like that of something else to a restart.
    fn started(&mut self, _run: &Run, _n_steps: usize) {}

    /// Called when a training step has ended and its loss was read.
    fn step(&mut self, report: &StepReport);

    /// Called when the last step of an epoch has ended; validation follows.
    fn epoch_trained(&mut self, _train: &EpochReport) {}

    /// Called when an epoch was validated, before [`TrainCallback::epoch`], with the metric that selects the best epoch.
    fn validated(&mut self, _val: &Validation) {}

    /// Called before a checkpoint is written. A run that is killed after it resumes there: what a callback has not written by then
    /// is lost.
    fn saving(&mut self) {}

    /// Called when an epoch, counted from 1, was trained, validated and recorded.
    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool);

    /// Called before the first step with a property of the run that its results should be read with, such as few steps in an
    /// epoch, or losses of standardised targets.
    fn note(&mut self, _text: &str) {}

    /// Called when the run has a warning for the user ([`Run::take_warnings`]), when outputs of the validation are not finite (and
    /// again when their number grows), and before the first checkpoint waits for
    /// the hash of the data at a stop or at the end of an epoch.
    fn warning(&mut self, _text: &str) {}

    /// Called when a file that this process has mapped was replaced: its path is gone or refers to another file. The
    /// run continues with the old contents. The call is repeated before each further [`TrainCallback::epoch`].
    fn file_replaced(&mut self, _path: &Path) {}
}

/// Ignores all events.
impl TrainCallback for () {
    fn step(&mut self, _: &StepReport) {}

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
}

/// Forwards to the callback if there is one. Ranks that do not report pass `None`.
impl<O: TrainCallback> TrainCallback for Option<O> {
    fn started(&mut self, run: &Run, n_steps: usize) {
        if let Some(callback) = self {
            callback.started(run, n_steps);
        }
    }

    fn epoch_trained(&mut self, train: &EpochReport) {
        if let Some(callback) = self {
            callback.epoch_trained(train);
        }
    }

    fn validated(&mut self, val: &Validation) {
        if let Some(callback) = self {
            callback.validated(val);
        }
    }

    fn saving(&mut self) {
        if let Some(callback) = self {
            callback.saving();
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

    fn note(&mut self, text: &str) {
        if let Some(callback) = self {
            callback.note(text);
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

/// Forwards to a callback that is chosen at run time.
impl TrainCallback for Box<dyn TrainCallback> {
    fn started(&mut self, run: &Run, n_steps: usize) {
        (**self).started(run, n_steps);
    }

    fn epoch_trained(&mut self, train: &EpochReport) {
        (**self).epoch_trained(train);
    }

    fn validated(&mut self, val: &Validation) {
        (**self).validated(val);
    }

    fn saving(&mut self) {
        (**self).saving();
    }

    fn step(&mut self, report: &StepReport) {
        (**self).step(report);
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        (**self).epoch(epoch, train, val, is_best);
    }

    fn note(&mut self, text: &str) {
        (**self).note(text);
    }

    fn warning(&mut self, text: &str) {
        (**self).warning(text);
    }

    fn file_replaced(&mut self, path: &Path) {
        (**self).file_replaced(path);
    }
}

/// Forwards to both callbacks, in this order.
impl<A: TrainCallback, B: TrainCallback> TrainCallback for (A, B) {
    fn started(&mut self, run: &Run, n_steps: usize) {
        self.0.started(run, n_steps);
        self.1.started(run, n_steps);
    }

    fn epoch_trained(&mut self, train: &EpochReport) {
        self.0.epoch_trained(train);
        self.1.epoch_trained(train);
    }

    fn validated(&mut self, val: &Validation) {
        self.0.validated(val);
        self.1.validated(val);
    }

    fn saving(&mut self) {
        self.0.saving();
        self.1.saving();
    }

    fn step(&mut self, report: &StepReport) {
        self.0.step(report);
        self.1.step(report);
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        self.0.epoch(epoch, train, val, is_best);
        self.1.epoch(epoch, train, val, is_best);
    }

    fn note(&mut self, text: &str) {
        self.0.note(text);
        self.1.note(text);
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
