//! The arcs of the graph: from each package to the packages that its relation fields name.

use std::collections::HashMap;

use crate::packages::Packages;

/// The maximum number of packages that may provide a name. Names with more providers are dropped, because they would
/// connect too many packages.
pub(crate) const MAX_PROVIDERS: usize = 3;

/// Arcs in COO form, ascending by (source, destination, type), each triple once.
///
/// The source is the package with the field, the destination the package that the field names.
#[derive(Debug)]
pub(crate) struct Arcs {
    /// The node ids of the sources.
    pub(crate) srcs: Vec<u32>,
    /// The node ids of the destinations.
    pub(crate) dsts: Vec<u32>,
    /// The types of the arcs, as positions in [`RELATIONS`](crate::packages::RELATIONS).
    pub(crate) types: Vec<u8>,
}

impl Arcs {
    /// Creates the arcs from each package to the packages that its relation fields name. A name that is not a package
    /// stands for its providers if there are at most [`MAX_PROVIDERS`]. Other names, and arcs from a package to itself,
    /// are dropped.
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

    /// Returns the largest number of arcs that start or end at a node.
    pub(crate) fn max_degree(&self, n_nodes: usize) -> usize {
        let mut degrees = vec![0; n_nodes];
        for &node in self.srcs.iter().chain(&self.dsts) {
            degrees[node as usize] += 1;
        }
        degrees.into_iter().max().unwrap_or(0)
    }
}

/// Returns the nodes of each name that can be resolved: the package of that name, or else its providers if there are at
/// most [`MAX_PROVIDERS`].
fn targets_by_name(packages: &Packages) -> HashMap<&str, Vec<u32>> {
    let mut targets = HashMap::<&str, Vec<u32>>::new();
    for (node, package) in packages.list.iter().enumerate() {
        for name in &package.provides {
            let providers = targets.entry(name).or_default();
            // Nodes are visited in ascending order. If this package has provided the name before, it is the last
            // provider.
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
