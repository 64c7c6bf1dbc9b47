//! Splits for link prediction: the graph that passes messages, and the links for training, validation and test.

mod by_time;
mod dataset_links;
mod find_reverse;
mod hold_out;
mod link_values;
mod part_links;
mod random;
mod targets;
mod values;

use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{Csc, LinkId, LinkNegatives, Links, NodeId, Relations, SharedArray};

use self::by_time::links_by_time;
use self::dataset_links::positions;
use self::random::{SplitEdges, retain_edges};
use crate::error::require;
use crate::times::times_of;
use crate::{Dataset, DatasetTimes, Note, Result, Split, TimeError, TimeSplit};

pub use self::dataset_links::DatasetLinks;
pub(crate) use self::dataset_links::check_link_types;
pub use self::random::{LinkDirection, LinkSplitConfig};
pub use self::targets::LinkTargets;

/// A split for link prediction on one relation of a graph: the graph that passes messages, and the links for training,
/// validation and test. Links and negatives have node ids of the graph. Cloning shares the arrays.
///
/// A model must not read a link that it predicts from the graph. [`LinkSplit::random`] therefore removes the links for
/// validation and test from the graph. Training links stay in it by default, and a training step excludes its own links
/// (`kiln_loader::LinkExclusion`). All evaluations use the same graph, whereas PyG's `RandomLinkSplit` adds the
/// validation links to the graph of the test.
///
/// ```
/// use kiln_data::{LinkSplit, LinkSplitConfig, synthetic};
/// let ring = synthetic::ring(50)?;
/// let split = LinkSplit::random(&ring.graph, &LinkSplitConfig { val: 0.1, test: 0.2, ..Default::default() }, 7)?;
/// // Each link of the undirected ring is two edges.
/// assert_eq!(split.split().parts().map(|(_, links)| links.len()), [35, 5, 10]);
/// assert_eq!(split.message().n_edges(), 70);
/// # Ok::<(), kiln_data::Error>(())
/// ```
///
/// On a heterogeneous graph, [`LinkSplit::random_relation`] is PyG's `RandomLinkSplit` with `edge_types` and
/// `rev_edge_types`: the links for validation and test leave their relation, and their reverses leave the reverse relation,
/// if there is one. Other relations between the same nodes stay, so a relation that tells the links (such as `rated` for
/// `rated highly`) must be removed from the data.
#[derive(Debug, Clone)]
pub struct LinkSplit {
    message: Arc<Relations>,
    links: DatasetLinks,
    /// The split of the links by time; `None` for another split.
    time_split: Option<TimeSplit>,
}

impl LinkSplit {
    /// Returns a random split of the edges of a graph with one relation.
    ///
    /// The pairs of nodes with a link between them are divided by the shares, both rounded; the rest is for training.
    /// All parallel edges of a pair are one link, and self loops are no links. The edges of a pair for validation or
    /// test, of all edge types, leave the graph. The other edges keep their columns. In each
    /// part, links ascend by destination and then by source; those for training have the first ids, then those for
    /// validation, then those for test.
    ///
    /// With [`LinkSplitConfig::with_times`], a pair is a link at each time of its edges, and no edge leaves the graph.
    ///
    /// The split depends on the edges, the settings and the seed only. `docs/rng.md` specifies the random numbers.
    /// Beside the result it takes about 24 bytes per edge, and 13 per pair.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if a share or the sum of both is not in `0..=1`, or if the
    /// graph has several relations; [`LinkSplitError::NoLinks`](crate::LinkSplitError::NoLinks) if the graph has no link;
    /// [`LinkSplitError::NotUndirected`](crate::LinkSplitError::NotUndirected) if the links are undirected but an edge lacks its
    /// reverse; [`TimeError::NoTimes`] if links or their reverses are to have times and lack them; and [`Error::Graph`](crate::Error::Graph) if the graph is invalid.
    pub fn random(graph: &Relations, config: &LinkSplitConfig, seed: u64) -> Result<Self> {
        let relation = only_relation(graph)?;
        Self::draw(graph, relation, None, config, seed)
    }

    /// Returns a random split of the edges of one relation, as [`LinkSplit::random`] does for a graph with these edges.
    /// `reverse` is the relation that has the reverse of each edge, if there is one. The reverse relation may be the
    /// relation itself, which changes nothing: [`LinkSplitConfig::direction`] determines how reverses are treated.
    ///
    /// ```
    /// use kiln_data::{LinkSplit, LinkSplitConfig};
    /// use kiln_graph::{NodeTypes, RelationEdges, Relations};
    /// let types = NodeTypes::new([("user", 4), ("item", 5)])?;
    /// let (users, items) = ([0, 1, 2, 3, 0, 1, 2, 3, 0, 1], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    /// let of = |name, src_type, dst_type, srcs, dsts| RelationEdges::new(name, src_type, dst_type, srcs, dsts);
    /// let buys = of("buys", "user", "item", &users, &items);
    /// let graph = Relations::from_edges(types, &[buys, of("bought by", "item", "user", &items, &users)])?;
    /// let config = LinkSplitConfig { val: 0.1, test: 0.2, ..Default::default() };
    /// let split = LinkSplit::random_relation(&graph, "buys", Some("bought by"), &config, 7)?;
    /// assert_eq!(split.split().parts().map(|(_, links)| links.len()), [7, 1, 2]);
    /// assert_eq!([0, 1].map(|relation| split.message().relation(relation).graph.n_edges()), [7, 7]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`kiln_graph::SchemaError::NoSuchRelation`] for the name of a relation that does not exist,
    /// [`LinkSplitError::NotReverse`](crate::LinkSplitError::NotReverse) for a reverse relation between other types, and the
    /// errors of [`LinkSplit::random`].
    pub fn random_relation(
        graph: &Relations,
        relation: &str,
        reverse: Option<&str>,
        config: &LinkSplitConfig,
        seed: u64,
    ) -> Result<Self> {
        let (relation, reverse) = positions(graph.schema(), relation, reverse)?;
        Self::draw(graph, relation, reverse, config, seed)
    }

    fn draw(
        graph: &Relations,
        relation: usize,
        reverse: Option<usize>,
        config: &LinkSplitConfig,
        seed: u64,
    ) -> Result<Self> {
        let edges = graph.whole_graph(relation)?;
        let split = SplitEdges::draw(&edges, config, seed)?;
        let links = DatasetLinks { relation, reverse, targets: Arc::new(split.targets) };
        let reverse = reverse.filter(|reverse| *reverse != relation);
        if config.with_times {
            check_times_of_reverse(graph, reverse)?;
            return Self::new(graph, links);
        }
        let mut message = graph.with_graph(relation, split.message.clone())?;
        if let Some(reverse) = reverse {
            let edges = if edges.has_sorted_neighbors() { edges } else { edges.sort_neighbors()? };
            let has_left = |src, dst| has_edge(&edges, src, dst) && !has_edge(&split.message, src, dst);
            let reverses = retain_edges(&graph.whole_graph(reverse)?, |src, dst| !has_left(dst, src))?;
            message = message.with_graph(reverse, reverses)?;
        }
        let passes_messages = config.disjoint_train == 0.0 || message.n_edges() != 0;
        let expected = "a smaller share: no edge of the graph would pass messages";
        require(passes_messages, "disjoint_train", expected, config.disjoint_train)?;
        Self::new(&message, links)
    }

    /// Creates a split from a graph that passes messages and from links. The graph may contain any of the links;
    /// [`LinkSplit::find_leaks`] finds those of the validation and the test.
    ///
    /// The search for the edges of links requires that neighbours ascend in the relation and its reverse. One in which they do
    /// not, as may be one that was made from existing arrays, is copied and sorted ([`Csc::sort_neighbors`]): its edges then
    /// have other ids than in the given graph. Reads both relations once.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if the graph lacks a relation of the links,
    /// [`Error::Graph`](crate::Error::Graph) if a node of a link or of a negative is not in the graph, or if the graph is
    /// damaged, and [`LinkSplitError::OtherType`](crate::LinkSplitError::OtherType) for a link or a negative with a node of
    /// another type than the relation's.
    pub fn new(message: &Relations, links: impl Into<DatasetLinks>) -> Result<Self> {
        let links = links.into();
        links.check(message.schema())?;
        let mut message = message.clone();
        for relation in [Some(links.relation), links.reverse].into_iter().flatten() {
            if !message.relation(relation).graph.has_sorted_neighbors() {
                let sorted = message.whole_graph(relation)?.sort_neighbors()?;
                message = message.with_graph(relation, sorted)?;
            }
        }
        Ok(Self { message: Arc::new(message), links, time_split: None })
    }

    /// Returns the split of a data set: its own ([`Dataset::links`]) with its graph, or else a random split of the edges of its
    /// only relation. Edges keep their columns: those of the set, or in memory if the graph has other edges or another order.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSplit::new`] and [`LinkSplit::random`].
    pub fn of_dataset(data: &Dataset, config: &LinkSplitConfig, seed: u64) -> Result<Self> {
        match &data.links {
            None => Self::draw(&data.graph, only_relation(&data.graph)?, None, config, seed),
            Some(links) => {
                Ok(Self { time_split: data.times.split, ..Self::new(&data.graph, links.clone())? })
            }
        }
    }

    /// Returns a split of the edges of a relation by their times: an edge is a link of the part of its time. Its graph has all
    /// edges, of which a loader cuts those that are too late for the messages of a phase ([`TimeSplit::cuts`]). `reverse` is the
    /// relation that has the reverse of each edge, if there is one.
    ///
    /// An edge whose time is missing ([`DatasetTimes::NEVER`]) is in no part. A part has each pair of nodes with an edge of its time once, or with [`LinkSplitConfig::with_times`] once at each time, and a pair
    /// may be in several parts: an edge that was known may be repeated. Self loops are no links. [`LinkSplitConfig::direction`] and
    /// [`LinkSplitConfig::edge_type`] apply; shares do not. In each part, links ascend by destination, by source, and by time.
    ///
    /// ```
    /// use kiln_data::{Dataset, LinkSplit, LinkSplitConfig, TimeSplit};
    /// use kiln_graph::{EdgeColumn, EdgeColumns};
    /// let data = Dataset::builder(4)
    ///     .edges(&[0, 1, 2, 0], &[3, 3, 3, 3])
    ///     .edge_column(EdgeColumns::TIMES, EdgeColumn::new(vec![1_i64, 2, 5, 9], 1)?)
    ///     .features(vec![0.0; 4], 1)
    ///     .build()?;
    /// let split = LinkSplit::temporal(&data, "edge", None, TimeSplit::new(None, 5, 9)?, &LinkSplitConfig::default())?;
    /// assert_eq!(split.split().parts().map(|(_, links)| links.len()), [2, 1, 1]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TimeError::NoTimes`] if the edges have no times, [`TimeError::EmptyPart`] if no edge is in a part,
    /// [`TimeError::Scaled`] if the statistics of the features were already computed from later nodes, and the errors of
    /// [`LinkSplit::random_relation`].
    pub fn temporal(
        data: &Dataset,
        relation: &str,
        reverse: Option<&str>,
        split: TimeSplit,
        config: &LinkSplitConfig,
    ) -> Result<Self> {
        data.check_unscaled(&split)?;
        let (position, reverse) = positions(data.graph.schema(), relation, reverse)?;
        let edges = data.graph.whole_graph(position)?;
        let items = || format!("the edges of the relation `{relation}`");
        let times = times_of(edges.columns()).ok_or_else(|| TimeError::NoTimes { items: items() })?;
        check_times_of_reverse(&data.graph, reverse)?;
        let targets = links_by_time(&edges, times, &split, data.times.kind, config)?;
        let links = DatasetLinks { relation: position, reverse, targets: Arc::new(targets) };
        Ok(Self { time_split: Some(split), ..Self::new(&data.graph, links)? })
    }

    /// Returns a set with the graph and the links of the split, which was made of it. The times of a split by time are those of the
    /// set then: they cut its messages in each phase.
    ///
    /// ```
    /// use kiln_data::{LinkSplit, LinkSplitConfig, synthetic};
    /// let ring = synthetic::ring(100)?;
    /// let split = LinkSplit::random(&ring.graph, &LinkSplitConfig { val: 0.1, test: 0.1, ..Default::default() }, 0)?;
    /// assert!(split.into_dataset(ring)?.links.is_some());
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TimeError::TwoSplits`] if the nodes of the set have a split by time with other times, by which the messages of the
    /// links would be cut.
    pub fn into_dataset(self, data: Dataset) -> Result<Dataset> {
        if data.times.split.is_some() && data.times.split != self.time_split {
            return Err(TimeError::TwoSplits { name: data.name }.into());
        }
        let times = DatasetTimes { split: self.time_split, ..data.times };
        Ok(Dataset { graph: self.message, links: Some(self.links), times, ..data })
    }

    /// Returns the graph that passes the messages of training: that of [`LinkSplit::message`], and for links that were split by time
    /// its edges that were known then. `times` are those of the data.
    ///
    /// # Errors
    /// Returns the errors of [`DatasetTimes::graph_before`].
    pub fn training_messages(&self, times: &DatasetTimes) -> Result<Arc<Relations>> {
        match &self.time_split {
            Some(split) => times.graph_before(&self.message, split.cuts()[0]),
            None => Ok(Arc::clone(&self.message)),
        }
    }

    /// Returns the split with the times that limit the messages of each phase, of links that were split by time.
    #[must_use]
    pub fn with_time_split(self, time_split: Option<TimeSplit>) -> Self {
        Self { time_split, ..self }
    }

    /// Returns the split of the links by time; `None` for another split.
    pub fn time_split(&self) -> Option<TimeSplit> {
        self.time_split
    }

    /// Returns the graph that passes messages. The neighbours of each node ascend in the relation of the links and its
    /// reverse.
    pub fn message(&self) -> &Arc<Relations> {
        &self.message
    }

    /// Returns the position of the relation whose edges are the links.
    pub fn relation(&self) -> usize {
        self.links.relation
    }

    /// Returns the position of the relation that has the reverses of the links; `None` if none was given.
    pub fn reverse(&self) -> Option<usize> {
        self.links.reverse
    }

    /// Returns the links with their relation, for [`Dataset::links`] of a set with the graph of [`LinkSplit::message`].
    pub fn dataset_links(&self) -> &DatasetLinks {
        &self.links
    }

    /// Returns the ids of the nodes of the sources' type and of the destinations' type.
    pub fn node_ranges(&self) -> [Range<u32>; 2] {
        self.message.schema().node_ranges(self.links.relation)
    }

    /// Returns the links with their split and their negatives.
    pub fn targets(&self) -> &LinkTargets {
        &self.links.targets
    }

    /// Returns all links.
    pub fn links(&self) -> &Links {
        self.targets().links()
    }

    /// Returns the links for training, validation and test.
    pub fn split(&self) -> &Split<LinkId> {
        self.targets().split()
    }

    /// Returns the fixed negatives of the validation links; `None` if they are to be drawn.
    pub fn val_negatives(&self) -> Option<&LinkNegatives> {
        self.targets().val_negatives()
    }

    /// Returns the fixed negatives of the test links; `None` if they are to be drawn.
    pub fn test_negatives(&self) -> Option<&LinkNegatives> {
        self.targets().test_negatives()
    }

    /// Finds the links for validation and test that are edges of the relation that passes messages, or whose reverse is an edge
    /// of the reverse relation; without one, of the relation. Returns a note ([`Note::LinksInGraph`]) for each part that has
    /// some. A random split has none, except that the reverse of a directed link may be an edge of its own. Benchmarks may have
    /// some: in a graph of citations, for example, a reverse edge is another citation. They are therefore reported and not
    /// rejected. Links with times are edges of the graph, unless their split has removed them: the note then tells that messages
    /// must be known at the time of each link.
    ///
    /// Also finds the links that are edges of another relation between the same types, or whose reverse is
    /// ([`Note::LinksInRelation`]), training links among them, because a training step leaves out its links and their reverses
    /// of the relations of links only.
    ///
    /// Also finds fixed negatives that are the link that they belong to ([`Note::LinksAmongNegatives`]).
    ///
    /// Each link takes two binary searches, and another one for each other relation between its types.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if a relation is damaged.
    pub fn find_leaks(&self) -> Result<Vec<Note>> {
        let edges = self.message.whole_graph(self.links.relation)?;
        let reverses = self.message.whole_graph(self.links.reverse.unwrap_or(self.links.relation))?;
        let [_, held_out @ ..] = self.split().parts();
        let mut notes = Vec::new();
        // The edges of held-out links are too late to pass messages, and earlier edges of a pair are known.
        let held_out = held_out.into_iter().filter(|_| self.time_split.is_none());
        for (part, links) in held_out {
            let n_links = self.count(links, |src, dst| has_edge(&edges, src, dst));
            let n_reversed = self.count(links, |src, dst| has_edge(&reverses, dst, src));
            if (n_links, n_reversed) != (0, 0) {
                notes.push(Note::LinksInGraph { part, n_links, n_reversed });
            }
        }
        for (part, negatives) in [("val", self.val_negatives()), ("test", self.test_negatives())] {
            let Some(negatives) = negatives else { continue };
            let n_negatives = self.count_own_links(negatives);
            if n_negatives != 0 {
                let n_all = negatives.dsts().len();
                notes.push(Note::LinksAmongNegatives { part, n_negatives, n_all });
            }
        }
        let relation = self.message.relation(self.links.relation);
        for (position, other) in self.message.iter().enumerate() {
            let types = [other.src_type, other.dst_type];
            let is_parallel = types == [relation.src_type, relation.dst_type];
            let is_reversed = types == [relation.dst_type, relation.src_type];
            let is_of_links = position == self.links.relation || Some(position) == self.links.reverse;
            if is_of_links || !(is_parallel || is_reversed) {
                continue;
            }
            let graph = self.message.whole_graph(position)?;
            let graph = if graph.has_sorted_neighbors() { graph } else { graph.sort_neighbors()? };
            for (part, links) in self.split().parts() {
                let n_repeated = self.count(links, |src, dst| is_parallel && has_edge(&graph, src, dst));
                let n_reversed = self.count(links, |src, dst| is_reversed && has_edge(&graph, dst, src));
                if (n_repeated, n_reversed) != (0, 0) {
                    let relation = other.name.clone();
                    let n_all = links.len();
                    notes.push(Note::LinksInRelation { part, relation, n_repeated, n_reversed, n_all });
                }
            }
        }
        Ok(notes)
    }

    /// Returns the number of negatives that are the link that they belong to.
    fn count_own_links(&self, negatives: &LinkNegatives) -> usize {
        let mut n_own = 0;
        for (row, link) in negatives.links().iter().enumerate() {
            let (src, dst) = self.links().pair(*link);
            let srcs = negatives.srcs_of(row);
            for (position, negative) in negatives.dsts_of(row).iter().enumerate() {
                let has_src = srcs.is_none_or(|srcs| srcs[position] == src);
                n_own += usize::from(has_src && *negative == dst);
            }
        }
        n_own
    }

    /// Returns a note ([`Note::NeverDestinations`]) if at least a tenth of the nodes that may be drawn as destinations of negatives
    /// are the destination of no link: a model may tell negatives by that alone.
    ///
    /// The source of an undirected link is its smaller node. Unless no node is both a source and a destination, as in a graph of
    /// users and items, that order says nothing, and both ends count as destinations.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the relation of the links is damaged.
    pub fn find_never_destinations(&self) -> Result<Option<Note>> {
        let relation = self.message.relation(self.links.relation);
        let nodes = self.message.types().range(relation.dst_type);
        let mut is_destination = vec![false; nodes.len()];
        for (_, links) in self.split().parts() {
            for link in links.iter() {
                let (_, dst) = self.links().pair(*link);
                is_destination[(dst.0 - nodes.start) as usize] = true;
            }
        }
        if self.are_undirected()? {
            let srcs = || {
                let links = self.split().parts().into_iter().flat_map(|(_, links)| links.iter());
                links.map(|link| (self.links().pair(*link).0.0 - nodes.start) as usize)
            };
            if srcs().any(|src| is_destination[src]) {
                srcs().for_each(|src| is_destination[src] = true);
            }
        }
        let n_all = is_destination.len();
        let n_nodes = is_destination.iter().filter(|is_destination| !**is_destination).count();
        let is_large = 0 < n_nodes && n_all <= MOST_NEVER.saturating_mul(n_nodes);
        Ok(is_large.then_some(Note::NeverDestinations { n_nodes, n_all }))
    }

    /// Returns true if the smaller node of each link is its source, and the graph has the reverse of a training link.
    fn are_undirected(&self) -> Result<bool> {
        let relation = self.message.relation(self.links.relation);
        let [train, ..] = self.split().parts();
        let are_ordered = relation.src_type == relation.dst_type
            && self
                .split()
                .parts()
                .into_iter()
                .all(|(_, links)| self.count(links, |src, dst| dst < src) == 0);
        if !are_ordered {
            return Ok(false);
        }
        let graph = self.message.whole_graph(self.links.relation)?;
        let mut pairs = train.1.iter().map(|link| self.links().pair(*link));
        Ok(pairs.any(|(src, dst)| src != dst && has_edge(&graph, dst, src)))
    }

    /// Counts the links of a part of which `is_found` returns true.
    fn count(&self, links: &SharedArray<LinkId>, is_found: impl Fn(NodeId, NodeId) -> bool) -> usize {
        let pairs = links.iter().map(|link| self.links().pair(*link));
        pairs.filter(|(src, dst)| is_found(*src, *dst)).count()
    }
}

/// The part of the nodes, one of so many, from which nodes that are never a destination have a note.
const MOST_NEVER: usize = 10;

/// Checks that the edges of the reverse relation have times. Otherwise the reverses of later links would pass messages.
fn check_times_of_reverse(graph: &Relations, reverse: Option<usize>) -> Result<()> {
    let Some(reverse) = reverse.map(|reverse| graph.relation(reverse)) else { return Ok(()) };
    let items = || format!("the edges of the reverse relation `{}`", reverse.name);
    times_of(reverse.graph.columns()).ok_or_else(|| TimeError::NoTimes { items: items() })?;
    Ok(())
}

/// Returns the position of the only relation.
fn only_relation(graph: &Relations) -> Result<usize> {
    let names = graph.iter().map(|relation| &*relation.name).collect::<Vec<_>>().join(", ");
    let expected = "one, or the name of one of them (--relation)";
    require(
        graph.n_relations() == 1,
        "the list of relations of the graph whose edges are split",
        expected,
        names,
    )?;
    Ok(0)
}

/// Returns true if a graph whose neighbours ascend has an edge.
fn has_edge(graph: &Csc, src: NodeId, dst: NodeId) -> bool {
    graph.in_neighbors(dst).binary_search(&src).is_ok()
}
