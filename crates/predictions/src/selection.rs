use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kiln_data::{NodeNames, read_ids};
use kiln_feature::Targets;
use kiln_graph::{ItemId, NodeId, did_you_mean, similar_name};
use kiln_store::whole_file::{read_text, read_whole};
use kiln_store::{io_error, sha256};

use crate::{ItemSelectionError, Result};

/// The items that are predicted: those of a split, new ones, or those of a file.
///
/// ```
/// use kiln_predictions::ItemSelection;
/// assert_eq!(ItemSelection::new("test"), ItemSelection::Test);
/// assert_eq!(ItemSelection::new("./test").to_string(), "./test");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemSelection {
    /// The items of the test split, ascending.
    Test,
    /// All items.
    All,
    /// The items that were appended to the data.
    New,
    /// The items without a target.
    Unlabelled,
    /// The items of a file of ids, in its order: a `.npy` array, or text with one id per line.
    File(PathBuf),
}

/// The items of the data among which an [`ItemSelection`] selects.
#[derive(Debug, Clone)]
pub struct SelectableItems<'a, I: ItemId> {
    /// The number of items.
    pub n_items: usize,
    /// The test split.
    pub test: &'a [I],
    /// The items that were appended; `None` for data without appended rows.
    pub new: Option<Range<u32>>,
    /// The targets of the items; `None` for data without, and for the sources of links.
    pub targets: Option<&'a Targets<I>>,
}

impl ItemSelection {
    /// The selections that are no files, with their names.
    const WORDS: [(&'static str, Self); 4] =
        [("test", Self::Test), ("all", Self::All), ("new", Self::New), ("unlabelled", Self::Unlabelled)];

    /// Returns the selection of `test`, `all`, `new` or `unlabelled`, or of a file of ids.
    pub fn new(text: impl AsRef<Path>) -> Self {
        let path = text.as_ref();
        let mut words = Self::WORDS.into_iter();
        let word = words.find(|(word, _)| path == Path::new(word));
        word.map_or_else(|| Self::File(path.to_owned()), |(_, selection)| selection)
    }

    /// Returns the note on a file that is named like a selection, which is not read.
    pub fn note_on_file(&self) -> Option<String> {
        let word = self.word().filter(|word| Path::new(word).is_file())?;
        Some(format!("--nodes {word} is not the file {word}: write ./{word} to select the ids in it"))
    }

    /// Returns a text that is equal for equal selections, for the check that all processes have the same request: of a file, the
    /// hash of its bytes, as each machine may have a copy.
    ///
    /// # Errors
    /// Returns [`Error::Store`](crate::Error::Store) if a file cannot be read.
    pub fn identity(&self) -> Result<String> {
        match self {
            Self::File(path) if path.is_file() => {
                Ok(sha256(&read_whole(path, u64::MAX).map_err(io_error(path))?))
            }
            other => Ok(other.to_string()),
        }
    }

    fn word(&self) -> Option<&'static str> {
        Self::WORDS.iter().find(|(_, selection)| selection == self).map(|(word, _)| *word)
    }
}

/// Formats the text from which the selection is made.
impl fmt::Display for ItemSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            word => f.write_str(word.word().unwrap_or_default()),
        }
    }
}

impl<I: ItemId> SelectableItems<'_, I> {
    /// Returns the selected items: those of the test split ascending, as in a run's `test_predictions.csv`, and those of a file in
    /// its order.
    ///
    /// ```
    /// use kiln_graph::NodeId;
    /// use kiln_predictions::{ItemSelection, SelectableItems};
    /// let nodes = SelectableItems { n_items: 3, test: &[NodeId(2), NodeId(0)], new: None, targets: None };
    /// assert_eq!(nodes.select(&ItemSelection::Test)?, [NodeId(0), NodeId(2)]);
    /// # Ok::<(), kiln_predictions::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns a [`ItemSelectionError`] if the data has no such items or there is no such file, and [`crate::Error::Data`] for a file
    /// whose ids are invalid.
    pub fn select(&self, selection: &ItemSelection) -> Result<Vec<I>> {
        let all = || (0..self.n_items as u32).map(I::new);
        match selection {
            ItemSelection::Test if self.test.is_empty() => Err(ItemSelectionError::NoTestSplit.into()),
            ItemSelection::Test => {
                let mut items = self.test.to_vec();
                items.sort_unstable();
                Ok(items)
            }
            ItemSelection::All => Ok(all().collect()),
            ItemSelection::New => match &self.new {
                None => Err(ItemSelectionError::NoAppendedRows.into()),
                Some(new) if new.is_empty() => Err(ItemSelectionError::NoAppendedItems.into()),
                Some(new) => Ok(new.clone().map(I::new).collect()),
            },
            ItemSelection::Unlabelled => {
                // The items of data without targets have classes of no item.
                let targets = self.targets.filter(|targets| targets.len() == self.n_items);
                let targets = targets.ok_or(ItemSelectionError::NoTargets)?;
                let without: Vec<I> = all().filter(|item| !targets.has_any(*item)).collect();
                match without.is_empty() {
                    true => Err(ItemSelectionError::AllHaveTargets.into()),
                    false => Ok(without),
                }
            }
            ItemSelection::File(path) if !path.exists() => {
                Err(ItemSelectionError::NoFile { path: path.clone() }.into())
            }
            ItemSelection::File(path) => Ok(read_ids(path, self.n_items)?),
        }
    }
}

/// Reads the nodes with the names on the lines of a file, in its order. There are `n_nodes` nodes with these names.
///
/// # Errors
/// Returns [`ItemSelectionError::NoNames`] for nodes without names and [`ItemSelectionError::UnknownName`] for the name of no node; also an
/// error if the file cannot be read.
pub fn read_named_nodes(path: &Path, n_nodes: usize, names: Option<&NodeNames>) -> Result<Vec<NodeId>> {
    let text = read_text(path).map_err(io_error(path))?;
    nodes_of_names(path, "--keys", &text.lines().collect::<Vec<_>>(), n_nodes, names)
}

/// Returns the nodes with the names on the lines of a file, which `flag` selects.
pub(crate) fn nodes_of_names(
    path: &Path,
    flag: &'static str,
    lines: &[&str],
    n_nodes: usize,
    names: Option<&NodeNames>,
) -> Result<Vec<NodeId>> {
    let names = names.ok_or(ItemSelectionError::NoNames { flag })?;
    let mut nodes: HashMap<&str, Option<NodeId>> = lines.iter().map(|name| (*name, None)).collect();
    for node in (0..n_nodes as u32).map(NodeId) {
        if let Some(found) = names.get(node).and_then(|name| nodes.get_mut(name)) {
            found.get_or_insert(node);
        }
    }
    let mut found = Vec::with_capacity(lines.len());
    for (line, &name) in lines.iter().enumerate() {
        found.push(nodes.get(name).copied().flatten().ok_or_else(|| ItemSelectionError::UnknownName {
            path: path.to_owned(),
            line: line + 1,
            name: name.to_owned(),
            similar: suggest_name(name, n_nodes, names),
        })?);
    }
    Ok(found)
}

/// Returns the suggestion of a name of a node for the message about an unknown one; empty for data with many nodes.
fn suggest_name(name: &str, n_nodes: usize, names: &NodeNames) -> String {
    const MOST_NODES: usize = 100_000;
    let nodes = (0..n_nodes.min(MOST_NODES + 1) as u32).map(NodeId);
    let names = nodes.filter(|_| n_nodes <= MOST_NODES).filter_map(|node| names.get(node));
    did_you_mean(similar_name(name, names))
}

/// Returns the ids of items as bytes, for the hash of a request.
pub fn id_bytes<I: ItemId>(items: &[I]) -> Vec<u8> {
    items.iter().flat_map(|item| item.get().to_le_bytes()).collect()
}

#[cfg(test)]
#[path = "../tests/files/selection.rs"]
mod tests;
