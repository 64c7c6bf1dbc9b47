//! `.npy` arrays: NumPy's format (NumPy enhancement proposal 1), little-endian, row by row.
//!
//! ```
//! use kiln_store::npy;
//! let bytes = npy::write(&[1u32, 2, 3, 4, 5, 6], &[2, 3]);
//! let array = npy::read::<u32>(&bytes)?;
//! assert_eq!((array.shape, array.values), (vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
//! # Ok::<(), npy::Error>(())
//! ```

use std::fmt;

use bytemuck::Pod;
use half::f16;

#[cfg(target_endian = "big")]
compile_error!("kiln's files are little-endian and read as they are");

const MAGIC: &[u8] = b"\x93NUMPY";

/// Longer headers are refused, as NumPy does: they are no array's.
const MAX_HEADER: usize = 10_000;

/// More dimensions are refused, as NumPy does.
const MAX_DIMENSIONS: usize = 64;

/// Headers are padded so that the values start at a multiple of this.
const ALIGNMENT: usize = 64;

/// The element types that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum DType {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
}

/// Each type with NumPy's name for it and its bytes.
const DTYPES: [(DType, &str, usize); 12] = [
    (DType::Bool, "|b1", 1),
    (DType::U8, "|u1", 1),
    (DType::I8, "|i1", 1),
    (DType::U16, "<u2", 2),
    (DType::I16, "<i2", 2),
    (DType::U32, "<u4", 4),
    (DType::I32, "<i4", 4),
    (DType::U64, "<u8", 8),
    (DType::I64, "<i8", 8),
    (DType::F16, "<f2", 2),
    (DType::F32, "<f4", 4),
    (DType::F64, "<f8", 8),
];

impl DType {
    /// NumPy's name: `<i8`.
    pub fn descr(self) -> &'static str {
        DTYPES[self as usize].1
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        DTYPES[self as usize].2
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.descr())
    }
}

/// A type that an array may consist of.
pub trait Element: Pod {
    /// How it is named in a file.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty: $dtype:ident),* $(,)?) => {
        $(impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

elements!(u8: U8, i8: I8, u16: U16, i16: I16, u32: U32, i32: I32, u64: U64, i64: I64, f16: F16, f32: F32, f64: F64);

/// An array with its shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<T> {
    /// Length of each dimension.
    pub shape: Vec<usize>,
    /// The values, row by row.
    pub values: Vec<T>,
}

/// Why bytes are not the array that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not start as a file of a known version does.
    #[error(
        "these are no .npy array of format 1, 2 or 3: the file is cut off or not of numpy.save, copy or save it again"
    )]
    NotNpy,
    /// The header is cut off or not what NumPy writes.
    #[error(
        "the header {header:?} has no readable {key}: save the array with numpy.save, one of plain numbers instead of a structured one"
    )]
    BadHeader {
        /// The header, as far as it goes.
        header: String,
        /// What could not be read.
        key: &'static str,
    },
    /// The elements are of a type that cannot be used there.
    #[error("the elements are {got}, expected {expected}: save the array with that dtype")]
    WrongType {
        /// The types that can be used, as NumPy names them.
        expected: String,
        /// The type in the header.
        got: String,
    },
    /// The elements have their most significant byte first.
    #[error("the elements are {got}, big-endian: save the array.astype({little:?})")]
    BigEndian {
        /// The type in the header.
        got: String,
        /// The same type in the byte order that is read.
        little: String,
    },
    /// The elements are Python objects, which only Python can read.
    #[error(
        "the elements are Python objects: save an array of numbers (array.astype(...), without allow_pickle)"
    )]
    Objects,
    /// The values lie column by column.
    #[error("the values lie column by column (Fortran order): save numpy.ascontiguousarray of the array")]
    FortranOrder,
    /// There are too few or too many bytes for the shape.
    #[error(
        "{got} bytes of values for the shape {shape:?}, expected {expected}: the file is cut off or damaged, copy or save it again"
    )]
    WrongLength {
        /// The shape in the header.
        shape: Vec<usize>,
        /// Bytes that it asks for.
        expected: u64,
        /// Bytes that there are.
        got: u64,
    },
}

/// The bytes of an array, as `numpy.save` writes them.
///
/// # Panics
/// When the shape is not that of the values.
pub fn write<T: Element>(values: &[T], shape: &[usize]) -> Vec<u8> {
    let n_values = shape.iter().try_fold(1_usize, |n, &length| n.checked_mul(length));
    let n_values = if shape.contains(&0) { Some(0) } else { n_values };
    assert_eq!(Some(values.len()), n_values, "{} values for the shape {shape:?}", values.len());
    let mut bytes = header(T::DTYPE, shape);
    bytes.extend_from_slice(bytemuck::cast_slice(values));
    bytes
}

/// What stands before the values of an array, padded so that they start at a multiple of [`ALIGNMENT`].
pub(crate) fn header(dtype: DType, shape: &[usize]) -> Vec<u8> {
    let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
    // A tuple of one needs its comma.
    let comma = if shape.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", lengths.join(", "));
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    header.push('\n');
    [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat()
}

/// How the values of an array lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Row by row (C order).
    Rows,
    /// Column by column (Fortran order): what NumPy writes for `array.T`.
    Columns,
}

/// What a file says of its array before the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The type of the elements.
    pub dtype: DType,
    /// Length of each dimension.
    pub shape: Vec<usize>,
    /// The byte of the file where the values start.
    pub data_offset: usize,
}

impl Header {
    /// The longest that a header is, with the bytes before it.
    pub const MAX_BYTES: usize = MAX_HEADER + 12;

    /// The header at the start of a file, of which `bytes` are all or the first [`Header::MAX_BYTES`].
    ///
    /// # Errors
    /// When there is none, or the array is of a form that is not read.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        match Self::read_with_order(bytes)? {
            (header, Order::Rows) => Ok(header),
            (_, Order::Columns) => Err(Error::FortranOrder),
        }
    }

    /// The same for arrays that may also lie column by column.
    ///
    /// # Errors
    /// As [`Header::read`], but for the order.
    pub fn read_with_order(bytes: &[u8]) -> Result<(Self, Order), Error> {
        let (header, data_offset) = split(bytes).ok_or(Error::NotNpy)?;
        let bad = |key| Error::BadHeader { header: header.clone(), key };
        let descr = value_of(&header, "'descr'").and_then(quoted).ok_or_else(|| bad("descr"))?;
        let dtype = dtype(descr)?;
        let order = value_of(&header, "'fortran_order'").ok_or_else(|| bad("fortran_order"))?;
        let shape = value_of(&header, "'shape'").and_then(tuple).ok_or_else(|| bad("shape"))?;
        let order = match order.split_once(',').map(|(word, _)| word.trim()) {
            // With one dimension or none the two orders are the same.
            Some("True") if shape.len() > 1 => Order::Columns,
            Some("True" | "False") => Order::Rows,
            _ => return Err(bad("fortran_order")),
        };
        Ok((Self { dtype, shape, data_offset }, order))
    }

    /// Bytes of the values; the largest number where that does not fit.
    pub fn data_bytes(&self) -> u64 {
        if self.shape.contains(&0) {
            return 0;
        }
        let lengths = self.shape.iter().map(|&length| length as u64);
        lengths.fold(self.dtype.bytes() as u64, u64::saturating_mul)
    }

    /// Number of elements, in a file whose length was checked.
    pub fn n_values(&self) -> usize {
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// `Ok` if a file of this many bytes holds the values and nothing else.
    ///
    /// # Errors
    /// [`Error::WrongLength`].
    pub fn check_file_bytes(&self, file_bytes: u64) -> Result<(), Error> {
        let (expected, got) = (self.data_bytes(), file_bytes.saturating_sub(self.data_offset as u64));
        if expected != got {
            return Err(Error::WrongLength { shape: self.shape.clone(), expected, got });
        }
        Ok(())
    }
}

/// The array in the bytes of a file.
///
/// # Errors
/// When the bytes are not a whole array of `T`.
pub fn read<T: Element>(bytes: &[u8]) -> Result<Array<T>, Error> {
    let header = Header::read(bytes)?;
    if header.dtype != T::DTYPE {
        let (expected, got) = (T::DTYPE.descr().to_owned(), header.dtype.descr().to_owned());
        return Err(Error::WrongType { expected, got });
    }
    header.check_file_bytes(bytes.len() as u64)?;
    let values = bytemuck::allocation::pod_collect_to_vec(&bytes[header.data_offset..]);
    Ok(Array { shape: header.shape, values })
}

/// The type that NumPy calls so.
fn dtype(descr: &str) -> Result<DType, Error> {
    // A single byte has no order; NumPy writes `|`, others write what they like.
    let is_it = |name: &str| name == descr || name.starts_with('|') && name[1..] == descr[1..];
    if descr.len() >= 2 && descr.is_ascii() {
        if let Some((dtype, ..)) = DTYPES.iter().find(|(_, name, _)| is_it(name)) {
            return Ok(*dtype);
        }
        let little = format!("<{}", &descr[1..]);
        if descr.starts_with('>') && DTYPES.iter().any(|(_, name, _)| *name == little) {
            return Err(Error::BigEndian { got: descr.to_owned(), little });
        }
        if &descr[1..] == "O" {
            return Err(Error::Objects);
        }
    }
    Err(Error::WrongType { expected: "a type of numbers".into(), got: descr.to_owned() })
}

/// The header and where the values start.
fn split(bytes: &[u8]) -> Option<(String, usize)> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (length, rest) = match *rest.first()? {
        1 => (u16::from_le_bytes(rest.get(2..4)?.try_into().ok()?) as usize, &rest[4..]),
        2 | 3 => (u32::from_le_bytes(rest.get(2..6)?.try_into().ok()?) as usize, &rest[6..]),
        _ => return None,
    };
    let header = rest.get(..length).filter(|_| length <= MAX_HEADER)?;
    Some((String::from_utf8_lossy(header).trim_end().to_owned(), bytes.len() - rest.len() + length))
}

/// What stands behind a key of the header's dictionary.
fn value_of<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = header.split_once(key)?;
    Some(after.trim_start().strip_prefix(':')?.trim_start())
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.split_once('\'').map(|(inside, _)| inside)
}

/// The numbers of a tuple.
fn tuple(text: &str) -> Option<Vec<usize>> {
    let (inside, _) = text.strip_prefix('(')?.split_once(')')?;
    let numbers = inside.split(',').map(str::trim).filter(|number| !number.is_empty());
    let shape: Option<Vec<usize>> = numbers.map(|number| number.parse().ok()).collect();
    shape.filter(|shape| shape.len() <= MAX_DIMENSIONS)
}
