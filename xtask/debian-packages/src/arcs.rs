//! The arcs: one from each package to each package that one of its relation fields names.

use std::collections::HashMap;

use crate::packages::Packages;

/// A name that more packages provide is not resolved: it would tie everything to everything.
pub(crate) const MAX_PROVIDERS: usize = 3;

/// Arcs in COO form, ascending by (source, destination, type), each triple once.
///
/// The source is the package that has the field, the destination the one that is named.
#[derive(Debug)]
pub(crate) struct Arcs {
    /// Node ids of the sources.
    pub(crate) srcs: Vec<u32>,
    /// Node ids of the destinations.
    pub(crate) dsts: Vec<u32>,
    /// Types: positions in [`RELATIONS`](crate::packages::RELATIONS).
    pub(crate) types: Vec<u8>,
}

impl Arcs {
    /// Resolves every name: to the package of that name; if there is none, to each of its providers,
    /// where there are at most [`MAX_PROVIDERS`]; else to nothing. An arc from a package to itself is
    /// dropped.
    pub(crate) fn new(packages: &Packages) -> Self {
        let targets = targets_by_name(packages);
        let mut arcs = Vec::new();
        for (src, package) in packages.list.iter().enumerate() {
            for (ty, names) in package.relations.iter().enumerate() {
                let dsts = names.iter().filter_map(|name| targets.get(name.as_str())).flatten();
                arcs.extend(dsts.filter(|&&dst| dst != src as u32).map(|&dst| (src as u32, dst, ty as u8)));
            }
        }
        arcs.sort_unstable();
        arcs.dedup();
        Self {
            srcs: arcs.iter().map(|arc| arc.0).collect(),
            dsts: arcs.iter().map(|arc| arc.1).collect(),
            types: arcs.iter().map(|arc| arc.2).collect(),
        }
    }

    /// The largest number of arcs that start or end at one of the nodes.
    pub(crate) fn max_degree(&self, n_nodes: usize) -> usize {
        let mut degrees = vec![0; n_nodes];
        for &node in self.srcs.iter().chain(&self.dsts) {
            degrees[node as usize] += 1;
        }
        degrees.into_iter().max().unwrap_or(0)
    }
}

/// For each name that can be resolved, the nodes that it stands for.
fn targets_by_name(packages: &Packages) -> HashMap<&str, Vec<u32>> {
    let mut targets = HashMap::<&str, Vec<u32>>::new();
    for (node, package) in packages.list.iter().enumerate() {
        for name in &package.provides {
            let providers = targets.entry(name).or_default();
            // Nodes ascend, so a package that provides a name twice meets itself at the end.
            if providers.last() != Some(&(node as u32)) {
                providers.push(node as u32);
            }
        }
    }
    targets.retain(|_, providers| providers.len() <= MAX_PROVIDERS);
    targets.extend(
        packages.list.iter().enumerate().map(|(node, package)| (package.name.as_str(), vec![node as u32])),
    );
    targets
}
