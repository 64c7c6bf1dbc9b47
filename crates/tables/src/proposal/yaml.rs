//! Values and comments in YAML.

use std::path::PathBuf;

use crate::bad_rows::BadRowKind;
use crate::spec::{ColumnTransform, CsvSpec, NgramUnit, TimePart, TimeUnit};

/// Plain texts that YAML reads as another value.
const OTHER_VALUES: [&str; 13] =
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "none", "~"];

/// Returns a text as a scalar: as it is if it is a name, or else in quotes.
pub(super) fn scalar(text: &str) -> String {
    let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
        && !OTHER_VALUES.contains(&text.to_ascii_lowercase().as_str());
    if is_name { text.to_owned() } else { quoted(text) }
}

/// Returns a text in double quotes, in which characters that a terminal obeys are escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted += "\\n",
            '\t' => quoted += "\\t",
            c if is_hidden(c) => quoted += &format!("\\U{:08x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns true for control characters, ends of lines and characters that change the direction of a text.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || c == '\u{61c}'
        || ('\u{200b}'..='\u{200f}').contains(&c)
        || ('\u{2028}'..='\u{202e}').contains(&c)
        || ('\u{2060}'..='\u{206f}').contains(&c)
        || ('\u{e000}'..='\u{f8ff}').contains(&c)
        || c == '\u{feff}'
}

/// Returns a list of scalars.
pub(super) fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", texts.map(scalar).collect::<Vec<_>>().join(", "))
}

pub(super) fn files(files: &[PathBuf]) -> String {
    // Each entry was checked to be UTF-8.
    list(files.iter().map(|file| file.to_str().unwrap_or_default()))
}

/// Returns the form of CSV files; `None` for the default.
pub(super) fn csv(csv: &CsvSpec) -> Option<String> {
    let CsvSpec { separator, names, decimal, escape } = csv;
    let characters = [("separator", separator), ("decimal", decimal), ("escape", escape)];
    let mut parts: Vec<String> = Vec::new();
    for (key, character) in characters {
        let text = character.map(|character| match character {
            '\t' => "tab".to_owned(),
            other => scalar(&other.to_string()),
        });
        parts.extend(text.map(|text| format!("{key}: {text}")));
    }
    if !names.is_empty() {
        parts.push(format!("names: {}", list(names.iter().map(String::as_str))));
    }
    (!parts.is_empty()).then(|| format!("{{{}}}", parts.join(", ")))
}

pub(super) fn drop(kinds: &[BadRowKind]) -> String {
    list(kinds.iter().map(|kind| kind.name()))
}

/// Returns a transform without the options that have their defaults.
pub(super) fn transform(transform: &ColumnTransform) -> String {
    let with_separator = |options: String, separator: &Option<String>| match separator {
        Some(separator) => format!("{options}, separator: {}", scalar(separator)),
        None => options,
    };
    let (name, options) = match transform {
        ColumnTransform::Numeric => return "numeric".to_owned(),
        ColumnTransform::Standardize => return "standardize".to_owned(),
        ColumnTransform::Quantile => return "quantile".to_owned(),
        ColumnTransform::OneHot { max_categories } => {
            ("one_hot", format!("max_categories: {max_categories}"))
        }
        ColumnTransform::Ordinal { max_categories } => {
            ("ordinal", format!("max_categories: {max_categories}"))
        }
        ColumnTransform::Hash { columns } => ("hash", format!("columns: {columns}")),
        ColumnTransform::MultiHot { max_categories, separator } => {
            ("multi_hot", with_separator(format!("max_categories: {max_categories}"), separator))
        }
        ColumnTransform::Vector { columns, separator } => {
            ("vector", with_separator(format!("columns: {columns}"), separator))
        }
        ColumnTransform::Time { parts, unit } => {
            let unit = time_unit(*unit);
            ("time", format!("parts: {}{unit}", list(parts.iter().map(|part| part_name(*part)))))
        }
        ColumnTransform::Text { columns, unit, min_n, max_n } => {
            let unit = match unit {
                NgramUnit::Word => "word",
                NgramUnit::Char => "char",
            };
            ("text", format!("columns: {columns}, unit: {unit}, min_n: {min_n}, max_n: {max_n}"))
        }
    };
    format!("{{{name}: {{{options}}}}}")
}

/// Returns the unit of times after a comma; an empty text for the default.
pub(super) fn time_unit(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Seconds => "",
        TimeUnit::Milliseconds => ", unit: milliseconds",
        TimeUnit::Microseconds => ", unit: microseconds",
        TimeUnit::Nanoseconds => ", unit: nanoseconds",
        TimeUnit::Integer => ", unit: integer",
    }
}

fn part_name(part: TimePart) -> &'static str {
    match part {
        TimePart::Hour => "hour",
        TimePart::DayOfWeek => "day_of_week",
        TimePart::DayOfMonth => "day_of_month",
        TimePart::Month => "month",
        TimePart::DayOfYear => "day_of_year",
        TimePart::Trend => "trend",
    }
}

/// The lines of a spec.
#[derive(Debug, Default)]
pub(super) struct Lines {
    text: String,
}

impl Lines {
    /// Adds a line with a comment at its end; an empty comment is none.
    pub(super) fn push(&mut self, indent: usize, line: &str, comment: &str) {
        let comment = one_line(comment);
        let spaces = " ".repeat(indent);
        self.text += &match (line.is_empty(), comment.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!("{spaces}# {comment}"),
            (false, true) => format!("{spaces}{line}"),
            (false, false) => format!("{spaces}{line}  # {comment}"),
        };
        self.text.push('\n');
    }

    /// Adds a comment.
    pub(super) fn comment(&mut self, indent: usize, comment: &str) {
        self.push(indent, "", comment);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Returns a text without ends of lines and other hidden characters, which would end a comment or be obeyed by a terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_names_are_in_quotes() {
        for (text, expected) in [
            ("user_id", "user_id"),
            ("no", "\"no\""),
            ("NULL", "\"NULL\""),
            ("2024", "\"2024\""),
            ("a: b", "\"a: b\""),
            ("", "\"\""),
            ("a\"b\n", "\"a\\\"b\\n\""),
            ("größe", "\"größe\""),
            ("a\u{1b}\u{202e}b\\", "\"a\\U0000001b\\U0000202eb\\\\\""),
            ("a\u{61c}b", "\"a\\U0000061cb\""),
            ("data/year=*/*.csv", "\"data/year=*/*.csv\""),
        ] {
            assert_eq!(scalar(text), expected);
            let read: String = serde_saphyr::from_str(&scalar(text)).unwrap_or_default();
            assert_eq!(read, text);
        }
    }
}
