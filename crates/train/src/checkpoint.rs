//! What a stopped run goes on from: one file, which is whole or not there.

use std::collections::{BTreeMap, HashMap};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Bytes, Tensor};
use safetensors::tensor::{Dtype, TensorView, serialize};
use safetensors::{SafeTensorError, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::weights::{hash, load_weights, weights_to_bytes};
use crate::{Best, Counts, Error, Result, RunIdentity, Task, Trainer};

/// The form of the file; another number is refused.
const VERSION: u32 = 1;

/// Where a run is. The same on every rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position {
    /// Epochs that were trained, validated and recorded.
    pub(crate) epoch: usize,
    /// Steps of the next one that were done.
    pub(crate) step: usize,
    /// Counts of these steps, of all ranks.
    pub(crate) counts: Counts,
    pub(crate) best: Option<Best>,
    /// Epochs since the best one.
    pub(crate) n_since_best: usize,
}

/// The file's entry of plain text. Floats stand in it as the bits that they are, so that none is rounded.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    identity: RunIdentity,
    n_ranks: usize,
    epoch: usize,
    step: usize,
    counts: [u64; 4],
    best: Option<BestHeader>,
    n_since_best: usize,
    /// The lines of `metrics.jsonl`, one for each epoch.
    lines: Vec<String>,
    /// The optimizer's names of the parameters that learn, in the model's order.
    param_ids: Vec<u64>,
    /// SHA-256 of the other two entries.
    model_hash: String,
    optimizer_hash: String,
}

#[derive(Serialize, Deserialize)]
struct BestHeader {
    epoch: usize,
    val: [u64; 4],
    weights_hash: String,
}

/// The bytes of a checkpoint of this trainer at this position, with the lines of `metrics.jsonl`.
pub(crate) fn to_bytes<T: Task>(
    trainer: &Trainer<T>,
    position: &Position,
    lines: &[String],
    identity: &RunIdentity,
    n_ranks: usize,
) -> Result<Vec<u8>> {
    let unwritable = |reason: String| Error::Weights { reason };
    let model = weights_to_bytes(&trainer.model)?;
    let optimizer = trainer.optimizer.state.into_bytes().map_err(|error| unwritable(error.to_string()))?;
    let mut ids = Ids(Vec::new());
    trainer.model.visit(&mut ids);
    let header = Header {
        version: VERSION,
        identity: identity.clone(),
        n_ranks,
        epoch: position.epoch,
        step: position.step,
        counts: position.counts.to_bits(),
        best: position.best.as_ref().map(|best| BestHeader {
            epoch: best.epoch,
            val: best.val.to_bits(),
            weights_hash: best.weights_hash.clone(),
        }),
        n_since_best: position.n_since_best,
        lines: lines.to_vec(),
        param_ids: ids.0,
        model_hash: hash(&model),
        optimizer_hash: hash(&optimizer),
    };
    let header = serde_json::to_string(&header).map_err(|error| unwritable(error.to_string()))?;
    pack(header, &model, &optimizer).map_err(|error| unwritable(error.to_string()))
}

fn pack(header: String, model: &[u8], optimizer: &[u8]) -> std::result::Result<Vec<u8>, SafeTensorError> {
    let view = |bytes| TensorView::new(Dtype::U8, vec![<[u8]>::len(bytes)], bytes);
    let entries = [("model", view(model)?), ("optimizer", view(optimizer)?)];
    serialize(entries, Some(HashMap::from([("run".to_owned(), header)])))
}

/// A checkpoint that was read and found whole.
pub(crate) struct Checkpoint<'a> {
    header: Header,
    model: &'a [u8],
    optimizer: &'a [u8],
}

impl<'a> Checkpoint<'a> {
    /// Reads what [`to_bytes`] made.
    ///
    /// # Errors
    /// What is wrong with the bytes, as text.
    pub(crate) fn read(bytes: &'a [u8]) -> std::result::Result<Self, String> {
        let text = |error: SafeTensorError| error.to_string();
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(text)?;
        let entries = SafeTensors::deserialize(bytes).map_err(text)?;
        let header = metadata.metadata().as_ref().and_then(|metadata| metadata.get("run"));
        let header = header.ok_or("it is no checkpoint: the entry `run` is missing")?;
        let header: Header = serde_json::from_str(header).map_err(|error| error.to_string())?;
        if header.version != VERSION {
            let found = header.version;
            return Err(format!("it has version {found}, this program reads version {VERSION}"));
        }
        let entry = |name: &str, expected: &str| -> std::result::Result<&'a [u8], String> {
            let data = entries.tensor(name).map_err(text)?.data();
            let found = hash(data);
            if found != expected {
                return Err(format!("the entry `{name}` is damaged: SHA-256 {found}, expected {expected}"));
            }
            Ok(data)
        };
        let model = entry("model", &header.model_hash)?;
        let optimizer = entry("optimizer", &header.optimizer_hash)?;
        Ok(Self { model, optimizer, header })
    }

    /// Whose checkpoint it is.
    pub(crate) fn identity(&self) -> &RunIdentity {
        &self.header.identity
    }

    /// Ranks of the run that wrote it.
    pub(crate) fn n_ranks(&self) -> usize {
        self.header.n_ranks
    }

    /// Puts model and optimizer into the trainer; says where the run was, and gives its lines of metrics.
    ///
    /// # Errors
    /// [`Error::Weights`] where they do not fit.
    pub(crate) fn restore<T: Task>(self, trainer: &mut Trainer<T>) -> Result<(Position, Vec<String>)> {
        load_weights(&mut trainer.model, self.model.to_vec())?;
        let mut ids = Ids(Vec::new());
        trainer.model.visit(&mut ids);
        let (expected, got) = (ids.0.len(), self.header.param_ids.len());
        if expected != got {
            let reason = format!("{got} parameters that learn, the model has {expected}");
            return Err(Error::Weights { reason });
        }
        trainer.model = trainer.model.clone().map(&mut SetIds(&self.header.param_ids));
        let optimizer =
            trainer.optimizer.state.clone().from_bytes(Bytes::from_bytes_vec(self.optimizer.to_vec()));
        trainer.optimizer.state = optimizer.map_err(|error| Error::Weights { reason: error.to_string() })?;
        let header = self.header;
        let position = Position {
            epoch: header.epoch,
            step: header.step,
            counts: Counts::from_bits(header.counts),
            best: header.best.map(|best| Best {
                epoch: best.epoch,
                val: Counts::from_bits(best.val),
                weights_hash: best.weights_hash,
            }),
            n_since_best: header.n_since_best,
        };
        Ok((position, header.lines))
    }
}

/// What two runs must have in common for one to go on from the other's checkpoint, by name.
pub(crate) fn differences<'a>(
    checkpoint: &'a BTreeMap<String, String>,
    run: &'a BTreeMap<String, String>,
) -> Option<(&'a str, &'a str, &'a str)> {
    let names = checkpoint.keys().chain(run.keys());
    let mut pairs = names.map(|name| (name, checkpoint.get(name), run.get(name)));
    let (name, then, now) = pairs.find(|(_, then, now)| then != now)?;
    let text = |value: Option<&'a String>| value.map_or("not set", String::as_str);
    Some((name, text(then), text(now)))
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
