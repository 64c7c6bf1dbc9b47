//! The label of each package, and its part of the split: train, val or test.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::packages::Packages;
use crate::rules::Rules;

/// The names of the split's parts, by number.
pub(crate) const PARTS: [&str; 3] = ["train", "val", "test"];
/// The part number of nodes without a label.
pub(crate) const NO_PART: u8 = 255;
/// The class of nodes without a label.
pub(crate) const UNLABELLED: i8 = -1;

/// Labels and split, by node id.
#[derive(Debug)]
pub(crate) struct Labels {
    /// The sections that are classes, sorted by name.
    pub(crate) class_names: Vec<String>,
    /// The class of each node, or -1.
    pub(crate) classes: Vec<i8>,
    /// The position in [`PARTS`] of each node's part, or [`NO_PART`] if the node has no label.
    pub(crate) parts: Vec<u8>,
}

impl Labels {
    /// Labels the packages by section and splits them. A section is a class if it has at least `min_packages` packages
    /// from at least `min_sources` source packages.
    pub(crate) fn new(packages: &Packages, rules: Rules) -> Self {
        let mut members = BTreeMap::<&str, Vec<&str>>::new();
        for package in &packages.list {
            if let Some(section) = &package.section {
                members.entry(section).or_default().push(&package.source);
            }
        }
        members.retain(|_, sources| {
            let n_packages = sources.len();
            let n_sources = sources.iter().collect::<BTreeSet<_>>().len();
            n_packages >= rules.min_packages && n_sources >= rules.min_sources
        });
        let class_names: Vec<String> = members.keys().map(|&section| section.to_owned()).collect();
        assert!(class_names.len() <= i8::MAX as usize, "{} classes do not fit in i8", class_names.len());
        let class_of = |section: &str| class_names.binary_search_by(|name| name.as_str().cmp(section));
        let classes: Vec<i8> = packages
            .list
            .iter()
            .map(|package| package.section.as_deref().and_then(|section| class_of(section).ok()))
            .map(|class| class.map_or(UNLABELLED, |class| class as i8))
            .collect();
        let labelled = packages.list.iter().enumerate().filter(|&(node, _)| classes[node] != UNLABELLED);
        let parts = split(labelled.map(|(node, package)| (package.source.as_str(), node)), classes.len());
        Self { class_names, classes, parts }
    }

    /// Returns the number of nodes in each of the [`PARTS`].
    pub(crate) fn part_counts(&self) -> [usize; PARTS.len()] {
        [0, 1, 2].map(|part| self.parts.iter().filter(|&&other| other == part).count())
    }

    /// Returns the share of test nodes whose class is the most frequent class of the training nodes.
    pub(crate) fn majority_accuracy(&self) -> f64 {
        let counts = |part: u8| {
            let mut counts = vec![0_usize; self.class_names.len()];
            for (&class, _) in self.classes.iter().zip(&self.parts).filter(|&(_, &other)| other == part) {
                counts[class as usize] += 1;
            }
            counts
        };
        let (train, test) = (counts(0), counts(2));
        let majority = (0..train.len()).rev().max_by_key(|&class| train[class]);
        let n_test: usize = test.iter().sum();
        majority.map_or(0.0, |class| test[class] as f64 / n_test.max(1) as f64)
    }
}

/// Splits the labelled nodes into 60 % train, 20 % val and 20 % test; returns the part of each of `n_nodes` nodes. All
/// nodes of a source package are in the same part. `labelled` has the source package and the id of each node with a label.
///
/// Sources are sorted by the SHA-256 of their names, which depends on neither the order of the index nor a seed. They
/// are assigned to train until it has 60 % of the labelled nodes, then to val until both together have 80 %, and then
/// to test.
pub(crate) fn split<'a>(labelled: impl Iterator<Item = (&'a str, usize)>, n_nodes: usize) -> Vec<u8> {
    let mut members = BTreeMap::<(Vec<u8>, &str), Vec<usize>>::new();
    for (source, node) in labelled {
        members.entry((Sha256::digest(source.as_bytes()).to_vec(), source)).or_default().push(node);
    }
    let n_labelled: usize = members.values().map(Vec::len).sum();
    let mut parts = vec![NO_PART; n_nodes];
    let mut n_assigned = 0;
    for nodes in members.values() {
        let part = match n_assigned * 10 {
            tenths if tenths < n_labelled * 6 => 0,
            tenths if tenths < n_labelled * 8 => 1,
            _ => 2,
        };
        for &node in nodes {
            parts[node] = part;
        }
        n_assigned += nodes.len();
    }
    parts
}
