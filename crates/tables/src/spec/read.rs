use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

use kiln_graph::open_file;
use serde_saphyr::{MessageFormatter, UserMessageFormatter};

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
        let spec: Self = serde_saphyr::from_str(text)
            .map_err(|error| syntax(first_line(&error.render_with_formatter(&SpecMessages))))?;
        spec.check(path)?;
        Ok(spec)
    }
}

/// The messages of the YAML parser in the terms of a spec.
struct SpecMessages;

impl MessageFormatter for SpecMessages {
    fn format_message<'a>(&self, error: &'a serde_saphyr::Error) -> Cow<'a, str> {
        use serde_saphyr::Error as Yaml;
        match error {
            Yaml::WithSnippet { error, .. } => self.format_message(error),
            Yaml::NullIntoString { .. } => {
                "null, expected a text: write \"null\" in quotes, or remove it (null is missing in any case)"
                    .into()
            }
            Yaml::Unexpected { expected: "mapping start", .. } => {
                "expected a mapping, such as `{KEY: VALUE}`".into()
            }
            Yaml::Unexpected { expected: "sequence start", .. } => {
                "expected a list, such as `[VALUE]`".into()
            }
            Yaml::UnexpectedValueForUnitEnumVariant { .. } => {
                "expected the name alone, which has no options".into()
            }
            Yaml::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key `{key}`").into(),
            _ => UserMessageFormatter.format_message(error),
        }
    }
}

/// Returns the first line of a message: the others repeat the text of the spec.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
