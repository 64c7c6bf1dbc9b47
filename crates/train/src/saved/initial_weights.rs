//! Weights of a saved model, from which another training starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytemuck::pod_collect_to_vec;
use kiln_comm::Communicator;
use kiln_graph::NodeId;
use kiln_store::counted;
use kiln_store::whole_file::read_whole;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::error::{Error, Result, RunError};
use crate::saved::error::{InitialWeightsError, ModelError, ModelFileError};
use crate::saved::info::ModelInfo;
use crate::saved::model::{WEIGHTS_FILE, read};
use crate::saved::model_file::MODEL_FILE;
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding::node_keys::NodeKeys;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;
use crate::step::weights::task_weights::{names, pack};
use crate::step::weights::{hash, load_weights, weights_to_bytes};

/// The maximum number of names in a note.
const MOST_NAMES: usize = 8;

/// The weights of a run or of a safetensors file, from which a training starts
/// ([`TaskTrainer::init_from`](crate::TaskTrainer::init_from)).
#[derive(Debug, Clone)]
pub struct InitialWeights {
    source: Source,
    bytes: Vec<u8>,
    hash: String,
}

/// Where weights come from.
#[derive(Debug, Clone)]
struct Source {
    path: PathBuf,
    /// The number of outputs of the saved model; `None` for weights without a description.
    n_outputs: Option<usize>,
    /// The kind of the saved model.
    kind: Option<String>,
}

impl InitialWeights {
    /// Reads the best weights in the folder of a run, or a safetensors file, such as that of
    /// [`weights_to_bytes`](crate::weights_to_bytes).
    ///
    /// ```no_run
    /// let weights = kiln_train::InitialWeights::read("runs/train-001")?;
    /// println!("sha256 {}", weights.hash());
    /// # Ok::<(), kiln_train::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`] if a file of the folder cannot be read or is damaged, and [`InitialWeightsError::NoWeights`] for
    /// a file of another format.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (source, bytes) = if path.is_file() {
            let bytes = read_whole(path, u64::MAX)
                .map_err(|source| Error::Run(RunError::Io { path: path.to_owned(), source }))?;
            (Source { path: path.to_owned(), n_outputs: None, kind: None }, bytes)
        } else {
            read_run(path)?
        };
        if let Err(error) = SafeTensors::deserialize(&bytes) {
            let reason = error.to_string();
            return Err(InitialWeightsError::NoWeights { path: source.path, reason }.into());
        }
        let hash = hash(&bytes);
        Ok(Self { source, bytes, hash })
    }

    /// Returns the SHA-256 of the weights, in hexadecimal, by which the settings of a run name them.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Sends the weights of rank 0, which pass them, to the other ranks. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`] if a rank fails.
    pub fn broadcast(own: Option<Self>, comm: &mut dyn Communicator) -> Result<Self> {
        if let (Some(own), 1) = (&own, comm.rank_info().world_size) {
            return Ok(own.clone());
        }
        let [mut path, mut n_outputs, mut kind, mut bytes] = own.map_or_else(Default::default, |own| {
            let Source { path, n_outputs, kind } = own.source;
            // No text and no number stand for weights without a description.
            let n_outputs =
                n_outputs.map_or_else(Vec::new, |n_outputs| (n_outputs as u64).to_le_bytes().to_vec());
            let path = path.to_string_lossy().into_owned().into_bytes();
            [path, n_outputs, kind.unwrap_or_default().into_bytes(), own.bytes]
        });
        for part in [&mut path, &mut n_outputs, &mut kind, &mut bytes] {
            comm.broadcast(0, part)?;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let source = Source {
            path: text(&path).into(),
            n_outputs: n_outputs.first_chunk().map(|bytes| u64::from_le_bytes(*bytes) as usize),
            kind: Some(text(&kind)).filter(|kind| !kind.is_empty()),
        };
        let hash = hash(&bytes);
        Ok(Self { source, bytes, hash })
    }

    fn tensors(&self) -> Result<BTreeMap<String, TensorView<'_>>> {
        let file = SafeTensors::deserialize(&self.bytes).map_err(|error| {
            let reason = error.to_string();
            Error::from(InitialWeightsError::NoWeights { path: self.source.path.clone(), reason })
        })?;
        Ok(file.tensors().into_iter().collect())
    }

    fn missing(&self, tensor: &str) -> Error {
        let Source { path, kind, .. } = self.source.clone();
        InitialWeightsError::Missing { path, tensor: tensor.to_owned(), kind }.into()
    }

    fn other_shape(&self, tensor: &str, expected: String, got: &TensorView<'_>) -> Error {
        let path = self.source.path.clone();
        InitialWeightsError::Shape { path, tensor: tensor.to_owned(), expected, got: shape_text(got) }.into()
    }
}

/// Reads the weights of a run, whose description a program with data of its own may not have written.
fn read_run(folder: &Path) -> Result<(Source, Vec<u8>)> {
    let (path, bytes) = read(folder, WEIGHTS_FILE)?;
    if !folder.join(MODEL_FILE).exists() {
        return Ok((Source { path, n_outputs: None, kind: None }, bytes));
    }
    let (info_path, info) = read(folder, MODEL_FILE)?;
    let ModelInfo { kind, inputs, weights_hash, .. } = ModelInfo::parse(&info, &info_path)?;
    let got = hash(&bytes);
    if let Some(expected) = weights_hash.filter(|expected| *expected != got) {
        let reason = format!("its SHA-256 is {got}, expected {expected}");
        return Err(ModelError::File(ModelFileError::BadWeights { path, reason }).into());
    }
    Ok((Source { path, n_outputs: Some(inputs.n_outputs), kind: Some(kind) }, bytes))
}

fn shape_text(tensor: &TensorView<'_>) -> String {
    format!("{:?} of the shape {:?}", tensor.dtype(), tensor.shape())
}

impl<T: Task> TaskTrainer<T> {
    /// Replaces the initial weights, before the first step, by saved ones: those of the model, its running statistics, and the trainable rows of nodes, which
    /// are found by the names of the nodes, or by their numbers if they have none. Moments of the optimizer start at zero.
    ///
    /// A model with another number of outputs than the saved one has another head: tensors whose size depends on that number keep
    /// their initial values. `n_outputs` is that of the model; with `None`, and for weights that do not state theirs, all tensors must
    /// fit. Returns notes for the user: the tensors that are not taken, and the number of nodes without saved rows. All ranks must have the same weights
    /// ([`InitialWeights::broadcast`]).
    ///
    /// ```no_run
    /// # use kiln_train::{InitialWeights, Result, Task, TaskTrainer};
    /// # fn example<T: Task>(mut trainer: TaskTrainer<T>) -> Result<()> {
    /// let weights = InitialWeights::read("runs/pretrained")?;
    /// for note in trainer.init_from(&weights, Some(7))? {
    ///     println!("note: {note}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`InitialWeightsError`] if a tensor is missing, unknown or of another shape. The trainer is then unchanged.
    pub fn init_from(&mut self, weights: &InitialWeights, n_outputs: Option<usize>) -> Result<Vec<String>> {
        let own = weights_to_bytes(&self.model)?;
        let own = SafeTensors::deserialize(&own)
            .map_err(|error| Error::Run(RunError::Weights { reason: error.to_string() }))?;
        let mut saved = weights.tensors()?;
        let mut tables = Vec::with_capacity(self.embeddings.len());
        let mut n_new = 0;
        for (position, table) in self.embeddings.iter().enumerate() {
            let rows = take_rows(weights, &mut saved, position, table)?;
            n_new += rows.n_new;
            tables.push(rows.table);
        }
        let mut taken = Vec::new();
        let mut left = Vec::new();
        let mut names: Vec<String> = own.names().into_iter().map(str::to_owned).collect();
        names.sort();
        for name in names {
            let now = own
                .tensor(&name)
                .map_err(|error| Error::Run(RunError::Weights { reason: error.to_string() }))?;
            let then = saved.remove(&name).ok_or_else(|| weights.missing(&name))?;
            if (then.dtype(), then.shape()) == (now.dtype(), now.shape()) {
                taken.push((name, then));
            } else {
                left.push(Left { name: name.clone(), now: now.shape().to_vec(), then });
                taken.push((name, now));
            }
        }
        if let Some(tensor) = saved.into_keys().next() {
            let Source { path, kind, .. } = weights.source.clone();
            return Err(InitialWeightsError::Unknown { path, tensor, kind }.into());
        }
        let outputs = weights.source.n_outputs.zip(n_outputs).filter(|(then, now)| then != now);
        check_head(weights, &left, outputs)?;
        load_weights(&mut self.model, pack(taken)?)?;
        for (table, rows) in self.embeddings.iter_mut().zip(tables) {
            std::sync::Arc::make_mut(table).set_learned(rows);
        }
        Ok(notes(&left, outputs, n_new))
    }
}

/// A tensor of the model that keeps its initial values.
struct Left<'a> {
    name: String,
    now: Vec<usize>,
    then: TensorView<'a>,
}

impl Left<'_> {
    /// Returns the factor by which the sizes that differ are multiples of the numbers of outputs, such as the number of heads;
    /// `None` if another size differs.
    fn factor(&self, (then, now): (usize, usize)) -> Option<usize> {
        if then == 0 || self.then.shape().len() != self.now.len() {
            return None;
        }
        let mut factor = None;
        for (&of_then, &of_now) in self.then.shape().iter().zip(&self.now) {
            if of_then == of_now {
                continue;
            }
            let of_size = of_then / then;
            let fits = of_then == of_size * then && of_now == of_size * now;
            if !fits || factor.is_some_and(|factor| factor != of_size) {
                return None;
            }
            factor = Some(of_size);
        }
        factor
    }

    /// Returns the start of the name that tensors of one layer share: up to its number, or the first part.
    fn layer(&self) -> &str {
        let parts = self.name.split('.').scan(0, |end, part| {
            *end += part.len() + 1;
            Some((*end - 1, part))
        });
        let numbered = parts.filter(|(_, part)| part.parse::<usize>().is_ok()).map(|(end, _)| end).last();
        let end = numbered.or_else(|| self.name.find('.')).unwrap_or(self.name.len());
        &self.name[..end]
    }
}

/// Checks that all tensors that are not taken belong to a head with another number of outputs, `(then, now)`.
///
/// A size that is a multiple of the number of outputs belongs to the head if its layer has a size that is this number itself:
/// otherwise, other widths of hidden layers could pass for it.
fn check_head(weights: &InitialWeights, left: &[Left<'_>], outputs: Option<(usize, usize)>) -> Result<()> {
    for tensor in left {
        let factor = outputs.and_then(|outputs| tensor.factor(outputs));
        // An output layer of several tensors has one whose rows are the outputs.
        let is_beside_outputs = outputs.is_some_and(|outputs| {
            left.iter().any(|other| other.layer() == tensor.layer() && other.factor(outputs) == Some(1))
        });
        if factor != Some(1) && !(factor.is_some() && is_beside_outputs) {
            let expected = format!("F32 of the shape {:?}", tensor.now);
            return Err(weights.other_shape(&tensor.name, expected, &tensor.then));
        }
    }
    Ok(())
}

fn notes(left: &[Left<'_>], outputs: Option<(usize, usize)>, n_new: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((then, now)) = outputs.filter(|_| !left.is_empty()) {
        let shown =
            left.iter().take(MOST_NAMES).map(|tensor| tensor.name.as_str()).collect::<Vec<_>>().join(", ");
        let more = match left.len().saturating_sub(MOST_NAMES) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        notes.push(format!(
            "the model has {now} outputs, the initial weights have {then}: {} of the head start anew: {shown}{more}",
            counted(left.len() as u64, "tensor")
        ));
    }
    if n_new != 0 {
        notes.push(format!(
            "{} not among those of the initial weights: their rows start anew",
            match n_new {
                1 => "1 node is".to_owned(),
                n => format!("{n} nodes are"),
            }
        ));
    }
    notes
}

/// The rows of a table, with those of saved nodes.
struct TakenRows {
    table: NodeEmbedding,
    /// The number of nodes whose rows are the table's own.
    n_new: u64,
}

/// Takes the tensors of a table from the saved ones, and returns its rows.
fn take_rows(
    weights: &InitialWeights,
    saved: &mut BTreeMap<String, TensorView<'_>>,
    position: usize,
    table: &NodeEmbedding,
) -> Result<TakenRows> {
    let [weight, flags, keys] = names(position);
    let values = saved.remove(&weight).ok_or_else(|| weights.missing(&weight))?;
    let is_learned = saved.remove(&flags).ok_or_else(|| weights.missing(&flags))?;
    for (tensor, name, dtype) in [
        (Some(&values), &weight, Dtype::F32),
        (Some(&is_learned), &flags, Dtype::U8),
        (saved.get(&keys), &keys, Dtype::U8),
    ] {
        if let Some(tensor) = tensor.filter(|tensor| tensor.dtype() != dtype) {
            return Err(weights.other_shape(name, format!("the type {dtype:?}"), tensor));
        }
    }
    let of_keys = match saved.remove(&keys) {
        Some(keys) if keys.shape() == [keys.shape()[0], NodeKeys::N_BYTES] => {
            Some(NodeKeys::from_bytes(keys.data()))
        }
        Some(other) => {
            let expected = format!("U8 of the shape {:?}", [table.n_nodes(), NodeKeys::N_BYTES]);
            return Err(weights.other_shape(&keys, expected, &other));
        }
        None => None,
    };
    let &[n_saved, dim] = values.shape() else {
        return Err(weights.other_shape(
            &weight,
            format!("F32 of the shape {:?}", [table.n_nodes(), table.dim()]),
            &values,
        ));
    };
    if dim != table.dim()
        || is_learned.shape() != [n_saved]
        || of_keys.as_ref().is_some_and(|keys| keys.len() != n_saved)
    {
        let expected = format!("F32 of the shape {:?}", [table.n_nodes(), table.dim()]);
        return Err(weights.other_shape(&weight, expected, &values));
    }
    let nodes = match (&of_keys, table.keys()) {
        (Some(saved), Some(now)) => saved.nodes_of(now),
        _ if n_saved == table.n_nodes() => (0..n_saved as u32).map(NodeId).collect(),
        _ => {
            let path = weights.source.path.clone();
            return Err(InitialWeightsError::Rows {
                path,
                tensor: weight,
                expected: table.n_nodes(),
                got: n_saved,
            }
            .into());
        }
    };
    let saved_values: Vec<f32> = pod_collect_to_vec(values.data());
    let (own, mut learned) = table.learned();
    let mut rows = own.to_vec();
    let mut n_new = 0;
    for (node, then) in nodes.iter().enumerate() {
        if *then == NodeKeys::NO_NODE {
            n_new += 1;
            continue;
        }
        let from = then.index() * dim..(then.index() + 1) * dim;
        rows[node * dim..(node + 1) * dim].copy_from_slice(&saved_values[from]);
        learned[node] = is_learned.data()[then.index()];
    }
    let table = NodeEmbedding::of_rows(dim, rows, &learned, table.keys().cloned());
    Ok(TakenRows { table, n_new })
}
