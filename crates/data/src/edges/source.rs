use kiln_graph::EdgeColumns;
use kiln_store::array_folder::ElementType;

use crate::{DatasetTimes, Result};

/// The maximum number of edges of a chunk.
pub(crate) const CHUNK_EDGES: usize = 1 << 13;

/// A list of edges that can be read repeatedly, in chunks.
pub trait EdgeSource {
    /// Returns the columns that each edge has.
    fn columns(&self) -> Vec<ColumnFormat>;

    /// Calls `visit` with all edges in the order of the list, at most 8192 at a time. Each call of this function must
    /// produce the same edges. The visitor may change the chunk.
    ///
    /// # Errors
    /// Returns an error with the position of the first id that is not below `n_nodes`, an error if the list is
    /// otherwise invalid, and the first error of `visit`, after which reading stops.
    fn for_each_chunk(
        &self,
        n_nodes: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>,
    ) -> Result<()>;

    /// Checks, after the last reading, that all readings had the same edges. The default implementation returns `Ok`.
    ///
    /// # Errors
    /// Returns an error that names what has changed.
    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
}

/// The name, the element type and the number of values per edge of a column of edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnFormat {
    /// The name ([`EdgeColumns`]).
    pub name: String,
    /// The element type: `u8` for types, `f32` for weights, `i64` for times, and `f32`, `f16` or `bf16` for other columns.
    pub element: ElementType,
    /// The number of values per edge.
    pub width: usize,
}

impl ColumnFormat {
    /// Returns the format of weights.
    pub fn weights() -> Self {
        Self { name: EdgeColumns::WEIGHTS.to_owned(), element: ElementType::F32, width: 1 }
    }

    /// Returns the format of types.
    pub fn types() -> Self {
        Self { name: EdgeColumns::TYPES.to_owned(), element: ElementType::U8, width: 1 }
    }

    /// Returns the format of times.
    pub fn times() -> Self {
        Self { name: EdgeColumns::TIMES.to_owned(), element: ElementType::I64, width: 1 }
    }

    /// Returns the number of bytes per edge.
    pub fn row_bytes(&self) -> usize {
        self.element.stored_as().bytes() * self.width
    }

    /// Returns the row of a self loop that is added: the weight 1, the type 0, or a time at which it was always known. `None` for any other column.
    pub(crate) fn row_of_added_loop(&self) -> Option<Vec<u8>> {
        match self.name.as_str() {
            EdgeColumns::WEIGHTS => Some(1.0_f32.to_le_bytes().to_vec()),
            EdgeColumns::TYPES => Some(vec![0]),
            EdgeColumns::TIMES => Some(DatasetTimes::ALWAYS.to_le_bytes().to_vec()),
            _ => None,
        }
    }
}

/// A chunk of a list of edges `srcs[i] -> dsts[i]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EdgeChunk {
    /// The source of each edge.
    pub srcs: Vec<u32>,
    /// The destination of each edge.
    pub dsts: Vec<u32>,
    /// The rows of the edges in each column of the source, in the order of [`EdgeSource::columns`], as little-endian bytes.
    pub columns: Vec<Vec<u8>>,
}

impl EdgeChunk {
    /// Returns an empty chunk with the columns of a source.
    pub fn of_columns(n_columns: usize) -> Self {
        Self { columns: vec![Vec::new(); n_columns], ..Self::default() }
    }

    /// Returns the number of edges.
    pub fn len(&self) -> usize {
        self.srcs.len()
    }

    /// Returns true if there are no edges.
    pub fn is_empty(&self) -> bool {
        self.srcs.is_empty()
    }

    /// Removes the edges and keeps the allocated memory.
    pub(crate) fn clear(&mut self) {
        self.srcs.clear();
        self.dsts.clear();
        self.columns.iter_mut().for_each(Vec::clear);
    }
}
