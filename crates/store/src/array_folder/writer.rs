//! A folder on its way to the disk: everything goes to an unfinished folder beside the target, which gets its
//! name in one step at the end.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use serde::Serialize;

use super::manifest::manifest_bytes;
use super::{ElementType, Entries, Entry};
use crate::error::io_error;
use crate::hash::sha256_of_file;
use crate::paths::is_there;
use crate::{Error, Result, npy, whole_file};

/// Bytes that are reserved for a header: what [`npy::header`] takes for any lengths of one or two
/// dimensions.
const HEADER_BYTES: usize = 128;

/// Bytes of the buffer of an [`ArrayWriter`].
pub const BUFFER_BYTES: usize = 1 << 16;

/// Writes a folder: arrays first, the manifest last, then one rename. Until it was committed, the target is as
/// it was; dropping the writer removes what it wrote.
///
/// A folder of folders is written by one writer for the whole, and others in its [`folder`](Self::folder), which
/// are committed before it.
#[derive(Debug)]
pub struct FolderWriter {
    target: PathBuf,
    folder: PathBuf,
    entries: Entries,
    is_committed: bool,
}

impl FolderWriter {
    /// Makes an unfinished folder beside `target`, and the folders above it.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] unless `target` is absent or an empty folder, [`Error::Io`].
    pub fn create(target: impl AsRef<Path>) -> Result<Self> {
        let target = target.as_ref();
        // Only an absolute path has a folder above it and a name in each case, as `.` has not.
        let target = match target.canonicalize() {
            Ok(target) => target,
            Err(_) => std::path::absolute(target).map_err(io_error(target))?,
        };
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Error::NotEmpty { path: target });
        };
        let is_free = match fs::read_dir(&target) {
            Ok(mut entries) => entries.next().is_none(),
            // A link to nowhere is no free name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => !is_there(&target),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => false,
            Err(error) => return Err(io_error(&target)(error)),
        };
        if !is_free {
            return Err(Error::NotEmpty { path: target });
        }
        let new: Vec<&Path> = parent.ancestors().take_while(|folder| !is_there(folder)).collect();
        fs::create_dir_all(parent).map_err(io_error(parent))?;
        // The name of each folder that was made stands in the one above it.
        new.into_iter().filter_map(Path::parent).try_for_each(sync_folder)?;
        // Another process may have left a folder of the same number behind, or be at work in one.
        for attempt in 0_u64.. {
            let mut unfinished = name.to_owned();
            unfinished.push(format!(".unfinished-{}-{attempt}", std::process::id()));
            let folder = parent.join(unfinished);
            match fs::create_dir(&folder) {
                Ok(()) => return Ok(Self { target, folder, entries: Entries::new(), is_committed: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error(&folder)(error)),
            }
        }
        unreachable!("there are fewer folders than numbers")
    }

    /// Where the files are until the end; what else is put there and must not stay must be gone before the folder is
    /// committed.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The arrays that are finished.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Starts an array of one dimension.
    ///
    /// # Errors
    /// [`Error::Io`], also for a name that is there already.
    pub fn vector(&self, name: &'static str, dtype: ElementType) -> Result<ArrayWriter> {
        ArrayWriter::create(self.folder.join(name), name, dtype, None)
    }

    /// Starts an array of rows of `dim` columns.
    ///
    /// # Errors
    /// As [`FolderWriter::vector`].
    pub fn rows(&self, name: &'static str, dtype: ElementType, dim: usize) -> Result<ArrayWriter> {
        ArrayWriter::create(self.folder.join(name), name, dtype, Some(dim))
    }

    /// Finishes an array, which is then on the disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// # Panics
    /// When what was pushed is not a whole number of rows.
    pub fn add(&mut self, array: ArrayWriter) -> Result<()> {
        let name = array.name.to_owned();
        self.entries.insert(name, array.finish()?);
        Ok(())
    }

    /// Writes a whole array that is there already.
    ///
    /// # Errors
    /// As [`FolderWriter::vector`].
    ///
    /// # Panics
    /// When an element of `dtype` has not the bytes of a `T`.
    pub fn put<T: Pod>(&mut self, name: &'static str, dtype: ElementType, values: &[T]) -> Result<()> {
        let mut array = self.vector(name, dtype)?;
        array.push(values)?;
        self.add(array)
    }

    /// Writes the manifest, which should hold the [`entries`](Self::entries), and gives the folder its name.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] where the target was filled meanwhile, [`Error::Metadata`] for a manifest of more than
    /// 16 MiB, [`Error::Io`].
    pub fn commit_with(self, name: &str, manifest: &impl Serialize) -> Result<()> {
        let path = self.folder.join(name);
        let bytes = manifest_bytes(&path, manifest)?;
        let mut file = File::create_new(&path).map_err(io_error(&path))?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(io_error(&path))?;
        self.commit()
    }

    /// Gives the folder its name.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] where the target was filled meanwhile, [`Error::Io`].
    pub fn commit(mut self) -> Result<()> {
        sync_folder(&self.folder)?;
        // An empty folder gives way to the new one; one that was filled meanwhile does not.
        fs::rename(&self.folder, &self.target).map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory => Error::NotEmpty { path: self.target.clone() },
            _ => Error::Io { path: self.target.clone(), source },
        })?;
        self.is_committed = true;
        self.target.parent().map_or(Ok(()), sync_folder)
    }
}

impl Drop for FolderWriter {
    fn drop(&mut self) {
        if !self.is_committed {
            // Nobody is left to be told; what stays behind has a name that says what it is.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// An `.npy` file that grows; its length need not be known before it ends.
#[derive(Debug)]
pub struct ArrayWriter {
    path: PathBuf,
    name: &'static str,
    dtype: ElementType,
    /// Columns of an array of two dimensions.
    dim: Option<usize>,
    n_values: usize,
    file: BufWriter<File>,
}

impl ArrayWriter {
    fn create(path: PathBuf, name: &'static str, dtype: ElementType, dim: Option<usize>) -> Result<Self> {
        let file = File::create_new(&path).map_err(io_error(&path))?;
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
        file.write_all(&[0; HEADER_BYTES]).map_err(io_error(&path))?;
        Ok(Self { path, name, dtype, dim, n_values: 0, file })
    }

    /// Appends values.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// # Panics
    /// When an element of the array has not the bytes of a `T`.
    pub fn push<T: Pod>(&mut self, values: &[T]) -> Result<()> {
        assert_eq!(
            size_of::<T>(),
            self.dtype.stored_as().bytes(),
            "values of {} in {}",
            self.dtype,
            self.name
        );
        self.n_values += values.len();
        self.file.write_all(bytemuck::cast_slice(values)).map_err(io_error(&self.path))
    }

    /// Appends values as they are stored.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// # Panics
    /// When these are no whole number of elements.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let value_bytes = self.dtype.stored_as().bytes();
        assert!(bytes.len().is_multiple_of(value_bytes), "{} bytes of {}", bytes.len(), self.dtype);
        self.n_values += bytes.len() / value_bytes;
        self.file.write_all(bytes).map_err(io_error(&self.path))
    }

    /// What the array consists of.
    pub fn dtype(&self) -> ElementType {
        self.dtype
    }

    /// Number of values so far.
    pub fn n_values(&self) -> usize {
        self.n_values
    }

    /// Writes the header, sees everything to the disk, and reads it once more for its hash.
    fn finish(self) -> Result<Entry> {
        let Self { path, name, dtype, dim, n_values, file } = self;
        let shape = match dim {
            None => vec![n_values],
            Some(dim) => {
                assert!(n_values.is_multiple_of(dim), "{n_values} values in {name} for rows of {dim}");
                vec![n_values / dim, dim]
            }
        };
        let header = npy::header(dtype.stored_as(), &shape);
        assert_eq!(header.len(), HEADER_BYTES, "the header of {name}");
        let mut file = file.into_inner().map_err(|error| io_error(&path)(error.into_error()))?;
        file.rewind()
            .and_then(|()| file.write_all(&header))
            .and_then(|()| file.sync_all())
            .map_err(io_error(&path))?;
        drop(file);
        Ok(Entry { dtype, shape, sha256: sha256_of_file(&path)? })
    }
}

/// Brings the names in a folder to the disk.
fn sync_folder(folder: &Path) -> Result<()> {
    whole_file::sync_folder(folder).map_err(io_error(folder))
}
