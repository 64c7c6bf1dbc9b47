//! Locks of whole folders, such as that of a run: one process at a time uses the folder.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a locked folder is waited for. A list of runs holds the lock for an instant, and so does a process that the former
/// holder was starting when it released the lock.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Locks a folder until the returned file is dropped or the process ends; `None` if another process holds the lock for a second.
/// Where the file system has no locks, nothing is locked.
///
/// ```
/// use kiln_store::folder_lock::{is_locked, lock_folder};
/// let folder = tempfile::tempdir()?;
/// let lock = lock_folder(folder.path())?;
/// assert!(lock.is_some() && is_locked(folder.path()));
/// drop(lock);
/// assert!(!is_locked(folder.path()));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns the operating system's error if the folder cannot be opened.
pub fn lock_folder(folder: &Path) -> io::Result<Option<File>> {
    let file = File::open(folder)?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_WAIT => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => return Ok(None),
            // If the file system has no locks, nothing prevents two processes from using one folder.
            Err(TryLockError::Error(_)) | Ok(()) => return Ok(Some(file)),
        }
    }
}

/// Returns true if a process holds the lock of a folder.
pub fn is_locked(folder: &Path) -> bool {
    File::open(folder).is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}
