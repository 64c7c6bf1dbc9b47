//! Files that are read several times and taken for the same file each time: a file is opened once, its descriptor is kept, and its
//! length and its time of modification are compared before each reading and at the end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kiln_graph::{FileVersion, inode, open_file};

use crate::error::io_error;
use crate::{Error, Result};

/// The maximum number of descriptors that are kept. A process may have 256, or 1,024. Further files are opened for each reading, and
/// must be those of the first one.
const MOST_OPEN: usize = 64;

/// Files that are read several times. Clones share the descriptors.
///
/// ```
/// use std::io::Read;
/// use kiln_store::SourceFiles;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("edges.csv");
/// std::fs::write(&path, "0,1\n")?;
/// let files = SourceFiles::default();
/// for _ in 0..2 {
///     let mut text = String::new();
///     files.open(&path)?.read_to_string(&mut text)?;
///     assert_eq!(text, "0,1\n");
///     // The second reading has the file of the first one.
///     std::fs::remove_file(&path).ok();
/// }
/// files.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct SourceFiles {
    known: Arc<Mutex<HashMap<PathBuf, Source>>>,
}

/// A file as it was when it was opened first.
#[derive(Debug)]
struct Source {
    inode: [u64; 2],
    version: FileVersion,
    /// The descriptor, if it is kept.
    file: Option<Arc<File>>,
}

impl SourceFiles {
    /// Returns a reader of a file from its start. The file is that of the first call, also if another one has its path now.
    ///
    /// # Errors
    /// Returns [`Error::Changed`] if the file has changed since the first call.
    pub fn open(&self, path: &Path) -> Result<SourceReader> {
        let mut known = self.lock();
        if let Some(source) = known.get(path) {
            let file = source.same_file(path)?;
            return Ok(SourceReader { file, n_bytes: source.version.n_bytes, offset: 0 });
        }
        let file = Arc::new(open_file(path).map_err(io_error(path))?);
        let metadata = file.metadata().map_err(io_error(path))?;
        let version = FileVersion::of(&metadata);
        let kept = (known.len() < MOST_OPEN).then(|| Arc::clone(&file));
        known.insert(path.to_owned(), Source { inode: inode(&metadata), version, file: kept });
        Ok(SourceReader { file, n_bytes: version.n_bytes, offset: 0 })
    }

    /// Checks that no file has changed since it was opened first.
    ///
    /// # Errors
    /// Returns [`Error::Changed`] with the first file that has.
    pub fn check(&self) -> Result<()> {
        let known = self.lock();
        let mut paths: Vec<&PathBuf> = known.keys().collect();
        paths.sort_unstable();
        paths.into_iter().try_for_each(|path| known[path].same_file(path).map(drop))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Source>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    /// Returns the file, after a check that it has not changed.
    fn same_file(&self, path: &Path) -> Result<Arc<File>> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => match open_file(path) {
                Ok(file) => Arc::new(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Error::Changed { path: path.to_owned() });
                }
                Err(error) => return Err(io_error(path)(error)),
            },
        };
        let metadata = file.metadata().map_err(io_error(path))?;
        match inode(&metadata) == self.inode && FileVersion::of(&metadata) == self.version {
            true => Ok(file),
            false => Err(Error::Changed { path: path.to_owned() }),
        }
    }
}

/// A reader of a file with a position of its own, because several readings share the descriptor.
#[derive(Debug, Clone)]
pub struct SourceReader {
    file: Arc<File>,
    n_bytes: u64,
    offset: u64,
}

impl SourceReader {
    /// Returns the length of the file.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Returns a reader of the file from another position.
    pub fn from(&self, offset: u64) -> Self {
        Self { offset, ..self.clone() }
    }
}

impl Read for SourceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = read_at(&self.file, buffer, self.offset)?;
        self.offset += n_bytes as u64;
        Ok(n_bytes)
    }
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

#[cfg(not(any(unix, windows)))]
fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::time::SystemTime;

    use super::*;

    fn text(files: &SourceFiles, path: &Path) -> Result<String> {
        let mut text = String::new();
        files.open(path)?.read_to_string(&mut text).map_err(io_error(path))?;
        Ok(text)
    }

    #[test]
    fn a_file_that_is_renamed_over_or_removed_is_read_as_it_was_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        let other = folder.path().join("b.csv");
        fs::write(&path, "first").expect("a file");
        fs::write(&other, "other").expect("a file");
        let files = SourceFiles::default();
        assert_eq!(text(&files, &path).expect("the file"), "first");
        fs::rename(&other, &path).expect("a renamed file");
        assert_eq!(text(&files, &path).expect("the file"), "first");
        fs::remove_file(&path).expect("a removed file");
        assert_eq!(text(&files, &path).expect("the file"), "first");
        files.check().expect("an unchanged file");
    }

    #[test]
    fn a_file_that_is_written_in_place_is_an_error() {
        let changes: [fn(&Path); 3] = [
            |path| {
                File::options()
                    .append(true)
                    .open(path)
                    .and_then(|mut file| file.write_all(b"x"))
                    .expect("bytes")
            },
            |path| File::options().write(true).open(path).and_then(|file| file.set_len(2)).expect("a length"),
            |path| {
                let written = File::options().write(true).open(path).expect("a file");
                written.set_modified(SystemTime::UNIX_EPOCH).expect("a time");
            },
        ];
        for change in changes {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("a.csv");
            fs::write(&path, "first").expect("a file");
            let files = SourceFiles::default();
            text(&files, &path).expect("the file");
            change(&path);
            for error in [text(&files, &path).err(), files.check().err()] {
                let error = error.expect("a changed file").to_string();
                assert!(error.contains("a.csv: the file has changed since it was opened"), "{error}");
            }
        }
    }

    /// Beyond the descriptors that are kept, another file at the path is found by its inode.
    #[test]
    fn many_files_keep_a_bounded_number_of_descriptors() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = SourceFiles::default();
        let paths: Vec<PathBuf> =
            (0..MOST_OPEN + 2).map(|number| folder.path().join(format!("{number}.csv"))).collect();
        for path in &paths {
            fs::write(path, "first").expect("a file");
            text(&files, path).expect("the file");
        }
        assert_eq!(files.lock().values().filter(|source| source.file.is_some()).count(), MOST_OPEN);
        let last = paths.last().expect("a path");
        assert_eq!(text(&files, last).expect("the file"), "first");
        let other = folder.path().join("other");
        fs::write(&other, "other").expect("a file");
        fs::rename(&other, last).expect("a renamed file");
        assert!(text(&files, last).is_err());
    }
}
