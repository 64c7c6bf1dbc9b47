//! `.npy` arrays: NumPy's format (NumPy enhancement proposal 1), little-endian, in C order.
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
compile_error!("big-endian platforms are not supported: little-endian files are read without conversion");

const MAGIC: &[u8] = b"\x93NUMPY";

/// The maximum length of a header in bytes, the same as in NumPy.
const MAX_HEADER: usize = 10_000;

/// The maximum number of dimensions, the same as in NumPy.
const MAX_DIMENSIONS: usize = 64;

/// The alignment of the values in a file; headers are padded to a multiple of it.
const ALIGNMENT: usize = 64;

/// The supported element types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
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

/// Each element type with its NumPy name and the size of an element in bytes.
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
    /// Returns NumPy's name of the type, such as `<i8`.
    pub fn descr(self) -> &'static str {
        DTYPES[self as usize].1
    }

    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> usize {
        DTYPES[self as usize].2
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.descr())
    }
}

/// A Rust type that can be an array's element.
pub trait Element: Pod {
    /// The corresponding element type in files.
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

/// An array in memory with its shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<T> {
    /// The length of each dimension.
    pub shape: Vec<usize>,
    /// The values in C order (row-major).
    pub values: Vec<T>,
}

/// An error from parsing an `.npy` array.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not start with the magic string and a known version, or the header is truncated.
    #[error(
        "the file is not an .npy array of format 1 to 3: it is truncated or not from numpy.save: copy or save it again"
    )]
    NotNpy,
    /// The header lacks a key, or its value cannot be parsed.
    #[error(
        "the header {header:?} has no valid {key}: save an array of plain numbers (not structured) with numpy.save"
    )]
    BadHeader {
        /// The header.
        header: String,
        /// The key that is missing or invalid.
        key: &'static str,
    },
    /// The element type is not one of the types that the reader of this array supports.
    #[error("the elements are {got}, expected {expected}: save the array with that dtype")]
    WrongType {
        /// The supported types, by NumPy's names.
        expected: String,
        /// The type in the header.
        got: String,
    },
    /// The elements are big-endian.
    #[error("the elements are {got}, expected little-endian: save array.astype({little:?})")]
    BigEndian {
        /// The type in the header.
        got: String,
        /// The corresponding little-endian type.
        little: String,
    },
    /// The elements are pickled Python objects.
    #[error(
        "the elements are Python objects, expected numbers: convert with array.astype(...), save without allow_pickle"
    )]
    Objects,
    /// The array is in Fortran order, but the reader of this array supports only C order.
    #[error(
        "the array is in Fortran order (column-major), expected C order: save numpy.ascontiguousarray(array)"
    )]
    FortranOrder,
    /// The number of bytes does not match the shape.
    #[error(
        "the file has {got} bytes of values for the shape {shape:?}, expected {expected}: \
        the file is truncated or damaged: copy or save it again"
    )]
    WrongLength {
        /// The shape in the header.
        shape: Vec<usize>,
        /// The number of bytes that the shape implies.
        expected: u64,
        /// The number of bytes after the header.
        got: u64,
    },
}

/// Serialises an array to the bytes that `numpy.save` writes.
///
/// # Panics
/// Panics if the shape does not match the number of values.
pub fn write<T: Element>(values: &[T], shape: &[usize]) -> Vec<u8> {
    let n_values = shape.iter().try_fold(1_usize, |n, &length| n.checked_mul(length));
    let n_values = if shape.contains(&0) { Some(0) } else { n_values };
    assert_eq!(Some(values.len()), n_values, "the {} values should match the shape {shape:?}", values.len());
    let mut bytes = header(T::DTYPE, shape);
    bytes.extend_from_slice(bytemuck::cast_slice(values));
    bytes
}

/// Serialises a mask, an array of booleans `[n]`, to the bytes that `numpy.save` writes.
pub fn write_mask(values: &[bool]) -> Vec<u8> {
    let mut bytes = header(DType::Bool, &[values.len()]);
    bytes.extend_from_slice(bytemuck::cast_slice(values));
    bytes
}

/// Formats the magic string and header of an array, padded to a multiple of [`ALIGNMENT`].
pub(crate) fn header(dtype: DType, shape: &[usize]) -> Vec<u8> {
    let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
    // A Python tuple with one element needs a trailing comma.
    let comma = if shape.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", lengths.join(", "));
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    header.push('\n');
    [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat()
}

/// The memory order of an array's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// C order (row-major).
    Rows,
    /// Fortran order (column-major), which NumPy writes for `array.T`.
    Columns,
}

/// The parsed header of an `.npy` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The type of the elements.
    pub dtype: DType,
    /// The length of each dimension.
    pub shape: Vec<usize>,
    /// The offset of the values in the file, in bytes.
    pub data_offset: usize,
}

impl Header {
    /// The maximum length of a header in bytes, including the 12 bytes before its text, which are the magic string, the
    /// version and the length of the text.
    pub const MAX_BYTES: usize = MAX_HEADER + 12;

    /// Parses the header at the start of a file. `bytes` is the whole file, or its first [`Header::MAX_BYTES`].
    ///
    /// # Errors
    /// Returns an error if the bytes do not start with a valid header, or if the element type or the order is not
    /// supported.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        match Self::read_with_order(bytes)? {
            (header, Order::Rows) => Ok(header),
            (_, Order::Columns) => Err(Error::FortranOrder),
        }
    }

    /// Same as [`Header::read`], but also accepts Fortran order, and returns the order.
    ///
    /// # Errors
    /// Returns the same errors as [`Header::read`], except for the order.
    pub fn read_with_order(bytes: &[u8]) -> Result<(Self, Order), Error> {
        let (header, data_offset) = split(bytes).ok_or(Error::NotNpy)?;
        let bad = |key| Error::BadHeader { header: header.clone(), key };
        let descr = value_of(&header, "'descr'").and_then(quoted).ok_or_else(|| bad("descr"))?;
        let dtype = dtype(descr)?;
        let order = value_of(&header, "'fortran_order'").ok_or_else(|| bad("fortran_order"))?;
        let shape = value_of(&header, "'shape'").and_then(tuple).ok_or_else(|| bad("shape"))?;
        let order = match order.split_once(',').map(|(word, _)| word.trim()) {
            // With at most one dimension the two orders are equal.
            Some("True") if shape.len() > 1 => Order::Columns,
            Some("True" | "False") => Order::Rows,
            _ => return Err(bad("fortran_order")),
        };
        Ok((Self { dtype, shape, data_offset }, order))
    }

    /// Returns the number of bytes of the values, saturating at `u64::MAX`.
    pub fn data_bytes(&self) -> u64 {
        if self.shape.contains(&0) {
            return 0;
        }
        let lengths = self.shape.iter().map(|&length| length as u64);
        lengths.fold(self.dtype.bytes() as u64, u64::saturating_mul)
    }

    /// Returns the number of elements. Call [`Header::check_file_bytes`] first: it rejects shapes whose product
    /// overflows.
    pub fn n_values(&self) -> usize {
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Checks that a file of this many bytes contains exactly the header and the values.
    ///
    /// # Errors
    /// Returns [`Error::WrongLength`] if it does not.
    pub fn check_file_bytes(&self, file_bytes: u64) -> Result<(), Error> {
        let expected = self.data_bytes();
        let got = file_bytes.saturating_sub(self.data_offset as u64);
        if expected != got {
            return Err(Error::WrongLength { shape: self.shape.clone(), expected, got });
        }
        Ok(())
    }
}

/// Parses the array in the bytes of a file.
///
/// # Errors
/// Returns an error if the bytes are not a complete array of `T` in C order.
pub fn read<T: Element>(bytes: &[u8]) -> Result<Array<T>, Error> {
    let header = Header::read(bytes)?;
    if header.dtype != T::DTYPE {
        let expected = T::DTYPE.descr().to_owned();
        let got = header.dtype.descr().to_owned();
        return Err(Error::WrongType { expected, got });
    }
    header.check_file_bytes(bytes.len() as u64)?;
    let values = bytemuck::allocation::pod_collect_to_vec(&bytes[header.data_offset..]);
    Ok(Array { shape: header.shape, values })
}

/// Returns the type with this NumPy name.
fn dtype(descr: &str) -> Result<DType, Error> {
    // A type of one byte has no byte order: NumPy writes `|`, and other programs may write `<`, `>` or `=`.
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
    Err(Error::WrongType { expected: "a numeric type".into(), got: descr.to_owned() })
}

/// Separates the header from the values. Returns the text of the header and the offset of the values.
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

/// Returns the text after a key (and its colon) of the header's dictionary.
fn value_of<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = header.split_once(key)?;
    Some(after.trim_start().strip_prefix(':')?.trim_start())
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.split_once('\'').map(|(inside, _)| inside)
}

/// Parses a Python tuple of numbers, such as `(3, 2)`.
fn tuple(text: &str) -> Option<Vec<usize>> {
    let (inside, _) = text.strip_prefix('(')?.split_once(')')?;
    let numbers = inside.split(',').map(str::trim).filter(|number| !number.is_empty());
    let shape: Option<Vec<usize>> = numbers.map(|number| number.parse().ok()).collect();
    shape.filter(|shape| shape.len() <= MAX_DIMENSIONS)
}
