use std::ops::Range;
use std::path::Path;

use kiln_graph::{NodeId, SharedArray};

use crate::assign::check_n_parts;
use crate::{Error, PartitionRow, Result};

/// Which part owns each node, and the node's row there.
///
/// Nodes have a second, new id, by which the nodes of a part are one range; within a part new ids ascend as the
/// nodes' own do. New ids say where a node is and nothing else: seeds, edges and draws go by a node's own id.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `offsets` | `u32` | `n_parts + 1` | part; its new ids are `offsets[p]..offsets[p + 1]`, which may be none |
/// | `new_ids` | `u32` | `n_nodes` | [`NodeId`]; the node's new id |
///
/// Cloning shares `new_ids`.
#[derive(Debug, Clone)]
pub struct PartitionBook {
    offsets: Vec<u32>,
    new_ids: SharedArray<u32>,
}

/// Where a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The part that owns it.
    pub part: usize,
    /// Its row in the part's arrays: its new id less the part's first.
    pub row: PartitionRow,
}

impl PartitionBook {
    /// A book of arrays that exist already, owned or mapped. Runs in a time that does not depend on the number of
    /// nodes: [`PartitionBook::validate`] reads the new ids.
    ///
    /// # Errors
    /// [`Error::BadBook`] unless the offsets start at 0, never fall and end at the number of nodes;
    /// [`Error::BadParameter`] for no part or more than [`MAX_PARTS`](crate::MAX_PARTS).
    pub fn new(offsets: Vec<u32>, new_ids: SharedArray<u32>) -> Result<Self> {
        check_n_parts(offsets.len().saturating_sub(1))?;
        let bad = |what: &str, expected: String, got| Err(bad(&new_ids, what.to_owned(), expected, got));
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        if first != 0 {
            return bad("the first offset", "0".into(), first);
        }
        if let Some(pair) = offsets.windows(2).find(|pair| pair[1] < pair[0]) {
            return bad("an offset", format!("at least {}, as the one before it", pair[0]), pair[1]);
        }
        if last as usize != new_ids.len() {
            return bad("the last offset", format!("{}, the number of nodes", new_ids.len()), last);
        }
        Ok(Self { offsets, new_ids })
    }

    /// The book in which node `v` is in part `parts[v]`, as [`partition_nodes`](crate::partition_nodes) gives it.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a part that is not below `n_parts`, more than 2^32 - 1 nodes, and a number of
    /// parts that cannot be.
    pub fn from_parts(parts: &[u16], n_parts: usize) -> Result<Self> {
        check_n_parts(n_parts)?;
        if u32::try_from(parts.len()).is_err() {
            let (what, expected) = ("the number of nodes", "at most 2^32 - 1".into());
            return Err(Error::BadParameter { what, expected, got: parts.len().to_string() });
        }
        let mut offsets = vec![0_u32; n_parts + 1];
        for &part in parts {
            let Some(count) = offsets[1..].get_mut(usize::from(part)) else {
                let expected = format!("below {n_parts}, the number of parts");
                return Err(Error::BadParameter { what: "a node's part", expected, got: part.to_string() });
            };
            *count += 1;
        }
        for part in 0..n_parts {
            offsets[part + 1] += offsets[part];
        }
        let mut next = offsets.clone();
        let mut take = |part: &u16| {
            let next = &mut next[usize::from(*part)];
            *next += 1;
            *next - 1
        };
        let new_ids: Vec<u32> = parts.iter().map(&mut take).collect();
        Ok(Self { offsets, new_ids: new_ids.into() })
    }

    /// Number of parts, empty ones among them.
    pub fn n_parts(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of nodes of the whole graph.
    pub fn n_nodes(&self) -> usize {
        self.new_ids.len()
    }

    /// The first new id of each part, and the number of nodes; see the table on [`PartitionBook`].
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// The new id of each node; see the table on [`PartitionBook`].
    pub fn new_ids(&self) -> &[u32] {
        &self.new_ids
    }

    /// The new ids of a part's nodes.
    ///
    /// # Panics
    /// When `part` is not below [`PartitionBook::n_parts`].
    pub fn owned(&self, part: usize) -> Range<u32> {
        self.offsets[part]..self.offsets[part + 1]
    }

    /// Number of nodes of a part.
    ///
    /// # Panics
    /// As [`PartitionBook::owned`].
    pub fn n_owned(&self, part: usize) -> usize {
        self.owned(part).len()
    }

    /// A node's new id; `None` for an id that is no node.
    #[inline]
    pub fn new_id(&self, node: NodeId) -> Option<u32> {
        self.new_ids.get(node.index()).copied()
    }

    /// The part that owns a new id, found in a time that grows with the logarithm of the number of parts; `None`
    /// for a number that is no new id.
    #[inline]
    pub fn part_of(&self, new_id: u32) -> Option<usize> {
        // The first offset is 0 and so never above; of parts that start together the last is not empty.
        let part = self.offsets.partition_point(|&offset| offset <= new_id) - 1;
        (part < self.n_parts()).then_some(part)
    }

    /// Where a node is; `None` for an id that is no node, or whose new id is none since its file is damaged.
    ///
    /// ```
    /// use kiln_graph::NodeId;
    /// use kiln_partition::{PartitionBook, PartitionRow, Place};
    /// let book = PartitionBook::from_parts(&[2, 0, 2, 0], 3)?;
    /// assert_eq!(book.offsets(), [0, 2, 2, 4]);
    /// assert_eq!(book.place(NodeId(2)), Some(Place { part: 2, row: PartitionRow(1) }));
    /// assert_eq!(book.place(NodeId(4)), None);
    /// # Ok::<(), kiln_partition::Error>(())
    /// ```
    #[inline]
    pub fn place(&self, node: NodeId) -> Option<Place> {
        self.place_of(self.new_id(node)?)
    }

    /// Where the node of a new id is; `None` where there is none.
    #[inline]
    pub fn place_of(&self, new_id: u32) -> Option<Place> {
        let part = self.part_of(new_id)?;
        Some(Place { part, row: PartitionRow(new_id - self.offsets[part]) })
    }

    /// All nodes in the order of their new ids, `[n_nodes]`: those of each part one after the other, ascending.
    ///
    /// # Errors
    /// As [`PartitionBook::validate`].
    pub fn old_ids(&self) -> Result<Vec<NodeId>> {
        self.validate()?;
        let mut old_ids = vec![NodeId(0); self.n_nodes()];
        for (node, &new_id) in self.new_ids.iter().enumerate() {
            old_ids[new_id as usize] = NodeId(node as u32);
        }
        Ok(old_ids)
    }

    /// Reads all new ids once and checks that each is there once, and that those of a part ascend.
    ///
    /// # Errors
    /// [`Error::BadBook`] with the first node whose new id cannot be.
    pub fn validate(&self) -> Result<()> {
        // Where new ids of a part ascend without a gap from its first, and end at its last, each is there once.
        let mut next = self.offsets.clone();
        for (node, &new_id) in self.new_ids.iter().enumerate() {
            let bad =
                |expected| Err(bad(&self.new_ids, format!("the new id of node {node}"), expected, new_id));
            let Some(part) = self.part_of(new_id) else {
                return bad(format!("below {}, the number of nodes", self.n_nodes()));
            };
            if new_id != next[part] {
                return bad(format!("{}, the next of part {part}", next[part]));
            }
            next[part] += 1;
        }
        Ok(())
    }
}

fn bad(new_ids: &SharedArray<u32>, what: String, expected: String, got: u32) -> Error {
    Error::BadBook { file: new_ids.path().map(Path::to_owned), what, expected, got }
}
