use std::io::Read;
use std::path::Path;

use kiln_graph::open_file;

use super::ImportSpec;
use crate::error::io_error;
use crate::{Error, Result, SpecError};

/// The maximum size of a spec in bytes.
const MAX_BYTES: u64 = 1 << 20;

impl ImportSpec {
    /// Reads a spec and checks it.
    ///
    /// # Errors
    /// Returns [`SpecError::SpecSyntax`] with the line if the file is not YAML with the keys of a spec or is larger
    /// than 1 MiB, [`SpecError::Spec`] with the place of an invalid value, and [`Error::Store`] if the file cannot be
    /// read.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let file = open_file(path).map_err(io_error(path))?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io_error(path))?;
        Self::parse(path, &bytes)
    }

    /// Parses and checks the content of a spec. `path` is its path, for the errors.
    ///
    /// # Errors
    /// Returns the errors of [`ImportSpec::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let syntax = |message: String| Error::Spec(SpecError::SpecSyntax { path: path.to_owned(), message });
        if MAX_BYTES < bytes.len() as u64 {
            return Err(syntax(format!("more than {MAX_BYTES} bytes, expected a spec in YAML")));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| syntax(format!("not UTF-8: {error}")))?;
        let spec: Self =
            serde_saphyr::from_str(text).map_err(|error| syntax(first_line(&error.to_string())))?;
        spec.check(path)?;
        Ok(spec)
    }
}

/// Returns the first line of a message: the others repeat the text of the spec.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
