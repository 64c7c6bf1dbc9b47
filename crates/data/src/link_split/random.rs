use kiln_graph::{Csc, CscBuilder, NodeId};
use kiln_store::progress::{Progress, ProgressUnit};

use super::LinkTargets;
use super::part_links::{PartLinks, nodes_of, targets_of_parts};
use crate::draws::Draws;
use crate::error::{LinkSplitError, require};
use crate::times::times_of;
use crate::{DatasetTimes, Result, TimeError};

/// The settings of a random split of links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkSplitConfig {
    /// The share of the pairs of nodes for validation, from 0 to 1.
    pub val: f64,
    /// The share of the pairs of nodes for test, from 0 to 1.
    pub test: f64,
    /// The direction of the links. With `None`, it depends on the graph. If a node pair has edges in both directions or
    /// none, for all pairs, the links are undirected ([`LinkDirection::Undirected`]), or directed with reverses
    /// ([`LinkDirection::WithReverses`]) if there is an `edge_type`. In other graphs they are directed.
    pub direction: Option<LinkDirection>,
    /// The type of the edges that are links. With `None`, all edges are links.
    pub edge_type: Option<u8>,
    /// The share of the pairs for training that are links only; the other pairs for training are edges of the graph
    /// only. With 0, all pairs for training are both links and edges of the graph (PyG's `disjoint_train_ratio`).
    pub disjoint_train: f64,
    /// True if links have the times of their edges ([`LinkTargets::times`]), for messages that are known at the time of each link.
    /// Each edge is then a link of its own, so that a pair of nodes is a link at each of its times, and the graph of the split has
    /// all edges: the tree of a link has no edge at its time or later, which makes held-out edges unnecessary. An edge without a
    /// time is no link. `disjoint_train` must be 0.
    pub with_times: bool,
}

impl Default for LinkSplitConfig {
    /// Returns the settings of PyG's `RandomLinkSplit`: shares of 0.1 for validation and 0.2 for test.
    fn default() -> Self {
        Self { val: 0.1, test: 0.2, direction: None, edge_type: None, disjoint_train: 0.0, with_times: false }
    }
}

impl LinkSplitConfig {
    /// Checks the shares, which a split does, too. A program calls it before it reads the graph.
    ///
    /// ```
    /// use kiln_data::LinkSplitConfig;
    /// LinkSplitConfig::default().check()?;
    /// assert!(LinkSplitConfig { val: 0.6, test: 0.6, ..LinkSplitConfig::default() }.check().is_err());
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if a share is not in 0 to 1, or if those of the validation
    /// and the test together are larger than 1.
    pub fn check(&self) -> Result<()> {
        // Decimal fractions are not exact in binary: the sum of two that add up to 1 may round to slightly more.
        const TOLERANCE: f64 = 1e-9;
        for (what, share) in [
            ("the share of the validation", self.val),
            ("the share of the test", self.test),
            ("disjoint_train", self.disjoint_train),
        ] {
            require((0.0..=1.0).contains(&share), what, "0 to 1", share)?;
        }
        let sum = self.val + self.test;
        require(sum <= 1.0 + TOLERANCE, "the sum of the shares", "at most 1", sum)?;
        let is_whole = !self.with_times || self.disjoint_train == 0.0;
        let expected = "0 for links with times, whose graph has all edges";
        require(is_whole, "disjoint_train", expected, self.disjoint_train)
    }
}

/// The relation between the links and the edges of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkDirection {
    /// An edge is a link. An edge in the other direction is another link, which may be in another part of the split.
    Directed,
    /// An edge is a link, and the graph also has reverse edges, for example of another edge type. The links between two
    /// nodes in both directions are in the same part of the split, and their edges in both directions leave the graph
    /// together.
    WithReverses,
    /// The edges between two nodes in both directions are one link, whose source is the smaller node.
    Undirected,
}

/// A random split of the edges of a graph: the edges that stay in it, and the links.
pub(super) struct SplitEdges {
    pub(super) message: Csc,
    pub(super) targets: LinkTargets,
}

impl SplitEdges {
    /// Splits the edges of a graph as [`LinkSplit::random`](super::LinkSplit::random) documents.
    pub(super) fn draw(graph: &Csc, config: &LinkSplitConfig, seed: u64) -> Result<Self> {
        config.check()?;
        graph.validate()?;
        let _progress = Progress::start("sorting links", ProgressUnit::Links, None);
        let edges = EdgeKeys { graph, dsts: graph.dsts() };
        let direction = edges.direction(config)?;
        let pairs = edges.distinct(config.edge_type, |src, dst| direction.pair_key(src, dst));
        if pairs.is_empty() {
            return Err(LinkSplitError::NoLinks { edge_type: config.edge_type }.into());
        }
        require(pairs.len() <= u32::MAX as usize, "the number of pairs", "at most 2^32 - 1", pairs.len())?;
        let roles = draw_roles(pairs.len(), config, seed);
        let role_of = |src: NodeId, dst: NodeId| match pairs.binary_search(&direction.pair_key(src, dst)) {
            Ok(pair) => roles[pair],
            Err(_) => Role::Edge,
        };
        let is_kept = |src, dst| matches!(role_of(src, dst), Role::Edge | Role::EdgeAndLink);
        let message = if config.with_times { graph.clone() } else { edges.retain(is_kept)? };
        let links = edges.links_of_pairs(&pairs, direction, config)?;
        let progress = Progress::start("selecting links", ProgressUnit::Links, 3 * links.keys.len() as u64);
        let part = |roles: &[Role]| {
            let part = links.filter(|src, dst| roles.contains(&role_of(src, dst)));
            progress.advance(links.keys.len() as u64);
            part
        };
        let train = part(&[Role::EdgeAndLink, Role::TrainLink]);
        let val = part(&[Role::Val]);
        let test = part(&[Role::Test]);
        Ok(Self { message, targets: targets_of_parts([train, val, test], config.with_times)? })
    }
}

/// Returns a graph with some of its edges. The neighbours of each node ascend.
pub(super) fn retain_edges(graph: &Csc, is_kept: impl Fn(NodeId, NodeId) -> bool) -> Result<Csc> {
    graph.validate()?;
    EdgeKeys { graph, dsts: graph.dsts() }.retain(is_kept)
}

/// The role of a pair of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// An edge of the graph that is no link.
    Edge,
    /// An edge of the graph and a link for training.
    EdgeAndLink,
    /// A link for training that is no edge of the graph.
    TrainLink,
    Val,
    Test,
}

/// Returns the role of each pair.
fn draw_roles(n_pairs: usize, config: &LinkSplitConfig, seed: u64) -> Vec<Role> {
    let rounded = |share: f64, n: usize| ((n as f64 * share).round() as usize).min(n);
    let n_test = rounded(config.test, n_pairs);
    let n_val = rounded(config.val, n_pairs).min(n_pairs - n_test);
    let n_train = n_pairs - n_val - n_test;
    let n_disjoint = rounded(config.disjoint_train, n_train);
    let mut order: Vec<u32> = (0..n_pairs as u32).collect();
    Draws::new(seed).shuffle(&mut order);
    let mut roles = vec![Role::Test; n_pairs];
    for (position, &pair) in order[..n_train + n_val].iter().enumerate() {
        roles[pair as usize] = match position {
            _ if n_train <= position => Role::Val,
            _ if config.disjoint_train == 0.0 => Role::EdgeAndLink,
            _ if position < n_disjoint => Role::TrainLink,
            _ => Role::Edge,
        };
    }
    roles
}

/// Returns the number of an edge, by which edges ascend by destination and then by source.
fn directed_key(src: NodeId, dst: NodeId) -> u64 {
    u64::from(dst.0) << 32 | u64::from(src.0)
}

impl LinkDirection {
    /// Returns the key of the pair of nodes whose edges are in the same part of the split.
    pub(super) fn pair_key(self, src: NodeId, dst: NodeId) -> u64 {
        match self {
            Self::Directed => directed_key(src, dst),
            Self::WithReverses | Self::Undirected => directed_key(src.min(dst), src.max(dst)),
        }
    }
}

/// The edges of a valid graph as pairs.
pub(super) struct EdgeKeys<'a> {
    pub(super) graph: &'a Csc,
    /// The destination of each edge, `[n_edges]`.
    pub(super) dsts: Vec<NodeId>,
}

impl EdgeKeys<'_> {
    fn pairs(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.graph.indices().iter().copied().zip(self.dsts.iter().copied())
    }

    /// Returns the distinct keys of the edges of a type, or of all edges, ascending. Self loops have none.
    fn distinct(&self, edge_type: Option<u8>, key: impl Fn(NodeId, NodeId) -> u64) -> Vec<u64> {
        self.distinct_of(edge_type, |_| true, key)
    }

    /// Returns the distinct keys of some of the edges of a type, or of all types. `is_taken` gets the position of an edge.
    pub(super) fn distinct_of(
        &self,
        edge_type: Option<u8>,
        is_taken: impl Fn(usize) -> bool,
        key: impl Fn(NodeId, NodeId) -> u64,
    ) -> Vec<u64> {
        let edges = self.edges_of(edge_type, is_taken);
        let mut keys: Vec<u64> = edges.map(|(_, (src, dst))| key(src, dst)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the links of all parts: the pairs of a split or, of links with times, a link for each time of a pair.
    fn links_of_pairs(
        &self,
        pairs: &[u64],
        direction: LinkDirection,
        config: &LinkSplitConfig,
    ) -> Result<PartLinks> {
        let key = |src: NodeId, dst: NodeId| match direction {
            LinkDirection::Directed | LinkDirection::WithReverses => directed_key(src, dst),
            LinkDirection::Undirected => direction.pair_key(src, dst),
        };
        if config.with_times {
            let items = || "the edges of the links".to_owned();
            let times =
                times_of(self.graph.columns()).ok_or_else(|| TimeError::NoTimes { items: items() })?;
            return Ok(self.distinct_at_times(config.edge_type, times, |_| true, key));
        }
        let keys = match direction {
            LinkDirection::WithReverses => self.distinct(config.edge_type, key),
            LinkDirection::Directed | LinkDirection::Undirected => pairs.to_vec(),
        };
        Ok(PartLinks { keys, times: Vec::new() })
    }

    /// Returns the distinct keys of some of the edges of a type, or of all types, at each of their times. Edges without a time have
    /// none.
    pub(super) fn distinct_at_times(
        &self,
        edge_type: Option<u8>,
        times: &[i64],
        is_taken: impl Fn(usize) -> bool,
        key: impl Fn(NodeId, NodeId) -> u64,
    ) -> PartLinks {
        let edges = self.edges_of(edge_type, |edge| {
            ![DatasetTimes::ALWAYS, DatasetTimes::NEVER].contains(&times[edge]) && is_taken(edge)
        });
        PartLinks::timed(edges.map(|(edge, (src, dst))| (key(src, dst), times[edge])).collect())
    }

    /// Returns the positions and the nodes of some of the edges of a type, or of all types. Self loops are left out.
    fn edges_of(
        &self,
        edge_type: Option<u8>,
        is_taken: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = (usize, (NodeId, NodeId))> {
        let types = self.graph.edge_types();
        let is_of_type = move |edge: usize| {
            edge_type.is_none_or(|edge_type| types.is_some_and(|types| types[edge] == edge_type))
        };
        self.pairs()
            .enumerate()
            .filter(move |(edge, (src, dst))| src != dst && is_of_type(*edge) && is_taken(*edge))
    }

    /// Returns the direction of the links, and checks that it fits the graph.
    pub(super) fn direction(&self, config: &LinkSplitConfig) -> Result<LinkDirection> {
        if let Some(direction @ (LinkDirection::Directed | LinkDirection::WithReverses)) = config.direction {
            return Ok(direction);
        }
        let edges = self.distinct(None, directed_key);
        let has_reverse = |&key: &u64| {
            let (src, dst) = nodes_of(key);
            edges.binary_search(&directed_key(dst, src)).is_ok()
        };
        match (edges.iter().find(|key| !has_reverse(key)), config.direction, config.edge_type) {
            (None, None, Some(_)) => Ok(LinkDirection::WithReverses),
            (None, ..) => Ok(LinkDirection::Undirected),
            (Some(_), None, _) => Ok(LinkDirection::Directed),
            (Some(key), Some(_), _) => {
                let (src, dst) = nodes_of(*key);
                Err(LinkSplitError::NotUndirected { src: src.0, dst: dst.0 }.into())
            }
        }
    }

    /// Returns the graph with some of the edges and their columns. The neighbours of each node ascend.
    fn retain(&self, is_kept: impl Fn(NodeId, NodeId) -> bool) -> Result<Csc> {
        let mut kept: Vec<u64> = Vec::new();
        let mut srcs = Vec::new();
        let mut dsts = Vec::new();
        let has_columns = !self.graph.columns().is_empty();
        let progress = Progress::start("selecting edges", ProgressUnit::Edges, self.graph.n_edges());
        let mut counter = progress.counter();
        for (edge, (src, dst)) in self.pairs().enumerate() {
            if is_kept(src, dst) {
                srcs.push(src.0);
                dsts.push(dst.0);
                kept.extend(has_columns.then_some(edge as u64));
            }
            counter.add(1);
        }
        let columns = self.graph.columns().select(kept.iter().copied())?;
        Ok(CscBuilder::new(self.graph.n_nodes()).columns(columns).build(&srcs, &dsts)?)
    }
}
