//! Edge lists in arrays: one of two rows or columns, or one for each end.

use super::source::{CHUNK_EDGES, EdgeChunk, EdgeData, EdgeSource};
use crate::arrays::Array;
use crate::folder::check_count;
use crate::npy::DType;
use crate::{Note, Result};

/// One end of each edge, `n_edges` elements of an array, `stride` apart from the element `first` on.
#[derive(Debug)]
struct Ends {
    /// Which of the arrays.
    array: usize,
    first: usize,
    stride: usize,
    /// What an id is, for messages.
    what: &'static str,
}

const SRC: &str = "the source of edge";
const DST: &str = "the destination of edge";

/// An edge list in one or two mapped arrays of integers.
#[derive(Debug)]
pub(super) struct EdgeArrays {
    arrays: Vec<Array>,
    srcs: Ends,
    dsts: Ends,
    n_edges: usize,
}

impl EdgeArrays {
    /// An array of the shape `[2, n_edges]` or `[n_edges, 2]`.
    pub(super) fn of_matrix(array: Array, notes: &mut Vec<Note>) -> Result<Self> {
        check_integers(&array)?;
        let (n_edges, second, stride) = match *array.shape() {
            [2, n_edges] => (n_edges, n_edges, 1),
            [n_edges, 2] => (n_edges, 1, 2),
            ref shape => {
                let found = format!("{shape:?}");
                return Err(array.bad_value("the shape, of dimension", 0, "(2, n) or (n, 2)", found));
            }
        };
        if array.shape() == [2, 2] {
            let path = array.path().display();
            notes.push(Note::Other(format!(
                "{path} is [2, 2]: its first row is taken for the sources, its second for the destinations"
            )));
        }
        let srcs = Ends { array: 0, first: 0, stride, what: SRC };
        let dsts = Ends { array: 0, first: second, stride, what: DST };
        Ok(Self { arrays: vec![array], srcs, dsts, n_edges })
    }

    /// An array of sources and one of destinations.
    pub(super) fn of_pair(srcs: Array, dsts: Array) -> Result<Self> {
        for array in [&srcs, &dsts] {
            array.check_vector()?;
            check_integers(array)?;
        }
        let n_edges = srcs.n_values();
        check_count(dsts.path(), "the number of entries", n_edges, dsts.n_values())?;
        let arrays = vec![srcs, dsts];
        let srcs = Ends { array: 0, first: 0, stride: 1, what: SRC };
        let dsts = Ends { array: 1, first: 0, stride: 1, what: DST };
        Ok(Self { arrays, srcs, dsts, n_edges })
    }

    /// Appends one end of some edges.
    fn read(
        &self,
        ends: &Ends,
        edges: std::ops::Range<usize>,
        n_nodes: usize,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let array = &self.arrays[ends.array];
        let bytes = array.value_bytes();
        macro_rules! read {
            ($ty:ty) => {
                for edge in edges {
                    let at = (ends.first + edge * ends.stride) * size_of::<$ty>();
                    // Files of other writers may not be aligned.
                    let id: $ty = bytemuck::pod_read_unaligned(&bytes[at..at + size_of::<$ty>()]);
                    match u32::try_from(id) {
                        Ok(id) if (id as usize) < n_nodes => out.push(id),
                        _ => return Err(array.node_error(ends.what, edge, i128::from(id), n_nodes)),
                    }
                }
            };
        }
        match array.dtype() {
            DType::I32 => read!(i32),
            DType::U32 => read!(u32),
            DType::I64 => read!(i64),
            DType::U64 => read!(u64),
            _ => return Err(wrong_type(array)),
        }
        Ok(())
    }
}

impl EdgeSource for EdgeArrays {
    fn edge_data(&self) -> EdgeData {
        EdgeData::default()
    }

    fn for_each_chunk(
        &self,
        n_nodes: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>,
    ) -> Result<()> {
        let mut chunk = EdgeChunk::default();
        for start in (0..self.n_edges).step_by(CHUNK_EDGES) {
            let edges = start..self.n_edges.min(start + CHUNK_EDGES);
            chunk.clear();
            self.read(&self.srcs, edges.clone(), n_nodes, &mut chunk.srcs)?;
            self.read(&self.dsts, edges, n_nodes, &mut chunk.dsts)?;
            visit(&mut chunk)?;
        }
        Ok(())
    }
}

fn check_integers(array: &Array) -> Result<()> {
    match array.dtype() {
        DType::I32 | DType::U32 | DType::I64 | DType::U64 => Ok(()),
        _ => Err(wrong_type(array)),
    }
}

fn wrong_type(array: &Array) -> crate::Error {
    array.wrong_type("<i4, <u4, <i8 or <u8")
}
