//! Memory-mapped files, and the registry that finds a file by address and detects changed files.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;

use memmap2::Mmap;

use crate::{Error, FileVersion, Result};

/// A whole file, mapped read-only. Cloning shares the mapping.
///
/// The mapping refers to the pages of the file and is not a copy. If a new file is renamed over the path, the mapping
/// keeps the old file. If the file is modified in place, readers of the mapping see the modified bytes: never modify a
/// file that is in use. [`check_mapped_files`] detects such changes. Reading beyond the end of a truncated file raises
/// `SIGBUS`; see [`handle_bus_errors`](crate::handle_bus_errors).
#[derive(Debug, Clone)]
pub struct MappedFile(Arc<MappedRegion>);

/// A mapping with the state of its file when it was mapped. It is registered in [`MAPPED`] until it is dropped.
#[derive(Debug)]
pub(crate) struct MappedRegion {
    map: Mmap,
    path: PathBuf,
    inode: [u64; 2],
    version: FileVersion,
    /// True if the path referred to the file when it was mapped. An unlinked file is not checked for changes, because
    /// no other process can open it.
    is_named: bool,
    /// The line that the `SIGBUS` handler prints, formatted in advance because the handler must not allocate.
    bus_error: String,
}

/// The registry of mapped files, by the address of the first byte.
///
/// It is global because a signal handler receives only an address, and because files are changed by other processes,
/// independently of which code has mapped them. The lock is held to insert, remove and look up entries, and never while
/// mapped bytes are read. The thread that a fault interrupts therefore does not hold it, and the handler, which spins
/// on `try_lock`, gets it as soon as another thread has finished its look-up.
static MAPPED: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Entry {
    n_bytes: usize,
    file: Weak<MappedRegion>,
}

/// Opens a regular file for reading, as [`MappedFile::open`] does. Other kinds of files are rejected before they are
/// opened, because opening a named pipe would block until a writer opens it.
///
/// # Errors
/// Returns the operating system's error if the file cannot be opened, and an error of the kind
/// [`io::ErrorKind::InvalidInput`] if the path is not a regular file.
pub fn open_file(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    if !fs::metadata(path)?.is_file() {
        let said = "not a regular file: pipes, devices and folders cannot be read as data";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    File::open(path)
}

/// Checks every mapped file of this process for changes since it was mapped, by inode, length and modification time. It
/// costs one `stat` per file and reads no data. Returns the sorted paths of files that were replaced or removed; their
/// mappings still contain the old bytes.
///
/// A file that was renamed and then modified in place under its new name is not detected.
///
/// # Errors
/// Returns [`Error::FileChanged`] for a file with the same inode but another length or modification time, and
/// [`Error::Io`] if a path cannot be looked up.
pub fn check_mapped_files() -> Result<Vec<PathBuf>> {
    // The files are collected before they are checked: dropping a file takes the lock, so no file may be dropped while
    // the lock is held.
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
    /// Returns [`Error::Io`] if the path is not a regular file, or if it cannot be opened or mapped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::of_file(&open_file(path).map_err(|source| Error::Io { path: path.to_owned(), source })?, path)
    }

    /// Maps a file that is open for reading. `path` is used in messages and to detect changes; the file may have been
    /// renamed or removed since it was opened.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be mapped.
    pub fn of_file(file: &File, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.to_owned(), source };
        let metadata = file.metadata().map_err(io)?;
        // SAFETY: the mapping is read-only and private to this process's address space. The docs of `MappedFile`
        // require that the file is not modified in place.
        let map = unsafe { Mmap::map(file) }.map_err(io)?;
        let inode = inode(&metadata);
        let is_named = fs::metadata(path).is_ok_and(|found| self::inode(&found) == inode);
        let version = FileVersion::of(&metadata);
        let bus_error = format!(
            "kiln: {}: the file was truncated while it was mapped, or its disk or network failed: restore it and \
             restart from the last checkpoint; never modify a file in use\n",
            path.display()
        );
        let file = Arc::new(MappedRegion { map, path: path.to_owned(), inode, version, is_named, bus_error });
        let entry = Entry { n_bytes: file.map.len(), file: Arc::downgrade(&file) };
        lock().insert(file.address(), entry);
        Ok(Self(file))
    }

    /// Returns the contents of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.0.map
    }

    /// Returns the path with which the file was mapped.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Checks that the file was not written in place since it was mapped, as [`check_mapped_files`] does for all: after a copy, whose
    /// values would be of two times. A file that was replaced still has its contents.
    ///
    /// # Errors
    /// Returns [`Error::FileChanged`] if it was, and [`Error::Io`] if its path cannot be looked up.
    pub fn check_unchanged(&self) -> Result<()> {
        self.0.is_unchanged().map(drop)
    }
}

impl MappedRegion {
    fn address(&self) -> usize {
        self.map.as_ptr() as usize
    }

    /// Returns the error message that the `SIGBUS` handler prints for this file.
    #[cfg(unix)]
    pub(crate) fn bus_error(&self) -> &str {
        &self.bus_error
    }

    /// Returns true if the path still refers to the unchanged file, false if the file was replaced or removed, and an
    /// error if it was changed in place.
    fn is_unchanged(&self) -> Result<bool> {
        let path = || self.path.clone();
        let found = match fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            Err(source) => return Err(Error::Io { path: path(), source }),
        };
        // The inode is not reused while the file is mapped, so an equal inode means the same file.
        if inode(&found) != self.inode {
            return Ok(false);
        }
        let expected = self.version;
        let found = FileVersion::of(&found);
        if expected == found { Ok(true) } else { Err(Error::FileChanged { path: path(), expected, found }) }
    }
}

impl Drop for MappedRegion {
    /// Removes the entry before the file is unmapped, because another mapping may get the address as soon as it is
    /// free.
    fn drop(&mut self) {
        lock().remove(&self.address());
    }
}

/// Finds the mapped file that contains an address. It neither blocks nor allocates, so a signal handler may call it.
#[cfg_attr(not(unix), expect(dead_code, reason = "the signal exists only on Unix"))]
pub(crate) fn file_at(address: usize) -> Option<Arc<MappedRegion>> {
    /// The maximum number of attempts to lock, far more than another thread needs to release the lock. If all fail, no
    /// file is found.
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
        // Only the file at this address is upgraded. Its reader still holds a reference, so the handler never drops the
        // last reference; that drop would lock the registry.
        return if address - start < entry.n_bytes { entry.file.upgrade() } else { None };
    }
    None
}

/// Locks the registry. A poisoned lock is accepted, because the map stays consistent if a thread panics while it holds
/// the lock.
fn lock() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the identity of a file: its device and inode number.
#[cfg(unix)]
pub fn inode(metadata: &Metadata) -> [u64; 2] {
    use std::os::unix::fs::MetadataExt;
    [metadata.dev(), metadata.ino()]
}

/// Returns the same identity for every file: on platforms other than Unix, a path is assumed to refer to the mapped
/// file.
#[cfg(not(unix))]
pub fn inode(_: &Metadata) -> [u64; 2] {
    [0; 2]
}
