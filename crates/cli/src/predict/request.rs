//! The items that the flags of `kiln predict` request.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use kiln::data::{NodeNames, read_ids};
use kiln::feature::Targets;
use kiln::graph::{ItemId, NodeId, did_you_mean, similar_name};
use kiln::store::whole_file::{read_text, read_whole};
use kiln::store::{io_error, sha256};
use kiln_usage::ensure;

use super::args::PredictArgs;
use crate::output::print_rank_zero;

/// The values of `--nodes` that are no files.
const WORDS: [&str; 4] = ["test", "all", "new", "unlabelled"];

/// The items of the data by which `--nodes` selects.
pub(super) struct SelectableItems<'a, I: ItemId> {
    pub(super) n_items: usize,
    /// The test split.
    pub(super) test: &'a [I],
    /// The items that were appended; `None` for data without appended rows.
    pub(super) new: Option<Range<u32>>,
    /// The targets of the items; `None` for data without, and for the sources of links.
    pub(super) targets: Option<&'a Targets<I>>,
}

/// Returns the nodes that `--nodes` or `--keys` selects.
pub(super) fn requested(
    args: &PredictArgs,
    nodes: SelectableItems<'_, NodeId>,
    names: Option<&NodeNames>,
) -> anyhow::Result<Vec<NodeId>> {
    let Some(path) = &args.keys else { return items(&args.nodes, nodes) };
    let text = read_text(path).map_err(io_error(path))?;
    nodes_of_keys(path, "--keys", &text.lines().collect::<Vec<_>>(), nodes.n_items, names)
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
        node.with_context(|| {
            let similar = similar_key(key, n_nodes, names);
            let path = path.display();
            format!(
                "{path}, line {}: no node is named {key:?}{similar}: correct the line, or remove it",
                line + 1
            )
        })
    };
    keys.iter().enumerate().map(node).collect()
}

/// Returns the suggestion of a name of a node for the message about an unknown one; empty for data with many nodes.
fn similar_key(key: &str, n_nodes: usize, names: &NodeNames) -> String {
    const MOST_NODES: usize = 100_000;
    let nodes = (0..n_nodes.min(MOST_NODES + 1) as u32).map(NodeId);
    let names = nodes.filter(|_| n_nodes <= MOST_NODES).filter_map(|node| names.get(node));
    did_you_mean(similar_name(key, names))
}

/// Returns the items that `--nodes` selects: those of the test split ascending, as in a run's `test_predictions.csv`, and those
/// of a file in its order. A file that is named like a selection gets a note.
pub(super) fn items<I: ItemId>(selection: &Path, from: SelectableItems<'_, I>) -> anyhow::Result<Vec<I>> {
    let SelectableItems { n_items, test, new, targets } = from;
    let word = word_of(selection);
    if let Some(word) = word.filter(|_| selection.is_file()) {
        print_rank_zero(format_args!(
            "note: --nodes {word} is not the file {word}: write ./{word} to select the ids in it"
        ));
    }
    match word {
        Some("test") => {
            ensure!(!test.is_empty(), "the data has no test split: give --nodes all or a file of ids");
            let mut items = test.to_vec();
            items.sort_unstable();
            Ok(items)
        }
        Some("new") => {
            let new = new.context(
                "no rows were appended to the data, which --nodes new selects: give the result of `kiln data import --append` \
                 to --data, or --nodes all",
            )?;
            ensure!(
                !new.is_empty(),
                "the rows that were appended last have no node of this type: give --keys"
            );
            Ok(new.map(I::new).collect())
        }
        Some("unlabelled") => {
            // The items of data without targets have classes of no item.
            let targets = targets.filter(|targets| targets.len() == n_items).context(
                "the data has no targets of these items, without which --nodes unlabelled selects: give --nodes all or a file of ids",
            )?;
            let without: Vec<I> =
                (0..n_items as u32).map(I::new).filter(|item| !targets.has_any(*item)).collect();
            ensure!(
                !without.is_empty(),
                "all items of the data have a target: give --nodes all or a file of ids"
            );
            Ok(without)
        }
        Some(_) => Ok((0..n_items as u32).map(I::new).collect()),
        None => {
            ensure!(
                selection.exists(),
                "--nodes {}: there is no such file: expected test, all, new, unlabelled, or a file of ids, one per line",
                selection.display()
            );
            Ok(read_ids(selection, n_items)?)
        }
    }
}

/// Returns the value of `--nodes` if it is no file.
fn word_of(selection: &Path) -> Option<&'static str> {
    WORDS.into_iter().find(|word| selection == Path::new(word))
}

/// Returns what `--nodes` selects, for the check that all processes have the same request: a file of ids must be the same, as the
/// graph must be.
pub(super) fn selection(args: &PredictArgs) -> anyhow::Result<String> {
    let path = &args.nodes;
    match path.is_file() && word_of(path).is_none() {
        true => Ok(sha256(&read_whole(path, u64::MAX)?)),
        false => Ok(path.to_string_lossy().into_owned()),
    }
}

/// Returns the ids of items as bytes, for their hash.
pub(super) fn id_bytes<I: ItemId>(items: &[I]) -> Vec<u8> {
    items.iter().flat_map(|item| item.get().to_le_bytes()).collect()
}
