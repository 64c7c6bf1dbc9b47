use std::collections::BTreeMap;

use kiln_comm::Communicator;

use crate::error::Result;
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::validation::Validation;
use crate::metric::kind::Metric;
use crate::step::reports::EpochReport;

/// A validation with the outputs that it has read, if a callback wants them. [`Validation`] and
/// [`MetricSums`](crate::MetricSums) convert to one without outputs.
#[derive(Debug, Clone)]
pub struct Validated {
    /// The validation of all ranks.
    pub validation: Validation,
    /// The outputs of all ranks on rank 0, in the order of the ranks; `None` if they were not gathered, and on other ranks.
    pub outputs: Option<Evaluation>,
}

impl Validated {
    /// Computes a metric of the outputs of all ranks like [`Validation::of`], and gathers the outputs on rank 0. Collective: every
    /// rank must call it.
    ///
    /// # Errors
    /// Returns the errors of [`Validation::of`].
    pub fn of(own: Evaluation, metric: Metric, comm: &mut dyn Communicator) -> Result<Self> {
        let validation = Validation::of(&own, metric, comm)?;
        let is_rank_zero = comm.rank_info().rank == 0;
        let outputs = own.gather(comm)?;
        Ok(Self { validation, outputs: is_rank_zero.then_some(outputs) })
    }
}

impl<V: Into<Validation>> From<V> for Validated {
    fn from(validation: V) -> Self {
        Self { validation: validation.into(), outputs: None }
    }
}

/// The end of an epoch's validation, for [`TrainCallback::validation_end`](crate::TrainCallback::validation_end).
#[derive(Debug)]
pub struct ValidationEnd<'a> {
    epoch: usize,
    train: &'a EpochReport,
    validated: &'a Validated,
    logged: BTreeMap<String, f64>,
    reason: Option<String>,
}

impl<'a> ValidationEnd<'a> {
    pub(crate) fn new(epoch: usize, train: &'a EpochReport, validated: &'a Validated) -> Self {
        Self { epoch, train, validated, logged: BTreeMap::new(), reason: None }
    }

    /// Returns the number of the epoch, from 1.
    pub fn epoch(&self) -> usize {
        self.epoch
    }

    /// Returns the report of the epoch's training steps.
    pub fn train(&self) -> &EpochReport {
        self.train
    }

    /// Returns the validation: its loss, and the value of the metric that selects the best epoch.
    pub fn validation(&self) -> &Validation {
        &self.validated.validation
    }

    /// Returns the outputs for the items of the validation split, with their targets, on rank 0; `None` on other ranks, without a
    /// validation split, and unless a callback wants them ([`TrainCallback::wants_outputs`](crate::TrainCallback::wants_outputs)).
    pub fn outputs(&self) -> Option<&'a Evaluation> {
        self.validated.outputs.as_ref()
    }

    /// Logs a value of the epoch: in the row of the epoch in `metrics.jsonl`, under `logged`, and by a
    /// [`TensorBoard`](crate::TensorBoard) with the name as tag. A second value by the same name replaces the first. Only values of
    /// rank 0 are written.
    pub fn log(&mut self, name: &str, value: f64) {
        self.logged.insert(name.to_owned(), value);
    }

    /// Stops the run after this epoch, as the end of a patience does: it is complete, its best epoch is tested, and its summary has
    /// the reason. A call on any rank stops all ranks; the first reason is kept. A run that has stopped does not train further when it is
    /// resumed.
    pub fn stop(&mut self, reason: &str) {
        self.reason.get_or_insert_with(|| reason.to_owned());
    }

    /// Returns the logged values and the reason to stop.
    pub(crate) fn into_parts(self) -> (BTreeMap<String, f64>, Option<String>) {
        (self.logged, self.reason)
    }
}
