use serde::Serialize;

/// What one iteration of a bench handles and moves: from it follow the rate, and the least time that the machine
/// would need.
///
/// `cargo xtask bench` divides each of streamed bytes, rows' bytes, lines and floating-point operations by the
/// measured ceiling of its kind for so many threads; the largest of these times is the bench's bound, and the bound by
/// the median is its fraction of the ceiling. A bench that declares none of them has no ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Work {
    /// How many things it handles.
    pub elements: u64,
    /// What they are: `edges`, `rows`, `seeds`.
    pub unit: &'static str,
    /// Threads that work on it.
    pub threads: usize,
    /// Bytes that are read or written one after the other at least; 0 when that is not what bounds it.
    pub streamed: u64,
    /// Bytes of rows at random places; 0 for none.
    pub row_traffic: u64,
    /// What these rows are and what is done with them.
    pub access: Access,
    /// Cache lines that are read at random places, one element of each; 0 for none.
    pub lines: u64,
    /// Bytes of the array that rows or lines are read from: a small one is in a cache.
    pub among: u64,
    /// Floating-point operations, a multiplication with its addition being two; 0 where they do not count.
    pub flop: u64,
}

/// What is done with the rows of a [`Work`], and so which ceiling is theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// There are none.
    Nothing,
    /// Rows of so many bytes, read and then written one after the other; both count.
    Gather(u64),
    /// Rows of so many bytes, read and added up.
    Read(u64),
}

impl Work {
    /// So many things on so many threads, and no ceiling.
    pub fn new(elements: u64, unit: &'static str, threads: usize) -> Self {
        let (streamed, row_traffic, lines, among, flop) = (0, 0, 0, 0, 0);
        Self { elements, unit, threads, streamed, row_traffic, access: Access::Nothing, lines, among, flop }
    }

    /// The same, which streams so many bytes.
    pub fn streamed(self, streamed: u64) -> Self {
        Self { streamed, ..self }
    }

    /// The same, with so many bytes of rows out of an array of so many.
    pub fn rows(self, row_traffic: u64, access: Access, among: u64) -> Self {
        Self { row_traffic, access, among, ..self }
    }

    /// The same, which reads lines at so many random places of an array of so many bytes.
    pub fn lines(self, lines: u64, among: u64) -> Self {
        Self { lines, among, ..self }
    }

    /// The same, which computes so much.
    pub fn flop(self, flop: u64) -> Self {
        Self { flop, ..self }
    }
}
