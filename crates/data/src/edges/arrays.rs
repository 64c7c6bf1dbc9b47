//! Edge lists in arrays: one array of two rows or columns, or an array of sources and one of destinations.

use kiln_store::npy::{DType, Order};
use kiln_store::{ArrayFile, check_count};

use super::source::{CHUNK_EDGES, ColumnFormat, EdgeChunk, EdgeSource};
use crate::arrays::node_error;
use crate::{Error, Note, Result};

/// The sources or the destinations of all edges: every `stride`-th element of an array from the element `first` on.
#[derive(Debug)]
struct Ends {
    /// The index into [`EdgeArrays::arrays`].
    array: usize,
    first: usize,
    stride: usize,
    /// The role of the ids in error messages.
    what: &'static str,
}

/// The roles of the two ends of an edge, and of a link, in error messages.
const OF_EDGES: [&str; 2] = ["the source of edge", "the destination of edge"];
const OF_LINKS: [&str; 2] = ["the source of link", "the destination of link"];

/// An edge list in one or two arrays of integers.
#[derive(Debug)]
pub(super) struct EdgeArrays {
    arrays: Vec<ArrayFile>,
    srcs: Ends,
    dsts: Ends,
    n_edges: usize,
}

impl EdgeArrays {
    /// Reads an array of the shape `[2, n_edges]` or `[n_edges, 2]`, row-major or column-major.
    pub(super) fn of_matrix(array: ArrayFile, notes: &mut Vec<Note>) -> Result<Self> {
        match *array.shape() {
            [2, 2] => notes.push(Note::Other(format!(
                "{} has the shape [2, 2]: its first row is read as the sources, its second as the destinations",
                array.path().display()
            ))),
            [2, _] | [_, 2] => {}
            _ => return Err(array.bad_shape("(2, n) or (n, 2)").into()),
        }
        let has_two_rows = array.shape()[0] == 2;
        Self::of_two(array, has_two_rows, OF_EDGES)
    }

    /// Reads links from an array of the shape `[n_links, 2]` or `[2, n_links]`, row-major or column-major.
    pub(super) fn of_links(array: ArrayFile, notes: &mut Vec<Note>) -> Result<Self> {
        match *array.shape() {
            [2, 2] => notes.push(Note::Other(format!(
                "{} has the shape [2, 2]: each row is read as a link",
                array.path().display()
            ))),
            [2, _] | [_, 2] => {}
            _ => return Err(array.bad_shape("(n, 2) or (2, n)").into()),
        }
        let has_two_rows = array.shape()[1] != 2;
        Self::of_two(array, has_two_rows, OF_LINKS)
    }

    /// Reads an array of the shape `[2, n_edges]`, row-major or column-major. A transposed array of pairs is
    /// column-major.
    pub(super) fn of_rows(array: ArrayFile) -> Result<Self> {
        if !matches!(array.shape(), [2, _]) {
            let what = format!("an edge list of shape {:?}", array.shape());
            let instead = "save it as (2, n_edges), the sources first".into();
            return Err(Error::Unsupported { path: array.path().to_owned(), what, instead });
        }
        Self::of_two(array, true, OF_EDGES)
    }

    /// Reads an array that has two rows, or else two columns.
    fn of_two(array: ArrayFile, has_two_rows: bool, [src, dst]: [&'static str; 2]) -> Result<Self> {
        check_integers(&array)?;
        let n_edges = array.n_values() / 2;
        // The two ends of an edge are adjacent in a row-major array with two columns and in a column-major array with
        // two rows.
        let (second, stride) = match array.order() {
            Order::Rows if has_two_rows => (n_edges, 1),
            Order::Columns if !has_two_rows => (n_edges, 1),
            Order::Rows | Order::Columns => (1, 2),
        };
        let srcs = Ends { array: 0, first: 0, stride, what: src };
        let dsts = Ends { array: 0, first: second, stride, what: dst };
        Ok(Self { arrays: vec![array], srcs, dsts, n_edges })
    }

    /// Reads an array of sources and an array of destinations.
    pub(super) fn of_pair(srcs: ArrayFile, dsts: ArrayFile) -> Result<Self> {
        for array in [&srcs, &dsts] {
            array.check_vector()?;
            check_integers(array)?;
        }
        let n_edges = srcs.n_values();
        check_count(dsts.path(), "the number of entries", n_edges, dsts.n_values())?;
        let arrays = vec![srcs, dsts];
        let [src, dst] = OF_EDGES;
        let srcs = Ends { array: 0, first: 0, stride: 1, what: src };
        let dsts = Ends { array: 1, first: 0, stride: 1, what: dst };
        Ok(Self { arrays, srcs, dsts, n_edges })
    }

    /// Returns the number of edges.
    pub(super) fn n_edges(&self) -> usize {
        self.n_edges
    }

    /// Appends the sources or the destinations of a range of edges to `out`, and checks that they are below `n_nodes`.
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
                    // The values may be unaligned in a file that NumPy did not write.
                    let id: $ty = bytemuck::pod_read_unaligned(&bytes[at..at + size_of::<$ty>()]);
                    match u32::try_from(id) {
                        Ok(id) if (id as usize) < n_nodes => out.push(id),
                        _ => return Err(node_error(array, ends.what, edge, i128::from(id), n_nodes).into()),
                    }
                }
            };
        }
        match array.dtype() {
            DType::I8 => read!(i8),
            DType::U8 => read!(u8),
            DType::I16 => read!(i16),
            DType::U16 => read!(u16),
            DType::I32 => read!(i32),
            DType::U32 => read!(u32),
            DType::I64 => read!(i64),
            DType::U64 => read!(u64),
            DType::Bool | DType::F16 | DType::F32 | DType::F64 => return Err(wrong_type(array)),
        }
        Ok(())
    }
}

impl EdgeSource for EdgeArrays {
    fn columns(&self) -> Vec<ColumnFormat> {
        Vec::new()
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

    fn check_unchanged(&self) -> Result<()> {
        Ok(self.arrays.iter().try_for_each(ArrayFile::check_unchanged)?)
    }
}

fn check_integers(array: &ArrayFile) -> Result<()> {
    match array.dtype() {
        DType::Bool | DType::F16 | DType::F32 | DType::F64 => Err(wrong_type(array)),
        _ => Ok(()),
    }
}

fn wrong_type(array: &ArrayFile) -> Error {
    array.wrong_type(ArrayFile::INTEGERS).into()
}
