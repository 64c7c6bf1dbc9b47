use crate::{Error, LinkId, NodeId, Result, SharedArray};

/// Fixed negatives of links, with which all evaluations of a benchmark compare the links. Cloning shares the arrays.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `links` | [`LinkId`] | `n_links`, strictly ascending | row |
/// | `srcs` | [`NodeId`] | `n_links * n_per_link`, or no array | row-major; the source of each negative |
/// | `dsts` | [`NodeId`] | `n_links * n_per_link` | row-major; the destination of each negative |
///
/// Without `srcs`, a negative has the source of its link.
///
/// ```
/// use kiln_graph::{LinkId, LinkNegatives, NodeId};
/// let negatives = LinkNegatives::of_dsts(vec![LinkId(4), LinkId(5)], 2, vec![7_u32, 8, 9, 7])?;
/// assert_eq!(negatives.row(LinkId(5)), Some(1));
/// assert_eq!(negatives.dsts_of(1), [NodeId(9), NodeId(7)]);
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkNegatives {
    links: SharedArray<LinkId>,
    n_per_link: usize,
    srcs: Option<SharedArray<NodeId>>,
    dsts: SharedArray<NodeId>,
}

impl LinkNegatives {
    /// Creates negatives that have the sources of their links from their destinations `[n_links, n_per_link]`.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] if the number of destinations is wrong, and [`Error::LinksNotAscending`] if the
    /// links do not ascend.
    pub fn of_dsts(
        links: impl Into<SharedArray<LinkId>>,
        n_per_link: usize,
        dsts: impl Into<SharedArray<NodeId>>,
    ) -> Result<Self> {
        Self { links: links.into(), n_per_link, srcs: None, dsts: dsts.into() }.checked()
    }

    /// Creates negatives from their sources and destinations, both `[n_links, n_per_link]`.
    ///
    /// # Errors
    /// Returns the errors of [`LinkNegatives::of_dsts`].
    pub fn of_pairs(
        links: impl Into<SharedArray<LinkId>>,
        n_per_link: usize,
        srcs: impl Into<SharedArray<NodeId>>,
        dsts: impl Into<SharedArray<NodeId>>,
    ) -> Result<Self> {
        Self { links: links.into(), n_per_link, srcs: Some(srcs.into()), dsts: dsts.into() }.checked()
    }

    fn checked(self) -> Result<Self> {
        let expected = self.links.len() as u64 * self.n_per_link as u64;
        let n_srcs = self.srcs.as_ref().map_or(expected, |srcs| srcs.len() as u64);
        for (what, got) in [
            ("the sources of the negatives", n_srcs),
            ("the destinations of the negatives", self.dsts.len() as u64),
        ] {
            if expected != got {
                return Err(Error::LengthMismatch { what, expected, got });
            }
        }
        match self.links.windows(2).position(|pair| pair[1] <= pair[0]) {
            Some(row) => Err(Error::LinksNotAscending { row: row + 1, link: self.links[row + 1].0 }),
            None => Ok(self),
        }
    }

    /// Returns the links that have negatives, ascending.
    pub fn links(&self) -> &SharedArray<LinkId> {
        &self.links
    }

    /// Returns the number of negatives of each link.
    pub fn n_per_link(&self) -> usize {
        self.n_per_link
    }

    /// Returns the sources, `[n_links, n_per_link]`; `None` if a negative has the source of its link.
    pub fn srcs(&self) -> Option<&SharedArray<NodeId>> {
        self.srcs.as_ref()
    }

    /// Returns the destinations, `[n_links, n_per_link]`.
    pub fn dsts(&self) -> &SharedArray<NodeId> {
        &self.dsts
    }

    /// Returns the row of a link; `None` if it has no negatives. This is a binary search.
    pub fn row(&self, link: LinkId) -> Option<usize> {
        self.links.binary_search(&link).ok()
    }

    /// Returns the sources of the negatives in a row, `[n_per_link]`; `None` if they are the source of the row's link.
    ///
    /// # Panics
    /// Panics if there is no such row.
    pub fn srcs_of(&self, row: usize) -> Option<&[NodeId]> {
        self.srcs.as_ref().map(|srcs| &srcs[row * self.n_per_link..(row + 1) * self.n_per_link])
    }

    /// Returns the destinations of the negatives in a row, `[n_per_link]`.
    ///
    /// # Panics
    /// Panics if there is no such row.
    pub fn dsts_of(&self, row: usize) -> &[NodeId] {
        &self.dsts[row * self.n_per_link..(row + 1) * self.n_per_link]
    }

    /// Checks that all nodes exist in a graph with `n_nodes` nodes.
    ///
    /// # Errors
    /// Returns [`Error::NodeOutOfRange`] for the first other node; `edge` is the position of the negative. It is wrapped
    /// in [`Error::InFile`] if the array is mapped.
    pub fn check(&self, n_nodes: usize) -> Result<()> {
        for nodes in self.srcs.iter().chain([&self.dsts]) {
            if let Some(edge) = nodes.iter().position(|node| n_nodes <= node.index()) {
                let error = Error::NodeOutOfRange { edge: edge as u64, node: nodes[edge].0, n_nodes };
                return Err(error.in_file(nodes.path()));
            }
        }
        Ok(())
    }
}
