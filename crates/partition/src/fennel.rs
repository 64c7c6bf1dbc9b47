use kiln_graph::{Csc, NodeId};

use crate::balance::{TrainSet, most_of};

/// How often the nodes are streamed at most, and the share of them that a pass must move for another to follow. Passes
/// cut 0.318, 0.185, 0.184 and 0.184 of the edges of products-like (2.4 M nodes, 124 M edges) in four parts, and of those
/// of debian-packages 0.37, 0.23, 0.19, 0.18, 0.16 and 0.16.
const MOST_PASSES: usize = 10;
const LEAST_MOVED: f64 = 0.01;

/// By how much a part's size costs more than the authors say. With less, parts grow until they are full, and the nodes
/// that come then go where there is room: with 1, three passes cut 0.221 of products-like and 0.28 of debian-packages, with
/// 4 they cut 0.184 and 0.19. More gains nothing.
const COST_FACTOR: f64 = 4.0;

/// What a node's part is before it has one.
const NOWHERE: u16 = u16::MAX;

/// Streams the nodes, each to the part that has most of its neighbours, less what the part's size costs (Tsourakakis,
/// Gkantsidis, Radunovic and Vojnovic 2014, "FENNEL", with gamma 1.5), several times over, so that later passes see
/// where all neighbours went before (Nishimura and Ugander 2013). We differ in that neighbours are those of a node's
/// in-edges, that size costs more, and that training nodes are balanced, too.
///
/// Memory: 3 bytes a node, the training set's among them, and 20 bytes a part. Cost of a pass: the edges, and the nodes
/// times the parts.
pub(crate) fn assign(graph: &Csc, train: &TrainSet, n_parts: usize) -> Vec<u16> {
    let mut stream = Stream::new(graph, train, vec![NOWHERE; graph.n_nodes()], n_parts);
    for _ in 0..MOST_PASSES {
        let n_moved = (0..graph.n_nodes()).filter(|&node| stream.place(node)).count();
        if (n_moved as f64) < LEAST_MOVED * graph.n_nodes() as f64 {
            break;
        }
    }
    stream.settle()
}

/// Moves nodes out of parts that have too many, each to the part with room where it is best placed.
#[cfg(feature = "metis")]
pub(crate) fn settle(graph: &Csc, train: &TrainSet, parts: Vec<u16>, n_parts: usize) -> Vec<u16> {
    Stream::new(graph, train, parts, n_parts).settle()
}

/// Nodes on their way to parts.
struct Stream<'a> {
    graph: &'a Csc,
    train: &'a TrainSet,
    /// Where each node is, or [`NOWHERE`].
    parts: Vec<u16>,
    /// How many nodes each part has, and may have.
    n_nodes: Vec<u32>,
    most_nodes: u32,
    /// The same of training nodes.
    n_train: Vec<u32>,
    most_train: u32,
    /// What one more node in each part costs, in neighbours.
    costs: Vec<f64>,
    /// What it costs in a part of one node.
    unit_cost: f64,
    /// How many neighbours of the node at hand each part has.
    n_near: Vec<u32>,
}

impl<'a> Stream<'a> {
    fn new(graph: &'a Csc, train: &'a TrainSet, parts: Vec<u16>, n_parts: usize) -> Self {
        let (n_nodes, n_edges) = (graph.n_nodes() as f64, graph.n_edges() as f64);
        // With alpha = m sqrt(k) / n^1.5 (section 4.1), adding a node to a part of `size` costs alpha times the
        // derivative of size^1.5.
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

    /// Puts a node where it is best placed; gives whether that is elsewhere than it was.
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

    /// Counts the neighbours in each part of a node that is nowhere.
    fn count_near(&mut self, node: usize) {
        self.n_near.fill(0);
        for src in self.graph.in_neighbors(NodeId(node as u32)) {
            // Those that are nowhere say nothing, and so a loop.
            if let Some(n_near) = self.n_near.get_mut(usize::from(self.parts[src.index()])) {
                *n_near += 1;
            }
        }
    }

    /// The part with room that is best for a node; of equals the first.
    fn best(&self, is_train: bool) -> usize {
        let mut best = None;
        for part in 0..self.costs.len() {
            let score = f64::from(self.n_near[part]) - self.costs[part];
            if self.has_room(part, is_train) && best.is_none_or(|(_, most)| most < score) {
                best = Some((part, score));
            }
        }
        // One node is nowhere, and the parts together may have all.
        best.expect("a part should have room").0
    }

    /// Training nodes are balanced among themselves, so that they always find room; others make room for them in the
    /// end.
    fn has_room(&self, part: usize, is_train: bool) -> bool {
        match is_train {
            true => self.n_train[part] < self.most_train,
            false => self.n_nodes[part] < self.most_nodes,
        }
    }

    /// Moves training nodes out of parts that have too many of them, then others out of parts that have too many nodes.
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

    /// Whether a node's part has more of its kind than it may.
    fn is_too_many(&self, node: usize, is_train: bool) -> bool {
        let part = usize::from(self.parts[node]);
        match is_train {
            true => self.most_train < self.n_train[part],
            false => self.most_nodes < self.n_nodes[part],
        }
    }
}
