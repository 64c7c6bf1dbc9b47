//! Checkpoints: one file, written atomically, that contains everything that a stopped run needs to resume.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Bytes, Tensor};
use kiln_feature::TargetKind;
use safetensors::tensor::{Dtype, TensorView, serialize};
use safetensors::{SafeTensorError, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, RunError};
use crate::evaluate::validation::Validation;
use crate::metric::kind::Metric;
use crate::metric::stats::{bits_of, value_of};
use crate::run::contract::DETERMINISM_CONTRACT;
use crate::run::contract::Provenance;
use crate::run::identity::RecordedIdentity;
use crate::run::summary::Best;
use crate::step::reports::{EpochState, Timings};
use crate::step::task::Task;
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::negatives::{NegativeCounts, RunNegatives};
use crate::step::trainer::TaskTrainer;
use crate::step::weights::hash;
use crate::step::weights::task_weights;

/// The version of the file format; other versions are rejected.
const VERSION: u32 = 1;

/// The name of the entry with the moments of embeddings.
const MOMENTS: &str = "embedding_moments";

/// The progress of a run. It is the same on every rank, except for the times, which each rank measures.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position {
    /// The number of epochs that were trained, validated and recorded.
    pub(crate) epoch: usize,
    /// The number of completed steps of the current epoch.
    pub(crate) step: usize,
    /// The metric sums of all ranks over the completed steps of the current epoch.
    pub(crate) counts: MetricSums,
    /// The time of each stage in the completed steps of the current epoch.
    pub(crate) timings: Timings,
    /// The total time of the completed steps of the current epoch.
    pub(crate) wall: Duration,
    pub(crate) best: Option<Best>,
    /// The number of epochs since the best epoch.
    pub(crate) n_since_best: usize,
    /// The negatives of the training so far and of the last validation.
    pub(crate) negatives: RunNegatives,
}

/// The JSON metadata of a checkpoint file. Floats are stored as integers, bit for bit, so they are exact.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    /// The program and the machine that wrote the checkpoint; older programs do not record them.
    #[serde(default)]
    provenance: Provenance,
    identity: RecordedIdentity,
    n_ranks: usize,
    epoch: usize,
    step: usize,
    counts: [u64; 4],
    timings_ns: [u64; 9],
    wall_ns: u64,
    best: Option<BestHeader>,
    n_since_best: usize,
    /// The reason that a callback gave for stopping the run; absent for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_reason: Option<String>,
    /// The negatives of the training so far and of the last validation; absent for other tasks than link prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    negatives: Option<[[u64; 2]; 2]>,
    /// The optimizer's ids of the trainable parameters, in the model's order.
    param_ids: Vec<u64>,
    /// The SHA-256 of the other entries of the file, by name. The hash of this header is stored as `run_hash`.
    hashes: BTreeMap<String, String>,
}

/// The fields of the header that all versions have.
#[derive(Deserialize)]
struct Version {
    version: u32,
    #[serde(default)]
    provenance: Provenance,
}

#[derive(Serialize, Deserialize)]
struct BestHeader {
    epoch: usize,
    val: [u64; 4],
    /// The metric that selected the epoch, and the bits of its value; absent if it is the accuracy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metric: Option<(String, u64)>,
    /// The direction of a metric of one's own; absent for built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    higher_is_better: Option<bool>,
    /// The number of items that are not in `val`, because their outputs are not finite; absent if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    n_not_finite: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl BestHeader {
    fn new(best: &Best) -> Self {
        let is_other = best.metric != Metric::Accuracy;
        let metric = is_other.then(|| (best.metric.to_string(), bits_of(best.value)));
        let n_not_finite = best.val.n_not_finite;
        let higher_is_better = best.metric.recorded_direction();
        Self { epoch: best.epoch, val: best.val.to_bits(), metric, higher_is_better, n_not_finite }
    }

    fn validation(&self) -> Result<Validation> {
        let sums = MetricSums { n_not_finite: self.n_not_finite, ..MetricSums::from_bits(self.val) };
        match &self.metric {
            None => Ok(sums.into()),
            Some((name, bits)) => {
                // The run replaces a metric of one's own by the one that it validates with.
                let metric = Metric::recorded(name, self.higher_is_better, TargetKind::Classes)?;
                let value = value_of(*bits);
                Ok(Validation { sums, metric, value, wall: None })
            }
        }
    }
}

/// The content of a checkpoint besides the trainer's state.
pub(crate) struct Surroundings<'a> {
    pub(crate) position: &'a Position,
    pub(crate) identity: &'a RecordedIdentity,
    pub(crate) n_ranks: usize,
    /// The best epoch's parameters as a safetensors file; empty before the first epoch.
    pub(crate) best: &'a [u8],
    /// The rows of `metrics.jsonl`.
    pub(crate) metrics: &'a [u8],
    pub(crate) stop_reason: Option<&'a str>,
}

/// Serializes a checkpoint of this trainer.
pub(crate) fn to_bytes<T: Task>(trainer: &TaskTrainer<T>, around: &Surroundings<'_>) -> Result<Vec<u8>> {
    let unwritable = |reason: String| Error::Run(RunError::Weights { reason });
    let model = task_weights::to_bytes(&trainer.model, &trainer.embeddings)?;
    let moments = task_weights::moments_to_bytes(&trainer.embeddings);
    let optimizer = trainer.optimizer.state.into_bytes().map_err(|error| unwritable(error.to_string()))?;
    let mut ids = Ids(Vec::new());
    trainer.model.visit(&mut ids);
    let position = around.position;
    let mut entries = vec![
        ("model", &model[..]),
        ("optimizer", &optimizer),
        ("best", around.best),
        ("metrics", around.metrics),
    ];
    if !trainer.embeddings.is_empty() {
        entries.push((MOMENTS, &moments));
    }
    let header = Header {
        version: VERSION,
        provenance: Provenance::current(),
        identity: around.identity.clone(),
        n_ranks: around.n_ranks,
        epoch: position.epoch,
        step: position.step,
        counts: position.counts.to_bits(),
        timings_ns: position.timings.to_nanos(),
        wall_ns: u64::try_from(position.wall.as_nanos()).unwrap_or(u64::MAX),
        best: position.best.as_ref().map(BestHeader::new),
        n_since_best: position.n_since_best,
        stop_reason: around.stop_reason.map(str::to_owned),
        negatives: (!position.negatives.is_empty())
            .then(|| [position.negatives.train, position.negatives.val].map(NegativeCounts::to_words)),
        param_ids: ids.0,
        hashes: entries.iter().map(|(name, bytes)| ((*name).to_owned(), hash(bytes))).collect(),
    };
    let header = serde_json::to_string(&header).map_err(|error| unwritable(error.to_string()))?;
    pack(header, entries).map_err(|error| unwritable(error.to_string()))
}

/// The reason why a checkpoint cannot be resumed from.
pub(crate) enum Fault {
    /// The file was truncated or changed.
    Damaged(String),
    /// The file has another format version.
    Version(u32),
    /// The file has another version of the determinism contract.
    Contract(Provenance),
}

fn pack(header: String, entries: Vec<(&str, &[u8])>) -> std::result::Result<Vec<u8>, SafeTensorError> {
    let mut views = Vec::with_capacity(entries.len());
    for (name, bytes) in entries {
        views.push((name, TensorView::new(Dtype::U8, vec![bytes.len()], bytes)?));
    }
    let header_hash = hash(header.as_bytes());
    serialize(views, Some(HashMap::from([("run".to_owned(), header), ("run_hash".to_owned(), header_hash)])))
}

/// A checkpoint that was read and whose hashes are correct.
pub(crate) struct Checkpoint<'a> {
    header: Header,
    model: &'a [u8],
    optimizer: &'a [u8],
    best: &'a [u8],
    /// The rows of `metrics.jsonl`.
    metrics: &'a [u8],
    /// The moments of the embeddings; empty for tasks without embeddings.
    moments: &'a [u8],
}

/// The part of a checkpoint that the run restores. The trainer has restored the rest.
pub(crate) struct Restored {
    pub(crate) position: Position,
    /// The best epoch's parameters as a safetensors file; empty before the first epoch.
    pub(crate) best: Vec<u8>,
    /// The rows of `metrics.jsonl` for the recorded epochs.
    pub(crate) metrics: Vec<u8>,
    /// The reason that a callback gave for stopping the run.
    pub(crate) stop_reason: Option<String>,
}

impl<'a> Checkpoint<'a> {
    /// Reads the output of [`to_bytes`].
    ///
    /// # Errors
    /// Returns a [`Fault`] if the bytes are damaged or have another version.
    pub(crate) fn read(bytes: &'a [u8]) -> std::result::Result<Self, Fault> {
        let text = |error: SafeTensorError| Fault::Damaged(error.to_string());
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(text)?;
        let entries = SafeTensors::deserialize(bytes).map_err(text)?;
        let plain = |name: &str| metadata.metadata().as_ref().and_then(|metadata| metadata.get(name));
        let (Some(header), Some(header_hash)) = (plain("run"), plain("run_hash")) else {
            return Err(Fault::Damaged("not a checkpoint: the entry `run` is missing".to_owned()));
        };
        check_hash("run", header.as_bytes(), header_hash)?;
        let version: Version =
            serde_json::from_str(header).map_err(|error| Fault::Damaged(error.to_string()))?;
        if version.version != VERSION {
            return Err(Fault::Version(version.version));
        }
        if version.provenance.contract != DETERMINISM_CONTRACT {
            return Err(Fault::Contract(version.provenance));
        }
        let header: Header =
            serde_json::from_str(header).map_err(|error| Fault::Damaged(error.to_string()))?;
        let entry = |name: &str| -> std::result::Result<&'a [u8], Fault> {
            let data = entries.tensor(name).map_err(text)?.data();
            check_hash(name, data, header.hashes.get(name).map_or("none", String::as_str))?;
            Ok(data)
        };
        let [model, optimizer, best, metrics] =
            [entry("model")?, entry("optimizer")?, entry("best")?, entry("metrics")?];
        let has_moments = header.hashes.contains_key(MOMENTS);
        let moments = if has_moments { entry(MOMENTS)? } else { &[] };
        Ok(Self { model, optimizer, best, metrics, moments, header })
    }

    /// Returns the identity of the run that wrote the checkpoint.
    pub(crate) fn identity(&self) -> &RecordedIdentity {
        &self.header.identity
    }

    /// Returns the program and the machine that wrote the checkpoint.
    pub(crate) fn provenance(&self) -> &Provenance {
        &self.header.provenance
    }

    /// Returns the number of ranks of the run that wrote the checkpoint.
    pub(crate) fn n_ranks(&self) -> usize {
        self.header.n_ranks
    }

    /// Restores the trainer's model, optimizer and epoch state, and returns the rest.
    ///
    /// # Errors
    /// Returns [`RunError::Weights`] if the checkpoint's model or optimizer does not fit the trainer's model.
    pub(crate) fn restore<T: Task>(self, trainer: &mut TaskTrainer<T>) -> Result<Restored> {
        let Self { header, model, optimizer, best, metrics, moments } = self;
        task_weights::load(&mut trainer.model, &mut trainer.embeddings, model.to_vec())?;
        task_weights::load_moments(&mut trainer.embeddings, moments)?;
        let mut ids = Ids(Vec::new());
        trainer.model.visit(&mut ids);
        let expected = ids.0.len();
        let got = header.param_ids.len();
        if expected != got {
            let reason = format!("the checkpoint has {got} trainable parameters, expected {expected}");
            return Err(Error::Run(RunError::Weights { reason }));
        }
        trainer.model = trainer.model.clone().map(&mut SetIds(&header.param_ids));
        let optimizer = trainer.optimizer.state.clone().from_bytes(Bytes::from_bytes_vec(optimizer.to_vec()));
        trainer.optimizer.state =
            optimizer.map_err(|error| Error::Run(RunError::Weights { reason: error.to_string() }))?;
        let [train, val] = header.negatives.unwrap_or_default().map(NegativeCounts::from_words);
        let position = Position {
            epoch: header.epoch,
            step: header.step,
            counts: MetricSums::from_bits(header.counts),
            timings: Timings::from_nanos(header.timings_ns),
            wall: Duration::from_nanos(header.wall_ns),
            best: match header.best {
                Some(then) => Some(Best::new(then.epoch, then.validation()?, hash(best))),
                None => None,
            },
            n_since_best: header.n_since_best,
            negatives: RunNegatives { train, val, ..RunNegatives::default() },
        };
        let Position { epoch, step, counts, timings, wall, .. } = position;
        trainer.train_negatives = train;
        trainer.epoch = EpochState::resume(epoch, step, counts, timings, wall);
        let stop_reason = header.stop_reason;
        Ok(Restored { position, best: best.to_vec(), metrics: metrics.to_vec(), stop_reason })
    }
}

fn check_hash(name: &str, bytes: &[u8], expected: &str) -> std::result::Result<(), Fault> {
    let found = hash(bytes);
    match found == expected {
        true => Ok(()),
        false => Err(Fault::Damaged(format!(
            "the entry `{name}` is damaged: its SHA-256 is {found}, expected {expected}"
        ))),
    }
}

/// Collects the ids of the trainable parameters.
struct Ids(Vec<u64>);

impl ModuleVisitor for Ids {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.val().is_require_grad() {
            self.0.push(param.id.val());
        }
    }
}

/// Assigns these ids to the trainable parameters.
struct SetIds<'a>(&'a [u64]);

impl ModuleMapper for SetIds<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.0.split_first() {
            Some((&id, rest)) if param.val().is_require_grad() => {
                self.0 = rest;
                let (_, value, mapper) = param.consume();
                Param::from_mapped_value(ParamId::from(id), value, mapper)
            }
            _ => param,
        }
    }
}
