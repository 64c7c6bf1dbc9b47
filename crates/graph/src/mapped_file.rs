//! Mapped files: what they were when they were mapped, and which of them has an address.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use bytemuck::Pod;
use memmap2::Mmap;

use crate::{Error, Result, SharedArray};

/// A whole file, mapped read-only; cloning shares the mapping.
///
/// The mapping has the pages of the file, not a copy of them. A file that is replaced by another one of its name
/// (`rename`) stays as it was for the mapping. One that is changed in place changes under its reader: never do that to a
/// file that is in use; [`check_mapped_files`] notices it. To read a part that was cut off is a `SIGBUS`:
/// [`handle_bus_errors`](crate::handle_bus_errors).
#[derive(Debug, Clone)]
pub struct MappedFile(Arc<MappedRegion>);

/// A mapping with the state of its file when it was mapped. It is in [`MAPPED`] for as long as it lives.
#[derive(Debug)]
pub(crate) struct MappedRegion {
    map: Mmap,
    path: PathBuf,
    inode: [u64; 2],
    version: FileVersion,
    /// Whether the path named the file when it was mapped. Nobody else reaches a file without a name.
    is_named: bool,
    /// The line that the handler of `SIGBUS` prints, which cannot put one together.
    bus_error: String,
}

/// The length of a file and the time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// The length in bytes.
    pub n_bytes: u64,
    /// The time of the last change; `None` where the file system keeps none.
    pub modified: Option<SystemTime>,
}

/// The files that are mapped now, by the address of the first byte.
///
/// This is the one global of the crate: a signal handler is given an address and nothing else, and a file is changed by
/// other processes, whoever in this one has mapped it. The lock is held to add, to remove and to look up an entry,
/// and never while a mapped byte is read. So the thread that a fault interrupts does not hold it, and the handler,
/// which tries for it without blocking, gets it as soon as another thread has done its look-up.
static MAPPED: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Entry {
    n_bytes: usize,
    file: Weak<MappedRegion>,
}

/// Opens a file for reading, as [`MappedFile::open`] does. What is no regular file is refused before it is opened:
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

/// Compares every file that this process has mapped with what it was then, by inode, length and time of the last
/// change: one `stat` a file, nothing is read. Returns the paths, in order, that name another file by now, or none: the
/// mappings of these still have the bytes of the old file.
///
/// A file that was moved away and changed in place under its new name is not noticed.
///
/// # Errors
/// [`Error::FileChanged`] for a file that is still the same one with another length or time, and [`Error::Io`] for one
/// whose path cannot be looked up.
pub fn check_mapped_files() -> Result<Vec<PathBuf>> {
    // No file is dropped under the lock, which the drop takes, too.
    let mut files: Vec<Arc<MappedRegion>> =
        lock().values().filter_map(|entry| entry.file.upgrade()).collect();
    files.retain(|file| file.is_named);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut replaced = Vec::new();
    for file in files {
        if !file.is_unchanged()? {
            replaced.push(file.path.clone());
        }
    }
    replaced.dedup();
    Ok(replaced)
}

impl MappedFile {
    /// Maps a file, in constant time.
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
        let metadata = file.metadata().map_err(io)?;
        // SAFETY: the mapping is read-only and private to this process's address space; that nobody
        // changes the file underneath it is the documented condition of `MappedFile`.
        let map = unsafe { Mmap::map(file) }.map_err(io)?;
        let inode = inode(&metadata);
        let is_named = fs::metadata(path).is_ok_and(|found| self::inode(&found) == inode);
        let version = FileVersion::of(&metadata);
        let bus_error = format!(
            "kiln: {}: the file was truncated while it was mapped, or its disk or network failed: restore it, never change \
             a file that is in use, and start again (from the last checkpoint)\n",
            path.display()
        );
        let file = Arc::new(MappedRegion { map, path: path.to_owned(), inode, version, is_named, bus_error });
        let entry = Entry { n_bytes: file.map.len(), file: Arc::downgrade(&file) };
        lock().insert(file.address(), entry);
        Ok(Self(file))
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.map
    }

    /// The file that is mapped.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The elements in `bytes` of the file, without a copy.
    ///
    /// # Errors
    /// [`Error::BadRange`] when the range leaves the file, is not a whole number of elements, or is not
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
        let raw = self.bytes().get(bytes.clone()).ok_or_else(|| bad("the range leaves the file"))?;
        if !raw.len().is_multiple_of(size_of::<T>()) {
            return Err(bad("the range is not a whole number of elements"));
        }
        bytemuck::try_cast_slice::<u8, T>(raw).map_err(|_| bad("the range is not aligned"))?;
        Ok(SharedArray::of_mapping(self.clone(), bytes))
    }
}

impl MappedRegion {
    fn address(&self) -> usize {
        self.map.as_ptr() as usize
    }

    /// The line that says that the file cannot be read any more.
    #[cfg(unix)]
    pub(crate) fn bus_error(&self) -> &str {
        &self.bus_error
    }

    /// Whether the path still names the file; an error where it does and the file was changed.
    fn is_unchanged(&self) -> Result<bool> {
        let path = || self.path.clone();
        let found = match fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            Err(source) => return Err(Error::Io { path: path(), source }),
        };
        // As long as the file is mapped, no other file gets its inode.
        if inode(&found) != self.inode {
            return Ok(false);
        }
        let (expected, found) = (self.version, FileVersion::of(&found));
        if expected == found { Ok(true) } else { Err(Error::FileChanged { path: path(), expected, found }) }
    }
}

impl Drop for MappedRegion {
    /// The entry goes before the mapping does, so that no other mapping has the address by then.
    fn drop(&mut self) {
        lock().remove(&self.address());
    }
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self { n_bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl std::fmt::Display for FileVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.n_bytes)?;
        match self.modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok()) {
            Some(since) => {
                write!(f, ", modified {}.{:09} s after 1970", since.as_secs(), since.subsec_nanos())
            }
            None => Ok(()),
        }
    }
}

/// The mapped file that has this address. It neither blocks nor takes memory, so that a signal handler may call it.
#[cfg_attr(not(unix), expect(dead_code, reason = "only unix has the signal"))]
pub(crate) fn file_at(address: usize) -> Option<Arc<MappedRegion>> {
    /// Far more often than a look-up or a change of the map takes; then the file is not known.
    const TRIES: usize = 100_000;
    for _ in 0..TRIES {
        let files = match MAPPED.try_lock() {
            Ok(files) => files,
            Err(TryLockError::Poisoned(files)) => files.into_inner(),
            Err(TryLockError::WouldBlock) => {
                thread::yield_now();
                continue;
            }
        };
        let (start, entry) = files.range(..=address).next_back()?;
        // Only the one that is read is upgraded: its reader holds it, so that it is not dropped here.
        return if address - start < entry.n_bytes { entry.file.upgrade() } else { None };
    }
    None
}

/// The map is whole at every moment: a panic beside it does not harm it.
fn lock() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What tells a file from all others: its device and its number there.
#[cfg(unix)]
fn inode(metadata: &Metadata) -> [u64; 2] {
    use std::os::unix::fs::MetadataExt;
    [metadata.dev(), metadata.ino()]
}

/// Elsewhere the path stands for the file.
#[cfg(not(unix))]
fn inode(_: &Metadata) -> [u64; 2] {
    [0; 2]
}
