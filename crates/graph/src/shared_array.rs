use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use bytemuck::Pod;
use rayon::prelude::*;

use crate::{MappedFile, NodeId};

/// A read-only array that is either owned or a range of a memory-mapped file; cloning shares it.
///
/// Mapped elements are read as the machine's own byte order, which is little-endian on every platform
/// that kiln's files are made for.
#[derive(Debug, Clone)]
pub struct SharedArray<T>(Storage<T>);

#[derive(Debug, Clone)]
enum Storage<T> {
    Owned(Arc<Vec<T>>),
    /// The range was checked for bounds, size and alignment when the variant was made.
    Mapped {
        mapping: MappedFile,
        bytes: Range<usize>,
    },
}

/// How a message about an array starts: with the file that it is mapped from, where it is.
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

/// Plain numbers as ids, without a copy.
impl From<Vec<u32>> for SharedArray<NodeId> {
    fn from(ids: Vec<u32>) -> Self {
        bytemuck::cast_vec::<u32, NodeId>(ids).into()
    }
}

impl<T: Pod> SharedArray<T> {
    /// The range of a mapped file, which was checked for bounds, size and alignment.
    pub(crate) fn of_mapping(mapping: MappedFile, bytes: Range<usize>) -> Self {
        Self(Storage::Mapped { mapping, bytes })
    }

    /// Bytes that this array holds in this process's own memory: zero when it is mapped.
    pub fn owned_bytes(&self) -> usize {
        match &self.0 {
            Storage::Owned(vec) => vec.capacity() * size_of::<T>(),
            Storage::Mapped { .. } => 0,
        }
    }
}

impl<T: Pod + Send + Sync> SharedArray<T> {
    /// The same array in this process's own memory: a mapped one is read once and copied, an owned one is
    /// shared. It costs the array's bytes, and no file is reached any more: [`SharedArray::path`] is `None`.
    ///
    /// Mapped files lie in pages of 4 KiB. A program whose allocator gives large buffers in huge pages
    /// (`kiln_mem::HugePageAllocator`) reads a copy at random places with fewer address translations.
    pub fn in_memory(&self) -> Self {
        match &self.0 {
            Storage::Owned(_) => self.clone(),
            Storage::Mapped { .. } => copied(self).into(),
        }
    }
}

/// Elements that a thread copies at a time, enough to make its work worth handing out.
const COPIED_AT_ONCE: usize = 1 << 18;

/// A copy made by all threads of the pool. The memory is not cleared first, which would be a pass of its own.
fn copied<T: Pod + Send + Sync>(values: &[T]) -> Vec<T> {
    let mut copy = Vec::with_capacity(values.len());
    let places = copy.spare_capacity_mut()[..values.len()].par_chunks_mut(COPIED_AT_ONCE);
    places.zip(values.par_chunks(COPIED_AT_ONCE)).for_each(|(places, values)| {
        places.write_copy_of_slice(values);
    });
    // SAFETY: the chunks of both slices, which are equally long, are equally long, and so each of the first
    // `values.len()` places has been written.
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
    /// Whether the elements are equal, wherever they are kept.
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Pod + Eq> Eq for SharedArray<T> {}

impl<T> SharedArray<T> {
    /// The file that this array is a range of; `None` when it is owned.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Storage::Owned(_) => None,
            Storage::Mapped { mapping, .. } => Some(mapping.path()),
        }
    }
}

impl<T: Pod> Deref for SharedArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Storage::Owned(vec) => vec,
            Storage::Mapped { mapping, bytes } => bytemuck::cast_slice(&mapping.bytes()[bytes.clone()]),
        }
    }
}
