use kiln_graph::{Csc, NodeId};
use kiln_store::progress::{Progress, ProgressUnit};

use crate::balance::{TrainSet, most_of};

/// The maximum number of times that the nodes are streamed.
const MOST_PASSES: usize = 10;
/// The nodes are streamed again only if the last stream moved at least this share of the nodes. If fewer move, further
/// streams hardly reduce the edge cut.
const LEAST_MOVED: f64 = 0.01;

/// A factor by which the size cost of the FENNEL paper is multiplied. With factor 1, partitions grow until they are
/// full, and later nodes go to any partition with room, which cuts more edges. Factors above 4 do not reduce the cut
/// further.
const COST_FACTOR: f64 = 4.0;

/// The value of `Stream::parts` for a node that is not assigned to a partition.
const NOWHERE: u16 = u16::MAX;

/// Streams the nodes and assigns each to the partition with the highest score: the number of its neighbours there,
/// minus a cost of the partition's size (Tsourakakis, Gkantsidis, Radunovic and Vojnovic 2014, "FENNEL", with gamma
/// 1.5). The stream is repeated, so that later streams know the partitions of all neighbours (Nishimura and Ugander
/// 2013). Differences from the paper: only in-neighbours count, size costs more, and training nodes are balanced, too.
///
/// Memory: 3 bytes per node, including the training set, and 20 bytes per partition. Time of a stream: proportional to
/// the edges, plus nodes times partitions.
pub(crate) fn assign(graph: &Csc, train: &TrainSet, n_parts: usize) -> Vec<u16> {
    let mut stream = Stream::new(graph, train, vec![NOWHERE; graph.n_nodes()], n_parts);
    for pass in 1..=MOST_PASSES {
        let name = format_args!("assigning nodes by Fennel, pass {pass} of at most {MOST_PASSES}");
        let progress = Progress::start(name, ProgressUnit::Nodes, graph.n_nodes() as u64);
        let mut counter = progress.counter();
        let nodes = (0..graph.n_nodes()).inspect(|_| counter.add(1));
        let n_moved = nodes.filter(|&node| stream.place(node)).count();
        if (n_moved as f64) < LEAST_MOVED * graph.n_nodes() as f64 {
            break;
        }
    }
    stream.settle()
}

/// Moves nodes out of partitions that exceed their limits, each to the partition with the highest score among those
/// with room.
#[cfg(feature = "metis")]
pub(crate) fn settle(graph: &Csc, train: &TrainSet, parts: Vec<u16>, n_parts: usize) -> Vec<u16> {
    Stream::new(graph, train, parts, n_parts).settle()
}

/// The state of the stream: an assignment of the nodes and the sizes of the partitions.
struct Stream<'a> {
    graph: &'a Csc,
    train: &'a TrainSet,
    /// The partition of each node, or [`NOWHERE`].
    parts: Vec<u16>,
    /// The number of nodes in each partition, at most `most_nodes` in the result.
    n_nodes: Vec<u32>,
    most_nodes: u32,
    /// The number of training nodes in each partition, at most `most_train` in the result.
    n_train: Vec<u32>,
    most_train: u32,
    /// The cost of adding a node to each partition, in units of one neighbour.
    costs: Vec<f64>,
    /// The cost of adding a node to a partition of one node, in units of one neighbour.
    unit_cost: f64,
    /// The number of neighbours of the current node in each partition.
    n_near: Vec<u32>,
}

impl<'a> Stream<'a> {
    fn new(graph: &'a Csc, train: &'a TrainSet, parts: Vec<u16>, n_parts: usize) -> Self {
        let (n_nodes, n_edges) = (graph.n_nodes() as f64, graph.n_edges() as f64);
        // With alpha = m sqrt(k) / n^1.5 (section 4.1 of the FENNEL paper), adding a node to a partition of `size`
        // nodes costs alpha times the derivative of size^1.5.
        let alpha = n_edges * (n_parts as f64).sqrt() / n_nodes.max(1.0).powf(1.5);
        let mut stream = Self {
            graph,
            train,
            parts,
            n_nodes: vec![0; n_parts],
            most_nodes: most_of(train.n_nodes(), n_parts),
            n_train: vec![0; n_parts],
            most_train: most_of(train.n_train(), n_parts),
            costs: vec![0.0; n_parts],
            unit_cost: COST_FACTOR * 1.5 * alpha,
            n_near: vec![0; n_parts],
        };
        for node in 0..stream.parts.len() {
            if stream.parts[node] != NOWHERE {
                stream.put(node, usize::from(stream.parts[node]));
            }
        }
        stream
    }

    /// Moves a node to the partition with the highest score. Returns true if its partition changed.
    fn place(&mut self, node: usize) -> bool {
        let before = self.parts[node];
        if before != NOWHERE {
            self.take_out(node);
        }
        self.count_near(node);
        self.put(node, self.best(self.train.contains(node)));
        self.parts[node] != before
    }

    fn put(&mut self, node: usize, part: usize) {
        self.parts[node] = part as u16;
        self.n_nodes[part] += 1;
        self.n_train[part] += u32::from(self.train.contains(node));
        self.update_cost(part);
    }

    fn take_out(&mut self, node: usize) {
        let part = usize::from(self.parts[node]);
        self.parts[node] = NOWHERE;
        self.n_nodes[part] -= 1;
        self.n_train[part] -= u32::from(self.train.contains(node));
        self.update_cost(part);
    }

    fn update_cost(&mut self, part: usize) {
        self.costs[part] = self.unit_cost * f64::from(self.n_nodes[part]).sqrt();
    }

    /// Counts the neighbours of an unassigned node in each partition.
    fn count_near(&mut self, node: usize) {
        self.n_near.fill(0);
        for src in self.graph.in_neighbors(NodeId(node as u32)) {
            // Unassigned neighbours do not count; neither does a self-loop, as the node itself is unassigned.
            if let Some(n_near) = self.n_near.get_mut(usize::from(self.parts[src.index()])) {
                *n_near += 1;
            }
        }
    }

    /// Returns the partition with the highest score among those with room; for equal scores, the first one.
    fn best(&self, is_train: bool) -> usize {
        let mut best = None;
        for part in 0..self.costs.len() {
            let score = f64::from(self.n_near[part]) - self.costs[part];
            if self.has_room(part, is_train) && best.is_none_or(|(_, most)| most < score) {
                best = Some((part, score));
            }
        }
        // The partitions together have room for all nodes, and one node is unassigned.
        best.expect("at least one partition should have room for the node").0
    }

    /// Returns true if a node fits in the partition. For a training node, only the partition's limit of training nodes
    /// counts, so every training node finds room; `settle` moves other nodes out later.
    fn has_room(&self, part: usize, is_train: bool) -> bool {
        match is_train {
            true => self.n_train[part] < self.most_train,
            false => self.n_nodes[part] < self.most_nodes,
        }
    }

    /// Moves training nodes out of partitions with too many training nodes, then other nodes out of partitions with too
    /// many nodes.
    fn settle(mut self) -> Vec<u16> {
        for are_train in [true, false] {
            for node in 0..self.parts.len() {
                if self.train.contains(node) == are_train && self.is_too_many(node, are_train) {
                    self.place(node);
                }
            }
        }
        self.parts
    }

    /// Returns true if the node's partition has too many training nodes (for a training node) or too many nodes (for
    /// any other node).
    fn is_too_many(&self, node: usize, is_train: bool) -> bool {
        let part = usize::from(self.parts[node]);
        match is_train {
            true => self.most_train < self.n_train[part],
            false => self.most_nodes < self.n_nodes[part],
        }
    }
}
