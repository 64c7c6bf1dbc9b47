use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

/// The form of the CSV files of a table, as far as they do not show it themselves. A byte order mark, both ends of lines and a first
/// line `sep=;`, as Excel reads it, need no key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvSpec {
    /// The character between fields, of which `tab` and `\\t` are a tab; `None` for the one of comma, semicolon and tab that the first
    /// line has.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "separator")]
    pub separator: Option<char>,
    /// The names of the columns of files without a header, whose first line is a row; empty for files with a header.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The character before the fraction of a number: `,` in `3,5`; `None` for a point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decimal: Option<char>,
    /// The character before a quote within a quoted field, such as the backslash of R's `write.table`; `None` if such a quote is
    /// written twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escape: Option<char>,
}

/// Reads a character, or a text that stands for a tab.
fn separator<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<char>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let mut chars = text.chars();
    match (text.as_str(), chars.next(), chars.next()) {
        ("tab" | "\\t", ..) => Ok(Some('\t')),
        (_, Some(separator), None) => Ok(Some(separator)),
        _ => Err(D::Error::invalid_value(Unexpected::Str(&text), &"one character, or `tab`")),
    }
}
