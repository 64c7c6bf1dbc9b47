//! The Debtags of packages: labels of which a package may have several (Zini, "A cute introduction to Debtags", 2005).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, ensure};
use kiln_store::npy;
use serde::Serialize;

use crate::files::write_files;
use crate::index::Index;
use crate::packages::{Package, Packages};
use crate::rules::Rules;

/// The version of the file format. Readers reject other versions.
const FORMAT: u32 = 1;

/// The tags of the packages of an existing data set.
#[derive(Debug)]
pub(crate) struct Tags {
    origin: String,
    distribution: &'static str,
    rules: Rules,
    n_nodes: usize,
    /// The number of nodes whose package is in the index.
    n_in_index: usize,
    /// The names of the tags that are labels, sorted by name.
    pub(crate) names: Vec<String>,
    /// The nodes whose package has any tag, ascending.
    pub(crate) nodes: Vec<u32>,
    /// The start of each of these nodes' labels in `labels`; `nodes.len() + 1` entries.
    pub(crate) indptr: Vec<u32>,
    /// The positions in `names` of each node's labels, ascending.
    pub(crate) labels: Vec<u16>,
}

#[derive(Debug, Serialize)]
struct Manifest<'a> {
    format: u32,
    name: &'static str,
    source: BTreeMap<&'static str, &'a str>,
    counts: BTreeMap<&'static str, usize>,
    tag_names: &'a [String],
    notes: BTreeMap<&'static str, String>,
    sha256: BTreeMap<String, String>,
}

impl Tags {
    /// Reads the tags of the packages with these names, by node id. A tag is a label if it has at least `min_packages`
    /// packages from at least `min_sources` source packages; placeholders are not labels. Packages of the index that
    /// are not in the set are ignored, and packages that are not in the index have no tags.
    pub(crate) fn new(index: &Index, node_names: &[&str], rules: Rules) -> Result<Self> {
        let packages = Packages::parse(&index.text)?;
        let by_name: BTreeMap<&str, &Package> =
            packages.list.iter().map(|package| (package.name.as_str(), package)).collect();
        let of_nodes: Vec<Option<&Package>> =
            node_names.iter().map(|name| by_name.get(name).copied()).collect();
        let names = frequent_tags(of_nodes.iter().copied().flatten(), rules);
        ensure!(u16::try_from(names.len()).is_ok(), "{} tags do not fit in u16", names.len());
        let (mut nodes, mut indptr, mut labels) = (Vec::new(), vec![0], Vec::new());
        for (node, package) in (0_u32..).zip(&of_nodes) {
            let Some(package) = package.filter(|package| !package.tags.is_empty()) else { continue };
            let found = package.tags.iter().filter_map(|tag| names.binary_search(tag).ok());
            labels.extend(found.map(|label| label as u16).collect::<BTreeSet<_>>());
            nodes.push(node);
            indptr.push(labels.len() as u32);
        }
        Ok(Self {
            origin: index.origin.clone(),
            distribution: index.distribution,
            rules,
            n_nodes: node_names.len(),
            n_in_index: of_nodes.iter().flatten().count(),
            names,
            nodes,
            indptr,
            labels,
        })
    }

    /// Returns the uncompressed bytes of each file except the manifest, by file name without `.gz`.
    pub(crate) fn contents(&self) -> BTreeMap<&'static str, Vec<u8>> {
        BTreeMap::from([
            ("nodes.npy", npy::write(&self.nodes, &[self.nodes.len()])),
            ("indptr.npy", npy::write(&self.indptr, &[self.indptr.len()])),
            ("tags.npy", npy::write(&self.labels, &[self.labels.len()])),
        ])
    }

    /// Writes all files to a folder, and creates it if necessary.
    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        write_files(out, self.contents(), |sha256| self.manifest(sha256))
    }

    fn manifest(&self, sha256: BTreeMap<String, String>) -> Manifest<'_> {
        let Rules { min_packages, min_sources, .. } = self.rules;
        let tags = format!(
            "the tags with at least {min_packages} packages from at least {min_sources} source packages, \
             without the facet `special` and the placeholders `TODO`"
        );
        let nodes = "the packages of debian-packages with any tag; a package without one of the tag_names \
                     has no labels, a package that is not listed has no targets";
        Manifest {
            format: FORMAT,
            name: "debian-tags",
            source: BTreeMap::from([("taken_from", &*self.origin), ("distribution", self.distribution)]),
            counts: BTreeMap::from([
                ("nodes", self.n_nodes),
                ("nodes_in_index", self.n_in_index),
                ("tagged_nodes", self.nodes.len()),
                ("tags", self.names.len()),
                ("true_labels", self.labels.len()),
            ]),
            tag_names: &self.names,
            notes: BTreeMap::from([("tags", tags), ("nodes", nodes.to_owned())]),
            sha256,
        }
    }

    /// Returns a table with the counts of the tags.
    pub(crate) fn summary(&self) -> String {
        let per_package = self.labels.len() as f64 / self.nodes.len().max(1) as f64;
        format!(
            "nodes                     {}\nnodes in the index        {}\ntagged nodes              {}\n\
             tags                      {}\nlabels of a tagged node   {per_package:.2}\n",
            self.n_nodes,
            self.n_in_index,
            self.nodes.len(),
            self.names.len(),
        )
    }
}

/// Returns the tags that are labels, sorted by name.
fn frequent_tags<'a>(packages: impl Iterator<Item = &'a Package>, rules: Rules) -> Vec<String> {
    let mut members = BTreeMap::<&str, BTreeSet<(&str, &str)>>::new();
    for package in packages {
        for tag in package.tags.iter().filter(|tag| !is_placeholder(tag)) {
            members.entry(tag).or_default().insert((&package.source, &package.name));
        }
    }
    members.retain(|_, packages| {
        let n_sources = packages.iter().map(|(source, _)| source).collect::<BTreeSet<_>>().len();
        packages.len() >= rules.min_packages && n_sources >= rules.min_sources
    });
    members.into_keys().map(str::to_owned).collect()
}

/// Returns true for tags that state something about the tagging instead of the package.
fn is_placeholder(tag: &str) -> bool {
    tag.starts_with("special::") || tag.ends_with("::TODO") || tag.ends_with(":TODO")
}
