use std::ops::Range;
use std::path::Path;

use kiln_graph::{NodeId, SharedArray};

use crate::assign::check_n_parts;
use crate::{Error, PartitionRow, Result};

/// The partition book: maps each node to the partition that owns it and to its row in that partition.
///
/// Each node has a second id, its new id. The nodes of a partition have consecutive new ids, in the order of their node
/// ids. New ids only locate nodes: seeds, edges and random draws use node ids.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `offsets` | `u32` | `n_parts + 1` | partition; its new ids are `offsets[p]..offsets[p + 1]`, possibly empty |
/// | `new_ids` | `u32` | `n_nodes` | [`NodeId`]; the node's new id |
///
/// Cloning shares `new_ids`.
#[derive(Debug, Clone)]
pub struct PartitionBook {
    offsets: Vec<u32>,
    new_ids: SharedArray<u32>,
}

/// The location of a node in a partitioned graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The partition that owns the node.
    pub part: usize,
    /// The node's row in the partition's arrays: its new id minus the partition's first new id.
    pub row: PartitionRow,
}

impl PartitionBook {
    /// Creates a book from existing arrays, owned or memory-mapped. The time does not depend on the number of nodes:
    /// only [`PartitionBook::validate`] reads the new ids.
    ///
    /// # Errors
    /// Returns [`Error::BadBook`] unless the offsets start at 0, never decrease and end at the number of nodes, and
    /// [`Error::BadParameter`] if there is no partition or more than [`MAX_PARTS`](crate::MAX_PARTS).
    pub fn new(offsets: Vec<u32>, new_ids: SharedArray<u32>) -> Result<Self> {
        check_n_parts(offsets.len().saturating_sub(1))?;
        let bad = |what: &str, expected: String, got| Err(bad(&new_ids, what.to_owned(), expected, got));
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        if first != 0 {
            return bad("the first offset", "0".into(), first);
        }
        if let Some(pair) = offsets.windows(2).find(|pair| pair[1] < pair[0]) {
            return bad("an offset", format!("at least {}, the previous one", pair[0]), pair[1]);
        }
        if last as usize != new_ids.len() {
            return bad("the last offset", format!("{}, the number of nodes", new_ids.len()), last);
        }
        Ok(Self { offsets, new_ids })
    }

    /// Creates the book in which partition `parts[v]` owns node `v`; [`partition_nodes`](crate::partition_nodes)
    /// returns such assignments.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`] if a node's partition is not below `n_parts`, if there are more than 2^32 - 1
    /// nodes, or if `n_parts` is out of range.
    pub fn from_parts(parts: &[u16], n_parts: usize) -> Result<Self> {
        check_n_parts(n_parts)?;
        if u32::try_from(parts.len()).is_err() {
            let (what, expected) = ("the number of nodes", "at most 2^32 - 1".into());
            return Err(Error::BadParameter { what, expected, got: parts.len().to_string() });
        }
        let mut offsets = vec![0_u32; n_parts + 1];
        for &part in parts {
            let Some(count) = offsets[1..].get_mut(usize::from(part)) else {
                let (what, got) = ("the partition of a node", part.to_string());
                let expected = format!("below {n_parts}, the number of partitions");
                return Err(Error::BadParameter { what, expected, got });
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

    /// The number of partitions, including empty ones.
    pub fn n_parts(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The number of nodes of the whole graph.
    pub fn n_nodes(&self) -> usize {
        self.new_ids.len()
    }

    /// The first new id of each partition, followed by the number of nodes; see the table on [`PartitionBook`].
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// The new id of each node; see the table on [`PartitionBook`].
    pub fn new_ids(&self) -> &[u32] {
        &self.new_ids
    }

    /// The new ids of a partition's nodes.
    ///
    /// # Panics
    /// Panics if `part` is not below [`PartitionBook::n_parts`].
    pub fn owned(&self, part: usize) -> Range<u32> {
        self.offsets[part]..self.offsets[part + 1]
    }

    /// The number of nodes of a partition.
    ///
    /// # Panics
    /// Panics if `part` is not below [`PartitionBook::n_parts`].
    pub fn n_owned(&self, part: usize) -> usize {
        self.owned(part).len()
    }

    /// The new id of a node; `None` if the graph has no such node.
    #[inline]
    pub fn new_id(&self, node: NodeId) -> Option<u32> {
        self.new_ids.get(node.index()).copied()
    }

    /// The partition that owns a new id, found by binary search over the partitions; `None` if there is no such new
    /// id.
    #[inline]
    pub fn part_of(&self, new_id: u32) -> Option<usize> {
        // The first offset is 0, so the partition point is at least 1. Among partitions that start at the same offset,
        // only the last can own nodes, and the search returns the last.
        let part = self.offsets.partition_point(|&offset| offset <= new_id) - 1;
        (part < self.n_parts()).then_some(part)
    }

    /// The location of a node; `None` if the graph has no such node, or if a damaged file gives it an invalid new id.
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

    /// The location of the node with a new id; `None` if there is no such new id.
    #[inline]
    pub fn place_of(&self, new_id: u32) -> Option<Place> {
        let part = self.part_of(new_id)?;
        Some(Place { part, row: PartitionRow(new_id - self.offsets[part]) })
    }

    /// Returns all nodes in the order of their new ids, `[n_nodes]`: partition by partition, and by ascending node id
    /// within a partition.
    ///
    /// # Errors
    /// Returns the errors of [`PartitionBook::validate`].
    pub fn old_ids(&self) -> Result<Vec<NodeId>> {
        self.validate()?;
        let mut old_ids = vec![NodeId(0); self.n_nodes()];
        for (node, &new_id) in self.new_ids.iter().enumerate() {
            old_ids[new_id as usize] = NodeId(node as u32);
        }
        Ok(old_ids)
    }

    /// Checks that the new ids are a permutation and that those of each partition ascend. Reads all of them once.
    ///
    /// # Errors
    /// Returns [`Error::BadBook`] for the first node whose new id is invalid.
    pub fn validate(&self) -> Result<()> {
        // If the new ids of each partition ascend from its first one without gaps, each new id occurs exactly once.
        let mut next = self.offsets.clone();
        for (node, &new_id) in self.new_ids.iter().enumerate() {
            let bad =
                |expected| Err(bad(&self.new_ids, format!("the new id of node {node}"), expected, new_id));
            let Some(part) = self.part_of(new_id) else {
                return bad(format!("below {}, the number of nodes", self.n_nodes()));
            };
            if new_id != next[part] {
                return bad(format!("{}, the next of partition {part}", next[part]));
            }
            next[part] += 1;
        }
        Ok(())
    }
}

fn bad(new_ids: &SharedArray<u32>, what: String, expected: String, got: u32) -> Error {
    Error::BadBook { file: new_ids.path().map(Path::to_owned), what, expected, got }
}
