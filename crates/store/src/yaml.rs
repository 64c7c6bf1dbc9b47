//! YAML files as trees of text. Errors contain the line or the entry. The parser is made for small metadata files from
//! untrusted sources: file size, nesting and expansion of aliases are limited.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use granit_parser::{Event, Parser, ScalarStyle};
use kiln_graph::open_file;

use crate::{Error, Result};

/// The maximum file size in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The maximum total cost of the values that anchors and aliases copy. A value costs 1 for itself and each value inside
/// it, and 1 per byte of their text.
const MAX_COST: usize = 4 << 20;

/// The maximum nesting depth of lists and mappings.
const MAX_DEPTH: usize = 32;

/// The maximum number of keys in a mapping. Each new key is compared with all others.
const MAX_KEYS: usize = 1000;

/// A document or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Yaml {
    /// An empty value, `null` or `~`.
    Null,
    /// A string, number or boolean, as written in the file.
    Scalar(String),
    /// A list.
    List(Vec<Yaml>),
    /// A mapping with distinct keys, in the order of the file.
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    /// Reads a file with one document.
    ///
    /// # Errors
    /// Returns [`Error::BadLine`] if the file is not valid YAML or uses an unsupported feature, [`Error::Io`] if it
    /// cannot be read, and [`Error::Metadata`] if it is larger than 1 MiB.
    pub fn read(path: &Path) -> Result<Self> {
        let mut text = String::new();
        let file = open_file(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
        let n_bytes = file.map_err(|source| Error::Io { path: path.to_owned(), source })?;
        if n_bytes as u64 > MAX_FILE_BYTES {
            return Err(Error::Metadata {
                path: path.to_owned(),
                key: "the file size".into(),
                expected: format!("at most {MAX_FILE_BYTES} bytes"),
                found: "over the limit".into(),
            });
        }
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let bad = |line: usize, expected: &str, found: String| Error::BadLine {
            path: path.to_owned(),
            line: line as u64,
            expected: expected.into(),
            found,
        };
        let mut builder = Builder::default();
        for event in Parser::new_from_str(text) {
            let (event, span) =
                event.map_err(|error| bad(error.marker().line(), "valid YAML", error.info()))?;
            builder.take(event).map_err(|found| bad(span.start.line(), "plain metadata", found.into()))?;
        }
        Ok(builder.root.unwrap_or(Self::Null))
    }

    fn cost(&self) -> usize {
        match self {
            Self::Null => 1,
            Self::Scalar(text) => 1 + text.len(),
            Self::List(items) => 1 + items.iter().map(Self::cost).sum::<usize>(),
            Self::Map(entries) => {
                1 + entries.iter().map(|(key, value)| key.len() + value.cost()).sum::<usize>()
            }
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::Null | Self::Scalar(_) => 0,
            Self::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
        }
    }
}

/// An entry of a file, with its path of keys for errors.
#[derive(Debug, Clone)]
pub struct YamlEntry<'a> {
    path: &'a Path,
    key: String,
    value: &'a Yaml,
}

impl<'a> YamlEntry<'a> {
    /// Creates the entry of the whole document.
    pub fn root(path: &'a Path, value: &'a Yaml) -> Self {
        Self { path, key: String::new(), value }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Returns the entry's path of keys, such as `tasks[0].train_set`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the value of a key in this mapping; `None` if it is missing or `null`.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a mapping.
    pub fn get(&self, key: &str) -> Result<Option<Self>> {
        let entries = match self.value {
            Yaml::Map(entries) => entries,
            _ => return Err(self.bad("a mapping")),
        };
        let value = entries.iter().find(|(name, _)| name == key).map(|(_, value)| value);
        Ok(value.filter(|value| **value != Yaml::Null).map(|value| self.child(key, value)))
    }

    /// Returns the value of a required key in this mapping. `expected` describes the value, for the error.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a mapping or the key is missing.
    pub fn require(&self, key: &str, expected: &str) -> Result<Self> {
        self.get(key)?.ok_or_else(|| self.child(key, &Yaml::Null).bad(expected))
    }

    /// Returns the items of this list.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a list.
    pub fn list(&self) -> Result<Vec<Self>> {
        let Yaml::List(items) = self.value else {
            return Err(self.bad("a list"));
        };
        let child =
            |(position, value)| Self { path: self.path, key: format!("{}[{position}]", self.key), value };
        Ok(items.iter().enumerate().map(child).collect())
    }

    /// Returns the items of the list under a key; empty if the key is missing.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a mapping or the value is not a list.
    pub fn list_of(&self, key: &str) -> Result<Vec<Self>> {
        self.get(key)?.map_or(Ok(Vec::new()), |list| list.list())
    }

    /// Returns the text of this scalar.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a scalar.
    pub fn text(&self) -> Result<&'a str> {
        match self.value {
            Yaml::Scalar(text) => Ok(text),
            _ => Err(self.bad("text")),
        }
    }

    /// Returns this scalar as a non-negative integer.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not such a number.
    pub fn count(&self) -> Result<u64> {
        let number = match self.value {
            // YAML 1.1 allows underscores between digits.
            Yaml::Scalar(text) => text.replace('_', "").parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.bad("a non-negative integer"))
    }

    /// Creates an error for an invalid entry. `expected` describes the allowed values.
    pub fn bad(&self, expected: impl Into<String>) -> Error {
        const LONGEST: usize = 60;
        let found = match self.value {
            Yaml::Null => "missing".to_owned(),
            Yaml::Scalar(text) => format!("{:?}", text.chars().take(LONGEST).collect::<String>()),
            Yaml::List(items) => format!("a list of {}", items.len()),
            Yaml::Map(_) => "a mapping".to_owned(),
        };
        let key = if self.key.is_empty() { "the document".to_owned() } else { self.key.clone() };
        Error::Metadata { path: self.path.to_owned(), key, expected: expected.into(), found }
    }

    fn child(&self, key: &str, value: &'a Yaml) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        Self { path: self.path, key: format!("{}{dot}{key}", self.key), value }
    }
}

/// The builder of the tree from the parser's events.
#[derive(Debug, Default)]
struct Builder {
    root: Option<Yaml>,
    /// The lists and mappings whose end has not been read yet, outermost first.
    open: Vec<Open>,
    /// The values of anchors, by the parser's anchor number.
    anchors: HashMap<usize, Yaml>,
    cost: usize,
}

#[derive(Debug)]
struct Open {
    value: Yaml,
    /// The last key of a mapping, if its value has not been read yet.
    key: Option<String>,
    anchor: usize,
}

impl Builder {
    /// Handles a parser event. The error describes the unsupported or invalid construct.
    fn take(&mut self, event: Event<'_>) -> std::result::Result<(), &'static str> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null = matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let is_null = is_null && style == ScalarStyle::Plain;
                self.add(if is_null { Yaml::Null } else { Yaml::Scalar(text.into_owned()) }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.open(Yaml::List(Vec::new()), anchor),
            Event::MappingStart(_, anchor, _) => self.open(Yaml::Map(Vec::new()), anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { value, anchor, .. }) => self.add(value, anchor),
                None => Err("an end without a start"),
            },
            Event::Alias(anchor) => {
                let Some(value) = self.anchors.get(&anchor) else {
                    return Err("a recursive alias");
                };
                if self.open.len() + value.depth() > MAX_DEPTH {
                    return Err("nesting that is too deep");
                }
                self.cost += value.cost();
                if self.cost > MAX_COST {
                    return Err("aliases with too much data");
                }
                self.add(value.clone(), 0)
            }
            Event::DocumentStart(..) if self.root.is_some() => Err("a second document"),
            _ => Ok(()),
        }
    }

    fn open(&mut self, value: Yaml, anchor: usize) -> std::result::Result<(), &'static str> {
        if self.open.len() == MAX_DEPTH {
            return Err("nesting that is too deep");
        }
        self.open.push(Open { value, key: None, anchor });
        Ok(())
    }

    /// Adds a complete value to the innermost open list or mapping.
    fn add(&mut self, value: Yaml, anchor: usize) -> std::result::Result<(), &'static str> {
        if anchor != 0 {
            self.cost += value.cost();
            if self.cost > MAX_COST {
                return Err("anchors with too much data");
            }
            self.anchors.insert(anchor, value.clone());
        }
        let Some(Open { value: parent, key, .. }) = self.open.last_mut() else {
            self.root = Some(value);
            return Ok(());
        };
        match (parent, key.take(), value) {
            (Yaml::List(items), _, value) => items.push(value),
            (Yaml::Map(entries), Some(name), value) => entries.push((name, value)),
            (Yaml::Map(entries), None, Yaml::Scalar(name)) => match &*name {
                "<<" => return Err("a merge key (<<)"),
                _ if entries.len() == MAX_KEYS => return Err("a mapping of more than 1000 keys"),
                _ if entries.iter().any(|(known, _)| *known == name) => {
                    return Err("a duplicate key");
                }
                _ => *key = Some(name),
            },
            _ => return Err("a key that is not a string"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_and_oversized_yaml_with_the_line() {
        let bomb: String =
            (1..30).map(|level| format!("- &a{level} [*a{0}, *a{0}, *a{0}]\n", level - 1)).collect();
        let wide = format!("- &a \"{}\"\n{}", "x".repeat(1000), "- *a\n".repeat(5000));
        let chain: String = (1..40).map(|level| format!("- &a{level} [*a{}]\n", level - 1)).collect();
        let keys: String = (0..1001).map(|key| format!("k{key}: 1\n")).collect();
        for (text, expected) in [
            ("a: [1, 2\nb: 3\n", "metadata.yaml, line "),
            ("a: 1\na: 2\n", "line 2: \"a duplicate key\", expected plain metadata"),
            ("a: &x {b: 1}\nc:\n  <<: *x\n", "line 3: \"a merge key (<<)\""),
            ("? [a]\n: 1\n", "a key that is not a string"),
            ("a: 1\n---\nb: 2\n", "line 2: \"a second document\""),
            ("a: *nothing\n", "metadata.yaml, line 1: "),
            ("a: &a [*a]\n", "line 1: \"a recursive alias\""),
            (&format!("- &a0 x\n{bomb}"), "too much data"),
            (&wide, "\"aliases with too much data\""),
            (&format!("- &a0 x\n{chain}"), "\"nesting that is too deep\""),
            (&"[".repeat(1 << 20), "metadata.yaml, line 1: "),
            (&"- ".repeat(1 << 19), "line 1: \"nesting that is too deep\""),
            (&"{a: ".repeat(1 << 18), "metadata.yaml, line 1: "),
            (&keys, "line 1001: \"a mapping of more than 1000 keys\""),
        ] {
            let said = Yaml::parse("metadata.yaml".as_ref(), text).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}\n    expected {expected}");
        }
    }

    #[test]
    fn reads_lists_mappings_nulls_and_aliases() {
        let text = "a: [1, ~, 'null', &x {b: c}]\nd: *x\ne:\n";
        let scalar = |text: &str| Yaml::Scalar(text.into());
        let map = Yaml::Map(vec![("b".into(), scalar("c"))]);
        let list = Yaml::List(vec![scalar("1"), Yaml::Null, scalar("null"), map.clone()]);
        let entries = vec![("a".into(), list), ("d".into(), map), ("e".into(), Yaml::Null)];
        assert_eq!(Yaml::parse("file".as_ref(), text).unwrap(), Yaml::Map(entries));
    }
}
