use std::path::{Path, PathBuf};

use kiln_graph::{MappedFile, SharedArray};

use crate::npy::{self, DType, Element, Header, Order};
use crate::{Error, Result};

/// An array in a file, mapped or in memory. Its header was read and fits the file's length; its values were not looked
/// at.
#[derive(Debug)]
pub struct ArrayFile {
    path: PathBuf,
    header: Header,
    order: Order,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(MappedFile),
    /// The whole file, its header included.
    Owned(Vec<u8>),
}

impl ArrayFile {
    /// Maps an `.npy` file. Only its header is read.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Npy`] for what is no such array, is cut off, or lies column by column.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::open_in_any_order(path)?.in_rows()
    }

    /// The same for arrays that may also lie column by column, which [`ArrayFile::order`] tells.
    ///
    /// # Errors
    /// As [`ArrayFile::open`], but for the order.
    pub fn open_in_any_order(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let mapping = MappedFile::open(&path).map_err(|error| match error {
            kiln_graph::Error::Io { path, source } => Error::Io { path, source },
            other => other.into(),
        })?;
        Self::new(path, Bytes::Mapped(mapping))
    }

    /// The bytes of an `.npy` file that came from somewhere else: `path` is what messages call it.
    ///
    /// # Errors
    /// [`Error::Npy`] as [`ArrayFile::open`].
    pub fn from_bytes(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self> {
        Self::from_bytes_in_any_order(path, bytes)?.in_rows()
    }

    /// The same for arrays that may also lie column by column.
    ///
    /// # Errors
    /// [`Error::Npy`] as [`ArrayFile::open`], but for the order.
    pub fn from_bytes_in_any_order(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self> {
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
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// Bytes of heap that the array takes.
    pub fn heap_bytes(&self) -> u64 {
        match &self.bytes {
            Bytes::Mapped(_) => 0,
            Bytes::Owned(bytes) => bytes.len() as u64,
        }
    }

    /// How the values lie.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.header.dtype
    }

    /// Number of elements.
    pub fn n_values(&self) -> usize {
        self.header.n_values()
    }

    /// The bytes of the elements.
    pub fn value_bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapping) => &mapping.bytes()[self.header.data_offset..],
            Bytes::Owned(bytes) => &bytes[self.header.data_offset..],
        }
    }

    /// The elements, of type `T` or of one that has the same bits, like signed and unsigned integers.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] for an array that is not aligned, so that it has to be copied.
    ///
    /// # Panics
    /// When an element has not the bytes of a `T`.
    pub fn elements<T: bytemuck::Pod>(&self) -> Result<SharedArray<T>> {
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
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn room<T>(&self) -> Result<Vec<T>> {
        let (mut values, n_values) = (Vec::new(), self.n_values());
        values.try_reserve_exact(n_values).map_err(|_| Error::OutOfMemory {
            what: format!("the {n_values} values of {}", self.path.display()),
        })?;
        Ok(values)
    }

    /// An error for an array of a type that cannot be used.
    pub fn wrong_type(&self, expected: &str) -> Error {
        let (expected, got) = (expected.to_owned(), self.dtype().descr().to_owned());
        Error::Npy { path: self.path.clone(), source: npy::Error::WrongType { expected, got } }
    }

    /// An error for a value that cannot be used.
    pub fn bad_value(
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
    ///
    /// # Errors
    /// [`Error::BadValue`].
    pub fn check_vector(&self) -> Result<()> {
        match self.shape() {
            [_] | [_, 1] => Ok(()),
            shape => Err(self.bad_value("the shape, of dimension", 0, "(n,)", format!("{shape:?}"))),
        }
    }

    /// Checks that the array has one dimension and just this element type.
    ///
    /// # Errors
    /// [`Error::BadValue`] and [`Error::Npy`].
    pub fn check_vector_of(&self, dtype: DType) -> Result<()> {
        self.check_vector()?;
        if self.dtype() == dtype { Ok(()) } else { Err(self.wrong_type(dtype.descr())) }
    }

    /// Calls `visit` with the position and value of every element of an integer array, as they lie. Nothing is copied.
    ///
    /// # Errors
    /// [`Error::Npy`] for floats, and those of `visit`, the first of which ends the reading.
    pub fn for_each_integer<E: From<Error>>(
        &self,
        mut visit: impl FnMut(usize, i128) -> Result<(), E>,
    ) -> Result<(), E> {
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
            DType::F16 | DType::F32 | DType::F64 => Err(self.wrong_type("<i4 or <i8").into()),
        }
    }

    /// The values of an array of one dimension and of just this element type.
    ///
    /// # Errors
    /// As [`ArrayFile::check_vector_of`] and [`ArrayFile::elements`].
    pub fn values<T: Element>(&self) -> Result<SharedArray<T>> {
        self.check_vector_of(T::DTYPE)?;
        self.elements()
    }
}
