use std::fmt;
use std::str::FromStr;

use kiln_graph::{Csc, NodeId, did_you_mean, similar_name};
use kiln_store::available_memory;
use kiln_store::progress::{Progress, ProgressUnit};
use serde::{Deserialize, Serialize};

use crate::balance::{TrainSet, check_train};
use crate::symmetric::check_entries;
use crate::{Error, Result, fennel, random};

/// The largest supported number of partitions.
pub const MAX_PARTS: usize = 65_535;

/// The maximum memory in bytes that METIS needs per edge, including the symmetric graph that kiln builds for it.
const METIS_BYTES_PER_EDGE: u64 = 60;

/// The algorithm that assigns nodes to partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Assigns nodes at random; the seed determines the assignment. With `k` partitions, about `1 - 1 / k` of the edges
    /// are cut.
    Random,
    /// Streaming partitioning: assigns each node to the partition with the most neighbours of the node, minus a cost
    /// for the partition's size. The nodes are streamed several times. The required memory grows with the number of
    /// nodes, not with the number of edges.
    Fennel,
    /// METIS's k-way partitioning, which cuts the fewest edges and needs the most memory, about 60 bytes per edge. The
    /// symmetric graph may have at most 2^31 - 1 adjacency entries. Requires the feature `metis`.
    Metis,
}

impl Method {
    /// Returns METIS if this program was built with it, the number of edges is within its limits, and the available
    /// memory suffices or is unknown; otherwise Fennel.
    pub fn auto(n_edges: u64) -> Self {
        match check_metis(n_edges) {
            Ok(()) => Self::Metis,
            Err(_) => Self::Fennel,
        }
    }

    /// The method's name: `random`, `fennel` or `metis`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Fennel => "fennel",
            Self::Metis => "metis",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let methods = [Self::Random, Self::Fennel, Self::Metis];
        methods.into_iter().find(|method| method.name() == name).ok_or_else(|| Error::BadParameter {
            what: "the method",
            expected: format!(
                "random, fennel or metis{}",
                did_you_mean(similar_name(name, methods.map(Self::name)))
            ),
            got: name.into(),
        })
    }
}

/// Assigns each node to a partition. Element `v` of the result is the partition of node `v`, below `n_parts`.
///
/// Nodes and training nodes are balanced: no partition has more than 1.05 times an equal share of either, or the share
/// rounded up if that is more. If there are more partitions than nodes, some partitions are empty. The same graph,
/// training nodes and seed give the same assignment; Fennel ignores the seed.
///
/// # Memory
/// In addition to the graph, which is streamed, random takes 7 bytes per node, and Fennel 3 bytes per node and 20 per
/// partition. Both figures include the result, 2 bytes per node. For METIS see [`Method::Metis`].
///
/// # Errors
/// Returns [`Error::BadParameter`] if the number of partitions or a training node is out of range, [`Error::Graph`] if
/// the graph is damaged, and for METIS [`Error::NoMetis`], [`Error::TooLargeForMetis`], [`Error::MemoryForMetis`] or
/// [`Error::Metis`].
pub fn partition_nodes(
    graph: &Csc,
    train: &[NodeId],
    n_parts: usize,
    method: Method,
    seed: u64,
) -> Result<Vec<u16>> {
    check_n_parts(n_parts)?;
    check_edges(graph)?;
    let train = TrainSet::new(graph.n_nodes(), train)?;
    match method {
        Method::Random => Ok(random::assign(&train, n_parts, seed)),
        Method::Fennel => Ok(fennel::assign(graph, &train, n_parts)),
        Method::Metis => {
            check_metis(graph.n_edges())?;
            metis_assign(graph, &train, n_parts, seed)
        }
    }
}

/// Checks a graph, as a stage of progress.
pub(crate) fn check_edges(graph: &Csc) -> Result<()> {
    let progress = Progress::start("checking edges", ProgressUnit::Edges, graph.n_edges());
    graph.validate()?;
    progress.advance(graph.n_edges());
    Ok(())
}

#[cfg(feature = "metis")]
use crate::metis::assign as metis_assign;

#[cfg(not(feature = "metis"))]
fn metis_assign(_: &Csc, _: &TrainSet, _: usize, _: u64) -> Result<Vec<u16>> {
    Err(Error::NoMetis)
}

/// Checks that METIS is compiled in and that a graph of `n_edges` edges is within its limits and the available memory.
/// The size of the symmetric graph is not known yet, so it is estimated.
fn check_metis(n_edges: u64) -> Result<()> {
    if !cfg!(feature = "metis") {
        return Err(Error::NoMetis);
    }
    // If all edges have a reverse edge, the symmetric graph has one entry per edge.
    check_entries(n_edges)?;
    let needed_bytes = n_edges.saturating_mul(METIS_BYTES_PER_EDGE);
    match available_memory() {
        Some(available_bytes) if available_bytes < needed_bytes => {
            Err(Error::MemoryForMetis { needed_bytes, available_bytes })
        }
        _ => Ok(()),
    }
}

/// Checks that the number of partitions is 1 to [`MAX_PARTS`].
pub(crate) fn check_n_parts(n_parts: usize) -> Result<()> {
    if (1..=MAX_PARTS).contains(&n_parts) {
        return Ok(());
    }
    let expected = format!("1 to {MAX_PARTS}");
    Err(Error::BadParameter { what: "the number of partitions", expected, got: n_parts.to_string() })
}

/// Checks that `n_parts` is in range, that `parts` has a partition below `n_parts` for each node, and that training
/// nodes are nodes of the graph.
pub(crate) fn check_parts(n_nodes: usize, train: &[NodeId], parts: &[u16], n_parts: usize) -> Result<()> {
    check_n_parts(n_parts)?;
    let bad = |what, expected: String, got: String| Err(Error::BadParameter { what, expected, got });
    if parts.len() != n_nodes {
        return bad("the number of assigned nodes", n_nodes.to_string(), parts.len().to_string());
    }
    if let Some(part) = parts.iter().find(|part| n_parts <= usize::from(**part)) {
        let expected = format!("below {n_parts}, the number of partitions");
        return bad("the partition of a node", expected, part.to_string());
    }
    check_train(n_nodes, train)
}
