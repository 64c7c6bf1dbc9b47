//! The atomic writer of a folder: all files are written to a temporary folder beside the target, which is renamed to
//! the target at the end.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use serde::Serialize;

use super::manifest::manifest_bytes;
use super::{ElementType, Entries, Entry};
use crate::error::io_error;
use crate::hash::sha256_of_file;
use crate::paths::{is_there, resolve};
use crate::progress::{Progress, ProgressUnit};
use crate::unfinished::UnfinishedFolder;
use crate::{Error, Result, npy, whole_file};

/// The number of bytes that are reserved for a header. [`npy::header`] returns a header of this length for every array
/// of one or two dimensions.
const HEADER_BYTES: usize = 128;

/// The buffer size of an [`ArrayWriter`] in bytes.
pub const BUFFER_BYTES: usize = 1 << 16;

/// The maximum number of bytes that are written between two reports of progress.
const MAX_WRITE_BYTES: usize = 1 << 24;

/// Checks that a [`FolderWriter`] can be created for a target: a program calls it before it computes what the folder will contain.
/// Nothing is left behind.
///
/// ```
/// # let root = tempfile::tempdir()?;
/// let out = root.path().join("new/parts");
/// kiln_store::array_folder::check_new(&out)?;
/// assert!(!root.path().join("new").exists());
/// std::fs::write(root.path().join("notes.txt"), "not empty")?;
/// assert!(kiln_store::array_folder::check_new(root.path()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns the errors of [`FolderWriter::create`].
pub fn check_new(target: impl AsRef<Path>) -> Result<()> {
    let target = check_free(target)?;
    let mut parents = target.ancestors().skip(1);
    let Some(parent) = parents.find(|folder| is_there(folder)) else { return Ok(()) };
    // A folder that is created and removed shows that the user may write there.
    UnfinishedFolder::create(parent, target.file_name().unwrap_or_default()).map(drop)
}

/// Checks that a target is absent or an empty folder, as [`check_new`] does, without creating anything: for a process that does
/// not write it. Returns the absolute path of the target, of which [`FolderWriter::folder`] is a sibling.
///
/// # Errors
/// Returns [`Error::NotEmpty`] if it is not, and [`Error::Io`] if it cannot be read.
pub fn check_free(target: impl AsRef<Path>) -> Result<PathBuf> {
    let target = resolve(target.as_ref())?;
    let is_free = match fs::read_dir(&target) {
        Ok(mut entries) => entries.next().is_none(),
        // A dangling symlink is reported as not found, but it exists, and a folder cannot replace it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => !is_there(&target),
        // The target or one of its parents is a file.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory && is_there(&target) => false,
        Err(error) => return Err(io_error(&target)(error)),
    };
    if is_free { Ok(target) } else { Err(Error::NotEmpty { path: target }) }
}

/// An atomic writer of a folder. It writes the arrays and then the manifest to a temporary folder, and renames that
/// folder to the target. The target is unchanged until the commit. Dropping the writer without a commit removes its
/// files. What a killed process leaves is removed by [`remove_abandoned`](crate::unfinished::remove_abandoned).
///
/// To write nested folders, create further writers with targets inside the [`folder`](Self::folder) of the outer
/// writer, and commit them before the outer one.
#[derive(Debug)]
pub struct FolderWriter {
    target: PathBuf,
    folder: UnfinishedFolder,
    entries: Entries,
    /// The bytes of files that were written.
    progress: Arc<Progress>,
}

impl FolderWriter {
    /// Creates a temporary folder beside `target`, and the missing parents of `target`.
    ///
    /// # Errors
    /// Returns [`Error::NotEmpty`] unless `target` is absent or an empty folder, and [`Error::Io`] if a folder cannot
    /// be created.
    pub fn create(target: impl AsRef<Path>) -> Result<Self> {
        let target = check_free(target)?;
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Error::NotEmpty { path: target });
        };
        let new: Vec<&Path> = parent.ancestors().take_while(|folder| !is_there(folder)).collect();
        let folder = UnfinishedFolder::create(parent, name)?;
        // The entry of each new folder is synced by syncing its parent.
        new.into_iter().filter_map(Path::parent).try_for_each(sync_folder)?;
        let name = target.file_name().unwrap_or_default().display();
        let progress = Arc::new(Progress::start(format_args!("writing {name}"), ProgressUnit::Bytes, None));
        Ok(Self { folder, target, entries: Entries::new(), progress })
    }

    /// Returns the temporary folder that contains the files until the commit. Files that do not belong to the result
    /// must be removed before the commit.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the entries of the finished arrays.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Starts an array with one dimension.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be created or exists already.
    pub fn vector(&self, name: impl Into<Cow<'static, str>>, dtype: ElementType) -> Result<ArrayWriter> {
        self.array(name.into(), dtype, None)
    }

    /// Starts an array with two dimensions, whose rows have `dim` columns.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be created or exists already.
    pub fn rows(
        &self,
        name: impl Into<Cow<'static, str>>,
        dtype: ElementType,
        dim: usize,
    ) -> Result<ArrayWriter> {
        self.array(name.into(), dtype, Some(dim))
    }

    /// Returns a file whose written bytes are counted as those of the folder.
    pub(super) fn counted(&self, file: File) -> CountedFile {
        CountedFile { file, progress: Arc::clone(&self.progress) }
    }

    fn array(&self, name: Cow<'static, str>, dtype: ElementType, dim: Option<usize>) -> Result<ArrayWriter> {
        let path = self.folder().join(&*name);
        let file = File::create_new(&path).map_err(io_error(&path))?;
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, self.counted(file));
        file.write_all(&[0; HEADER_BYTES]).map_err(io_error(&path))?;
        Ok(ArrayWriter { path, name, dtype, dim, n_values: 0, file })
    }

    /// Finishes an array: writes its header, syncs it to disk and adds its entry.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be written or read.
    ///
    /// # Panics
    /// Panics if the pushed values are not a whole number of rows.
    pub fn add(&mut self, array: ArrayWriter) -> Result<()> {
        let name = array.name.clone().into_owned();
        self.entries.insert(name, array.finish()?);
        Ok(())
    }

    /// Writes a whole array with one dimension.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be written or exists already.
    ///
    /// # Panics
    /// Panics if the size of an element of `dtype` is not that of `T`.
    pub fn put<T: Pod>(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        dtype: ElementType,
        values: &[T],
    ) -> Result<()> {
        let mut array = self.vector(name, dtype)?;
        array.push(values)?;
        self.add(array)
    }

    /// Writes the manifest, which should contain the [`entries`](Self::entries), and renames the folder to the target.
    ///
    /// # Errors
    /// Returns [`Error::NotEmpty`] if the target exists by now and is not an empty folder, [`Error::Metadata`] if the
    /// manifest is larger than 16 MiB, and [`Error::Io`] if writing or renaming fails.
    pub fn commit_with(self, name: &str, manifest: &impl Serialize) -> Result<()> {
        let path = self.folder().join(name);
        let bytes = manifest_bytes(&path, manifest)?;
        let mut file = File::create_new(&path).map_err(io_error(&path))?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(io_error(&path))?;
        self.commit()
    }

    /// Renames the folder to the target, without a manifest.
    ///
    /// # Errors
    /// Returns [`Error::NotEmpty`] if the target exists by now and is not an empty folder, and [`Error::Io`] if
    /// renaming fails.
    pub fn commit(self) -> Result<()> {
        sync_folder(self.folder())?;
        let Self { target, folder, .. } = self;
        // The rename replaces an empty folder, and fails if another process has added files to the folder in the
        // meantime.
        folder.rename(&target).map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory => Error::NotEmpty { path: target.clone() },
            _ => Error::Io { path: target.clone(), source },
        })?;
        target.parent().map_or(Ok(()), sync_folder)
    }
}

/// A streaming writer of an `.npy` file, whose length need not be known in advance.
#[derive(Debug)]
pub struct ArrayWriter {
    path: PathBuf,
    name: Cow<'static, str>,
    dtype: ElementType,
    /// The number of columns; `None` for an array with one dimension.
    dim: Option<usize>,
    n_values: usize,
    file: BufWriter<CountedFile>,
}

/// A file whose written bytes are counted.
#[derive(Debug)]
pub(super) struct CountedFile {
    pub(super) file: File,
    progress: Arc<Progress>,
}

impl Write for CountedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A whole array may be written at once.
        let n_bytes = self.file.write(&bytes[..bytes.len().min(MAX_WRITE_BYTES)])?;
        self.progress.advance(n_bytes as u64);
        Ok(n_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ArrayWriter {
    /// Appends values.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the write fails.
    ///
    /// # Panics
    /// Panics if the size of an element of the array is not that of `T`.
    pub fn push<T: Pod>(&mut self, values: &[T]) -> Result<()> {
        assert_eq!(
            size_of::<T>(),
            self.dtype.stored_as().bytes(),
            "the size of T should be that of the {} elements of {}",
            self.dtype,
            self.name
        );
        self.n_values += values.len();
        self.file.write_all(bytemuck::cast_slice(values)).map_err(io_error(&self.path))
    }

    /// Appends values in the form of little-endian bytes.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the write fails.
    ///
    /// # Panics
    /// Panics if the bytes are not a whole number of elements.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let value_bytes = self.dtype.stored_as().bytes();
        assert!(
            bytes.len().is_multiple_of(value_bytes),
            "the {} bytes should be whole {} elements",
            bytes.len(),
            self.dtype
        );
        self.n_values += bytes.len() / value_bytes;
        self.file.write_all(bytes).map_err(io_error(&self.path))
    }

    /// Returns the element type of the array.
    pub fn dtype(&self) -> ElementType {
        self.dtype
    }

    /// Returns the number of values that were pushed so far.
    pub fn n_values(&self) -> usize {
        self.n_values
    }

    /// Writes the header, syncs the file to disk, and reads it again to hash it.
    fn finish(self) -> Result<Entry> {
        let Self { path, name, dtype, dim, n_values, file } = self;
        let shape = match dim {
            None => vec![n_values],
            Some(dim) => {
                assert!(
                    n_values.is_multiple_of(dim),
                    "the {n_values} values in {name} should be whole rows of {dim}"
                );
                vec![n_values / dim, dim]
            }
        };
        let header = npy::header(dtype.stored_as(), &shape);
        assert_eq!(header.len(), HEADER_BYTES, "the header of {name} should have the reserved length");
        let file = file.into_inner().map_err(|error| io_error(&path)(error.into_error()))?;
        let mut file = file.file;
        file.rewind()
            .and_then(|()| file.write_all(&header))
            .and_then(|()| file.sync_all())
            .map_err(io_error(&path))?;
        drop(file);
        Ok(Entry { dtype, shape, sha256: sha256_of_file(&path)? })
    }
}

/// Syncs a folder's entries to disk.
fn sync_folder(folder: &Path) -> Result<()> {
    whole_file::sync_folder(folder).map_err(io_error(folder))
}
