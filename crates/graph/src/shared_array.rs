use std::any::Any;
use std::fmt;
use std::ops::{Deref, Range};
use std::path::Path;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use bytemuck::Pod;
use rayon::prelude::*;

use crate::{Error, MappedFile, NodeId, Result};

/// A read-only array that is owned, a range of a memory-mapped file, or memory of another owner. Cloning shares the memory.
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
    Foreign(Foreign<T>),
}

/// Memory that another owner frees.
#[derive(Clone)]
struct Foreign<T> {
    values: NonNull<T>,
    n_values: usize,
    /// Keeps the memory alive.
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the values are only read, through shared references, and the owner is `Send` and `Sync`.
unsafe impl<T: Sync> Send for Foreign<T> {}

// SAFETY: as above.
unsafe impl<T: Sync> Sync for Foreign<T> {}

impl<T> fmt::Debug for Foreign<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").field("n_values", &self.n_values).finish_non_exhaustive()
    }
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
    /// Returns memory of another owner, such as an array of NumPy, as an array, without a copy. The owner is dropped with the
    /// last clone of the array, on any thread.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use kiln_graph::SharedArray;
    /// let owner = Arc::new(vec![0.5_f32, 1.5]);
    /// // SAFETY: the owner keeps its values in place, and nothing writes to them.
    /// let array = unsafe { SharedArray::foreign(owner.as_ptr(), owner.len(), owner.clone()) };
    /// assert_eq!(array[..], [0.5, 1.5]);
    /// assert_eq!(array.as_ptr(), owner.as_ptr());
    /// ```
    ///
    /// # Safety
    /// `values` must be aligned and point to `n_values` initialised values, which are readable until the owner is dropped. Nothing
    /// may write to them until then.
    pub unsafe fn foreign(values: *const T, n_values: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        match NonNull::new(values.cast_mut()) {
            Some(values) if n_values != 0 => {
                Self(Storage::Foreign(Foreign { values, n_values, _owner: owner }))
            }
            _ => Self::default(),
        }
    }

    /// Returns the memory in bytes that this array owns; zero if it is mapped, or memory of another owner.
    pub fn owned_bytes(&self) -> usize {
        match &self.0 {
            Storage::Owned(vec) => vec.capacity() * size_of::<T>(),
            Storage::Mapped { .. } | Storage::Foreign(_) => 0,
        }
    }
}

impl<T: Pod + Send + Sync> SharedArray<T> {
    /// Copies a mapped array into the process's memory; another array is shared. [`SharedArray::path`] of the result
    /// is `None`.
    ///
    /// Mapped files use pages of 4 KiB. If the program's allocator backs large buffers with huge pages
    /// (`kiln_mem::HugePageAllocator`), random access to a copy causes fewer TLB misses.
    pub fn in_memory(&self) -> Self {
        match &self.0 {
            Storage::Owned(_) | Storage::Foreign(_) => self.clone(),
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
    /// Returns the file from which this array is mapped; `None` if it is in memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Storage::Owned(_) | Storage::Foreign(_) => None,
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
            // SAFETY: the caller of `foreign` has promised that these values are readable while the owner is alive, and `self`
            // holds the owner.
            Storage::Foreign(Foreign { values, n_values, .. }) => unsafe {
                slice::from_raw_parts(values.as_ptr(), *n_values)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_memory_is_shared_and_freed_with_the_last_clone() {
        let owner = Arc::new(vec![3_u32, 1, 4]);
        let weak = Arc::downgrade(&owner);
        // SAFETY: the owner keeps its values in place, and nothing writes to them.
        let array = unsafe { SharedArray::foreign(owner.as_ptr(), owner.len(), owner.clone()) };
        let address = owner.as_ptr();
        drop(owner);
        let clone = array.clone();
        drop(array);
        assert_eq!((clone.as_ptr(), &clone[..]), (address, &[3, 1, 4][..]));
        assert_eq!((clone.owned_bytes(), clone.path()), (0, None));
        assert_eq!(clone.in_memory().as_ptr(), address);
        assert!(weak.upgrade().is_some());
        drop(clone);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn foreign_memory_without_values_is_an_empty_array() {
        let owner: Arc<Vec<u32>> = Arc::default();
        // SAFETY: no value is read.
        let array = unsafe { SharedArray::<u32>::foreign(std::ptr::null(), 0, owner) };
        assert_eq!(array[..], [0_u32; 0]);
    }
}
