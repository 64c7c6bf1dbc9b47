//! The source packages and maintainers of the packages of an existing data set, for the heterogeneous data set
//! `debian-archive`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, ensure};
use kiln_store::npy;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::files::{hex, write_files};
use crate::index::Index;
use crate::labels::{PARTS, UNLABELLED, split};
use crate::packages::{Package, Packages};
use crate::rules::Rules;

/// The version of the file format. Readers reject other versions.
const FORMAT: u32 = 1;

/// The source of a package that is not in the index.
const NO_SOURCE: u32 = u32::MAX;

/// The sections that describe the kind of a package, not the subject of its source package: a library has its headers in
/// `libdevel`, its manual in `doc` and its translations in `localization`.
const KINDS: [&str; 6] = ["debug", "doc", "introspection", "libdevel", "localization", "oldlibs"];

/// The source packages and maintainers of the packages of a data set.
#[derive(Debug)]
pub(crate) struct Archive {
    origin: String,
    distribution: &'static str,
    rules: Rules,
    /// The SHA-256 of the index and of the names of the packages.
    index_sha256: String,
    names_sha256: String,
    /// The number of packages of the data set that are in the index.
    n_in_index: usize,
    /// The source of each package of the data set, or [`NO_SOURCE`].
    pub(crate) sources: Vec<u32>,
    /// The names of the sources, sorted by bytes.
    pub(crate) source_names: Vec<String>,
    /// The maintainer of each source. Maintainers are numbered in the order of their addresses.
    pub(crate) maintainers: Vec<u32>,
    n_maintainers: usize,
    /// The sections that are classes, sorted by name.
    pub(crate) class_names: Vec<String>,
    /// The class of each source, or -1.
    pub(crate) classes: Vec<i8>,
    /// The position in [`PARTS`] of each source's part, or 255.
    pub(crate) parts: Vec<u8>,
}

#[derive(Debug, Serialize)]
struct Manifest<'a> {
    format: u32,
    name: &'static str,
    source: BTreeMap<&'static str, &'a str>,
    counts: BTreeMap<&'static str, usize>,
    split_counts: BTreeMap<&'static str, usize>,
    class_names: &'a [String],
    notes: BTreeMap<&'static str, String>,
    sha256: BTreeMap<String, String>,
}

impl Archive {
    /// Reads the sources and maintainers of the packages with these names, a name per line, by node id. Packages of the
    /// index that are not in the set are ignored, and packages that are not in the index have no source.
    pub(crate) fn new(index: &Index, node_names: &str, rules: Rules) -> Result<Self> {
        let packages = Packages::parse(&index.text)?;
        let by_name: BTreeMap<&str, &Package> =
            packages.list.iter().map(|package| (package.name.as_str(), package)).collect();
        let of_nodes: Vec<Option<&Package>> =
            node_names.lines().map(|name| by_name.get(name).copied()).collect();
        let mut members = BTreeMap::<&str, Vec<&Package>>::new();
        for package in of_nodes.iter().copied().flatten() {
            members.entry(&package.source).or_default().push(package);
        }
        ensure!(!members.is_empty(), "the index has none of the packages of the data set");
        let numbers: BTreeMap<&str, u32> = members.keys().copied().zip(0..).collect();
        let source_of =
            |package: &Option<&Package>| package.map_or(NO_SOURCE, |package| numbers[&*package.source]);
        for (source, packages) in &members {
            ensure!(
                !packages[0].maintainer.is_empty(),
                "{} of the source {source} has no field Maintainer",
                packages[0].name
            );
        }
        let addresses: BTreeSet<&str> = members.values().map(|packages| &*packages[0].maintainer).collect();
        let addresses: BTreeMap<&str, u32> = addresses.into_iter().zip(0..).collect();
        let (class_names, classes) = classes(&members, rules);
        let labelled = members.keys().copied().zip(0..).filter(|&(_, source)| classes[source] != UNLABELLED);
        Ok(Self {
            origin: index.origin.clone(),
            distribution: index.distribution,
            rules,
            index_sha256: hex(&Sha256::digest(&index.text)),
            names_sha256: hex(&Sha256::digest(node_names)),
            n_in_index: of_nodes.iter().flatten().count(),
            sources: of_nodes.iter().map(source_of).collect(),
            source_names: members.keys().map(|&name| name.to_owned()).collect(),
            maintainers: members.values().map(|packages| addresses[&*packages[0].maintainer]).collect(),
            n_maintainers: addresses.len(),
            parts: split(labelled, classes.len()),
            class_names,
            classes,
        })
    }

    /// Returns the uncompressed bytes of each file except the manifest, by file name without `.gz`.
    pub(crate) fn contents(&self) -> BTreeMap<&'static str, Vec<u8>> {
        let names = self.source_names.iter().fold(String::new(), |all, name| all + name + "\n");
        let n_sources = [self.source_names.len()];
        BTreeMap::from([
            ("sources.npy", npy::write(&self.sources, &[self.sources.len()])),
            ("source_names.txt", names.into_bytes()),
            ("maintainers.npy", npy::write(&self.maintainers, &n_sources)),
            ("labels.npy", npy::write(&self.classes, &n_sources)),
            ("split.npy", npy::write(&self.parts, &n_sources)),
        ])
    }

    /// Writes all files to a folder, and creates it if necessary.
    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        write_files(out, self.contents(), |sha256| self.manifest(sha256))
    }

    fn manifest(&self, sha256: BTreeMap<String, String>) -> Manifest<'_> {
        Manifest {
            format: FORMAT,
            name: "debian-archive",
            source: BTreeMap::from([
                ("taken_from", &*self.origin),
                ("distribution", self.distribution),
                ("index_sha256", &*self.index_sha256),
                ("packages", "debian-packages, with its dependencies and features, and debian-tags"),
                ("package_names_sha256", &*self.names_sha256),
            ]),
            counts: BTreeMap::from([
                ("packages", self.sources.len()),
                ("packages_in_index", self.n_in_index),
                ("sources", self.source_names.len()),
                ("maintainers", self.n_maintainers),
                ("classes", self.class_names.len()),
                ("labelled_sources", self.part_counts().iter().sum()),
            ]),
            split_counts: PARTS.into_iter().zip(self.part_counts()).collect(),
            class_names: &self.class_names,
            notes: self.notes(),
            sha256,
        }
    }

    fn notes(&self) -> BTreeMap<&'static str, String> {
        let sources = format!(
            "the source package of each package of debian-packages; {NO_SOURCE} for a package that is not in \
             the index, which may be newer than that of debian-packages"
        );
        let maintainers = "the maintainer of each source's first package; maintainers differ by their addresses \
                           in lower case, are numbered in the order of the addresses, and have no names here";
        let labels = format!(
            "the section that most packages of the source have, without the packages of {}, unless there are \
             no others; among several, the section of the package with the source's name, or else the first by \
             name; a class has at least {} sources; -1 otherwise",
            KINDS.join(", "),
            self.rules.min_class_sources
        );
        let split = "0 train, 1 val, 2 test, 255 without label; 60/20/20 of the labelled sources, in the order of \
                     the SHA-256 of their names";
        BTreeMap::from([
            ("sources", sources),
            ("maintainers", maintainers.to_owned()),
            ("labels", labels),
            ("split", split.to_owned()),
        ])
    }

    /// Returns the number of sources in each of the [`PARTS`].
    pub(crate) fn part_counts(&self) -> [usize; PARTS.len()] {
        [0, 1, 2].map(|part| self.parts.iter().filter(|&&other| other == part).count())
    }

    /// Returns a table with the counts of the archive.
    pub(crate) fn summary(&self) -> String {
        let [train, val, test] = self.part_counts();
        format!(
            "packages                  {}\npackages in the index     {}\nsources                   {}\n\
             maintainers               {}\nclasses                   {}\nlabelled sources          {}\n\
             train / val / test        {train} / {val} / {test}\n",
            self.sources.len(),
            self.n_in_index,
            self.source_names.len(),
            self.n_maintainers,
            self.class_names.len(),
            train + val + test,
        )
    }
}

/// Returns the sections that have at least `min_class_sources` sources, and the class of each source.
fn classes(members: &BTreeMap<&str, Vec<&Package>>, rules: Rules) -> (Vec<String>, Vec<i8>) {
    let sections: Vec<Option<&str>> =
        members.iter().map(|(source, packages)| section_of(source, packages)).collect();
    let mut counts = BTreeMap::<&str, usize>::new();
    for section in sections.iter().copied().flatten() {
        *counts.entry(section).or_default() += 1;
    }
    counts.retain(|_, n_sources| rules.min_class_sources <= *n_sources);
    let class_names: Vec<String> = counts.keys().map(|&section| section.to_owned()).collect();
    assert!(class_names.len() <= i8::MAX as usize, "{} classes do not fit in i8", class_names.len());
    let class_of = |section: &str| class_names.binary_search_by(|name| name.as_str().cmp(section)).ok();
    let class = |section: &Option<&str>| section.and_then(class_of).map_or(UNLABELLED, |class| class as i8);
    let classes = sections.iter().map(class).collect();
    (class_names, classes)
}

/// Returns the section that most packages of a source have, without the packages in the sections of [`KINDS`], unless
/// there are no others. If several sections have the most packages, it is the section of the package with the source's
/// name, or else the first of them by name.
fn section_of<'a>(source: &str, packages: &[&'a Package]) -> Option<&'a str> {
    let count = |keeps: &dyn Fn(&str) -> bool| {
        let mut counts = BTreeMap::<&str, usize>::new();
        for section in packages.iter().filter_map(|package| package.section.as_deref()) {
            if keeps(section) {
                *counts.entry(section).or_default() += 1;
            }
        }
        counts
    };
    let mut counts = count(&|section| !KINDS.contains(&section));
    if counts.is_empty() {
        counts = count(&|_| true);
    }
    let most = counts.values().copied().max()?;
    counts.retain(|_, n_packages| *n_packages == most);
    let own = packages.iter().find(|package| package.name == source);
    let of_own = own.and_then(|package| package.section.as_deref());
    of_own.filter(|section| counts.contains_key(section)).or_else(|| counts.into_keys().next())
}
