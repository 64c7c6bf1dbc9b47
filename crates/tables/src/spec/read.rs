use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

use kiln_graph::{did_you_mean, open_file, similar_name};
use serde_saphyr::{Location, MessageFormatter, UserMessageFormatter};

use super::ImportSpec;
use crate::error::io_error;
use crate::table::TableFormat;
use crate::{Error, Result, SpecError};

/// The maximum size of a spec in bytes.
const MAX_BYTES: u64 = 1 << 20;

impl ImportSpec {
    /// Reads a spec and checks it.
    ///
    /// # Errors
    /// Returns [`SpecError::IsTable`] for a file with the name of a table, [`SpecError::SpecSyntax`] with the line if the file is
    /// not YAML with the keys of a spec or is larger than 1 MiB, [`SpecError::Spec`] with the place of an invalid value, and
    /// [`Error::Store`] if the file cannot be read.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let spec = Self::read_unchecked(path)?;
        spec.check(path)?;
        Ok(spec)
    }

    /// Reads a spec that need not be complete: its parts are not checked.
    pub(crate) fn read_unchecked(path: &Path) -> Result<Self> {
        if TableFormat::of(path).is_some() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(Error::Spec(SpecError::IsTable { path: path.to_owned(), name }));
        }
        let mut bytes = Vec::new();
        let file = open_file(path).map_err(io_error(path))?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io_error(path))?;
        Self::parse_unchecked(path, &bytes)
    }

    /// Parses and checks the content of a spec. `path` is its path, for the errors.
    ///
    /// # Errors
    /// Returns the errors of [`ImportSpec::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let spec = Self::parse_unchecked(path, bytes)?;
        spec.check(path)?;
        Ok(spec)
    }

    fn parse_unchecked(path: &Path, bytes: &[u8]) -> Result<Self> {
        let syntax = |message: String| Error::Spec(SpecError::SpecSyntax { path: path.to_owned(), message });
        if MAX_BYTES < bytes.len() as u64 {
            return Err(syntax(format!("more than {MAX_BYTES} bytes, expected a spec in YAML")));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| syntax(format!("not UTF-8: {error}")))?;
        serde_saphyr::from_str(text)
            .map_err(|error| syntax(first_line(&error.render_with_formatter(&SpecMessages { text }))))
    }
}

/// The messages of the YAML parser in the terms of a spec.
struct SpecMessages<'t> {
    /// The text of the spec.
    text: &'t str,
}

/// Transforms with options that they cannot do without, and an example of each.
const WITH_OPTIONS: [(&str, &str); 7] = [
    ("one_hot", "{one_hot: {max_categories: 20}}"),
    ("ordinal", "{ordinal: {max_categories: 20}}"),
    ("hash", "{hash: {columns: 16}}"),
    ("multi_hot", "{multi_hot: {max_categories: 20}}"),
    ("time", "{time: {parts: [hour, day_of_week, month]}}"),
    ("text", "{text: {columns: 64}}"),
    ("vector", "{vector: {columns: 16}}"),
];

impl SpecMessages<'_> {
    /// Returns the message about a name in place of a mapping. The parser reports the place behind the name.
    fn without_options(&self, location: Location) -> Cow<'static, str> {
        let [line, column] =
            [location.line(), location.column()].map(|from_one| (from_one as usize).saturating_sub(1));
        let lines = self.text.lines();
        let mut before: String = lines.clone().take(line).flat_map(|line| [line, "\n"]).collect();
        before.extend(lines.clone().nth(line).unwrap_or_default().chars().take(column));
        let before = before.trim_end();
        let start =
            before.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_').map_or(0, |at| at + 1);
        let word = &before[start..];
        match WITH_OPTIONS.iter().find(|(name, _)| *name == word) {
            Some((name, example)) => format!("`{name}` needs options, such as `{example}`").into(),
            None => "expected a mapping, such as `{KEY: VALUE}`".into(),
        }
    }
}

impl MessageFormatter for SpecMessages<'_> {
    fn format_message<'a>(&self, error: &'a serde_saphyr::Error) -> Cow<'a, str> {
        use serde_saphyr::Error as Yaml;
        match error {
            Yaml::WithSnippet { error, .. } => self.format_message(error),
            Yaml::NullIntoString { .. } => {
                "null, expected a text: write \"null\" in quotes, or remove it (null is missing in any case)"
                    .into()
            }
            Yaml::Unexpected { expected: "mapping start", location } => self.without_options(*location),
            Yaml::Unexpected { expected: "sequence start", .. } => {
                "expected a list, such as `[VALUE]`".into()
            }
            Yaml::UnexpectedValueForUnitEnumVariant { .. } => {
                "expected the name alone, which has no options".into()
            }
            Yaml::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key `{key}`").into(),
            Yaml::SerdeUnknownVariant { variant, expected, .. } => unknown("value", variant, expected),
            Yaml::SerdeUnknownField { field, expected, .. } => unknown("key", field, expected),
            _ => UserMessageFormatter.format_message(error),
        }
    }
}

/// Returns the message about a key or a value that a spec does not have.
fn unknown(noun: &str, name: &str, expected: &[&str]) -> Cow<'static, str> {
    let similar = did_you_mean(similar_name(name, expected.iter().copied()));
    format!("unknown {noun} `{name}`, expected one of {}{similar}", expected.join(", ")).into()
}

/// Returns the first line of a message: the others repeat the text of the spec.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
