//! Atomic file writes: a file is written under a temporary name, synced to disk and renamed. Bounded reads of whole files.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use kiln_graph::open_file;

/// The suffix of a file's temporary name.
pub const UNFINISHED: &str = ".unfinished";

/// Writes a file atomically, replacing an existing one.
///
/// # Errors
/// Returns the operating system's error.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = write_unfinished(path, bytes)?;
    fs::rename(&unfinished, path).inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Writes a file under its temporary name, syncs it and returns the temporary path. If the write fails, the temporary
/// file is removed, because on a full disk a partial file would take the space that the next attempt needs.
///
/// # Errors
/// Returns the operating system's error.
pub fn write_unfinished(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    let name = PathBuf::from(name);
    let write = || {
        let mut file = File::create(&name)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    match write() {
        Ok(()) => Ok(name),
        Err(error) => {
            let _ = fs::remove_file(&name);
            Err(error)
        }
    }
}

/// Creates the folder `path` and syncs its parent folder, which is `parent`. Does nothing if the folder exists.
///
/// # Errors
/// Returns the operating system's error.
pub fn create_folder(path: &Path, parent: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir(path)?;
    // If the sync fails, the folder is removed, so that the next attempt creates and syncs it again.
    sync_folder(parent).inspect_err(|_| drop(fs::remove_dir(path)))
}

/// Syncs a folder's entries to disk. It does nothing on systems where a folder cannot be opened as a file. The empty path, which is
/// the parent of a relative path of one name, is the current folder.
///
/// # Errors
/// Returns the operating system's error.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if cfg!(unix) {
        File::open(path)?.sync_all()?;
    }
    Ok(())
}

/// Syncs all parents of a folder to disk, since any folder on the path may be new.
///
/// # Errors
/// Returns the operating system's error.
pub fn sync_parents(path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1) {
        match sync_folder(folder) {
            // A folder that this process may not read needs no sync, because another process created it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            synced => synced?,
        }
    }
    Ok(())
}

/// Reads a regular file of at most this many bytes. A named pipe or a device would block, or have no end.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.json");
/// std::fs::write(&path, "{}")?;
/// assert_eq!(kiln_store::whole_file::read_whole(&path, 1 << 20)?, b"{}");
/// assert!(kiln_store::whole_file::read_whole(&path, 1).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns the operating system's error if the file cannot be read, and an error of the kind [`io::ErrorKind::InvalidInput`] if
/// the path is not a regular file or the file is larger.
pub fn read_whole(path: impl AsRef<Path>, most_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open_file(path)?;
    let n_bytes = file.metadata()?.len();
    let mut bytes = Vec::new();
    if n_bytes <= most_bytes {
        bytes.try_reserve_exact(n_bytes as usize).map_err(io::Error::other)?;
        // The file may grow while it is read.
        file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= most_bytes {
            return Ok(bytes);
        }
    }
    let said = format!("the file is larger than {most_bytes} bytes, which no file of this kind is");
    Err(io::Error::new(io::ErrorKind::InvalidInput, said))
}

/// Reads a regular file of text in UTF-8, of any length, without a byte order mark, which spreadsheets and editors of Windows
/// write.
///
/// # Errors
/// Returns the errors of [`read_whole`], and an error of the kind [`io::ErrorKind::InvalidData`] for other text.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = read_whole(path, u64::MAX)?;
    if bytes.starts_with("\u{feff}".as_bytes()) {
        bytes.drain(.."\u{feff}".len());
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes to `/dev/full`, which behaves like a file on a full disk, also for root.
    #[cfg(target_os = "linux")]
    #[test]
    fn failed_write_keeps_the_old_file_and_removes_the_temporary_one() {
        let folder = tempfile::tempdir().expect("the temporary folder should be created");
        let path = folder.path().join("file");
        write_whole(&path, b"old").expect("the folder should be writable");
        let unfinished = folder.path().join("file.unfinished");
        std::os::unix::fs::symlink("/dev/full", &unfinished).expect("the temporary name should be free");
        let error = write_whole(&path, b"new").expect_err("a write to a full disk should fail");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).expect("the old file should exist"), b"old");
        assert!(fs::symlink_metadata(&unfinished).is_err(), "the temporary file should be removed");
        write_whole(&path, b"new").expect("the next write should succeed");
        assert_eq!(fs::read(&path).expect("the new file should exist"), b"new");
    }
}
