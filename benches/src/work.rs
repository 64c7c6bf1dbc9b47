use serde::Serialize;

/// What one iteration of a bench handles and moves: from it follow the rate, and the least time that the machine
/// would need.
///
/// `cargo xtask bench` divides each of bytes, lines and floating-point operations by the measured ceiling of its
/// kind for so many threads; the largest of the three times is the bench's bound, and the bound by the median is
/// its fraction of the ceiling. A bench that declares none of the three has no ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Work {
    /// How many things it handles.
    pub elements: u64,
    /// What they are: `edges`, `rows`, `seeds`.
    pub unit: &'static str,
    /// Threads that work on it.
    pub threads: usize,
    /// Bytes that are read and written at least; 0 when that is not what bounds it.
    pub bytes: u64,
    /// How these bytes lie.
    pub access: Access,
    /// Cache lines that are read at random places, one element of each; 0 for none.
    pub lines: u64,
    /// Floating-point operations, a multiplication with its addition being two; 0 where they do not count.
    pub flop: u64,
}

/// How the bytes of a [`Work`] lie, and so which ceiling is theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// One after the other.
    Stream,
    /// Rows of so many bytes at random places, read and then written one after the other.
    GatherRows(u64),
    /// Rows of so many bytes at random places, read and added up.
    ReadRows(u64),
}

impl Work {
    /// So many things on so many threads, and no ceiling.
    pub fn new(elements: u64, unit: &'static str, threads: usize) -> Self {
        Self { elements, unit, threads, bytes: 0, access: Access::Stream, lines: 0, flop: 0 }
    }

    /// The same, which moves these bytes.
    pub fn bytes(self, bytes: u64, access: Access) -> Self {
        Self { bytes, access, ..self }
    }

    /// The same, which reads lines at so many random places.
    pub fn lines(self, lines: u64) -> Self {
        Self { lines, ..self }
    }

    /// The same, which computes so much.
    pub fn flop(self, flop: u64) -> Self {
        Self { flop, ..self }
    }
}
