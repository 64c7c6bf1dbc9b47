use crate::Result;
use crate::spill::{SPILL_BUFFER, SpillFile, SpillReader};

/// The byte of a row whose target and split can be read, and of another one.
pub(crate) const GOOD: u8 = 0;
pub(crate) const BAD: u8 = 1;

/// The edges that are not in the graph: those with the nodes of an edge for validation or test, and rows with bad targets.
#[derive(Debug)]
pub(crate) struct HeldOutEdges {
    /// The source and the destination of each pair, by their ids within their types, ascending.
    pub(crate) pairs: Vec<u64>,
    /// True if the reverse of a pair is left out, too, because both ends have one type.
    pub(crate) has_one_type: bool,
    /// A byte per row: [`GOOD`] or [`BAD`].
    pub(crate) status: SpillFile,
}

impl HeldOutEdges {
    /// Returns a reader of the status of each row.
    pub(crate) fn statuses(&self) -> Result<SpillReader> {
        self.status.read(SPILL_BUFFER)
    }

    /// Returns true if an edge of the relation, with the next status, is not in the graph. Its ends are those of the relation, also
    /// for the reverse relation.
    pub(crate) fn contains(&self, statuses: &mut SpillReader, src: u32, dst: u32) -> Result<bool> {
        let is_bad = statuses.read_u8()? == BAD;
        let has = |src, dst| self.pairs.binary_search(&pair_key(src, dst)).is_ok();
        Ok(is_bad || has(src, dst) || (self.has_one_type && has(dst, src)))
    }

    /// Returns the memory of the pairs in bytes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        8 * self.pairs.capacity() as u64
    }
}

/// Returns the number of a pair.
pub(crate) fn pair_key(src: u32, dst: u32) -> u64 {
    u64::from(src) << 32 | u64::from(dst)
}
