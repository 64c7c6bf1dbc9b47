use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use bytemuck::Pod;
use rayon::prelude::*;

use crate::{Error, MappedFile, NodeId, Result};

/// A read-only array that is either owned or a range of a memory-mapped file. Cloning shares the memory.
///
/// Mapped elements are read in native byte order. The kiln format is little-endian.
#[derive(Debug, Clone)]
pub struct SharedArray<T>(Storage<T>);

#[derive(Debug, Clone)]
enum Storage<T> {
    Owned(Arc<Vec<T>>),
    /// A range of a mapped file, checked for bounds, size and alignment.
    Mapped {
        mapping: MappedFile,
        bytes: Range<usize>,
    },
}

/// Formats the prefix of an error message about an array: the path of the file from which it is mapped, or an empty
/// prefix if it is in memory.
///
/// ```
/// use std::path::Path;
/// assert_eq!(kiln_graph::file_prefix(Some(Path::new("a/indptr"))), "a/indptr: ");
/// assert_eq!(kiln_graph::file_prefix(None), "");
/// ```
pub fn file_prefix(file: Option<&Path>) -> String {
    file.map_or(String::new(), |file| format!("{}: ", file.display()))
}

impl<T> From<Vec<T>> for SharedArray<T> {
    fn from(owned: Vec<T>) -> Self {
        Self(Storage::Owned(Arc::new(owned)))
    }
}

/// Converts integers to node ids without a copy.
impl From<Vec<u32>> for SharedArray<NodeId> {
    fn from(ids: Vec<u32>) -> Self {
        bytemuck::cast_vec::<u32, NodeId>(ids).into()
    }
}

impl MappedFile {
    /// Returns a byte range of the file as an array of `T`, without a copy.
    ///
    /// # Errors
    /// Returns [`Error::BadRange`] if the range exceeds the file, is not a whole number of elements, or is not
    /// aligned for `T`.
    pub fn slice<T: Pod>(&self, bytes: Range<usize>) -> Result<SharedArray<T>> {
        let bad = |reason| Error::BadRange {
            path: self.path().to_owned(),
            start: bytes.start as u64,
            end: bytes.end as u64,
            file_bytes: self.bytes().len() as u64,
            ty: std::any::type_name::<T>(),
            reason,
        };
        let raw = self.bytes().get(bytes.clone()).ok_or_else(|| bad("the range exceeds the file"))?;
        if !raw.len().is_multiple_of(size_of::<T>()) {
            return Err(bad("the range is not a whole number of elements"));
        }
        bytemuck::try_cast_slice::<u8, T>(raw).map_err(|_| bad("the range is not aligned"))?;
        Ok(SharedArray(Storage::Mapped { mapping: self.clone(), bytes }))
    }
}

impl<T: Pod> SharedArray<T> {
    /// Returns the memory in bytes that this array owns; zero if it is mapped.
    pub fn owned_bytes(&self) -> usize {
        match &self.0 {
            Storage::Owned(vec) => vec.capacity() * size_of::<T>(),
            Storage::Mapped { .. } => 0,
        }
    }
}

impl<T: Pod + Send + Sync> SharedArray<T> {
    /// Copies a mapped array into the process's memory; an owned array is shared. [`SharedArray::path`] of the result
    /// is `None`.
    ///
    /// Mapped files use pages of 4 KiB. If the program's allocator backs large buffers with huge pages
    /// (`kiln_mem::HugePageAllocator`), random access to a copy causes fewer TLB misses.
    pub fn in_memory(&self) -> Self {
        match &self.0 {
            Storage::Owned(_) => self.clone(),
            Storage::Mapped { .. } => copied(self).into(),
        }
    }
}

/// The number of elements per parallel task of a copy, enough to amortise the cost of scheduling the task.
const COPIED_AT_ONCE: usize = 1 << 18;

/// Copies values on all threads of the pool, into memory that is not zeroed first.
fn copied<T: Pod + Send + Sync>(values: &[T]) -> Vec<T> {
    let mut copy = Vec::with_capacity(values.len());
    let places = copy.spare_capacity_mut()[..values.len()].par_chunks_mut(COPIED_AT_ONCE);
    places.zip(values.par_chunks(COPIED_AT_ONCE)).for_each(|(places, values)| {
        places.write_copy_of_slice(values);
    });
    // SAFETY: both slices have `values.len()` elements and are split into chunks of the same size, so each of the
    // first `values.len()` places has been written.
    unsafe { copy.set_len(values.len()) };
    copy
}

impl<T> Default for SharedArray<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T: Pod> FromIterator<T> for SharedArray<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        values.into_iter().collect::<Vec<T>>().into()
    }
}

impl<'a, T: Pod> IntoIterator for &'a SharedArray<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Pod + PartialEq> PartialEq for SharedArray<T> {
    /// Compares the elements; owned and mapped arrays can be equal.
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Pod + Eq> Eq for SharedArray<T> {}

impl<T> SharedArray<T> {
    /// Returns the file from which this array is mapped; `None` if it is owned.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Storage::Owned(_) => None,
            Storage::Mapped { mapping, .. } => Some(mapping.path()),
        }
    }
}

impl<T: Pod> Deref for SharedArray<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Storage::Owned(vec) => vec,
            Storage::Mapped { mapping, bytes } => bytemuck::cast_slice(&mapping.bytes()[bytes.clone()]),
        }
    }
}
