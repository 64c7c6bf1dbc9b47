//! Arrays as data sets use them: ids, offsets, labels, rows, each from the element types that it may be
//! stored in. What can be used as it is stays mapped; what cannot is copied, with a note.

use std::path::{Path, PathBuf};

use half::f16;
use kiln_feature::{Dense, MAX_DIM, MappedLayout, RowType, Rows};
use kiln_graph::{Buf, Mapping, NodeId};

use crate::limits::{bad_dim, check_node_count};
use crate::npy::{self, DType, Element, Header, Order};
use crate::{Error, Note, Result};

/// One array of a file.
#[derive(Debug)]
pub(crate) struct Array {
    path: PathBuf,
    header: Header,
    order: Order,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mapping),
    /// The whole file, its header included.
    Owned(Vec<u8>),
}

impl Array {
    /// Maps an `.npy` file. Only its header is read.
    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::open_in_any_order(path)?.in_rows()
    }

    /// The same for arrays that may also lie column by column, which [`Array::order`] tells.
    pub(crate) fn open_in_any_order(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let mapping = Mapping::open(&path).map_err(|error| match error {
            kiln_graph::Error::Io { path, source } => Error::Io { path, source },
            other => other.into(),
        })?;
        Self::new(path, Bytes::Mapped(mapping))
    }

    /// The bytes of an `.npy` file that came from somewhere else: `path` is what messages call it.
    pub(crate) fn from_bytes(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self> {
        Self::from_bytes_in_any_order(path, bytes)?.in_rows()
    }

    /// The same for arrays that may also lie column by column.
    pub(crate) fn from_bytes_in_any_order(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self> {
        Self::new(path.into(), Bytes::Owned(bytes))
    }

    fn in_rows(self) -> Result<Self> {
        match self.order {
            Order::Rows => Ok(self),
            Order::Columns => Err(Error::Npy { path: self.path, source: npy::Error::FortranOrder }),
        }
    }

    fn new(path: PathBuf, bytes: Bytes) -> Result<Self> {
        let all = match &bytes {
            Bytes::Mapped(mapping) => mapping.bytes(),
            Bytes::Owned(bytes) => bytes,
        };
        let (header, order) = Header::read_with_order(all)
            .and_then(|(header, order)| header.check_file_bytes(all.len() as u64).map(|()| (header, order)))
            .map_err(|source| Error::Npy { path: path.clone(), source })?;
        Ok(Self { path, header, order, bytes })
    }

    /// Where the array is stored.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of each dimension.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// Bytes of heap that the array takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        match &self.bytes {
            Bytes::Mapped(_) => 0,
            Bytes::Owned(bytes) => bytes.len() as u64,
        }
    }

    /// How the values lie.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// The type of the elements.
    pub(crate) fn dtype(&self) -> DType {
        self.header.dtype
    }

    /// Number of elements.
    pub(crate) fn n_values(&self) -> usize {
        self.header.n_values()
    }

    /// The bytes of the elements.
    pub(crate) fn value_bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapping) => &mapping.bytes()[self.header.data_offset..],
            Bytes::Owned(bytes) => &bytes[self.header.data_offset..],
        }
    }

    /// The elements, of type `T` or of one that has the same bits, like signed and unsigned integers.
    pub(crate) fn elements<T: bytemuck::Pod>(&self) -> Result<Buf<T>> {
        assert_eq!(size_of::<T>(), self.dtype().bytes(), "elements of {} read as others", self.dtype());
        let start = self.header.data_offset;
        match &self.bytes {
            // Files of other writers may not be aligned; then they are copied.
            Bytes::Mapped(mapping) if start.is_multiple_of(align_of::<T>()) => {
                Ok(mapping.slice(start..mapping.bytes().len())?)
            }
            _ => {
                let mut elements = self.room::<T>()?;
                elements.extend(
                    self.value_bytes().chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>),
                );
                Ok(elements.into())
            }
        }
    }

    /// Room for as many values as there are. A file that was never filled may state any number of them.
    pub(crate) fn room<T>(&self) -> Result<Vec<T>> {
        let (mut values, n_values) = (Vec::new(), self.n_values());
        values.try_reserve_exact(n_values).map_err(|_| Error::OutOfMemory {
            what: format!("the {n_values} values of {}", self.path.display()),
        })?;
        Ok(values)
    }

    /// An error for an array of a type that cannot be used.
    pub(crate) fn wrong_type(&self, expected: &str) -> Error {
        let (expected, got) = (expected.to_owned(), self.dtype().descr().to_owned());
        Error::Npy { path: self.path.clone(), source: npy::Error::WrongType { expected, got } }
    }

    /// An error for a value that cannot be used.
    pub(crate) fn bad_value(
        &self,
        what: &'static str,
        position: usize,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Error {
        Error::BadValue {
            path: self.path.clone(),
            what,
            position: position as u64,
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    /// Checks that the array has one dimension; `[n, 1]` is taken for one.
    pub(crate) fn check_vector(&self) -> Result<()> {
        match self.shape() {
            [_] | [_, 1] => Ok(()),
            shape => Err(self.bad_value("the shape, of dimension", 0, "(n,)", format!("{shape:?}"))),
        }
    }

    /// Checks that the array has one dimension and just this element type.
    pub(crate) fn check_vector_of(&self, dtype: DType) -> Result<()> {
        self.check_vector()?;
        if self.dtype() == dtype { Ok(()) } else { Err(self.wrong_type(dtype.descr())) }
    }

    /// Every element of an integer array, as they lie. Nothing is copied.
    pub(crate) fn for_each_integer(&self, mut visit: impl FnMut(usize, i128) -> Result<()>) -> Result<()> {
        macro_rules! visit_all {
            ($ty:ty) => {{
                let elements = self.value_bytes().chunks_exact(size_of::<$ty>());
                for (position, bytes) in elements.enumerate() {
                    visit(position, i128::from(bytemuck::pod_read_unaligned::<$ty>(bytes)))?;
                }
                Ok(())
            }};
        }
        match self.dtype() {
            DType::Bool | DType::U8 => visit_all!(u8),
            DType::I8 => visit_all!(i8),
            DType::U16 => visit_all!(u16),
            DType::I16 => visit_all!(i16),
            DType::U32 => visit_all!(u32),
            DType::I32 => visit_all!(i32),
            DType::U64 => visit_all!(u64),
            DType::I64 => visit_all!(i64),
            DType::F16 | DType::F32 | DType::F64 => Err(self.wrong_type("<i4 or <i8")),
        }
    }

    /// Offsets, as an `indptr` has them. Neither order nor range is checked: a negative one becomes a number
    /// beyond all others.
    pub(crate) fn offsets(&self, notes: &mut Vec<Note>) -> Result<Buf<u64>> {
        self.check_vector()?;
        check_node_count(self.n_values().saturating_sub(1))?;
        match self.dtype() {
            DType::I64 | DType::U64 => self.elements(),
            DType::I32 | DType::U32 => {
                let mut offsets = self.room()?;
                self.for_each_integer(|_, offset| {
                    offsets.push(offset as u64);
                    Ok(())
                })?;
                notes.push(self.converted("64-bit offsets: save them as <i8"));
                Ok(offsets.into())
            }
            _ => Err(self.wrong_type("<i8 or <u8")),
        }
    }

    /// Node ids. 32-bit ones stay as they are stored, and are checked where they are used; 64-bit ones are
    /// copied and checked to be below `n_nodes`. `what` is one of them: `edge`, `entry`.
    pub(crate) fn nodes(
        &self,
        what: &'static str,
        n_nodes: usize,
        notes: &mut Vec<Note>,
    ) -> Result<Buf<NodeId>> {
        self.check_vector()?;
        match self.dtype() {
            DType::I32 | DType::U32 => self.elements(),
            DType::I64 | DType::U64 => {
                // Read unsigned, a negative id is beyond every node. Finding a bad one first and converting
                // after lets both loops run at the speed of memory.
                let ids = self.elements::<u64>()?;
                let mut nodes = self.room()?;
                if let Some(position) = ids.iter().position(|&id| id >= n_nodes as u64) {
                    let id = match self.dtype() {
                        DType::I64 => i128::from(ids[position] as i64),
                        _ => i128::from(ids[position]),
                    };
                    return Err(self.node_error(what, position, id, n_nodes));
                }
                notes.push(self.converted("32-bit ids: save them as <u4 to have them mapped"));
                nodes.extend(ids.iter().map(|&id| NodeId(id as u32)));
                Ok(nodes.into())
            }
            _ => Err(self.wrong_type("<i4, <u4, <i8 or <u8")),
        }
    }

    /// An id as a node; an error for one that is none.
    pub(crate) fn node(
        &self,
        what: &'static str,
        position: usize,
        id: i128,
        n_nodes: usize,
    ) -> Result<NodeId> {
        match u32::try_from(id) {
            Ok(id) if (id as usize) < n_nodes => Ok(NodeId(id)),
            _ => Err(self.node_error(what, position, id, n_nodes)),
        }
    }

    /// An error for an id that is no node.
    pub(crate) fn node_error(&self, what: &'static str, position: usize, id: i128, n_nodes: usize) -> Error {
        self.bad_value(what, position, format!("a node, 0 to {n_nodes} - 1"), id)
    }

    /// Classes, one a node; negative means that there is none. 32-bit ones stay as they are stored.
    pub(crate) fn labels(&self, notes: &mut Vec<Note>) -> Result<Buf<i32>> {
        self.check_vector()?;
        match self.dtype() {
            DType::I32 => self.elements(),
            DType::I64 => {
                let labels = self.elements::<i64>()?;
                let mut classes = self.room()?;
                if let Some(position) = labels.iter().position(|&label| label > i64::from(i32::MAX)) {
                    return Err(self.label_error(position, labels[position].into()));
                }
                notes.push(self.converted("32-bit classes: save them as <i4 to have them mapped"));
                classes.extend(labels.iter().map(|&label| label.max(-1) as i32));
                Ok(classes.into())
            }
            _ => {
                let mut labels = self.room()?;
                self.for_each_integer(|position, label| {
                    labels.push(self.label(position, label)?);
                    Ok(())
                })?;
                notes.push(self.converted("32-bit classes: save them as <i4 to have them mapped"));
                Ok(labels.into())
            }
        }
    }

    /// A class as it is kept: negative ones stand for none, and become -1 where they were not 32-bit
    /// integers.
    pub(crate) fn label(&self, position: usize, label: i128) -> Result<i32> {
        let least = if self.dtype() == DType::I32 { i128::from(i32::MIN) } else { -1 };
        i32::try_from(label.max(least)).map_err(|_| self.label_error(position, label))
    }

    /// An error for a class that is too large to be one.
    fn label_error(&self, position: usize, label: i128) -> Error {
        self.bad_value("the label of node", position, "below 2^31", label)
    }

    /// Rows of features, `[n_rows, dim]` or `[n_rows]` for one column.
    pub(crate) fn rows(&self, notes: &mut Vec<Note>) -> Result<Dense> {
        let (n_rows, dim) = self.row_shape()?;
        let row_type = match self.dtype() {
            DType::F32 => RowType::F32,
            DType::F16 => RowType::F16,
            DType::F64 => return self.rows_of_f64(dim, notes),
            _ => return Err(self.wrong_type("<f4 or <f2")),
        };
        match &self.bytes {
            Bytes::Mapped(mapping) if self.header.data_offset.is_multiple_of(row_type.bytes()) => {
                let offset_bytes = self.header.data_offset as u64;
                Ok(Dense::mapped(mapping, MappedLayout { row_type, dim, n_rows, offset_bytes })?)
            }
            _ if row_type == RowType::F16 => Ok(Dense::new(Rows::F16(self.elements::<f16>()?), dim)?),
            _ => Ok(Dense::from_f32(self.elements::<f32>()?, dim)?),
        }
    }

    /// Number of rows and of columns; one dimension is one column.
    pub(crate) fn row_shape(&self) -> Result<(usize, usize)> {
        match *self.shape() {
            [_, dim] if !(1..=MAX_DIM).contains(&dim) => Err(bad_dim(&self.path, dim)),
            [n_rows, dim] => Ok((n_rows, dim)),
            [n_rows] => Ok((n_rows, 1)),
            ref shape => Err(self.bad_value("the shape, of dimension", 0, "(n, dim)", format!("{shape:?}"))),
        }
    }

    fn rows_of_f64(&self, dim: usize, notes: &mut Vec<Note>) -> Result<Dense> {
        let mut values = self.room()?;
        values.extend(self.elements::<f64>()?.iter().map(|&value| value as f32));
        self.check_converted(&values, 0, dim)?;
        notes.push(self.converted("32-bit floats: save them as <f4 to have them mapped"));
        Ok(Dense::from_f32(values, dim)?)
    }

    /// Checks features that were made of the `<f8` elements from `first` on, `dim` a node: what is too large
    /// for 32 bits became infinite.
    pub(crate) fn check_converted(&self, values: &[f32], first: usize, dim: usize) -> Result<()> {
        let Some(position) = values.iter().position(|value| !value.is_finite()) else {
            return Ok(());
        };
        let element = first + position;
        let bytes = &self.value_bytes()[8 * element..8 * (element + 1)];
        let found = format!("{:?}", bytemuck::pod_read_unaligned::<f64>(bytes));
        let expected = "finite numbers of 32 bits: replace the others before saving";
        Err(self.bad_value("a feature of node", element / dim, expected, found))
    }

    /// The values of an array of one dimension and of just this element type.
    pub(crate) fn values<T: Element>(&self) -> Result<Buf<T>> {
        self.check_vector_of(T::DTYPE)?;
        self.elements()
    }

    fn converted(&self, to: &str) -> Note {
        let from = format!("{} elements of {}", self.n_values(), self.dtype());
        Note::Converted { path: self.path.clone(), from, to: to.to_owned() }
    }
}
