//! The links of a folder of arrays: their nodes, the links of each part of the split, and their fixed negatives.

use std::path::Path;

use kiln_graph::{LinkId, LinkNegatives, Links, NodeId, SharedArray};
use kiln_store::array_folder::{ElementType, Entries, FolderWriter, Known, missing_entry};
use kiln_store::npy::DType;
use kiln_store::{ArrayFile, Error as StoreError, check_count};

use crate::error::require;
use crate::{LinkTargets, Result, Split};

/// The sources and the destinations of all links, `[n_links]`.
const LINKS: [&str; 2] = ["link_srcs.npy", "link_dsts.npy"];

/// The links of each part of the split.
const PARTS: [&str; 3] = ["train_links.npy", "val_links.npy", "test_links.npy"];

/// The fixed negatives of the validation and of the test: destinations and optional sources, `[n, n_per_link]`.
pub(crate) const NEGATIVES: [[&str; 2]; 2] =
    [["val_negatives.npy", "val_negative_srcs.npy"], ["test_negatives.npy", "test_negative_srcs.npy"]];

/// The files of one entry per link.
pub(crate) const LINK_FILES: [&str; 5] = [LINKS[0], LINKS[1], PARTS[0], PARTS[1], PARTS[2]];

/// Returns the file of the links of the part that a file of negatives belongs to.
fn part_of(negatives: &str) -> &'static str {
    if NEGATIVES[0].contains(&negatives) { PARTS[1] } else { PARTS[2] }
}

/// Checks that the sources of negatives have destinations, and that negatives have links.
pub(crate) fn check_negative_entries(path: &Path, files: &Entries) -> Result<()> {
    for [dsts, srcs] in NEGATIVES {
        let needed = if files.contains_key(srcs) { [dsts, LINKS[0]] } else { [LINKS[0]; 2] };
        let has_any = [dsts, srcs].iter().any(|name| files.contains_key(*name));
        if let Some(name) = needed.iter().find(|name| has_any && !files.contains_key(**name)) {
            return Err(missing_entry(path, name).into());
        }
    }
    Ok(())
}

/// Returns the shape of an array of negatives: a row for each link of its part, and the columns of the array of
/// destinations.
pub(crate) fn shape_of_negatives(files: &Entries, name: &str) -> Vec<usize> {
    let length = |name: &str, dim: usize| files.get(name)?.shape.get(dim).copied();
    let dsts = NEGATIVES.iter().find(|names| names.contains(&name)).map_or(name, |names| names[0]);
    vec![length(part_of(name), 0).unwrap_or(0), length(dsts, 1).unwrap_or(1)]
}

/// Returns the files of links, which are needed if `are_needed`, and those of their negatives.
pub(crate) fn link_entries(files: &Entries, are_needed: bool) -> Vec<Known> {
    const IDS: &[ElementType] = &[ElementType::U32];
    let of_nodes = files.get(LINKS[0]).map_or_else(Vec::new, |entry| entry.shape.clone());
    let known =
        |name: &'static str, shape, is_needed| Known { name: name.into(), types: IDS, shape, is_needed };
    let links = LINKS.map(|name| known(name, Some(of_nodes.clone()), are_needed));
    let parts = PARTS.map(|name| known(name, None, are_needed));
    let negatives = NEGATIVES.as_flattened().iter();
    let negatives = negatives.map(|name| known(name, Some(shape_of_negatives(files, name)), false));
    links.into_iter().chain(parts).chain(negatives).collect()
}

/// Returns the links of a folder, whose arrays `array` finds by their names; `None` if it has no links. Only types, shapes
/// and the order of links with negatives are checked.
pub(crate) fn read_link_targets<'a>(
    array: impl Fn(&str) -> Option<&'a ArrayFile>,
) -> Result<Option<LinkTargets>> {
    let Some(srcs) = array(LINKS[0]) else {
        return Ok(None);
    };
    let vector = |name: &str| -> Result<&ArrayFile> {
        let folder = srcs.path().parent().unwrap_or(srcs.path()).to_owned();
        let missing = || StoreError::Missing { folder, expected: format!("{name}, but {}", LINKS[0]) };
        let array = array(name).ok_or_else(missing)?;
        array.check_vector_of(DType::U32)?;
        Ok(array)
    };
    let (srcs, dsts) = (vector(LINKS[0])?, vector(LINKS[1])?);
    check_count(dsts.path(), "the number of entries", srcs.n_values(), dsts.n_values())?;
    let links = Links::new(srcs.elements::<NodeId>()?, dsts.elements::<NodeId>()?).map_err(in_file(srcs))?;
    let part = |name: &str| Ok::<_, crate::Error>(vector(name)?.elements::<LinkId>()?);
    let split = Split { train: part(PARTS[0])?, val: part(PARTS[1])?, test: part(PARTS[2])? };
    let [of_val, of_test] = NEGATIVES;
    let negatives = |links: &SharedArray<LinkId>, [dsts, srcs]: [&str; 2]| {
        array(dsts).map(|dsts| negatives_of(links, dsts, array(srcs))).transpose()
    };
    let (val, test) = (negatives(&split.val, of_val)?, negatives(&split.test, of_test)?);
    Ok(Some(LinkTargets::unchecked(links, split, val, test)))
}

fn negatives_of(
    links: &SharedArray<LinkId>,
    dsts_array: &ArrayFile,
    srcs: Option<&ArrayFile>,
) -> Result<LinkNegatives> {
    let n_per_link = dsts_array.shape().get(1).copied().unwrap_or(0);
    for array in srcs.into_iter().chain([dsts_array]) {
        match *array.shape() {
            [_, 0] => return Err(array.bad_shape("(n_links, n_negatives), at least one negative").into()),
            [n_links, _] => check_count(array.path(), "the number of rows", links.len(), n_links)?,
            _ => return Err(array.bad_shape("(n_links, n_negatives)").into()),
        }
        if array.dtype() != DType::U32 {
            return Err(array.wrong_type("<u4").into());
        }
        check_count(array.path(), "the number of columns", n_per_link, array.shape()[1])?;
    }
    let dsts = dsts_array.elements::<NodeId>()?;
    let negatives = match srcs {
        Some(srcs) => LinkNegatives::of_pairs(links.clone(), n_per_link, srcs.elements::<NodeId>()?, dsts),
        None => LinkNegatives::of_dsts(links.clone(), n_per_link, dsts),
    };
    Ok(negatives.map_err(in_file(dsts_array))?)
}

/// Returns a function that adds the path of an array to an error.
fn in_file(array: &ArrayFile) -> impl Fn(kiln_graph::Error) -> kiln_graph::Error {
    |source| kiln_graph::Error::InFile { path: array.path().to_owned(), source: Box::new(source) }
}

/// Writes the files of links without those of their target values and features.
pub(crate) fn write_link_targets(set: &mut FolderWriter, targets: &LinkTargets) -> Result<()> {
    let (links, split) = (targets.links(), targets.split());
    for (name, nodes) in LINKS.into_iter().zip([links.srcs(), links.dsts()]) {
        set.put(name, ElementType::U32, nodes)?;
    }
    for (name, (_, links)) in PARTS.into_iter().zip(split.parts()) {
        set.put(name, ElementType::U32, links)?;
    }
    let negatives = [(targets.val_negatives(), &split.val), (targets.test_negatives(), &split.test)];
    for ([dsts_name, srcs_name], (negatives, links)) in NEGATIVES.into_iter().zip(negatives) {
        let Some(negatives) = negatives.filter(|negatives| negatives.n_per_link() > 0) else { continue };
        let (expected, got) = ("those of their part of the split, in the same order", "others");
        require(negatives.links() == links, "the links of the fixed negatives", expected, got)?;
        for (name, nodes) in [(dsts_name, Some(negatives.dsts())), (srcs_name, negatives.srcs())] {
            let Some(nodes) = nodes else { continue };
            let mut rows = set.rows(name, ElementType::U32, negatives.n_per_link())?;
            rows.push(nodes)?;
            set.add(rows)?;
        }
    }
    Ok(())
}
