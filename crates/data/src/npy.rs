//! `.npy` arrays in memory: NumPy's format (NumPy enhancement proposal 1), little-endian, row by row.
//!
//! ```
//! use kiln_data::npy;
//! let bytes = npy::write(&[1u32, 2, 3, 4, 5, 6], &[2, 3]);
//! let array = npy::read::<u32>(&bytes)?;
//! assert_eq!((array.shape, array.values), (vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
//! # Ok::<(), npy::Error>(())
//! ```

use bytemuck::Pod;

#[cfg(target_endian = "big")]
compile_error!("kiln's files are little-endian and read as they are");

const MAGIC: &[u8] = b"\x93NUMPY";

/// Longer headers are refused, as NumPy does: they are no array's.
const MAX_HEADER: usize = 10_000;

/// Headers are padded so that the values start at a multiple of this.
const ALIGNMENT: usize = 64;

/// A type that an array may consist of.
pub trait Element: Pod {
    /// NumPy's name for it.
    const DESCR: &'static str;
}

impl Element for u8 {
    const DESCR: &'static str = "|u1";
}
impl Element for i8 {
    const DESCR: &'static str = "|i1";
}
impl Element for u16 {
    const DESCR: &'static str = "<u2";
}
impl Element for u32 {
    const DESCR: &'static str = "<u4";
}
impl Element for f32 {
    const DESCR: &'static str = "<f4";
}

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
    #[error("these are no .npy array of format 1, 2 or 3")]
    NotNpy,
    /// The header is cut off or not what NumPy writes.
    #[error("the header {header:?} has no readable {key}")]
    BadHeader {
        /// The header, as far as it goes.
        header: String,
        /// What could not be read.
        key: &'static str,
    },
    /// The elements are of another type or byte order.
    #[error("the elements are {got}, expected {expected}: save the array with that dtype")]
    WrongType {
        /// The type asked for, as NumPy names it.
        expected: &'static str,
        /// The type in the header.
        got: String,
    },
    /// The values lie column by column.
    #[error("the values lie column by column (Fortran order): save numpy.ascontiguousarray of the array")]
    FortranOrder,
    /// There are too few or too many bytes for the shape.
    #[error("{got} bytes of values for the shape {shape:?}, expected {expected}")]
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
    assert_eq!(Some(values.len()), n_values, "{} values for the shape {shape:?}", values.len());
    let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
    // A tuple of one needs its comma.
    let comma = if shape.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", lengths.join(", "));
    let mut header = format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", T::DESCR);
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    header.push('\n');
    let mut bytes = [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    bytes.extend_from_slice(bytemuck::cast_slice(values));
    bytes
}

/// The array in the bytes of a file.
///
/// # Errors
/// When the bytes are not a whole array of `T`.
pub fn read<T: Element>(bytes: &[u8]) -> Result<Array<T>, Error> {
    let (header, data) = split(bytes).ok_or(Error::NotNpy)?;
    let bad = |key| Error::BadHeader { header: header.clone(), key };
    let descr = value_of(&header, "'descr'").and_then(quoted).ok_or_else(|| bad("descr"))?;
    if descr != T::DESCR {
        return Err(Error::WrongType { expected: T::DESCR, got: descr.to_owned() });
    }
    let order = value_of(&header, "'fortran_order'").ok_or_else(|| bad("fortran_order"))?;
    let shape = value_of(&header, "'shape'").and_then(tuple).ok_or_else(|| bad("shape"))?;
    match order.split_once(',').map(|(word, _)| word.trim()) {
        // With one dimension or none the two orders are the same.
        Some("True") if shape.len() > 1 => return Err(Error::FortranOrder),
        Some("True" | "False") => {}
        _ => return Err(bad("fortran_order")),
    }
    let n_bytes = shape.iter().try_fold(size_of::<T>() as u64, |n, &length| n.checked_mul(length as u64));
    let is_empty = shape.contains(&0);
    let (expected, got) = (if is_empty { 0 } else { n_bytes.unwrap_or(u64::MAX) }, data.len() as u64);
    if expected != got {
        return Err(Error::WrongLength { shape, expected, got });
    }
    Ok(Array { shape, values: bytemuck::allocation::pod_collect_to_vec(data) })
}

/// The header and the values' bytes.
fn split(bytes: &[u8]) -> Option<(String, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (length, rest) = match *rest.first()? {
        1 => (u16::from_le_bytes(rest.get(2..4)?.try_into().ok()?) as usize, &rest[4..]),
        2 | 3 => (u32::from_le_bytes(rest.get(2..6)?.try_into().ok()?) as usize, &rest[6..]),
        _ => return None,
    };
    let (header, data) = rest.split_at_checked(length).filter(|_| length <= MAX_HEADER)?;
    Some((String::from_utf8_lossy(header).trim_end().to_owned(), data))
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
    numbers.map(|number| number.parse().ok()).collect()
}
