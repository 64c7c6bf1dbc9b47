//! Reads the splits of OGB's sets for link prediction (`ogbl_collab`, `ogbl_citation2`, `ogbl_ppa`, …).

use std::path::Path;
use std::sync::Arc;

use kiln_graph::Links;
use kiln_store::paths::{find, required};
use kiln_store::text::is_gz;
use kiln_store::{Npz, check_count, io_error};

use super::{FEATURES, LABELS, no_features, note_unread_arrays};
use crate::edges::read_links;
use crate::readers::links::{StoredLinks, checked_nodes, deal, negatives_of, targets_of};
use crate::{Error, LinkTargets, Note, Result};

/// The files that identify the split of a set of links: archives of arrays, or the files that OGB downloads.
const TRAIN: [&str; 2] = ["train.npz", "train.pt"];

/// The command that converts the split that OGB downloads, in its folder.
const CONVERT: &str = "run in its folder: python -c \"import numpy, torch; [numpy.savez(p + '.npz', \
    **torch.load(p + '.pt', weights_only=False)) for p in ('train', 'valid', 'test')]\"";

/// The arrays of a part whose links are pairs, and those of one whose links are two arrays of nodes.
const OF_PAIRS: [&str; 2] = ["edge", "edge_neg"];
const OF_NODES: [&str; 3] = ["source_node", "target_node", "target_node_neg"];

/// Returns true if a set has links and no labels of nodes.
pub(super) fn is_one(raw: &Path, split: &Path) -> bool {
    find(split, &TRAIN).is_some() && find(raw, &LABELS).is_none()
}

/// Checks that the file of the features can have a line for each of `n_nodes` nodes, before arrays of that length are
/// allocated.
pub(super) fn check_n_nodes(raw: &Path, n_nodes: usize) -> Result<()> {
    match find(raw, &FEATURES) {
        Some(path) => check_n_lines(&path, n_nodes),
        None => Err(no_features(raw, "node-feat.csv.gz, a line for each node")),
    }
}

/// Checks that a text file can have `n_lines` lines.
pub(super) fn check_n_lines(path: &Path, n_lines: usize) -> Result<()> {
    // The maximum number of bytes that a compressed byte expands to.
    const MAX_INFLATION: u64 = 1032;
    let n_bytes = std::fs::metadata(path).map_err(io_error(path))?.len();
    let most = if is_gz(path) { n_bytes.saturating_mul(MAX_INFLATION) } else { n_bytes };
    // A line has at least a digit and, except for the last one, a line break.
    let most = usize::try_from(most.div_ceil(2)).unwrap_or(usize::MAX);
    Ok(check_count(path, "the largest possible number of lines", n_lines.max(most), most)?)
}

/// Reads the links and the negatives of the three parts.
pub(super) fn read(folder: &Path, n_nodes: usize, notes: &mut Vec<Note>) -> Result<Arc<LinkTargets>> {
    let mut part = |name: &str| -> Result<StoredLinks> {
        let (archive, pickled) = (format!("{name}.npz"), format!("{name}.pt"));
        if find(folder, &[&archive]).is_none()
            && let Some(path) = find(folder, &[&pickled])
        {
            let what = "a pickled split, which only Python can read,".into();
            return Err(Error::Unsupported { path, what, instead: CONVERT.into() });
        }
        let path = required(folder, &[&archive], "the links of one part of the split")?;
        read_part(Npz::open(path)?, n_nodes, notes)
    };
    let (train, val, test) = (part("train")?, part("valid")?, part("test")?);
    if train.negatives.is_some() {
        notes.push(Note::Other(
            "the negatives of the training links are not used: training draws them".into(),
        ));
    }
    targets_of(&train.links, val, test)
}

fn read_part(mut archive: Npz, n_nodes: usize, notes: &mut Vec<Note>) -> Result<StoredLinks> {
    if archive.has("head") {
        let what = "a split of triplets with relations".into();
        let instead = "save the links of one relation as `edge`".into();
        return Err(Error::Unsupported { path: archive.path().to_owned(), what, instead });
    }
    let has_nodes = archive.has("source_node");
    let known = if has_nodes { &OF_NODES[..] } else { &OF_PAIRS };
    note_unread_arrays(&archive, known, notes);
    if !has_nodes {
        let links = read_links(archive.array_in_any_order("edge")?, n_nodes, notes)?;
        if !archive.has("edge_neg") {
            return Ok(StoredLinks { links, negatives: None });
        }
        let pool = read_links(archive.array_in_any_order("edge_neg")?, n_nodes, notes)?;
        let negatives = deal(&pool, links.len(), archive.path(), notes);
        return Ok(StoredLinks { links, negatives });
    }
    let mut nodes = |name: &str| {
        let array = archive.array(name)?;
        array.check_vector()?;
        checked_nodes(&array, "entry", n_nodes)
    };
    let (srcs, dsts) = (nodes("source_node")?, nodes("target_node")?);
    let path = archive.path().join("target_node.npy");
    check_count(path, "the number of entries", srcs.len(), dsts.len())?;
    let links = Links::new(srcs, dsts)?;
    let negatives = match archive.has("target_node_neg") {
        true => Some(negatives_of(&archive.array("target_node_neg")?, None, links.len(), n_nodes)?),
        false => None,
    };
    Ok(StoredLinks { links, negatives })
}
