use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{NodeId, SharedArray};

use crate::NodeRng;
use crate::negative_sampler::{NegativeSampler, PositiveLink};

/// Replaces the destination by a node that is drawn uniformly (DGL's `PerSourceUniform`, GraphBolt's
/// `UniformNegativeSampler`).
///
/// ```
/// use kiln_graph::NodeTypes;
/// use kiln_sample::{Negatives, UniformNegatives};
/// // Any node of a graph with 100 nodes.
/// let negatives = Negatives::new(UniformNegatives { dsts: 0..100 }, 5);
/// // The items of a heterogeneous graph, for links from users to items.
/// let types = NodeTypes::new([("user", 60), ("item", 40)])?;
/// let items = Negatives::new(UniformNegatives { dsts: types.range(1) }, 5);
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniformNegatives {
    /// The ids of the nodes to draw from: all of the graph, or those of the links' destination type
    /// ([`NodeTypes::range`](kiln_graph::NodeTypes::range)).
    pub dsts: Range<u32>,
}

impl NegativeSampler for UniformNegatives {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        (link.src, draw_node(&self.dsts, rng))
    }

    fn among(&self, is_known: &Arc<[bool]>) -> Option<Arc<dyn NegativeSampler>> {
        let is_known = |node: &u32| is_known.get(*node as usize).copied().unwrap_or(false);
        let dsts: Vec<NodeId> = self.dsts.clone().filter(is_known).map(NodeId).collect();
        // Without a node, the candidates of all nodes are rejected and counted.
        (!dsts.is_empty())
            .then(|| Arc::new(ListedNegatives { dsts: dsts.into() }) as Arc<dyn NegativeSampler>)
    }

    fn existing(&self, times: &SharedArray<i64>) -> Option<Arc<dyn NegativeSampler>> {
        Some(Arc::new(ExistingNegatives::new(self.dsts.clone(), times)))
    }

    fn reads_step(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "uniform"
    }
}

/// Replaces the destination by a node of a list that is drawn uniformly.
#[derive(Debug)]
struct ListedNegatives {
    dsts: Arc<[NodeId]>,
}

impl NegativeSampler for ListedNegatives {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        (link.src, self.dsts[rng.below(self.dsts.len() as u32) as usize])
    }

    fn reads_step(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "uniform"
    }
}

/// Draws both nodes uniformly (DGL's `GlobalUniform`, PyG's `negative_sampling`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniformPairNegatives {
    /// The ids of the nodes to draw sources from: all of the graph, or those of the links' source type.
    pub srcs: Range<u32>,
    /// The ids of the nodes to draw destinations from.
    pub dsts: Range<u32>,
}

impl NegativeSampler for UniformPairNegatives {
    fn draw(&self, _: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        let src = draw_node(&self.srcs, rng);
        (src, draw_node(&self.dsts, rng))
    }

    fn reads_step(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "uniform-pairs"
    }
}

/// Replaces the destination by a node that is drawn uniformly from those that exist before the time of the link.
#[derive(Debug)]
struct ExistingNegatives {
    /// All destinations, for links before which none exists and for links without a time.
    dsts: Range<u32>,
    /// The destinations, by their times and then by their ids.
    by_time: Arc<[NodeId]>,
    /// The times of these destinations, ascending.
    times: Arc<[i64]>,
}

impl ExistingNegatives {
    /// Orders the nodes of a range by their times, of which `times` has one per node of the graph.
    fn new(dsts: Range<u32>, times: &SharedArray<i64>) -> Self {
        let mut nodes: Vec<(i64, u32)> = Vec::new();
        for node in dsts.clone() {
            nodes.extend(times.get(node as usize).map(|time| (*time, node)));
        }
        nodes.sort_unstable();
        let (times, by_time): (Vec<i64>, Vec<NodeId>) =
            nodes.into_iter().map(|(time, node)| (time, NodeId(node))).unzip();
        Self { dsts, by_time: by_time.into(), times: times.into() }
    }
}

impl NegativeSampler for ExistingNegatives {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        let n_existing = link.time.map_or(0, |time| self.times.partition_point(|of_node| *of_node < time));
        match n_existing {
            // Rejected and counted, unless the link has no time.
            0 => (link.src, draw_node(&self.dsts, rng)),
            _ => (link.src, self.by_time[rng.below(n_existing as u32) as usize]),
        }
    }

    fn reads_step(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "uniform"
    }
}

fn draw_node(nodes: &Range<u32>, rng: &mut NodeRng) -> NodeId {
    NodeId(nodes.start + rng.below(nodes.end.saturating_sub(nodes.start)))
}
