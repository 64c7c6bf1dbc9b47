use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use kiln_graph::open_file;
use zip::ZipArchive;

use crate::array_file::ArrayFile;
use crate::npy::{self, Header};
use crate::{Error, Result};

/// The maximum number of bytes that a deflated byte expands to: it can encode 4 matches of 258 bytes, each in 2 bits.
const MAX_INFLATION: u64 = 1032;

/// An open `.npz` archive: a zip file of `.npy` arrays, stored or deflated, as NumPy writes them.
#[derive(Debug)]
pub struct Npz {
    path: PathBuf,
    file_bytes: u64,
    archive: ZipArchive<BufReader<File>>,
}

impl Npz {
    /// Opens an archive and reads only its directory.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be read or is not a zip archive.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let io = |source: io::Error| Error::Io { path: path.clone(), source };
        let file = open_file(&path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        let archive = ZipArchive::new(BufReader::new(file)).map_err(|error| io(error.into()))?;
        Ok(Self { path, file_bytes, archive })
    }

    /// Returns the path of the archive.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the archive contains an array of this name.
    pub fn has(&self, name: &str) -> bool {
        self.archive.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// Returns the names of the arrays, in the order of the archive's directory. Members that are not arrays, or whose
    /// names are not UTF-8, are left out.
    pub fn names(&self) -> Vec<String> {
        let names = self.archive.file_names().flatten();
        names.filter_map(|name| Some(name.strip_suffix(".npy")?.to_owned())).collect()
    }

    /// Returns the uncompressed size of an array in bytes, according to the archive's directory; 0 if the archive has
    /// no such array.
    pub fn array_bytes(&mut self, name: &str) -> u64 {
        self.archive.by_name(&format!("{name}.npy")).map_or(0, |file| file.size())
    }

    /// Reads an array into memory. Error messages contain the path of the archive with `/NAME.npy` appended.
    ///
    /// # Errors
    /// Returns [`Error::Missing`] if the archive has no array of this name, [`Error::Npy`] if the member is not an
    /// array in C order, and [`Error::Io`] if it cannot be read.
    pub fn array(&mut self, name: &str) -> Result<ArrayFile> {
        let (path, bytes) = self.member(name)?;
        ArrayFile::from_bytes(path, bytes)
    }

    /// Same as [`Npz::array`], but also accepts Fortran order (column-major).
    ///
    /// # Errors
    /// Returns the same errors as [`Npz::array`], except for the order.
    pub fn array_in_any_order(&mut self, name: &str) -> Result<ArrayFile> {
        let (path, bytes) = self.member(name)?;
        ArrayFile::from_bytes_in_any_order(path, bytes)
    }

    fn member(&mut self, name: &str) -> Result<(PathBuf, Vec<u8>)> {
        let member = format!("{name}.npy");
        let path = self.path.join(&member);
        if !self.has(name) {
            let names: Vec<_> = self.archive.file_names().flatten().take(20).collect();
            let expected = format!("{member}; it has {}", names.join(", "));
            return Err(Error::Missing { folder: self.path.clone(), expected });
        }
        let bytes = self.read(&member).map_err(|error| match error {
            ReadError::Io(source) => Error::Io { path: path.clone(), source },
            ReadError::Npy(source) => Error::Npy { path: path.clone(), source },
        })?;
        Ok((path, bytes))
    }

    /// Reads the bytes of a member. Memory is allocated only if the sizes in the archive's directory and in the array's
    /// header agree, and the compressed bytes in the file can expand to that size.
    fn read(&mut self, member: &str) -> std::result::Result<Vec<u8>, ReadError> {
        let file_bytes = self.file_bytes;
        let mut file = self.archive.by_name(member).map_err(io::Error::from)?;
        let n_bytes = file.size();
        let n_compressed = file.compressed_size().min(file_bytes);
        if n_bytes > n_compressed.saturating_mul(MAX_INFLATION) {
            let said = format!("{n_compressed} compressed bytes cannot expand to {n_bytes}: damaged archive");
            return Err(io::Error::new(io::ErrorKind::InvalidData, said).into());
        }
        let mut bytes = Vec::new();
        (&mut file).take(Header::MAX_BYTES as u64).read_to_end(&mut bytes)?;
        Header::read_with_order(&bytes)?.0.check_file_bytes(n_bytes)?;
        let n_left = n_bytes.saturating_sub(bytes.len() as u64);
        bytes.try_reserve_exact(usize::try_from(n_left).unwrap_or(usize::MAX)).map_err(io::Error::from)?;
        // The limit is one byte larger than the member, because the checksum is verified only when the end of the
        // member is read.
        file.take(n_left + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

enum ReadError {
    Io(io::Error),
    Npy(npy::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<npy::Error> for ReadError {
    fn from(error: npy::Error) -> Self {
        Self::Npy(error)
    }
}
