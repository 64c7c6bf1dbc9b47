use std::path::Path;

use crate::evaluate::validation::Validation;
use crate::run::state::Run;
use crate::run::validation_end::ValidationEnd;
use crate::step::reports::{EpochReport, StepReport};
use crate::step::task::metric_sums::MetricSums;

/// Receives a run's progress.
///
/// All methods have defaults: they pass the call to the callbacks that [`TrainCallback::for_each`] visits, which are none unless
/// the callback consists of others. Pairs, `Option` and `Box` are such callbacks.
///
/// ```
/// use kiln_train::{TrainCallback, ValidationEnd};
/// /// Logs the share of positive predictions, and stops when all predictions are equal.
/// struct Positives;
/// impl TrainCallback for Positives {
///     fn wants_outputs(&mut self) -> bool {
///         true
///     }
///     fn validation_end(&mut self, end: &mut ValidationEnd<'_>) {
///         // Rank 0 has the outputs.
///         let Some(outputs) = end.outputs() else { return };
///         let predictions = outputs.predictions();
///         let n_positive = predictions.iter().filter(|said| said.predicted == Some(1)).count();
///         let share = n_positive as f64 / predictions.len() as f64;
///         end.log("positive/validation", share);
///         if share == 0.0 || share == 1.0 {
///             end.stop("all predictions are equal");
///         }
///     }
/// }
/// ```
pub trait TrainCallback {
    /// Calls `visit` with each callback of which this one consists. The default is none. A callback that overrides it receives nothing
    /// itself, unless it overrides other methods, too.
    fn for_each(&mut self, _visit: &mut dyn FnMut(&mut dyn TrainCallback)) {}

    /// Returns true if the callback reads the outputs of validations ([`ValidationEnd::outputs`]). They are then held in memory, and
    /// rank 0 gathers them. It is called once, when a run starts.
    fn wants_outputs(&mut self) -> bool {
        let mut any = false;
        self.for_each(&mut |callback| any |= callback.wants_outputs());
        any
    }

    /// Called when the run has started, or resumed ([`Run::resumed`]). An epoch has `n_steps` steps. Called once by
    /// [`RunConfig::fit`](crate::RunConfig::fit). A new run has no checkpoint yet: files that a callback writes to its folder
    /// before the first one would make the folder look like that of something else to a restart.
    fn started(&mut self, run: &Run, n_steps: usize) {
        self.for_each(&mut |callback| callback.started(run, n_steps));
    }

    /// Called when a training step has ended and its loss was read.
    fn step(&mut self, report: &StepReport) {
        self.for_each(&mut |callback| callback.step(report));
    }

    /// Called when the last step of an epoch has ended; validation follows.
    fn epoch_trained(&mut self, train: &EpochReport) {
        self.for_each(&mut |callback| callback.epoch_trained(train));
    }

    /// Called when an epoch was validated, before [`TrainCallback::epoch`], with the metric that selects the best epoch.
    fn validated(&mut self, val: &Validation) {
        self.for_each(&mut |callback| callback.validated(val));
    }

    /// Called after [`TrainCallback::validated`], also without a validation split, before the epoch is recorded. It may read the outputs of the validation, log values and
    /// stop the run.
    fn validation_end(&mut self, end: &mut ValidationEnd<'_>) {
        self.for_each(&mut |callback| callback.validation_end(end));
    }

    /// Called after [`TrainCallback::validation_end`] with the values that all callbacks have logged, by name, if there are any.
    fn logged(&mut self, values: &[(String, f64)]) {
        self.for_each(&mut |callback| callback.logged(values));
    }

    /// Called before a checkpoint is written. A run that is killed after it resumes there: what a callback has not written by then
    /// is lost.
    fn saving(&mut self) {
        self.for_each(&mut |callback| callback.saving());
    }

    /// Called when an epoch, counted from 1, was trained, validated and recorded.
    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        self.for_each(&mut |callback| callback.epoch(epoch, train, val, is_best));
    }

    /// Called before the first step with a property of the run that its results should be read with, such as few steps in an
    /// epoch, or losses of standardised targets.
    fn note(&mut self, text: &str) {
        self.for_each(&mut |callback| callback.note(text));
    }

    /// Called when the run has a warning for the user ([`Run::take_warnings`]), when outputs of the validation are not finite (and
    /// again when their number grows), and before the first checkpoint waits for
    /// the hash of the data at a stop or at the end of an epoch.
    fn warning(&mut self, text: &str) {
        self.for_each(&mut |callback| callback.warning(text));
    }

    /// Called when a file that this process has mapped was replaced: its path is gone or refers to another file. The
    /// run continues with the old contents. The call is repeated before each further [`TrainCallback::epoch`].
    fn file_replaced(&mut self, path: &Path) {
        self.for_each(&mut |callback| callback.file_replaced(path));
    }
}

/// Ignores all events.
impl TrainCallback for () {}

/// Forwards to the callback if there is one. Ranks that do not report pass `None`.
impl<O: TrainCallback> TrainCallback for Option<O> {
    fn for_each(&mut self, visit: &mut dyn FnMut(&mut dyn TrainCallback)) {
        if let Some(callback) = self {
            visit(callback);
        }
    }
}

/// Forwards to a callback that is chosen at run time.
impl TrainCallback for Box<dyn TrainCallback> {
    fn for_each(&mut self, visit: &mut dyn FnMut(&mut dyn TrainCallback)) {
        visit(&mut **self);
    }
}

/// Forwards to a callback that is used elsewhere later.
impl<T: TrainCallback> TrainCallback for &mut T {
    fn for_each(&mut self, visit: &mut dyn FnMut(&mut dyn TrainCallback)) {
        visit(&mut **self);
    }
}

/// Forwards to both callbacks, in this order.
impl<A: TrainCallback, B: TrainCallback> TrainCallback for (A, B) {
    fn for_each(&mut self, visit: &mut dyn FnMut(&mut dyn TrainCallback)) {
        visit(&mut self.0);
        visit(&mut self.1);
    }
}
