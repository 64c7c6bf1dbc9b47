use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use kiln_graph::open_file;
use zip::ZipArchive;

use crate::array_file::ArrayFile;
use crate::npy::{self, Header};
use crate::{Error, Result};

/// No deflated byte stands for more bytes than this: a block of two bits a symbol, each a match of 258.
const MAX_INFLATION: u64 = 1032;

/// An open `.npz` archive: a zip file of `.npy` arrays, stored or deflated, as NumPy writes them.
#[derive(Debug)]
pub struct Npz {
    path: PathBuf,
    file_bytes: u64,
    archive: ZipArchive<BufReader<File>>,
}

impl Npz {
    /// Opens an archive. Only its directory is read.
    ///
    /// # Errors
    /// [`Error::Io`], also for what is no archive.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let io = |source: io::Error| Error::Io { path: path.clone(), source };
        let file = open_file(&path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        let archive = ZipArchive::new(BufReader::new(file)).map_err(|error| io(error.into()))?;
        Ok(Self { path, file_bytes, archive })
    }

    /// Where the archive is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether there is an array of this name.
    pub fn has(&self, name: &str) -> bool {
        self.archive.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// Bytes of an array, as the archive's directory states them; 0 for one that cannot be read.
    pub fn array_bytes(&mut self, name: &str) -> u64 {
        self.archive.by_name(&format!("{name}.npy")).map_or(0, |file| file.size())
    }

    /// Reads an array into memory. Messages call it `data.npz/NAME.npy`.
    ///
    /// # Errors
    /// [`Error::Missing`] for a name that the archive lacks, [`Error::Npy`] for what is no such array, [`Error::Io`].
    pub fn array(&mut self, name: &str) -> Result<ArrayFile> {
        let (path, bytes) = self.member(name)?;
        ArrayFile::from_bytes(path, bytes)
    }

    /// The same for arrays that may also lie column by column.
    ///
    /// # Errors
    /// As [`Npz::array`], but for the order.
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

    /// The bytes of a member. Memory is taken once the archive's and the array's header agree on their
    /// number and the compressed bytes, of which there are as many, can stand for so many.
    fn read(&mut self, member: &str) -> std::result::Result<Vec<u8>, ReadError> {
        let file_bytes = self.file_bytes;
        let mut file = self.archive.by_name(member).map_err(io::Error::from)?;
        let (n_bytes, n_compressed) = (file.size(), file.compressed_size().min(file_bytes));
        if n_bytes > n_compressed.saturating_mul(MAX_INFLATION) {
            let said = format!("{n_bytes} bytes in {n_compressed} compressed ones cannot be");
            return Err(io::Error::new(io::ErrorKind::InvalidData, said).into());
        }
        let mut bytes = Vec::new();
        (&mut file).take(Header::MAX_BYTES as u64).read_to_end(&mut bytes)?;
        Header::read_with_order(&bytes)?.0.check_file_bytes(n_bytes)?;
        let n_left = n_bytes.saturating_sub(bytes.len() as u64);
        bytes.try_reserve_exact(usize::try_from(n_left).unwrap_or(usize::MAX)).map_err(io::Error::from)?;
        // One byte more, since only a read to the end compares the checksum.
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
