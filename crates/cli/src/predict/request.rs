//! What the flags of `kiln predict` request: the items, the neighbours that predictions read, and the format of the files.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use kiln::PredictionFormat;
use kiln::data::{NodeNames, read_ids};
use kiln::graph::{ItemId, NodeId};
use kiln::prelude::{PredictMode, SavedModel};
use kiln::store::sha256;
use kiln::train::{EvaluatedNeighbors, LayerWiseConfig, ModelTask};

use super::{Mode, PredictArgs};
use crate::output::print_rank_zero;

/// The format of scores and embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text, one line per node or graph, which begins with its id and its name.
    Csv,
    /// NumPy arrays of f32, with the ids in `items.npy`.
    Npy,
    /// Parquet files, with the id and the name of each node; scores also with label, class and probability.
    #[cfg(feature = "tables")]
    Parquet,
}

/// The values of `--nodes` that are no files.
const WORDS: [&str; 2] = ["test", "all"];

impl PredictArgs {
    pub(super) fn mode(&self, model: &SavedModel) -> anyhow::Result<PredictMode> {
        let of_sampling = self.fanouts.is_some() || self.seed.is_some();
        ensure!(
            !of_sampling || self.mode == Mode::Sampled,
            "--fanouts and --seed require --mode sampled: add it, or remove them"
        );
        let is_of_links = model.info().inputs.task == ModelTask::Links;
        ensure!(
            self.memory.is_none() || self.mode == Mode::Exact || is_of_links,
            "--memory requires --mode exact: add it, or remove --memory"
        );
        // The rows of the nodes of links have the other half of the limit.
        let memory = if is_of_links { self.memory.map(|bytes| bytes / 2) } else { self.memory };
        let was_exact = matches!(model.info().evaluation.neighbors, EvaluatedNeighbors::Exact { .. });
        Ok(match self.mode {
            // The limit of the job instead of the limit of the run.
            Mode::AsEvaluated if self.memory.is_some() && was_exact => {
                PredictMode::Exact(LayerWiseConfig::within(memory))
            }
            Mode::AsEvaluated => PredictMode::AsEvaluated,
            Mode::Exact => PredictMode::Exact(LayerWiseConfig::within(memory)),
            Mode::Sampled => {
                let seed = self.seed.unwrap_or(0);
                let n_layers = model.info().inputs.sampling.as_ref().map_or(1, |of_run| of_run.fanouts.len());
                match self.fanouts.clone().map(|fanouts| fanouts.repeated(n_layers)) {
                    Some(fanouts) if !fanouts.of_relations.is_empty() => {
                        PredictMode::SampledByRelation { fanouts, seed }
                    }
                    fanouts => PredictMode::Sampled { fanouts: fanouts.unwrap_or_default().of_all, seed },
                }
            }
        })
    }
}

impl From<Format> for PredictionFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Csv => Self::Csv,
            Format::Npy => Self::Npy,
            #[cfg(feature = "tables")]
            Format::Parquet => Self::Parquet,
        }
    }
}

/// Returns the nodes that `--nodes` or `--keys` selects.
pub(super) fn requested(
    args: &PredictArgs,
    test: &[NodeId],
    n_nodes: usize,
    names: Option<&NodeNames>,
) -> anyhow::Result<Vec<NodeId>> {
    let Some(path) = &args.keys else { return items(&args.nodes, test, n_nodes) };
    let text = fs::read_to_string(path).with_context(|| format!("{} could not be read", path.display()))?;
    nodes_of_keys(path, "--keys", &text.lines().collect::<Vec<_>>(), n_nodes, names)
}

/// Returns the nodes with the names on the lines of a file, which `flag` selects. There are `n_nodes` nodes with names.
pub(super) fn nodes_of_keys(
    path: &Path,
    flag: &str,
    keys: &[&str],
    n_nodes: usize,
    names: Option<&NodeNames>,
) -> anyhow::Result<Vec<NodeId>> {
    let names = names
        .with_context(|| format!("{flag} needs data whose nodes have names: select nodes by their ids"))?;
    let mut nodes: HashMap<&str, Option<NodeId>> = keys.iter().map(|key| (*key, None)).collect();
    for node in (0..n_nodes as u32).map(NodeId) {
        if let Some(found) = names.get(node).and_then(|name| nodes.get_mut(name)) {
            found.get_or_insert(node);
        }
    }
    let node = |(line, key): (usize, &&str)| {
        let node = nodes.get(key).copied().flatten();
        node.with_context(|| format!("{}, line {}: no node is named {key:?}", path.display(), line + 1))
    };
    keys.iter().enumerate().map(node).collect()
}

/// Returns the items that `--nodes` selects: those of the test split ascending, as in a run's `test_predictions.csv`, and those
/// of a file in its order. A file that is named like a selection gets a note.
pub(super) fn items<I: ItemId>(selection: &str, test: &[I], n_items: usize) -> anyhow::Result<Vec<I>> {
    if WORDS.contains(&selection) && Path::new(selection).is_file() {
        print_rank_zero(format_args!(
            "note: --nodes {selection} is not the file {selection}: write ./{selection} to select the ids in it"
        ));
    }
    match selection {
        "test" => {
            ensure!(!test.is_empty(), "the data has no test split: give --nodes all or a file of ids");
            let mut items = test.to_vec();
            items.sort_unstable();
            Ok(items)
        }
        "all" => Ok((0..n_items as u32).map(I::new).collect()),
        path => Ok(read_ids(path, n_items)?),
    }
}

/// Returns what `--nodes` selects, for the check that all processes have the same request: a file of ids must be the same, as the
/// graph must be.
pub(super) fn selection(args: &PredictArgs) -> anyhow::Result<String> {
    let path = Path::new(&args.nodes);
    match path.is_file() && !WORDS.contains(&&*args.nodes) {
        true => Ok(sha256(&fs::read(path)?)),
        false => Ok(args.nodes.clone()),
    }
}

/// Returns the ids of items as bytes, for their hash.
pub(super) fn id_bytes<I: ItemId>(items: &[I]) -> Vec<u8> {
    items.iter().flat_map(|item| item.get().to_le_bytes()).collect()
}
