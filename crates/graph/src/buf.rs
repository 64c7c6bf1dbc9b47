use std::fs::{self, File};
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;
use rayon::prelude::*;

use crate::{Error, Result};

/// A read-only array that is either owned or a range of a memory-mapped file; cloning shares it.
///
/// Mapped elements are read as the machine's own byte order, which is little-endian on every platform
/// that kiln's files are made for.
#[derive(Debug, Clone)]
pub struct Buf<T>(Storage<T>);

#[derive(Debug, Clone)]
enum Storage<T> {
    Owned(Arc<Vec<T>>),
    /// The range was checked for bounds, size and alignment when the variant was made.
    Mapped {
        mapping: Mapping,
        bytes: Range<usize>,
    },
}

/// A whole file, mapped read-only; cloning shares the mapping.
#[derive(Debug, Clone)]
pub struct Mapping {
    map: Arc<Mmap>,
    path: Arc<PathBuf>,
}

/// Opens a file for reading, as [`Mapping::open`] does. What is no regular file is refused before it is opened:
/// opening a pipe would wait for somebody to write to it.
///
/// # Errors
/// That of the system, or one of the kind [`io::ErrorKind::InvalidInput`] that says that it is no regular file.
pub fn open_file(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    if !fs::metadata(path)?.is_file() {
        let said = "is no regular file, which is the only kind that is read";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    File::open(path)
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

impl Mapping {
    /// Maps a file. The file must not be changed or truncated while the mapping lives: that is outside
    /// what kiln promises, as it is for every user of memory-mapped files.
    ///
    /// # Errors
    /// [`Error::Io`] when the file is no regular file, or cannot be opened or mapped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.to_owned(), source };
        Self::of_file(&open_file(path).map_err(io)?, path)
    }

    /// Maps a file that is open for reading. `path` is what messages call it; the file need not have that
    /// name any more.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be mapped.
    pub fn of_file(file: &File, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.to_owned(), source };
        // SAFETY: the mapping is read-only and private to this process's address space; that nobody
        // changes the file underneath it is the documented condition of `open`.
        let map = unsafe { Mmap::map(file) }.map_err(io)?;
        Ok(Self { map: Arc::new(map), path: Arc::new(path.to_owned()) })
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The file that is mapped.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The elements in `bytes` of the file, without a copy.
    ///
    /// # Errors
    /// [`Error::BadRange`] when the range leaves the file, is not a whole number of elements, or is not
    /// aligned for `T`.
    pub fn slice<T: Pod>(&self, bytes: Range<usize>) -> Result<Buf<T>> {
        let bad = |reason| Error::BadRange {
            path: self.path.to_path_buf(),
            start: bytes.start as u64,
            end: bytes.end as u64,
            file_bytes: self.map.len() as u64,
            ty: std::any::type_name::<T>(),
            reason,
        };
        let raw = self.map.get(bytes.clone()).ok_or_else(|| bad("the range leaves the file"))?;
        if !raw.len().is_multiple_of(size_of::<T>()) {
            return Err(bad("the range is not a whole number of elements"));
        }
        bytemuck::try_cast_slice::<u8, T>(raw).map_err(|_| bad("the range is not aligned"))?;
        Ok(Buf(Storage::Mapped { mapping: self.clone(), bytes }))
    }
}

impl<T> From<Vec<T>> for Buf<T> {
    fn from(owned: Vec<T>) -> Self {
        Self(Storage::Owned(Arc::new(owned)))
    }
}

impl<T: Pod> Buf<T> {
    /// Bytes that this array holds in this process's own memory: zero when it is mapped.
    pub fn owned_bytes(&self) -> usize {
        match &self.0 {
            Storage::Owned(vec) => vec.capacity() * size_of::<T>(),
            Storage::Mapped { .. } => 0,
        }
    }
}

impl<T: Pod + Send + Sync> Buf<T> {
    /// The same array in this process's own memory: a mapped one is read once and copied, an owned one is
    /// shared. It costs the array's bytes, and no file is reached any more: [`Buf::path`] is `None`.
    ///
    /// Mapped files lie in pages of 4 KiB. A program whose allocator gives large buffers in huge pages
    /// (`kiln_mem::LargeBuffers`) reads a copy at random places with fewer address translations.
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

impl<T> Default for Buf<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T: Pod> FromIterator<T> for Buf<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        values.into_iter().collect::<Vec<T>>().into()
    }
}

impl<'a, T: Pod> IntoIterator for &'a Buf<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Pod + PartialEq> PartialEq for Buf<T> {
    /// Whether the elements are equal, wherever they are kept.
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Pod + Eq> Eq for Buf<T> {}

impl<T> Buf<T> {
    /// The file that this array is a range of; `None` when it is owned.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Storage::Owned(_) => None,
            Storage::Mapped { mapping, .. } => Some(mapping.path()),
        }
    }
}

impl<T: Pod> Deref for Buf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Storage::Owned(vec) => vec,
            Storage::Mapped { mapping, bytes } => bytemuck::cast_slice(&mapping.map[bytes.clone()]),
        }
    }
}
