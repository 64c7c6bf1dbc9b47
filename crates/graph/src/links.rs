use crate::{Error, LinkId, NodeId, Result, SharedArray};

/// A list of links: pairs of nodes whose connection a model learns or predicts. Cloning shares the arrays.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `srcs` | [`NodeId`] | `n_links` | [`LinkId`]; the source |
/// | `dsts` | [`NodeId`] | `n_links` | [`LinkId`]; the destination |
///
/// A pair may occur several times. A link need not be an edge of the graph that passes messages.
///
/// ```
/// use kiln_graph::{LinkId, Links, NodeId};
/// let links = Links::new(vec![0_u32, 2], vec![1_u32, 0])?;
/// assert_eq!(links.pair(LinkId(1)), (NodeId(2), NodeId(0)));
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    srcs: SharedArray<NodeId>,
    dsts: SharedArray<NodeId>,
}

impl Links {
    /// Creates a list from the sources and the destinations of its links.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] if the arrays have different lengths, and [`Error::TooMany`] if there are
    /// 2^32 links or more.
    pub fn new(srcs: impl Into<SharedArray<NodeId>>, dsts: impl Into<SharedArray<NodeId>>) -> Result<Self> {
        let srcs = srcs.into();
        let dsts = dsts.into();
        let expected = srcs.len() as u64;
        let got = dsts.len() as u64;
        if expected != got {
            return Err(Error::LengthMismatch { what: "the destinations of links", expected, got });
        }
        let max = u64::from(u32::MAX);
        match max < expected {
            true => Err(Error::TooMany { what: "links", n: expected, max }),
            false => Ok(Self { srcs, dsts }),
        }
    }

    /// Returns the number of links.
    pub fn len(&self) -> usize {
        self.srcs.len()
    }

    /// Returns true if there are no links.
    pub fn is_empty(&self) -> bool {
        self.srcs.is_empty()
    }

    /// Returns the sources.
    pub fn srcs(&self) -> &SharedArray<NodeId> {
        &self.srcs
    }

    /// Returns the destinations.
    pub fn dsts(&self) -> &SharedArray<NodeId> {
        &self.dsts
    }

    /// Returns the source and the destination of a link.
    ///
    /// # Panics
    /// Panics if the list does not contain the link.
    pub fn pair(&self, link: LinkId) -> (NodeId, NodeId) {
        (self.srcs[link.index()], self.dsts[link.index()])
    }

    /// Checks that all nodes exist in a graph with `n_nodes` nodes.
    ///
    /// # Errors
    /// Returns [`Error::NodeOutOfRange`] for the first link with another node; `edge` is the number of the link.
    pub fn check(&self, n_nodes: usize) -> Result<()> {
        for (edge, (src, dst)) in self.srcs.iter().zip(&self.dsts).enumerate() {
            let node = src.0.max(dst.0);
            if n_nodes <= node as usize {
                return Err(Error::NodeOutOfRange { edge: edge as u64, node, n_nodes });
            }
        }
        Ok(())
    }
}
