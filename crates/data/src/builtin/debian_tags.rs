//! The built-in data set `debian-tags`: the graph of `debian-packages` with several labels per package.

use std::path::Path;

use kiln_feature::TargetValues;
use kiln_graph::{NodeId, SharedArray};
use kiln_store::check_count;
use serde::Deserialize;

use super::debian::{debian_packages, read_debian_packages};
use super::read_manifest;
use crate::readers::files::Files;
use crate::{Dataset, DatasetTargets, Result, Split};

/// The version of the files' format.
pub(super) const FORMAT: u32 = 1;

pub(super) static EMBEDDED: [(&str, &[u8]); 4] =
    embedded!["debian-tags": "manifest.json", "nodes.npy.gz", "indptr.npy.gz", "tags.npy.gz"];

#[derive(Debug, Deserialize)]
struct Manifest {
    name: String,
    tag_names: Vec<String>,
}

/// Returns the built-in set `debian-tags`: the graph, features and names of [`debian_packages`], and as targets the
/// Debtags of the packages, several labels per package.
///
/// - *Targets*: `[n_nodes, n_tags]`, 1 if the package has the tag. The tags are those with at least 100 packages from
///   at least 40 source packages, for example `role::program` and `implemented-in::perl`; `class_names` has their
///   names. A package without any Debtag has no targets; a package whose tags are all rarer has no label.
/// - *Split*: the tagged packages of each part of the split of [`debian_packages`], so all packages of one source
///   package are in the same part.
///
/// Volunteers tag packages, so a missing tag does not always mean that a tag is wrong for a package. The manifest,
/// `crates/data/datasets/debian-tags/manifest.json`, describes the source of the tags.
///
/// # Errors
/// Returns an error only if the embedded files are damaged; see [`read_debian_tags`].
pub fn debian_tags() -> Result<Dataset> {
    with_tags(debian_packages()?, Files::Embedded(&EMBEDDED))
}

/// Reads a set like [`debian_tags`] from two folders that the generator in `xtask/debian-packages` wrote: one with the
/// packages, and one with their tags.
///
/// Counts and ranges are checked; the manifests' hashes are not.
///
/// # Errors
/// Returns the errors of [`read_debian_packages`], for either folder.
pub fn read_debian_tags(packages: impl AsRef<Path>, tags: impl AsRef<Path>) -> Result<Dataset> {
    with_tags(read_debian_packages(packages)?, Files::Folder(tags.as_ref()))
}

/// Replaces the labels of a set by the tags in `files`, and removes the nodes without tags from the split.
fn with_tags(data: Dataset, files: Files<'_>) -> Result<Dataset> {
    let manifest: Manifest = read_manifest(&files, FORMAT)?;
    let values = load_values(&files, data.graph.n_nodes(), manifest.tag_names.len())?;
    let tagged = |nodes: &SharedArray<NodeId>| -> SharedArray<NodeId> {
        nodes.iter().copied().filter(|&node| values.has_any(node)).collect::<Vec<_>>().into()
    };
    let Split { train, val, test } = data.split();
    let split = Split { train: tagged(train), val: tagged(val), test: tagged(test) };
    let class_names = manifest.tag_names;
    let targets = DatasetTargets { node_type: 0, values: values.into(), split, class_names };
    Ok(Dataset { name: manifest.name, targets: Some(targets), ..data })
}

fn load_values(files: &Files<'_>, n_nodes: usize, n_tags: usize) -> Result<TargetValues> {
    let lists = load_lists(files, n_nodes, n_tags)?;
    let mut values = vec![TargetValues::<NodeId>::MISSING; n_nodes * n_tags];
    for (node, tags) in lists.iter() {
        let row = &mut values[node as usize * n_tags..][..n_tags];
        row.fill(0);
        for &tag in tags {
            row[usize::from(tag)] = 1;
        }
    }
    Ok(TargetValues::multi_label(values, n_tags)?)
}

/// The tags of the packages that have any.
pub(super) struct TagLists {
    nodes: Vec<u32>,
    indptr: Vec<u32>,
    tags: Vec<u16>,
}

impl TagLists {
    /// Returns each tagged package and its tags.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[u16])> {
        let ranges = self.indptr.windows(2).map(|range| range[0] as usize..range[1] as usize);
        self.nodes.iter().copied().zip(ranges.map(|range| &self.tags[range]))
    }
}

/// Returns the tags of the packages, which are all in range.
pub(super) fn load_lists(files: &Files<'_>, n_nodes: usize, n_tags: usize) -> Result<TagLists> {
    let nodes: Vec<u32> = files.read_npy("nodes.npy.gz")?;
    let indptr: Vec<u32> = files.read_npy("indptr.npy.gz")?;
    let tags: Vec<u16> = files.read_npy("tags.npy.gz")?;
    check_count("indptr.npy.gz", "the length", nodes.len() + 1, indptr.len())?;
    check_count("indptr.npy.gz", "the first entry", 0, indptr[0] as usize)?;
    check_count("indptr.npy.gz", "the last entry", tags.len(), indptr[nodes.len()] as usize)?;
    if let Some(fall) = indptr.windows(2).find(|pair| pair[1] < pair[0]) {
        check_count("indptr.npy.gz", "a decreasing entry", fall[0] as usize, fall[1] as usize)?;
    }
    if let Some(&node) = nodes.iter().find(|&&node| n_nodes <= node as usize) {
        check_count("nodes.npy.gz", "an out-of-range node id", n_nodes.saturating_sub(1), node as usize)?;
    }
    if let Some(&tag) = tags.iter().find(|&&tag| n_tags <= usize::from(tag)) {
        check_count("tags.npy.gz", "an out-of-range tag id", n_tags.saturating_sub(1), usize::from(tag))?;
    }
    Ok(TagLists { nodes, indptr, tags })
}
