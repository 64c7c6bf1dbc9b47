//! What a stopped run goes on from: one file, which is whole or not there.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Bytes, Tensor};
use safetensors::tensor::{Dtype, TensorView, serialize};
use safetensors::{SafeTensorError, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::run::contract::DETERMINISM_CONTRACT;
use crate::run::contract::Provenance;
use crate::run::identity::RunIdentity;
use crate::run::metrics_file::MetricsRows;
use crate::run::summary::Best;
use crate::step::metric_sums::MetricSums;
use crate::step::reports::{EpochState, Timings};
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;
use crate::step::weights::{hash, load_weights, weights_to_bytes};

/// The form of the file; another number is refused.
const VERSION: u32 = 1;

/// Where a run is. The same on every rank, but for the times, which are each rank's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position {
    /// Epochs that were trained, validated and recorded.
    pub(crate) epoch: usize,
    /// Steps of the next one that were done.
    pub(crate) step: usize,
    /// Counts of these steps, of all ranks.
    pub(crate) counts: MetricSums,
    /// Where the time of these steps went.
    pub(crate) timings: Timings,
    /// How long these steps took.
    pub(crate) wall: Duration,
    pub(crate) best: Option<Best>,
    /// Epochs since the best one.
    pub(crate) n_since_best: usize,
}

/// The file's entry of plain text. Floats stand in it as the bits that they are, so that none is rounded.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    /// The default where an older program wrote it.
    #[serde(default)]
    provenance: Provenance,
    identity: RunIdentity,
    n_ranks: usize,
    epoch: usize,
    step: usize,
    counts: [u64; 4],
    timings_ns: [u64; 9],
    wall_ns: u64,
    best: Option<BestHeader>,
    n_since_best: usize,
    /// Bytes of `metrics.jsonl` that belong to the epochs before; an entry holds them, too, but in old checkpoints.
    metrics_bytes: u64,
    /// The optimizer's names of the parameters that learn, in the model's order.
    param_ids: Vec<u64>,
    /// SHA-256 of the other entries, by name; that of this one stands beside it.
    hashes: BTreeMap<String, String>,
}

/// What every version's header has.
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
}

/// What stands in a checkpoint beside the trainer.
pub(crate) struct Surroundings<'a> {
    pub(crate) position: &'a Position,
    pub(crate) identity: &'a RunIdentity,
    pub(crate) n_ranks: usize,
    /// The best epoch's parameters, as they are written; nothing before the first epoch.
    pub(crate) best: &'a [u8],
    /// The rows of `metrics.jsonl`.
    pub(crate) metrics: &'a [u8],
}

/// The bytes of a checkpoint of this trainer.
pub(crate) fn to_bytes<T: Task>(trainer: &TaskTrainer<T>, around: &Surroundings<'_>) -> Result<Vec<u8>> {
    let unwritable = |reason: String| Error::Weights { reason };
    let model = weights_to_bytes(&trainer.model)?;
    let optimizer = trainer.optimizer.state.into_bytes().map_err(|error| unwritable(error.to_string()))?;
    let mut ids = Ids(Vec::new());
    trainer.model.visit(&mut ids);
    let position = around.position;
    let entries = [
        ("model", &model[..]),
        ("optimizer", &optimizer),
        ("best", around.best),
        ("metrics", around.metrics),
    ];
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
        best: position.best.as_ref().map(|best| BestHeader { epoch: best.epoch, val: best.val.to_bits() }),
        n_since_best: position.n_since_best,
        metrics_bytes: around.metrics.len() as u64,
        param_ids: ids.0,
        hashes: entries.map(|(name, bytes)| (name.to_owned(), hash(bytes))).into(),
    };
    let header = serde_json::to_string(&header).map_err(|error| unwritable(error.to_string()))?;
    pack(header, entries).map_err(|error| unwritable(error.to_string()))
}

/// Why a checkpoint cannot be gone on from.
pub(crate) enum Fault {
    /// It is not what was written.
    Damaged(String),
    /// Another version of this program wrote it.
    Version(u32),
    /// It is of another version of the determinism contract.
    Contract(Provenance),
}

fn pack(header: String, entries: [(&str, &[u8]); 4]) -> std::result::Result<Vec<u8>, SafeTensorError> {
    let mut views = Vec::with_capacity(entries.len());
    for (name, bytes) in entries {
        views.push((name, TensorView::new(Dtype::U8, vec![bytes.len()], bytes)?));
    }
    let header_hash = hash(header.as_bytes());
    serialize(views, Some(HashMap::from([("run".to_owned(), header), ("run_hash".to_owned(), header_hash)])))
}

/// A checkpoint that was read and found whole.
pub(crate) struct Checkpoint<'a> {
    header: Header,
    model: &'a [u8],
    optimizer: &'a [u8],
    best: &'a [u8],
    /// Missing in old checkpoints.
    metrics: Option<&'a [u8]>,
}

/// What a checkpoint gives the run that goes on from it.
pub(crate) struct Restored {
    pub(crate) position: Position,
    /// See [`Surroundings`].
    pub(crate) best: Vec<u8>,
    pub(crate) metrics: MetricsRows,
}

impl<'a> Checkpoint<'a> {
    /// Reads what [`to_bytes`] made.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(crate) fn read(bytes: &'a [u8]) -> std::result::Result<Self, Fault> {
        let text = |error: SafeTensorError| Fault::Damaged(error.to_string());
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(text)?;
        let entries = SafeTensors::deserialize(bytes).map_err(text)?;
        let plain = |name: &str| metadata.metadata().as_ref().and_then(|metadata| metadata.get(name));
        let (Some(header), Some(header_hash)) = (plain("run"), plain("run_hash")) else {
            return Err(Fault::Damaged("it is no checkpoint: the entry `run` is missing".to_owned()));
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
        let (model, optimizer, best) = (entry("model")?, entry("optimizer")?, entry("best")?);
        let has_metrics = header.hashes.contains_key("metrics");
        let metrics = if has_metrics { Some(entry("metrics")?) } else { None };
        Ok(Self { model, optimizer, best, metrics, header })
    }

    /// Whose checkpoint it is.
    pub(crate) fn identity(&self) -> &RunIdentity {
        &self.header.identity
    }

    /// What wrote it.
    pub(crate) fn provenance(&self) -> &Provenance {
        &self.header.provenance
    }

    /// Ranks of the run that wrote it.
    pub(crate) fn n_ranks(&self) -> usize {
        self.header.n_ranks
    }

    /// Puts model and optimizer into the trainer, and gives the rest.
    ///
    /// # Errors
    /// [`Error::Weights`] where they do not fit.
    pub(crate) fn restore<T: Task>(self, trainer: &mut TaskTrainer<T>) -> Result<Restored> {
        let Self { header, model, optimizer, best, metrics } = self;
        load_weights(&mut trainer.model, model.to_vec())?;
        let mut ids = Ids(Vec::new());
        trainer.model.visit(&mut ids);
        let (expected, got) = (ids.0.len(), header.param_ids.len());
        if expected != got {
            let reason = format!("{got} parameters that learn, the model has {expected}");
            return Err(Error::Weights { reason });
        }
        trainer.model = trainer.model.clone().map(&mut SetIds(&header.param_ids));
        let optimizer = trainer.optimizer.state.clone().from_bytes(Bytes::from_bytes_vec(optimizer.to_vec()));
        trainer.optimizer.state = optimizer.map_err(|error| Error::Weights { reason: error.to_string() })?;
        let position = Position {
            epoch: header.epoch,
            step: header.step,
            counts: MetricSums::from_bits(header.counts),
            timings: Timings::from_nanos(header.timings_ns),
            wall: Duration::from_nanos(header.wall_ns),
            best: header.best.map(|then| Best {
                epoch: then.epoch,
                val: MetricSums::from_bits(then.val),
                weights_hash: hash(best),
            }),
            n_since_best: header.n_since_best,
        };
        let Position { epoch, step, counts, timings, wall, .. } = position;
        trainer.epoch = EpochState::resume(epoch, step, counts, timings, wall);
        let metrics = match metrics {
            Some(rows) => MetricsRows::Stored(rows.to_vec()),
            None => MetricsRows::InFile(header.metrics_bytes),
        };
        Ok(Restored { position, best: best.to_vec(), metrics })
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

/// Ids of the parameters that learn.
struct Ids(Vec<u64>);

impl ModuleVisitor for Ids {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.val().is_require_grad() {
            self.0.push(param.id.val());
        }
    }
}

/// Gives the parameters that learn these ids.
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
