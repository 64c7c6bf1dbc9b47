use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use super::writer::{CountedFile, FolderWriter};
use crate::Result;
use crate::error::io_error;

/// A buffered writer of a text file in the folder of a [`FolderWriter`], which has no entry in a manifest. Call
/// [`TextWriter::finish`] before the commit: without it, the end of the text may be missing, and write errors are lost.
#[derive(Debug)]
#[must_use = "call finish before the commit, or the end of the text may be missing"]
pub struct TextWriter {
    path: PathBuf,
    file: BufWriter<CountedFile>,
}

impl FolderWriter {
    /// Starts a text file.
    ///
    /// ```
    /// use kiln_store::array_folder::FolderWriter;
    /// # let parent = tempfile::tempdir().unwrap();
    /// # let target = parent.path().join("out");
    /// let folder = FolderWriter::create(&target)?;
    /// let mut file = folder.text("lines.csv")?;
    /// file.write("item,score\n")?;
    /// file.finish()?;
    /// folder.commit()?;
    /// assert_eq!(std::fs::read_to_string(target.join("lines.csv")).unwrap(), "item,score\n");
    /// # Ok::<(), kiln_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Io`](crate::Error::Io) if the file cannot be created or exists already.
    pub fn text(&self, name: &str) -> Result<TextWriter> {
        let path = self.folder().join(name);
        let file = File::create_new(&path).map_err(io_error(&path))?;
        Ok(TextWriter { path, file: BufWriter::new(self.counted(file)) })
    }
}

impl TextWriter {
    /// Appends text.
    ///
    /// # Errors
    /// Returns [`Error::Io`](crate::Error::Io) if the write fails.
    pub fn write(&mut self, text: &str) -> Result<()> {
        self.file.write_all(text.as_bytes()).map_err(io_error(&self.path))
    }

    /// Writes the buffered text and syncs the file to disk.
    ///
    /// # Errors
    /// Returns [`Error::Io`](crate::Error::Io) if the write or the sync fails.
    pub fn finish(mut self) -> Result<()> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().file.sync_all());
        synced.map_err(io_error(&self.path))
    }
}
