//! Files that are complete or absent: written under a temporary name, synced to the disk and renamed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The suffix of a file's name until the file is complete.
pub(crate) const UNFINISHED: &str = ".unfinished";

/// Writes a file in the place of the one before it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = write_unfinished(path, bytes)?;
    fs::rename(&unfinished, path).inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Writes a file under its temporary name, syncs it and returns that name. A write that fails leaves no file, as far as
/// the system can remove it: a partial file on a full disk would take the room that the next attempt needs.
pub(crate) fn write_unfinished(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
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

/// Makes a folder, with its name on the disk, unless it exists.
pub(crate) fn create_folder(path: &Path, parent: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir(path)?;
    // The next attempt must sync the name, too.
    sync_folder(parent).inspect_err(|_| drop(fs::remove_dir(path)))
}

/// Brings the names in a folder to the disk.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Brings the names of a folder and of those that it is in to the disk: any of them may be new.
pub(crate) fn sync_parents(path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1) {
        // A relative path ends in the folder that it is relative to.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match sync_folder(folder) {
            // Not ours to read, and so not ours to have made.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            synced => synced?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/dev/full` is a file on a full disk, also for root.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_failed_write_keeps_the_old_file_and_removes_the_temporary_one() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("file");
        write_whole(&path, b"old").expect("the folder is writable");
        let unfinished = folder.path().join("file.unfinished");
        std::os::unix::fs::symlink("/dev/full", &unfinished).expect("the name is free");
        let error = write_whole(&path, b"new").expect_err("the disk is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).expect("it is still there"), b"old");
        assert!(fs::symlink_metadata(&unfinished).is_err(), "the temporary file should be gone");
        write_whole(&path, b"new").expect("nothing is in the way any more");
        assert_eq!(fs::read(&path).expect("it was written"), b"new");
    }
}
