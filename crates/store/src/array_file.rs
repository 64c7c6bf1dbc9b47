use std::path::{Path, PathBuf};

use kiln_graph::{MappedFile, SharedArray};

use crate::npy::{self, DType, Element, Header, Order};
use crate::progress::{Progress, ProgressUnit};
use crate::{Error, Result};

/// The number of values that are visited between two reports of progress.
const VALUES_AT_ONCE: usize = 1 << 16;

/// An `.npy` array, memory-mapped or in memory. Its header is parsed and matches the file's length; its values are not
/// validated.
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
    /// The bytes of the whole file, including its header.
    Owned(Vec<u8>),
}

impl ArrayFile {
    /// Maps an `.npy` file and reads only its header.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be opened, and [`Error::Npy`] if it is not an `.npy` array of a
    /// supported element type, is truncated or is in Fortran order.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::open_in_any_order(path)?.in_rows()
    }

    /// Same as [`ArrayFile::open`], but also accepts Fortran order; see [`ArrayFile::order`].
    ///
    /// # Errors
    /// Returns the same errors as [`ArrayFile::open`], except for the order.
    pub fn open_in_any_order(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let mapping = MappedFile::open(&path).map_err(|error| match error {
            kiln_graph::Error::Io { path, source } => Error::Io { path, source },
            other => other.into(),
        })?;
        Self::new(path, Bytes::Mapped(mapping))
    }

    /// Creates an array from the bytes of an `.npy` file. `path` is used in error messages.
    ///
    /// # Errors
    /// Returns [`Error::Npy`] as [`ArrayFile::open`] does.
    pub fn from_bytes(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self> {
        Self::from_bytes_in_any_order(path, bytes)?.in_rows()
    }

    /// Same as [`ArrayFile::from_bytes`], but also accepts Fortran order.
    ///
    /// # Errors
    /// Returns [`Error::Npy`] as [`ArrayFile::open`] does, except for the order.
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

    /// Returns the path of the file, which error messages contain.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that a mapped file was not written in place since it was opened: after its values were copied, which would otherwise be
    /// of two times.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("primes.npy");
    /// std::fs::write(&path, kiln_store::npy::write(&[2_u32, 3], &[2]))?;
    /// let primes = kiln_store::ArrayFile::open(&path)?;
    /// let copy = primes.values::<u32>()?.to_vec();
    /// primes.check_unchanged()?;
    /// assert_eq!(copy, [2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Mapping`] if it was.
    pub fn check_unchanged(&self) -> Result<()> {
        match &self.bytes {
            Bytes::Mapped(mapping) => Ok(mapping.check_unchanged()?),
            Bytes::Owned(_) => Ok(()),
        }
    }

    /// Returns the length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// Returns the number of bytes that the array takes on the heap; 0 if the array is mapped.
    pub fn heap_bytes(&self) -> u64 {
        match &self.bytes {
            Bytes::Mapped(_) => 0,
            Bytes::Owned(bytes) => bytes.len() as u64,
        }
    }

    /// Returns the number of bytes of the file, with the header.
    pub fn n_bytes(&self) -> u64 {
        (self.header.data_offset + self.value_bytes().len()) as u64
    }

    /// Returns the memory order of the values.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.header.dtype
    }

    /// Returns the number of elements.
    pub fn n_values(&self) -> usize {
        self.header.n_values()
    }

    /// Returns the bytes of the elements.
    pub fn value_bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapping) => &mapping.bytes()[self.header.data_offset..],
            Bytes::Owned(bytes) => &bytes[self.header.data_offset..],
        }
    }

    /// Returns the elements as `T`, which may be any type with the size of an element: `i64` elements can be returned
    /// as `u64`, for example. Mapped elements are not copied if they are aligned.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if the array must be copied because it is not mapped or not aligned, and the copy
    /// does not fit in memory.
    ///
    /// # Panics
    /// Panics if the size of an element is not that of `T`.
    pub fn elements<T: bytemuck::Pod>(&self) -> Result<SharedArray<T>> {
        assert_eq!(
            size_of::<T>(),
            self.dtype().bytes(),
            "the size of T should be that of {} elements",
            self.dtype()
        );
        let start = self.header.data_offset;
        match &self.bytes {
            // Arrays that kiln did not write may be unaligned. They are copied below.
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

    /// Allocates an empty vector with capacity for all values of the array. The allocation can fail, because a sparse
    /// file may contain more values than fit in memory.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if the allocation fails.
    pub fn room<T>(&self) -> Result<Vec<T>> {
        let mut values = Vec::new();
        let n_values = self.n_values();
        values.try_reserve_exact(n_values).map_err(|_| Error::OutOfMemory {
            what: format!("the {n_values} values of {}", self.path.display()),
        })?;
        Ok(values)
    }

    /// Creates an error for an array with an unsupported element type. `expected` names the supported types.
    pub fn wrong_type(&self, expected: &str) -> Error {
        let expected = expected.to_owned();
        let got = self.dtype().descr().to_owned();
        Error::Npy { path: self.path.clone(), source: npy::Error::WrongType { expected, got } }
    }

    /// Creates an error for an unsupported shape. `expected` describes the supported shapes.
    pub fn bad_shape(&self, expected: &'static str) -> Error {
        Error::BadShape { path: self.path.clone(), expected, found: self.shape().to_vec() }
    }

    /// Creates an error for the invalid value `found` at `position`; see the fields of [`Error::BadValue`].
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

    /// The types of integers that errors name; those of 8 and 16 bits are read, too.
    pub const INTEGERS: &str = "<i4, <u4, <i8 or <u8";

    /// Checks that the array has one dimension. The shape `[n, 1]` is also accepted.
    ///
    /// # Errors
    /// Returns [`Error::BadShape`] for another shape.
    pub fn check_vector(&self) -> Result<()> {
        match self.shape() {
            [_] | [_, 1] => Ok(()),
            _ => Err(self.bad_shape("(n,)")),
        }
    }

    /// Checks that the array has one dimension (or the shape `[n, 1]`) and exactly this element type.
    ///
    /// # Errors
    /// Returns [`Error::BadShape`] for another shape and [`Error::Npy`] for another type.
    pub fn check_vector_of(&self, dtype: DType) -> Result<()> {
        self.check_vector()?;
        if self.dtype() == dtype { Ok(()) } else { Err(self.wrong_type(dtype.descr())) }
    }

    /// Calls `visit` with the position and value of every element of an array of integers, in memory order and without a
    /// copy of the array.
    ///
    /// # Errors
    /// Returns [`Error::Npy`] for floats and booleans, and the first error of `visit`, which stops the iteration.
    pub fn for_each_integer<E: From<Error>>(
        &self,
        visit: impl FnMut(usize, i128) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.dtype() {
            // A mask instead of ids would be read as the ids 0 and 1.
            DType::Bool => Err(self.wrong_type(Self::INTEGERS).into()),
            _ => self.for_each_integer_or_bool(visit),
        }
    }

    /// Calls `visit` like [`ArrayFile::for_each_integer`], also for an array of booleans, whose elements are 0 and 1.
    ///
    /// # Errors
    /// Returns [`Error::Npy`] for floats, and the first error of `visit`, which stops the iteration.
    pub fn for_each_integer_or_bool<E: From<Error>>(
        &self,
        mut visit: impl FnMut(usize, i128) -> Result<(), E>,
    ) -> Result<(), E> {
        let name = self.path.file_name().unwrap_or_default().display();
        let n_values = self.n_values() as u64;
        let progress = Progress::start(format_args!("reading {name}"), ProgressUnit::Values, n_values);
        macro_rules! visit_all {
            ($ty:ty) => {{
                let mut position = 0;
                for part in self.value_bytes().chunks(VALUES_AT_ONCE * size_of::<$ty>()) {
                    for bytes in part.chunks_exact(size_of::<$ty>()) {
                        visit(position, i128::from(bytemuck::pod_read_unaligned::<$ty>(bytes)))?;
                        position += 1;
                    }
                    progress.set_done(position as u64);
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
            DType::F16 | DType::F32 | DType::F64 => Err(self.wrong_type(Self::INTEGERS).into()),
        }
    }

    /// Returns the values of an array with one dimension and exactly this element type.
    ///
    /// # Errors
    /// Returns the errors of [`ArrayFile::check_vector_of`] and [`ArrayFile::elements`].
    pub fn values<T: Element>(&self) -> Result<SharedArray<T>> {
        self.check_vector_of(T::DTYPE)?;
        self.elements()
    }
}
