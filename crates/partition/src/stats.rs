use kiln_graph::{Csc, NodeId};

use crate::Result;
use crate::assign::check_parts;

/// Statistics of a partitioning: its edge cut and its balance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartitionStats {
    /// Number of edges whose ends are in different parts.
    pub n_cut_edges: u64,
    /// The share of the edges that is cut; 0 of none.
    pub cut: f64,
    /// The nodes of the largest part by those of an equal share; 1 for none.
    pub node_balance: f64,
    /// The same of training nodes.
    pub train_balance: f64,
}

impl PartitionStats {
    /// Judges parts, node `v` being in part `parts[v]`; reads each edge once.
    ///
    /// # Errors
    /// [`Error::BadParameter`](crate::Error::BadParameter) unless each node has a part below `n_parts` and training
    /// nodes are nodes; [`Error::Graph`](crate::Error::Graph) for a graph that is damaged.
    pub fn of(graph: &Csc, train: &[NodeId], parts: &[u16], n_parts: usize) -> Result<Self> {
        graph.validate()?;
        check_parts(graph.n_nodes(), train, parts, n_parts)?;
        let mut n_cut_edges = 0;
        for (dst, part) in parts.iter().enumerate() {
            let srcs = graph.in_neighbors(NodeId(dst as u32)).iter();
            n_cut_edges += srcs.filter(|src| parts[src.index()] != *part).count() as u64;
        }
        Ok(Self {
            n_cut_edges,
            cut: if n_cut_edges == 0 { 0.0 } else { n_cut_edges as f64 / graph.n_edges() as f64 },
            node_balance: balance(parts.iter().copied(), n_parts),
            train_balance: balance(train.iter().map(|node| parts[node.index()]), n_parts),
        })
    }
}

/// The largest part by an equal share.
fn balance(parts: impl Iterator<Item = u16>, n_parts: usize) -> f64 {
    let mut counts = vec![0_usize; n_parts];
    parts.for_each(|part| counts[usize::from(part)] += 1);
    let (most, n) = (counts.iter().max().copied().unwrap_or(0), counts.iter().sum::<usize>());
    if n == 0 { 1.0 } else { most as f64 * n_parts as f64 / n as f64 }
}
