use std::fmt;

use kiln_graph::{Csc, NodeId};
use kiln_store::progress::{Progress, ProgressUnit};

use crate::Result;
use crate::assign::{check_edges, check_parts};

/// Statistics of a partitioning: its edge cut and its balance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartitionStats {
    /// The number of edges whose ends are in different partitions.
    pub n_cut_edges: u64,
    /// The share of the edges that are cut, 0 to 1; 0 for a graph without edges.
    pub cut: f64,
    /// The largest number of nodes in a partition, divided by an equal share; 1 for a graph without nodes.
    pub node_balance: f64,
    /// The largest number of training nodes in a partition, divided by an equal share; 1 if there are no training
    /// nodes.
    pub train_balance: f64,
}

/// Writes two lines: the edge cut and the balance.
impl fmt::Display for PartitionStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_cut_edges, cut, node_balance, train_balance } = self;
        writeln!(f, "cut: {cut:.4} of the edges, {n_cut_edges}")?;
        write!(
            f,
            "balance: {node_balance:.4} for nodes, {train_balance:.4} for training nodes (largest partition / mean)"
        )
    }
}

impl PartitionStats {
    /// Computes the statistics of an assignment of node `v` to partition `parts[v]`. Reads each edge once.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) unless each node has a partition below `n_parts` and
    /// the training nodes are nodes of the graph, and [`Error::Graph`](crate::Error::Graph) if the graph is damaged.
    pub fn of(graph: &Csc, train: &[NodeId], parts: &[u16], n_parts: usize) -> Result<Self> {
        check_edges(graph)?;
        check_parts(graph.n_nodes(), train, parts, n_parts)?;
        let mut n_cut_edges = 0;
        let progress = Progress::start("counting cut edges", ProgressUnit::Nodes, parts.len() as u64);
        let mut counter = progress.counter();
        for (dst, part) in parts.iter().enumerate() {
            let srcs = graph.in_neighbors(NodeId(dst as u32)).iter();
            n_cut_edges += srcs.filter(|src| parts[src.index()] != *part).count() as u64;
            counter.add(1);
        }
        Ok(Self {
            n_cut_edges,
            cut: if n_cut_edges == 0 { 0.0 } else { n_cut_edges as f64 / graph.n_edges() as f64 },
            node_balance: balance(parts.iter().copied(), n_parts),
            train_balance: balance(train.iter().map(|node| parts[node.index()]), n_parts),
        })
    }
}

/// Returns the size of the largest partition divided by an equal share.
fn balance(parts: impl Iterator<Item = u16>, n_parts: usize) -> f64 {
    let mut counts = vec![0_usize; n_parts];
    parts.for_each(|part| counts[usize::from(part)] += 1);
    let (most, n) = (counts.iter().max().copied().unwrap_or(0), counts.iter().sum::<usize>());
    if n == 0 { 1.0 } else { most as f64 * n_parts as f64 / n as f64 }
}
