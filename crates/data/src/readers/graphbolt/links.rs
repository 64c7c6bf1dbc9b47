//! Reads the task of link prediction of a GraphBolt folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_graph::{Links, NodeId};
use kiln_store::yaml::YamlEntry;
use kiln_store::{ArrayFile, Error as StoreError, check_count};

use super::set_arrays::{LABELS, PAIRS, find_data};
use super::{note_unread_data, set_of_part};
use crate::edges::read_links;
use crate::limits::MEMORY_BYTES;
use crate::readers::classes;
use crate::readers::links::{StoredLinks, StoredNegatives, deal, negatives_of, targets_of};
use crate::{Error, LinkTargets, Note, Result};

/// Reads the links and the negatives of the three sets of a task. The ids in the files are below `n_nodes`; `check_type` checks the
/// `type` of a set, and `convert` its links.
pub(super) fn read_task(
    folder: &Path,
    task: &YamlEntry<'_>,
    n_nodes: usize,
    check_type: impl Fn(&YamlEntry<'_>) -> Result<()>,
    convert: impl Fn(StoredLinks) -> Result<StoredLinks>,
    notes: &mut Vec<Note>,
) -> Result<Arc<LinkTargets>> {
    let mut part = |key: &str| -> Result<StoredLinks> {
        let Some(set) = set_of_part(task, key, notes)? else { return Ok(StoredLinks::default()) };
        check_type(&set)?;
        convert(read_set(folder, &set, n_nodes, notes)?)
    };
    let (train, val, test) = (part("train_set")?, part("validation_set")?, part("test_set")?);
    if train.negatives.is_some() {
        notes.push(Note::Other("the negatives of the train_set are not used: training draws them".into()));
    }
    targets_of(&train.links, val, test)
}

/// Reads the links of a set, and its negatives if it has any: as pairs with the label 0 among the links, or in arrays of
/// their own.
fn read_set(
    folder: &Path,
    set: &YamlEntry<'_>,
    n_nodes: usize,
    notes: &mut Vec<Note>,
) -> Result<StoredLinks> {
    let find = |name: &str| find_data(folder, set, &[name]);
    let Some(path) = find_data(folder, set, &PAIRS)? else {
        let expected = format!("an entry called {}", PAIRS.join(" or "));
        return Err(set.require("data", "a list of files")?.bad(expected).into());
    };
    let pairs = read_links(ArrayFile::open_in_any_order(&path)?, n_nodes, notes)?;
    if let Some(labels) = find(LABELS)? {
        note_unread_data(set, &[&PAIRS, &[LABELS], &["indexes"]], notes)?;
        return Labelled::read(path, pairs, labels, find("indexes")?)?.split(notes);
    }
    let Some(dsts) = find("negative_dsts")? else {
        note_unread_data(set, &[&PAIRS], notes)?;
        return Ok(StoredLinks { links: pairs, negatives: None });
    };
    note_unread_data(set, &[&PAIRS, &["negative_dsts"], &["negative_srcs"]], notes)?;
    let srcs = find("negative_srcs")?.map(ArrayFile::open).transpose()?;
    let negatives = negatives_of(&ArrayFile::open(dsts)?, srcs.as_ref(), pairs.len(), n_nodes)?;
    Ok(StoredLinks { links: pairs, negatives: Some(negatives) })
}

/// Links and negatives in one list.
struct Labelled {
    path: PathBuf,
    pairs: Links,
    /// The positions of the links and of the negatives in the list.
    links: Vec<usize>,
    negatives: Vec<usize>,
    /// The query of each pair: a link is compared with the negatives of its query. Without queries, the negatives belong
    /// to no link in particular.
    queries: Option<ArrayFile>,
}

impl Labelled {
    fn read(path: PathBuf, pairs: Links, labels: PathBuf, queries: Option<PathBuf>) -> Result<Self> {
        let array = ArrayFile::open(labels)?;
        let labels = classes::from_array(&array)?;
        check_count(array.path(), "the number of labels", pairs.len(), labels.len())?;
        if let Some(position) = labels.iter().position(|label| !(0..=1).contains(label)) {
            let expected = "1 for a link or 0 for a negative";
            return Err(array.bad_value("the label of row", position, expected, labels[position]).into());
        }
        let (links, negatives) = (0..labels.len()).partition(|&position| labels[position] == 1);
        let queries = queries.map(ArrayFile::open).transpose()?;
        if let Some(queries) = &queries {
            queries.check_vector()?;
            check_count(queries.path(), "the number of indexes", labels.len(), queries.n_values())?;
        }
        Ok(Self { path, pairs, links, negatives, queries })
    }

    fn split(self, notes: &mut Vec<Note>) -> Result<StoredLinks> {
        let links = self.pairs_at(&self.links)?;
        let negatives = match &self.queries {
            _ if self.negatives.is_empty() => None,
            None => deal(&self.pairs_at(&self.negatives)?, links.len(), &self.path, notes),
            Some(queries) => Some(self.of_queries(queries)?),
        };
        Ok(StoredLinks { links, negatives })
    }

    fn pairs_at(&self, positions: &[usize]) -> Result<Links> {
        let nodes = |nodes: &[NodeId]| positions.iter().map(|&position| nodes[position]).collect::<Vec<_>>();
        Ok(Links::new(nodes(self.pairs.srcs()), nodes(self.pairs.dsts()))?)
    }

    /// Returns the negatives of each link's query, in their order.
    fn of_queries(&self, array: &ArrayFile) -> Result<StoredNegatives> {
        let mut queries = array.room::<i128>()?;
        array.for_each_integer(|_, query| -> Result<()> {
            queries.push(query);
            Ok(())
        })?;
        let mut negatives = self.negatives.clone();
        negatives.sort_by_key(|&position| queries[position]);
        let mut of_links: Vec<i128> = self.links.iter().map(|&position| queries[position]).collect();
        of_links.sort_unstable();
        if let Some(&position) =
            negatives.iter().find(|&&position| of_links.binary_search(&queries[position]).is_err())
        {
            let expected = "the index of a link, because the row is a negative";
            return Err(array.bad_value("the index of row", position, expected, queries[position]).into());
        }
        of_links.dedup();
        let n_per_link = negatives.len() / of_links.len();
        let mut taken = self.room_for(n_per_link, array)?;
        for &link in &self.links {
            let start = negatives.partition_point(|&position| queries[position] < queries[link]);
            let end = negatives.partition_point(|&position| queries[position] <= queries[link]);
            if end - start != n_per_link {
                let what = format!(
                    "a link with {} negatives among links with {n_per_link} (row {link})",
                    end - start
                );
                return Err(unsupported(array, what, "give each link the same number of negatives"));
            }
            taken.extend_from_slice(&negatives[start..end]);
        }
        let pairs = self.pairs_at(&taken)?;
        let (srcs, dsts) = (Some(pairs.srcs().clone()), pairs.dsts().clone());
        Ok(StoredNegatives { n_per_link, srcs, dsts })
    }

    /// Returns a vector with capacity for the negatives of all links. Links that share a query repeat its negatives, so
    /// their number may be the square of the number of rows.
    fn room_for(&self, n_per_link: usize, queries: &ArrayFile) -> Result<Vec<usize>> {
        let n_links = self.links.len();
        let n_negatives = n_links as u128 * n_per_link as u128;
        let what = || format!("{n_negatives} negatives ({n_links} links with {n_per_link} each)");
        let is_repeated = self.negatives.len() as u128 != n_negatives;
        let bytes = n_negatives * (size_of::<usize>() + 2 * size_of::<NodeId>()) as u128;
        if is_repeated && u128::from(MEMORY_BYTES) < bytes {
            let instead = "give each link an index and negatives of its own, or fewer negatives";
            return Err(unsupported(queries, what(), instead));
        }
        let mut taken = Vec::new();
        taken.try_reserve_exact(n_negatives as usize).map_err(|_| {
            let what = format!("the {} of {}", what(), queries.path().display());
            StoreError::OutOfMemory { what }
        })?;
        Ok(taken)
    }
}

fn unsupported(array: &ArrayFile, what: String, instead: &str) -> Error {
    Error::Unsupported { path: array.path().to_owned(), what, instead: instead.to_owned() }
}
