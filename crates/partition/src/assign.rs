use std::fmt;
use std::fs;
use std::str::FromStr;

use kiln_graph::{Csc, NodeId};
use serde::{Deserialize, Serialize};

use crate::balance::TrainSet;
use crate::{Error, Result, fennel, random};

/// The most parts that there may be.
pub const MAX_PARTS: usize = 65_535;

/// Bytes of memory that METIS takes for an edge, that of the symmetric graph which is made for it included. Measured
/// were 36 to 57 (November 2026).
const METIS_BYTES_PER_EDGE: u64 = 60;

/// The most entries of an adjacency list that METIS counts.
const METIS_MAX_ENTRIES: u64 = (1 << 31) - 1;

/// What decides which part owns which node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Chance, by a seed. Of `k` parts it cuts `1 - 1 / k` of the edges.
    Random,
    /// Nodes in a stream, several times over, each to the part that has most of its neighbours and not too many nodes.
    /// A few seconds for a hundred million edges, in memory that grows with the nodes alone.
    Fennel,
    /// METIS's k-way partitioning, the best and the most expensive: about 60 bytes of memory an edge, and at most
    /// 2^31 - 1 entries in the adjacency list of the symmetric graph. Needs the feature `metis`.
    Metis,
}

impl Method {
    /// The best method for a graph on this machine: METIS where this program was built with it and the graph fits it
    /// and the memory that the system says to be available, otherwise Fennel.
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
            expected: "random, fennel or metis".into(),
            got: name.into(),
        })
    }
}

/// Decides which part owns each node: node `v` goes to part `parts[v]`, below `n_parts`.
///
/// Nodes and training nodes are balanced: no part has more than 1.05 times an equal share of either or, of so few that
/// this is no whole node more, the share rounded up. Where there are more parts than nodes, some are empty. The same
/// graph, nodes and seed give the same parts; Fennel draws nothing.
///
/// # Memory
/// Above the graph, which is streamed, and with the 2 bytes a node that are returned: 7 bytes a node for random, 3 bytes
/// a node and 20 a part for Fennel; for METIS see [`Method::Metis`].
///
/// # Errors
/// [`Error::BadParameter`] for a number of parts that cannot be and training nodes that are none, [`Error::Graph`] for
/// a graph that is damaged; for METIS [`Error::NoMetis`], [`Error::TooLargeForMetis`], [`Error::MemoryForMetis`] and
/// [`Error::Metis`].
pub fn partition_nodes(
    graph: &Csc,
    train: &[NodeId],
    n_parts: usize,
    method: Method,
    seed: u64,
) -> Result<Vec<u16>> {
    check_n_parts(n_parts)?;
    graph.validate()?;
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

#[cfg(feature = "metis")]
use crate::metis::assign as metis_assign;

#[cfg(not(feature = "metis"))]
fn metis_assign(_: &Csc, _: &TrainSet, _: usize, _: u64) -> Result<Vec<u16>> {
    Err(Error::NoMetis)
}

/// Checks that METIS is there and takes a graph of so many edges, by what is known before it is made symmetric.
fn check_metis(n_edges: u64) -> Result<()> {
    if !cfg!(feature = "metis") {
        return Err(Error::NoMetis);
    }
    // Of a graph whose edges all have a reverse, as many entries remain as there are edges.
    check_entries(n_edges)?;
    let needed_bytes = n_edges.saturating_mul(METIS_BYTES_PER_EDGE);
    match available_bytes() {
        Some(available_bytes) if available_bytes < needed_bytes => {
            Err(Error::MemoryForMetis { needed_bytes, available_bytes })
        }
        _ => Ok(()),
    }
}

/// Checks that METIS counts so many entries of an adjacency list.
pub(crate) fn check_entries(n_entries: u64) -> Result<()> {
    if METIS_MAX_ENTRIES < n_entries {
        let (what, max) = ("entries of an adjacency list", METIS_MAX_ENTRIES);
        return Err(Error::TooLargeForMetis { what, n: n_entries, max });
    }
    Ok(())
}

/// Memory that programs can have before the system runs out of it; `None` where it does not say.
fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Checks that there may be so many parts.
pub(crate) fn check_n_parts(n_parts: usize) -> Result<()> {
    if (1..=MAX_PARTS).contains(&n_parts) {
        return Ok(());
    }
    let expected = format!("1 to {MAX_PARTS}");
    Err(Error::BadParameter { what: "the number of parts", expected, got: n_parts.to_string() })
}

/// Checks that each node has a part, and that training nodes are nodes.
pub(crate) fn check_parts(n_nodes: usize, train: &[NodeId], parts: &[u16], n_parts: usize) -> Result<()> {
    check_n_parts(n_parts)?;
    let bad = |what, expected: String, got: String| Err(Error::BadParameter { what, expected, got });
    if parts.len() != n_nodes {
        return bad("the number of nodes that have a part", n_nodes.to_string(), parts.len().to_string());
    }
    if let Some(part) = parts.iter().find(|part| n_parts <= usize::from(**part)) {
        return bad("a node's part", format!("below {n_parts}, the number of parts"), part.to_string());
    }
    check_train(n_nodes, train)
}

/// Checks that training nodes are nodes.
pub(crate) fn check_train(n_nodes: usize, train: &[NodeId]) -> Result<()> {
    match train.iter().find(|node| n_nodes <= node.index()) {
        Some(node) => {
            let expected = format!("below {n_nodes}, the number of nodes");
            Err(Error::BadParameter { what: "a training node", expected, got: node.0.to_string() })
        }
        None => Ok(()),
    }
}
