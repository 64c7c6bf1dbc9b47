//! Reads the files of a set from a folder, or from the bytes that are embedded in the program.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use kiln_graph::open_file;
use kiln_store::paths::find;
use kiln_store::text::TextTable;
use kiln_store::{Error, Result, npy};

/// The location of the files.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Files<'a> {
    /// Files embedded in the program: pairs of name and bytes.
    Embedded(&'a [(&'static str, &'static [u8])]),
    /// Files in a folder.
    Folder(&'a Path),
}

impl Files<'_> {
    /// Returns the bytes of a file.
    pub(crate) fn read(&self, name: &'static str) -> Result<Vec<u8>> {
        let bytes = match self {
            Self::Embedded(files) => match files.iter().find(|(file, _)| *file == name) {
                Some((_, bytes)) => Ok(bytes.to_vec()),
                None => Err(io::Error::from(io::ErrorKind::NotFound)),
            },
            Self::Folder(folder) => open_file(folder.join(name)).and_then(|mut file| {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map(|_| bytes)
            }),
        };
        bytes.map_err(|source| Error::Io { path: self.path(name), source })
    }

    /// Returns the decompressed bytes of a gzip file.
    pub(crate) fn read_gz(&self, name: &'static str) -> Result<Vec<u8>> {
        let mut plain = Vec::new();
        match GzDecoder::new(&self.read(name)?[..]).read_to_end(&mut plain) {
            Ok(_) => Ok(plain),
            Err(source) => Err(Error::Io { path: self.path(name), source }),
        }
    }

    /// Returns the values of an `.npy.gz` file, row-major.
    pub(crate) fn read_npy<T: npy::Element>(&self, name: &'static str) -> Result<Vec<T>> {
        let array = npy::read(&self.read_gz(name)?);
        array.map(|array| array.values).map_err(|source| Error::Npy { path: self.path(name), source })
    }

    /// Opens the text file `name` or the compressed file `name.gz`; returns `None` if neither exists. Embedded text
    /// files are always compressed.
    pub(crate) fn table(&self, name: &str) -> Result<Option<TextTable>> {
        let names = [name, &format!("{name}.gz")];
        match *self {
            Self::Folder(folder) => find(folder, &names).map(TextTable::open).transpose(),
            Self::Embedded(files) => {
                let file = files.iter().find(|(file, _)| *file == names[1]);
                Ok(file.map(|(file, bytes)| TextTable::new(file.into(), Box::new(GzDecoder::new(*bytes)))))
            }
        }
    }

    /// Returns the path of a file for error messages. For an embedded file this is its name.
    pub(crate) fn path(&self, name: &'static str) -> PathBuf {
        match self {
            Self::Embedded(_) => PathBuf::from(name),
            Self::Folder(folder) => folder.join(name),
        }
    }
}
