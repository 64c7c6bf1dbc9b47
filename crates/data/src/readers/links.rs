//! Reads fixed negatives and the links of a folder of `.npy` files.

use std::path::Path;
use std::sync::Arc;

use kiln_graph::{LinkId, LinkNegatives, Links, NodeId, SharedArray};
use kiln_store::npy::DType;
use kiln_store::paths::{find, required};
use kiln_store::{ArrayFile, check_count};

use crate::arrays::{node_error, node_of};
use crate::check::{Place, check_links};
use crate::edges::read_links;
use crate::graph_folder::{LINK_FILES, NEGATIVES, read_link_targets};
use crate::ignored_files::note_others;
use crate::{LinkTargets, Note, Result};

/// The files of the links of each part.
const EDGES: [&str; 3] = ["train_edges.npy", "val_edges.npy", "test_edges.npy"];

/// A part of a split as it is stored: its links, and its fixed negatives.
#[derive(Debug, Default)]
pub(crate) struct StoredLinks {
    pub(crate) links: Links,
    pub(crate) negatives: Option<StoredNegatives>,
}

/// The fixed negatives of the links of a part, `[n_links, n_per_link]`.
#[derive(Debug)]
pub(crate) struct StoredNegatives {
    pub(crate) n_per_link: usize,
    /// The sources; `None` if a negative has the source of its link.
    pub(crate) srcs: Option<SharedArray<NodeId>>,
    pub(crate) dsts: SharedArray<NodeId>,
}

/// Returns the targets of the links for training, validation and test.
pub(crate) fn targets_of(train: &Links, val: StoredLinks, test: StoredLinks) -> Result<Arc<LinkTargets>> {
    let targets = LinkTargets::of_parts(train, &val.links, &test.links)?;
    let negatives = |ids: &SharedArray<LinkId>, stored: Option<StoredNegatives>| match stored {
        None => Ok(None),
        Some(StoredNegatives { n_per_link, srcs: Some(srcs), dsts }) => {
            LinkNegatives::of_pairs(ids.clone(), n_per_link, srcs, dsts).map(Some)
        }
        Some(StoredNegatives { n_per_link, srcs: None, dsts }) => {
            LinkNegatives::of_dsts(ids.clone(), n_per_link, dsts).map(Some)
        }
    };
    let split = targets.split().clone();
    let (val, test) = (negatives(&split.val, val.negatives)?, negatives(&split.test, test.negatives)?);
    Ok(Arc::new(targets.with_negatives(val, test)?))
}

/// Reads the links and the fixed negatives of a folder of `.npy` files; returns `None` if it has no links.
pub(crate) fn read_folder(
    folder: &Path,
    n_nodes: usize,
    notes: &mut Vec<Note>,
) -> Result<Option<Arc<LinkTargets>>> {
    let names = LINK_FILES.iter().chain(NEGATIVES.as_flattened());
    let arrays = names.filter_map(|name| Some((*name, find(folder, &[name])?)));
    note_unused_negatives(folder, notes);
    if find(folder, &LINK_FILES).is_some() {
        let srcs = required(folder, &LINK_FILES[..1], "the sources of the links")?;
        note_others(folder, &srcs, &EDGES, notes);
        let open = |(name, path)| Ok((name, ArrayFile::open(path)?));
        let arrays = arrays.map(open).collect::<Result<Vec<(&str, ArrayFile)>>>()?;
        let array = |name: &str| arrays.iter().find(|(other, _)| *other == name).map(|(_, array)| array);
        let targets = read_link_targets(array)?;
        targets.iter().try_for_each(|targets| check_links(targets, n_nodes, Place::Folder(folder)))?;
        return Ok(targets.map(Arc::new));
    }
    if find(folder, &EDGES).is_none() {
        return Ok(None);
    }
    let mut links = |name: &str| {
        let path = required(folder, &[name], "the links of one part of the split")?;
        read_links(ArrayFile::open_in_any_order(path)?, n_nodes, notes)
    };
    let [train, val, test] = [links(EDGES[0])?, links(EDGES[1])?, links(EDGES[2])?];
    let part = |links: Links, [dsts, srcs]: [&str; 2]| -> Result<StoredLinks> {
        let Some(dsts) = find(folder, &[dsts]) else {
            return Ok(StoredLinks { links, negatives: None });
        };
        let dsts = ArrayFile::open(dsts)?;
        let srcs = find(folder, &[srcs]).map(ArrayFile::open).transpose()?;
        let negatives = negatives_of(&dsts, srcs.as_ref(), links.len(), n_nodes)?;
        Ok(StoredLinks { links, negatives: Some(negatives) })
    };
    let [of_val, of_test] = NEGATIVES;
    Ok(Some(targets_of(&train, part(val, of_val)?, part(test, of_test)?)?))
}

/// Adds a note for each file of negatives that is not read, because the folder has no links, or no destinations for the
/// sources.
fn note_unused_negatives(folder: &Path, notes: &mut Vec<Note>) {
    let mut note = |name: &str, missing: &str| {
        if let Some(path) = find(folder, &[name]) {
            notes.push(Note::Other(format!("{} is ignored: the folder has no {missing}", path.display())));
        }
    };
    for [dsts, srcs] in NEGATIVES {
        if !has_links(folder) {
            note(dsts, "links");
            note(srcs, "links");
        } else if find(folder, &[dsts]).is_none() {
            note(srcs, dsts);
        }
    }
}

/// Returns the names of the files of links and negatives.
pub(crate) fn file_names() -> Vec<&'static str> {
    [&EDGES[..], &LINK_FILES, NEGATIVES.as_flattened()].concat()
}

/// Returns true if a folder of `.npy` files has links.
pub(crate) fn has_links(folder: &Path) -> bool {
    find(folder, &EDGES).is_some() || find(folder, &LINK_FILES).is_some()
}

/// Reads fixed negatives from an array of their destinations and an optional array of their sources, both
/// `[n_links, n_per_link]`.
pub(crate) fn negatives_of(
    dsts: &ArrayFile,
    srcs: Option<&ArrayFile>,
    n_links: usize,
    n_nodes: usize,
) -> Result<StoredNegatives> {
    let n_per_link = match *dsts.shape() {
        [_] => 1,
        [_, n_per_link] if n_per_link > 0 => n_per_link,
        _ => return Err(dsts.bad_shape("(n_links, n_negatives), at least one negative").into()),
    };
    let nodes = |array: &ArrayFile, what: &'static str| -> Result<SharedArray<NodeId>> {
        if array.shape() != dsts.shape() {
            check_count(array.path(), "the number of negatives", dsts.n_values(), array.n_values())?;
            return Err(array.bad_shape("that of the destinations").into());
        }
        check_count(array.path(), "the number of links", n_links, array.shape()[0])?;
        checked_nodes(array, what, n_nodes)
    };
    Ok(StoredNegatives {
        n_per_link,
        dsts: nodes(dsts, "the destination of negative")?,
        srcs: srcs.map(|array| nodes(array, "the source of negative")).transpose()?,
    })
}

/// Deals a list of negatives that belong to no link in particular, as in OGB's `edge_neg`, to `n_links` links: the first
/// ones to the first link, and so on. If the list is too short, it is dealt again from its start, with a note.
pub(crate) fn deal(
    pool: &Links,
    n_links: usize,
    path: &Path,
    notes: &mut Vec<Note>,
) -> Option<StoredNegatives> {
    if pool.is_empty() || n_links == 0 {
        return None;
    }
    let n_per_link = pool.len().div_ceil(n_links);
    let n_repeated = n_links * n_per_link - pool.len();
    if n_repeated > 0 {
        let (n_pool, path) = (pool.len(), path.display());
        notes.push(Note::Other(format!(
            "the {n_pool} negatives in {path} were dealt to {n_links} links, {n_per_link} each: {n_repeated} \
             negatives are repeated"
        )));
    }
    let dealt = |nodes: &[NodeId]| nodes.iter().copied().cycle().take(n_links * n_per_link).collect();
    Some(StoredNegatives { n_per_link, srcs: Some(dealt(pool.srcs())), dsts: dealt(pool.dsts()) })
}

/// Returns the node ids in an array of any shape, all of which are below `n_nodes`. 32-bit ids stay mapped.
pub(crate) fn checked_nodes(
    array: &ArrayFile,
    what: &'static str,
    n_nodes: usize,
) -> Result<SharedArray<NodeId>> {
    if let DType::I32 | DType::U32 = array.dtype() {
        let nodes = array.elements::<NodeId>()?;
        let Some(position) = nodes.iter().position(|node| n_nodes <= node.index()) else {
            return Ok(nodes);
        };
        let id = match array.dtype() {
            DType::I32 => i128::from(nodes[position].0 as i32),
            _ => i128::from(nodes[position].0),
        };
        return Err(node_error(array, what, position, id, n_nodes).into());
    }
    let mut nodes = array.room()?;
    array.for_each_integer(|position, id| -> Result<()> {
        nodes.push(node_of(array, what, position, id, n_nodes)?);
        Ok(())
    })?;
    Ok(nodes.into())
}
